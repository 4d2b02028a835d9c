#include "plan/layers/short_convolution.hpp"

namespace mgplan {

/// modeling_lfm2.py, Lfm2ShortConv: blocks B, C, x of the projection, and the channels of the convolution, each sharded over tp.
void list_tensors(const ShortConvolution& convolution, TensorLister& list) {
    const std::int64_t channels = list.hidden();
    list.norm_before_mixer("mixer.in_proj.layer_norm_");
    list.sharded_blocks("mixer.in_proj.weight", {channels, channels, channels}, {channels}).for_gemm();
    list.sharded("mixer.conv.weight", {channels, 1, convolution.conv_taps}, 0).starts_by_taps(convolution.conv_taps);
    list.sharded("mixer.out_proj.weight", {channels, channels}, 1).for_gemm();
}

}  // namespace mgplan
