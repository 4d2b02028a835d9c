#pragma once
// Adapters of a whole model (LoRA): the option that states them, and what they do not go with.

#include <string>
#include <vector>

#include "plan/layers/adapters.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

/// Reads "rank=16,alpha=32,targets=qkv,proj,fc1,fc2,experts,latent,in_proj,out_proj"; "default" and values left out are Megatron-Bridge's,
/// with the targets that the model has. Throws ConfigError with all problems: an unknown word, a value out of range, a target that the
/// model lacks.
[[nodiscard]] Adapters parse_adapters(const std::string& text, const ModelSpec& model, const std::string& where);

/// Throws ConfigError for adapters of a model with layers whose frozen tensors are not predicted, of which no linear layer has one, or of a
/// rank or alpha out of range. Nothing without adapters.
void check_adapters(const ModelSpec& model, const std::string& where);

/// Those of the targets that the model has, in their order.
[[nodiscard]] std::vector<std::string> targets_in(const std::string& targets, const ModelSpec& model);

/// Features with which adapters are not predicted, or with `runs` not run, as ends of a sentence; empty without adapters.
[[nodiscard]] std::vector<std::string> adapter_obstacles(const ModelSpec& model, const TrainingSpec& training, bool runs);

/// "LoRA: rank 16, alpha 32 on qkv, proj; 13,631,488 of 8,043,892,736 parameters trained".
[[nodiscard]] std::string adapters_text(const ModelSpec& model);

/// Trained parameters of a whole model; those of experts' adapters once, as one rank has them.
[[nodiscard]] std::int64_t trained_parameters(const ModelSpec& model);

}  // namespace mgplan
