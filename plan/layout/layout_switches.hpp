#pragma once
// Options besides its sizes that a search switches on for a layout: the sharding of its state, the dispatcher of experts' tokens, overlaps,
// and the types of gradients and of the optimizer's moments.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/model/model_spec.hpp"
#include "plan/training/data_sharding.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

/// Unset members stay as the workload has them. Each is an option of Megatron-LM's command line and of engine megatron alone.
struct LayoutSwitches {
    std::optional<DataShardingChoice> sharding = {};  ///< --use-megatron-fsdp with its strategy, or none of it
    std::optional<TokenDispatcher> dispatcher = {};   ///< --moe-token-dispatcher-type, --moe-flex-dispatcher-backend
    bool overlap_tp = false;                          ///< on: --tp-comm-overlap
    bool overlap_moe = false;                         ///< on: --overlap-moe-expert-parallel-comm
    bool bf16_gradients = false;                      ///< on: reduced in bf16 (no --accumulate-allreduce-grads-in-fp32)
    bool bf16_moments = false;                        ///< on: --use-precision-aware-optimizer with both moments in bf16

    bool operator==(const LayoutSwitches&) const = default;
};

/// Writes the choices into what they change.
void apply_switches(const LayoutSwitches& switches, ModelSpec& model, TrainingSpec& training);

/// The switches that the workload does not have yet; null if none is left.
[[nodiscard]] std::shared_ptr<const LayoutSwitches> switches_beyond(LayoutSwitches switches, const ModelSpec& model,
                                                                    const TrainingSpec& training);

/// Short words for tables and logs: "fsdp", "hsdp:4", "hybridep", "tp-overlap", "moe-overlap", "bf16-grads", "bf16-moments".
[[nodiscard]] std::vector<std::string> switch_words(const LayoutSwitches& switches);
/// Switches on what such a word names, as switch_words() or --dispatcher write it; false for any other word.
[[nodiscard]] bool read_switch_word(std::string_view word, LayoutSwitches& switches);

/// A sharding as switch_words() writes it: "ddp", "zero1", "zero2", "fsdp", "hsdp:4".
[[nodiscard]] std::string sharding_word(DataShardingChoice choice);
[[nodiscard]] std::optional<DataShardingChoice> parse_sharding_word(std::string_view word);

/// The words of --dispatcher: allgather, alltoall, deepep, hybridep.
[[nodiscard]] std::string_view dispatcher_word(TokenDispatcher dispatcher);
[[nodiscard]] std::optional<TokenDispatcher> parse_dispatcher_word(std::string_view word);
[[nodiscard]] std::vector<std::string> dispatcher_words();

/// The overlaps that are on, in the words of --overlap.
[[nodiscard]] std::vector<std::string> overlap_words(const TrainingSpec& training);

}  // namespace mgplan
