#include "plan/layers/gated_linear_recurrence.hpp"

#include <fmt/core.h>

namespace mgplan {

/// modeling_recurrent_gemma.py, RecurrentGemmaRecurrentBlock and RecurrentGemmaRglru: blocks y and x of the projection, the channels of the
/// convolution and the recurrence, and the heads that its gates mix, sharded over tp.
void list_tensors(const GatedLinearRecurrence& recurrence, TensorLister& list) {
    const std::int64_t hidden = list.hidden(), width = recurrence.width, heads = recurrence.heads, block = width / heads;
    list.sharded("mixer.decay", {width}, 0).starts(InitialValues::ones);
    list.sharded("mixer.conv1d_weight", {width, 1, recurrence.conv_taps}, 0).starts_by_taps(recurrence.conv_taps);
    list.sharded("mixer.conv1d_bias", {width}, 0).starts_by_taps(recurrence.conv_taps);
    for (const std::string_view gate : {"input", "decay"}) {
        list.sharded(fmt::format("mixer.{}_gate.weight", gate), {heads, block, block}, 0);
        list.sharded(fmt::format("mixer.{}_gate.bias", gate), {heads * block}, 0);
    }
    list.norm_before_mixer("mixer.in_proj.layer_norm_");
    list.sharded_blocks("mixer.in_proj.weight", {width, width}, {hidden}).for_gemm();
    list.sharded_blocks("mixer.in_proj.bias", {width, width}, {});
    list.sharded("mixer.out_proj.weight", {hidden, width}, 1).for_gemm();
    list.replicated("mixer.out_proj.bias", {hidden});
}

}  // namespace mgplan
