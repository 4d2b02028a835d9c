#pragma once
// The fp8 of mgplan's own engine: linear layers, with one scale for each tensor or for each block of values.

#include <cstdint>
#include <string>
#include <vector>

#include "plan/model/model_spec.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

/// By which scales: of the values as they are, of largest magnitudes of the steps before, or of blocks of the values as they are: 128 and
/// 128 x 128 of them, or 32.
enum class OwnFp8 : std::uint8_t { none, current, delayed, blockwise, mxfp8 };

/// Features of a model or a training in fp8 (or nvfp4) that are not computed, in words; none where products are in 16 bits or wider.
/// Layouts have further obstacles (model/training/training_task.cpp).
[[nodiscard]] std::vector<std::string> own_fp8_obstacles(const ModelSpec& model, const TrainingSpec& training);
/// The fp8 that runs and is predicted: fp8-current, fp8-delayed, fp8-blockwise and mxfp8 of models of attention, MLPs and MoE layers. Other
/// fp8 is predicted as in docs/memory-precision.md, and not run: none.
[[nodiscard]] OwnFp8 own_fp8(const ModelSpec& model, const TrainingSpec& training);
[[nodiscard]] inline bool computes_own_fp8(const ModelSpec& model, const TrainingSpec& training) {
    return own_fp8(model, training) != OwnFp8::none;
}

/// True if parameters of linear layers are codes, in a buffer of their own (--fp8-param-gather).
[[nodiscard]] inline bool stores_own_fp8(const ModelSpec& model, const TrainingSpec& training) {
    return training.fp8_parameters && computes_own_fp8(model, training);
}

}  // namespace mgplan
