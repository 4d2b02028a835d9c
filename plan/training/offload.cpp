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

std::optional<OffloadSpec> parse_offload(const std::vector<std::string>& words) {
    constexpr std::string_view kOptimizer = "optimizer", kShare = "optimizer:";
    OffloadSpec offload;
    for (const std::string& word : words) {
        if (const auto module = parse_offload_module(word)) {
            if (offload.modules.contains(*module)) return std::nullopt;
            offload.modules.add(*module);
            continue;
        }
        if (offload.optimizer > 0) return std::nullopt;
        if (word == kOptimizer) {
            offload.optimizer = 1;
            continue;
        }
        if (!word.starts_with(kShare)) return std::nullopt;
        const char* const end = word.data() + word.size();
        const auto [rest, error] = std::from_chars(word.data() + kShare.size(), end, offload.optimizer);
        if (error != std::errc{} || rest != end || !(offload.optimizer > 0 && offload.optimizer <= 1)) return std::nullopt;
    }
    return offload;
}

std::vector<std::string> offload_words(const OffloadSpec& offload) {
    std::vector<std::string> words;
    if (offload.optimizer == 1) words.emplace_back("optimizer");
    if (offload.optimizer > 0 && offload.optimizer < 1) words.push_back(fmt::format("optimizer:{}", offload.optimizer));
    for (const OffloadModule module : kOffloadModules) {
        if (offload.modules.contains(module)) words.emplace_back(to_string(module));
    }
    return words;
}

std::int64_t offloaded_elements(std::int64_t owned, double share) {
    if (share >= 1) return owned;
    constexpr std::int64_t kPacks = 64;  // what stays ends where kernels can go on in packs
    const std::int64_t stays = owned - static_cast<std::int64_t>(std::floor(share * static_cast<double>(owned)));
    return std::max<std::int64_t>(0, owned - (stays + kPacks - 1) / kPacks * kPacks);
}

}  // namespace mgplan
