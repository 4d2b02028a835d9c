// The GPU's kernels of a training step in bf16 and in fp8, and of layers of other models, compiled to PTX alone, for kernels.py. The ops
// choose them as in runtime/cuda/kernels_*.cu; those of other types and for memory that is not aligned, which a bf16 step does not start,
// are left out: they would take most of the time.

#include <string_view>

#include "runtime/cuda/launcher.cuh"
#include "runtime/cuda/ops/table.hpp"

namespace mgplan::runtime::cuda {
namespace {

template <class Body>
constexpr bool is_of_the_step() {
    const std::string_view name = __PRETTY_FUNCTION__;
    for (const std::string_view other :
         {"double", "OneByOne", "unsigned", ", 1>", "<float, 4>", "Row<float>", ", false>", "AdamOfArrays<float, Bf16",
          "AdamOfArrays<float, float, Bf16", "OfPiece<float", "CastToFp8<float", "CastAndTurn<float", "LargestOfArrays<float",
          "ClearLargest<float", "CastOfArrays<float", "TransposeBytes<1>", "OfRows<float", "CastTiles<float", "CastSquares<float"}) {
        if (name.find(other) != std::string_view::npos) return false;
    }
    return true;
}

/// What these ops ask of a launcher (launch.hpp). Starts nothing: the kernels are there to be compiled.
class CompilingLauncher {
public:
    static CompilingLauncher of(model::Device& /*device*/) { return {}; }

    template <class Body>
    void each(std::int64_t count, const Body& body) const {
        if constexpr (is_of_the_step<Body>()) run_each<<<1, 1>>>(body, count);
    }
    template <int N, class Body>
    void packs(std::int64_t count, const Body& body) const {
        if constexpr (is_of_the_step<Body>()) run_packs<N><<<1, 1>>>(body, count);
    }
    template <class Body>
    void teams(std::int64_t count, int /*lanes*/, const Body& body) const {
        if constexpr (is_of_the_step<Body>()) run_teams<<<1, 1>>>(body, count);
    }
    void copy(void* /*to*/, const void* /*from*/, std::int64_t /*bytes*/) const {}
    void zero(void* /*memory*/, std::int64_t /*bytes*/) const {}
    void gemm(const Gemm& /*gemm*/) const {}
};

}  // namespace

void fill_kernels_of_a_step(model::KernelTable& table) {
    table.norm = norm<CompilingLauncher>;
    table.norm_backward = norm_backward<CompilingLauncher>;
    table.activation = activation<CompilingLauncher>;
    table.activation_backward = activation_backward<CompilingLauncher>;
    table.rotary = rotary<CompilingLauncher>;
    table.dropout = dropout<CompilingLauncher>;
    table.copy = copy<CompilingLauncher>;
    table.fill = fill<CompilingLauncher>;
    table.sums_of_squares = sums_of_squares<CompilingLauncher>;
    table.add_in_order = add_in_order<CompilingLauncher>;
    table.clip_factor = clip_factor<CompilingLauncher>;
    table.copy_columns = copy_columns<CompilingLauncher>;
    table.embedding = embedding<CompilingLauncher>;
    table.embedding_backward = embedding_backward<CompilingLauncher>;
    table.row_maximum = row_maximum<CompilingLauncher>;
    table.softmax_sums = softmax_sums<CompilingLauncher>;
    table.cross_entropy_backward = cross_entropy_backward<CompilingLauncher>;
    table.adam_step = adam_step<CompilingLauncher>;
    table.largest = largest<CompilingLauncher>;
    table.follow_largest = follow_largest<CompilingLauncher>;
    table.largest_of_arrays = largest_of_arrays<CompilingLauncher>;
    table.quantise = quantise<CompilingLauncher>;
    table.quantise_arrays = quantise_arrays<CompilingLauncher>;
    table.quantise_blocks = quantise_blocks<CompilingLauncher>;
    table.transpose_bytes = transpose_bytes<CompilingLauncher>;
    table.add = add<CompilingLauncher>;
    table.gate_rows = gate_rows<CompilingLauncher>;
    table.gate_rows_backward = gate_rows_backward<CompilingLauncher>;
    table.join_latent_keys = join_latent_keys<CompilingLauncher>;
    table.split_latent_keys = split_latent_keys<CompilingLauncher>;
    table.causal_conv = causal_conv<CompilingLauncher>;
    table.causal_conv_backward = causal_conv_backward<CompilingLauncher>;
    table.gated_norm = gated_norm<CompilingLauncher>;
    table.gated_norm_backward = gated_norm_backward<CompilingLauncher>;
    table.state_space_scan = state_space_scan<CompilingLauncher>;
    table.state_space_scan_backward = state_space_scan_backward<CompilingLauncher>;
    table.delta_rule = delta_rule<CompilingLauncher>;
    table.delta_rule_backward = delta_rule_backward<CompilingLauncher>;
    table.route = route<CompilingLauncher>;
    table.route_backward = route_backward<CompilingLauncher>;
    table.auxiliary_loss_backward = auxiliary_loss_backward<CompilingLauncher>;
    table.permute_rows = permute_rows<CompilingLauncher>;
    table.unpermute_rows = unpermute_rows<CompilingLauncher>;
}

}  // namespace mgplan::runtime::cuda
