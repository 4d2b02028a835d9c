#include "plan/cluster/cluster_names.hpp"

#include <algorithm>

#include "plan/text/text.hpp"

namespace mgplan {
namespace {

bool has(const std::vector<std::string>& words, std::string_view word) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

/// "NVIDIA A100-SXM4-80GB" is nvidia, a100, sxm4, 80gb.
std::vector<std::string> words_of(std::string_view name) {
    std::string text = lower_case(name);
    std::replace(text.begin(), text.end(), '-', ' ');
    return split(text, ' ');
}

/// "80gb", or nothing where a name says no memory.
std::string memory_of(const std::vector<std::string>& words) {
    const auto found = std::find_if(words.begin(), words.end(), [](const std::string& word) {
        return word.size() > 2 && word.ends_with("gb") && parse_integer(std::string_view(word).substr(0, word.size() - 2));
    });
    return found == words.end() ? "" : *found;
}

bool is_of(const std::vector<std::string>& card, const std::vector<std::string>& gpu) {
    if (!has(card, gpu.front())) return false;
    for (const char* board : {"pcie", "nvl"}) {
        if (has(card, board) != has(gpu, board)) return false;
    }
    const std::string memory = memory_of(card), expected = memory_of(gpu);
    return memory.empty() || expected.empty() || memory == expected;
}

}  // namespace

std::vector<std::string> clusters_of_gpu(std::string_view gpu, std::span<const ClusterSpec> clusters) {
    std::vector<std::string> found;
    for (const ClusterSpec& cluster : clusters) {
        const bool board = cluster.name.starts_with("dgx-") || cluster.name.starts_with("hgx-");
        const std::string_view bare = std::string_view(cluster.name).substr(board ? 4 : 0);
        if (!cluster.calibration && (bare == gpu || bare.starts_with(std::string(gpu) + "-"))) found.push_back(cluster.name);
    }
    return found;
}

std::vector<std::string> clusters_of_card(std::string_view card, std::span<const ClusterSpec> clusters) {
    const auto words = words_of(card);
    std::vector<std::string> found;
    for (const ClusterSpec& cluster : clusters) {
        if (!cluster.calibration && !cluster.gpu.empty() && is_of(words, words_of(cluster.gpu))) found.push_back(cluster.name);
    }
    return found;
}

}  // namespace mgplan
