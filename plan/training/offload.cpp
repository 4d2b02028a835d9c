#include "plan/training/offload.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

namespace mgplan {

std::string_view to_string(OffloadModule module) {
    constexpr std::array<std::string_view, kOffloadModules.size()> kNames{"attn_norm", "qkv_linear", "core_attn", "attn_proj",
                                                                          "mlp_norm",  "expert_fc1", "moe_act"};
    return kNames.at(static_cast<std::size_t>(module));
}

std::optional<OffloadModule> parse_offload_module(std::string_view text) {
    for (const OffloadModule module : kOffloadModules) {
        if (text == to_string(module)) return module;
    }
    return std::nullopt;
}

namespace {

constexpr std::string_view kOptimizerWord = "optimizer", kStatesWord = "optimizer_states";

/// The share that "NAME" or "NAME:SHARE" gives; nothing for any other word.
std::optional<double> share_of(std::string_view word, std::string_view name) {
    if (word == name) return 1;
    if (word.size() <= name.size() || !word.starts_with(name) || word[name.size()] != ':') return std::nullopt;
    double share = 0;
    const char* const end = word.data() + word.size();
    const auto [rest, error] = std::from_chars(word.data() + name.size() + 1, end, share);
    if (error != std::errc{} || rest != end || !(share > 0 && share <= 1)) return std::nullopt;
    return share;
}

void add_share(std::vector<std::string>& words, std::string_view name, double share) {
    if (share == 1) words.emplace_back(name);
    if (share > 0 && share < 1) words.push_back(fmt::format("{}:{}", name, share));
}

}  // namespace

std::optional<OffloadSpec> parse_offload(const std::vector<std::string>& words) {
    OffloadSpec offload;
    for (const std::string& word : words) {
        if (const auto module = parse_offload_module(word)) {
            if (offload.modules.contains(*module)) return std::nullopt;
            offload.modules.add(*module);
            continue;
        }
        if (offload.waiting() > 0) return std::nullopt;
        if (const auto updated_there = share_of(word, kOptimizerWord))
            offload.optimizer = *updated_there;
        else if (const auto kept_there = share_of(word, kStatesWord))
            offload.states = *kept_there;
        else
            return std::nullopt;
    }
    return offload;
}

std::vector<std::string> offload_words(const OffloadSpec& offload) {
    std::vector<std::string> words;
    add_share(words, kOptimizerWord, offload.optimizer);
    add_share(words, kStatesWord, offload.states);
    for (const OffloadModule module : kOffloadModules) {
        if (offload.modules.contains(module)) words.emplace_back(to_string(module));
    }
    return words;
}

std::int64_t offloaded_elements(std::int64_t owned, double share) {
    if (share >= 1) return owned;
    constexpr std::int64_t kPacks = 64;  // the elements that stay end where kernels can go on in packs
    const std::int64_t stays = owned - static_cast<std::int64_t>(std::floor(share * static_cast<double>(owned)));
    return std::max<std::int64_t>(0, owned - (stays + kPacks - 1) / kPacks * kPacks);
}

std::int64_t staged_elements(const OffloadSpec& offload) {
    constexpr std::int64_t kWholeShard = std::int64_t{1} << 60;  // more than any has
    return offload.states > 0 ? kWholeShard : kStagedElements;
}

}  // namespace mgplan
