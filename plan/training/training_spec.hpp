#pragma once
// Options of a step's computation, apart from the layout: precision, optimizer, overlaps, attention backend.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plan/training/megatron_switches.hpp"
#include "plan/training/numeric_types.hpp"
#include "plan/training/offload.hpp"
#include "plan/training/software.hpp"

namespace mgplan {

/// Arithmetic of the matrix products. fp8, nvfp4: quantised operands over bf16 storage.
enum class Precision : std::uint8_t { bf16, fp16, fp32, fp64, fp8, nvfp4 };
enum class AttentionBackend : std::uint8_t { flash, unfused };

[[nodiscard]] constexpr std::string_view to_string(Precision precision) {
    switch (precision) {
        case Precision::bf16:
            return "bf16";
        case Precision::fp16:
            return "fp16";
        case Precision::fp32:
            return "fp32";
        case Precision::fp64:
            return "fp64";
        case Precision::fp8:
            return "fp8";
        case Precision::nvfp4:
            return "nvfp4";
    }
    return "";
}

/// True if products read operands that were quantised from 16 bits.
[[nodiscard]] constexpr bool quantised(Precision precision) {
    return precision == Precision::fp8 || precision == Precision::nvfp4;
}

[[nodiscard]] constexpr std::string_view to_string(AttentionBackend backend) {
    return backend == AttentionBackend::flash ? "flash" : "unfused";
}

[[nodiscard]] std::optional<Precision> parse_precision(std::string_view text);
[[nodiscard]] std::optional<AttentionBackend> parse_attention_backend(std::string_view text);

/// Defaults are those of `mgplan plan` (CLI.md: bf16, fp32 gradients, distributed optimizer, all overlaps but tp).
struct TrainingSpec {
    Precision precision = Precision::bf16;
    Dtype grad_dtype = Dtype::fp32;  ///< of the gradient buffer and its reduction
    bool distributed_optimizer = true;
    int distributed_optimizer_instances = 1;
    bool overlap_grad_reduce = true;
    bool overlap_param_gather = true;
    bool overlap_p2p = true;
    bool overlap_tp = false;
    bool overlap_moe = false;  ///< expert all-to-all hidden behind the other microbatch's compute
    AttentionBackend attention = AttentionBackend::flash;
    bool fused_cross_entropy = false;
    bool fp8_parameters = false;  ///< weights stored and gathered in the type of the products: fp8, or nvfp4
    Dtype main_param_dtype = Dtype::fp32;
    Dtype exp_avg_dtype = Dtype::fp32;
    Dtype exp_avg_sq_dtype = Dtype::fp32;
    Software software = kNewestSoftware;  ///< release of the libraries whose rates count
    OffloadSpec offload;                  ///< of engine mgplan
    MegatronSwitches megatron;            ///< read by engine megatron alone, but for the optimizer

    bool operator==(const TrainingSpec&) const = default;

    /// Quantisation of the operands of products; without meaning where these stay in 16 bits or more.
    [[nodiscard]] QuantisedFormat format() const { return quantised_format(megatron.fp8_recipe, precision == Precision::nvfp4); }
    /// True if Megatron-LM gives whole matrices to ranks, not shards of elements (arguments.py, use_layer_wise_distributed_optimizer).
    [[nodiscard]] bool is_layer_wise() const {
        return distributed_optimizer && (megatron.optimizer == OptimizerKind::muon || megatron.optimizer == OptimizerKind::lion);
    }
    /// True if a reduction leaves each rank of engine megatron its shard of the gradients. A layer-wise optimizer without a layout of its
    /// own needs whole gradients, in buffers without padding (layer_wise_optimizer.py).
    [[nodiscard]] bool scatters_gradients() const { return distributed_optimizer && (!is_layer_wise() || megatron.layer_wise_layout); }
    /// Storage type of parameters and activations.
    [[nodiscard]] Dtype compute_dtype() const {
        switch (precision) {
            case Precision::fp16:
                return Dtype::fp16;
            case Precision::fp32:
                return Dtype::fp32;
            case Precision::fp64:
                return Dtype::fp64;
            case Precision::bf16:
            case Precision::fp8:
            case Precision::nvfp4:
                return Dtype::bf16;
        }
        return Dtype::bf16;
    }
};

/// Precision of products, in the words of --precision: bf16, fp16, fp32, fp64, fp8-delayed, fp8-current, fp8-blockwise, mxfp8 or nvfp4. The
/// recipe has no meaning where operands stay in 16 bits or more.
struct PrecisionChoice {
    Precision precision = Precision::bf16;
    Fp8Recipe recipe = Fp8Recipe::delayed;
};

/// "fp8" is fp8-current.
[[nodiscard]] std::optional<PrecisionChoice> parse_precision_choice(std::string_view text);
/// All words that parse_precision_choice() takes.
[[nodiscard]] std::vector<std::string> precision_choices();
/// The word for a training's precision and recipe.
[[nodiscard]] std::string_view precision_text(const TrainingSpec& training);

}  // namespace mgplan
