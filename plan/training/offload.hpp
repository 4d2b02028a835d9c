#pragma once
// State of a training that waits in the host's memory, in the words of --offload and of layout.offload.

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/text/enum_set.hpp"

namespace mgplan {

/// Modules of Megatron-LM's --offload-modules (megatron/core/transformer/transformer_config.py, offload_modules), each of whose input a
/// backward reads: the norm in front of the attention, the projection to q, k and v, the core attention, the attention's output
/// projection, the norm in front of the feed-forward, the experts' first product and their activation.
enum class OffloadModule : std::uint8_t { attn_norm, qkv_linear, core_attn, attn_proj, mlp_norm, expert_fc1, moe_act };

inline constexpr std::array kOffloadModules{OffloadModule::attn_norm, OffloadModule::qkv_linear, OffloadModule::core_attn,
                                            OffloadModule::attn_proj, OffloadModule::mlp_norm,   OffloadModule::expert_fc1,
                                            OffloadModule::moe_act};

[[nodiscard]] std::string_view to_string(OffloadModule module);
[[nodiscard]] std::optional<OffloadModule> parse_offload_module(std::string_view text);

/// A plain value; by default nothing waits there.
struct OffloadSpec {
    double optimizer = 0;              ///< share of main parameters and moments, in [0, 1]
    double states = 0;                 ///< the same share of what waits there between two updates, and is back whole for each; not both
    EnumSet<OffloadModule> modules{};  ///< modules whose inputs wait there between forward and backward

    [[nodiscard]] bool active() const { return optimizer > 0 || states > 0 || !modules.empty(); }
    /// Share of the main parameters and moments that the device updates that is on the host while passes run: under engine mgplan of both.
    [[nodiscard]] double waiting() const { return std::max(optimizer, states); }
    bool operator==(const OffloadSpec&) const = default;
};

/// "optimizer", "optimizer:0.5" (a share above 0, at most 1), instead of it "optimizer_states" or "optimizer_states:0.5", or a module's
/// name, each at most once; nothing for any other list.
[[nodiscard]] std::optional<OffloadSpec> parse_offload(const std::vector<std::string>& words);
/// The words that parse_offload() takes for this.
[[nodiscard]] std::vector<std::string> offload_words(const OffloadSpec& offload);

/// The number of a rank's `owned` elements of a buffer whose optimizer state is on the host: the last ones, after a multiple of 64.
[[nodiscard]] std::int64_t offloaded_elements(std::int64_t owned, double share);

/// Elements whose optimizer state is on the device at one time on its way from the host and back: 64 MiB of fp32 for each kind.
inline constexpr std::int64_t kStagedElements = std::int64_t{1} << 24;
/// The same of this offloading: with `states` all of a shard.
[[nodiscard]] std::int64_t staged_elements(const OffloadSpec& offload);

}  // namespace mgplan
