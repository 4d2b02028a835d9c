#include "runtime/cpu/cpu_capture.hpp"

#include <utility>

#include "runtime/cpu/cpu_device.hpp"
#include "runtime/cpu/ops/kernels.hpp"

namespace mgplan::runtime {
namespace {

CpuCapture& capture_of(model::Device& device) {
    return static_cast<CpuDevice&>(device).capture();
}

/// Records a kernel with a copy of its arguments, which are values and addresses of tensors.
template <auto Kernel>
struct Recorded;
template <class Arguments, void (*Kernel)(model::Device&, const Arguments&)>
struct Recorded<Kernel> {
    static void call(model::Device& device, const Arguments& arguments) {
        Kernel(device, arguments);
        capture_of(device).add([&device, arguments] { Kernel(device, arguments); });
    }
};

/// Records a kernel with a copy of the caller's list of arrays.
template <auto Kernel>
struct RecordedArrays;
template <class Arguments, void (*Kernel)(model::Device&, const Arguments&)>
struct RecordedArrays<Kernel> {
    static void call(model::Device& device, const Arguments& arguments) {
        Kernel(device, arguments);
        capture_of(device).add([&device, arguments, arrays = std::vector(arguments.arrays, arguments.arrays + arguments.count)] {
            Arguments again = arguments;
            again.arrays = arrays.data();
            Kernel(device, again);
        });
    }
};

/// Records a copy of the caller's place without the tensor in it, a share of which would outlive the pass.
void record_dropout(model::Device& device, const model::DropoutArguments& arguments) {
    cpu::dropout(device, arguments);
    model::DropoutPlace kept = *arguments.place;
    kept.changing = {};
    capture_of(device).add([&device, arguments, place = std::move(kept)] {
        model::DropoutArguments again = arguments;
        again.place = &place;
        cpu::dropout(device, again);
    });
}

/// Records copies of the caller's lists, which are the same in each pass: where they are not, an op before it has been refused.
void record_reorder_blocks(model::Device& device, const model::ReorderBlocksArguments& arguments) {
    cpu::reorder_blocks(device, arguments);
    capture_of(device).add([&device, arguments, rows = std::vector(arguments.block_rows, arguments.block_rows + arguments.blocks),
                            order = std::vector(arguments.order, arguments.order + arguments.blocks)] {
        model::ReorderBlocksArguments again = arguments;
        again.block_rows = rows.data();
        again.order = order.data();
        cpu::reorder_blocks(device, again);
    });
}

/// Records copies of the caller's lists. Row counts that differ from pass to pass were read by the host, which has been refused.
template <class Matrix, class Arguments>
void record_groups(model::Device& device, const Arguments& arguments, Matrix Arguments::*matrices,
                   void (*kernel)(model::Device&, const Arguments&)) {
    kernel(device, arguments);
    const auto groups = static_cast<std::size_t>(arguments.groups);
    capture_of(device).add([&device, arguments, matrices, kernel, rows = std::vector(arguments.rows, arguments.rows + groups),
                            list = std::vector(arguments.*matrices, arguments.*matrices + groups)] {
        Arguments again = arguments;
        again.rows = rows.data();
        again.*matrices = list.data();
        kernel(device, again);
    });
}

void record_grouped_matmul(model::Device& device, const model::GroupedMatmulArguments& arguments) {
    record_groups(device, arguments, &model::GroupedMatmulArguments::b, cpu::grouped_matmul);
}

void record_grouped_matmul_accumulate(model::Device& device, const model::GroupedAccumulateArguments& arguments) {
    record_groups(device, arguments, &model::GroupedAccumulateArguments::out, cpu::grouped_matmul_accumulate);
}

const model::KernelTable& recording_kernels() {
    static constexpr model::KernelTable kTable{
        .matmul = Recorded<cpu::matmul>::call,
        .largest = Recorded<cpu::largest>::call,
        .quantise = Recorded<cpu::quantise>::call,
        .largest_of_arrays = RecordedArrays<cpu::largest_of_arrays>::call,
        .quantise_arrays = RecordedArrays<cpu::quantise_arrays>::call,
        .quantise_blocks = Recorded<cpu::quantise_blocks>::call,
        .transpose_bytes = Recorded<cpu::transpose_bytes>::call,
        .follow_largest = Recorded<cpu::follow_largest>::call,
        .grouped_matmul = record_grouped_matmul,
        .grouped_matmul_accumulate = record_grouped_matmul_accumulate,
        .norm = Recorded<cpu::norm>::call,
        .norm_backward = Recorded<cpu::norm_backward>::call,
        .activation = Recorded<cpu::activation>::call,
        .activation_backward = Recorded<cpu::activation_backward>::call,
        .xielu = Recorded<cpu::xielu>::call,
        .xielu_backward = Recorded<cpu::xielu_backward>::call,
        .gate_rows = Recorded<cpu::gate_rows>::call,
        .gate_rows_backward = Recorded<cpu::gate_rows_backward>::call,
        .add_bias = Recorded<cpu::add_bias>::call,
        .bias_gradient = Recorded<cpu::bias_gradient>::call,
        .copy = Recorded<cpu::copy>::call,
        .add = Recorded<cpu::add>::call,
        .scale = Recorded<cpu::scale>::call,
        .soft_cap = Recorded<cpu::soft_cap>::call,
        .clip = Recorded<cpu::clip>::call,
        .fill = Recorded<cpu::fill>::call,
        .fill_normal = Recorded<cpu::fill_normal>::call,
        .sums_of_squares = RecordedArrays<cpu::sums_of_squares>::call,
        .add_in_order = Recorded<cpu::add_in_order>::call,
        .clip_factor = Recorded<cpu::clip_factor>::call,
        .copy_columns = Recorded<cpu::copy_columns>::call,
        .scale_columns = Recorded<cpu::scale_columns>::call,
        .swap_leading = Recorded<cpu::swap_leading>::call,
        .join_latent_keys = Recorded<cpu::join_latent_keys>::call,
        .split_latent_keys = Recorded<cpu::split_latent_keys>::call,
        .embedding = Recorded<cpu::embedding>::call,
        .embedding_backward = Recorded<cpu::embedding_backward>::call,
        .row_maximum = Recorded<cpu::row_maximum>::call,
        .softmax_sums = Recorded<cpu::softmax_sums>::call,
        .token_losses = Recorded<cpu::token_losses>::call,
        .sum_of_losses = Recorded<cpu::sum_of_losses>::call,
        .cross_entropy_backward = Recorded<cpu::cross_entropy_backward>::call,
        .attention = Recorded<cpu::attention>::call,
        .attention_backward = Recorded<cpu::attention_backward>::call,
        .merge_attention = Recorded<cpu::merge_attention>::call,
        .add_sinks = Recorded<cpu::add_sinks>::call,
        .sinks_gradient = Recorded<cpu::sinks_gradient>::call,
        .rotary = Recorded<cpu::rotary>::call,
        .dropout = record_dropout,
        .adam_step = RecordedArrays<cpu::adam_step>::call,
        .momentum_step = RecordedArrays<cpu::momentum_step>::call,
        .route = Recorded<cpu::route>::call,
        .route_backward = Recorded<cpu::route_backward>::call,
        .keep_within_capacity = Recorded<cpu::keep_within_capacity>::call,
        .auxiliary_loss = Recorded<cpu::auxiliary_loss>::call,
        .auxiliary_loss_backward = Recorded<cpu::auxiliary_loss_backward>::call,
        .count_by_expert = Recorded<cpu::count_by_expert>::call,
        .sort_by_expert = Recorded<cpu::sort_by_expert>::call,
        .permute_rows = Recorded<cpu::permute_rows>::call,
        .unpermute_rows = Recorded<cpu::unpermute_rows>::call,
        .permute_probabilities = Recorded<cpu::permute_probabilities>::call,
        .unpermute_probabilities = Recorded<cpu::unpermute_probabilities>::call,
        .reorder_blocks = record_reorder_blocks,
        .causal_conv = Recorded<cpu::causal_conv>::call,
        .causal_conv_backward = Recorded<cpu::causal_conv_backward>::call,
        .short_conv = Recorded<cpu::short_conv>::call,
        .short_conv_backward = Recorded<cpu::short_conv_backward>::call,
        .gated_norm = Recorded<cpu::gated_norm>::call,
        .gated_norm_backward = Recorded<cpu::gated_norm_backward>::call,
        .state_space_scan = Recorded<cpu::state_space_scan>::call,
        .state_space_scan_backward = Recorded<cpu::state_space_scan_backward>::call,
        .delta_rule = Recorded<cpu::delta_rule>::call,
        .delta_rule_backward = Recorded<cpu::delta_rule_backward>::call,
    };
    return kTable;
}

class Calls final : public model::CapturedWork {
public:
    explicit Calls(std::vector<std::function<void()>> calls) : calls_(std::move(calls)) {}
    void launch() override {
        for (const auto& call : calls_) call();
    }
    std::int64_t nodes() const override { return std::ssize(calls_); }

private:
    std::vector<std::function<void()>> calls_;
};

}  // namespace

void CpuCapture::begin() {
    recording_ = true;
    device_.call_kernels(recording_kernels());
}

std::unique_ptr<model::CapturedWork> CpuCapture::end() {
    recording_ = false;
    device_.call_kernels(cpu::kernels());
    if (calls_.empty()) return nullptr;
    return std::make_unique<Calls>(std::exchange(calls_, {}));
}

void CpuCapture::abandon() noexcept {
    recording_ = false;
    device_.call_kernels(cpu::kernels());
    calls_.clear();
}

}  // namespace mgplan::runtime
