#pragma once
// Moves tensors that a half of a layer saved for its backward to the host's memory meanwhile: the inputs of modules that --offload names.

#include <initializer_list>
#include <utility>

#include "model/layers/context.hpp"
#include "plan/training/offload.hpp"

namespace mgplan::model {

/// A module, and the tensor that it reads; undefined where it is not kept.
using ModuleInputs = std::initializer_list<std::pair<OffloadModule, Tensor>>;

/// At the end of a half's forward, when nothing of that forward reads these any more: moves the chosen ones to the host. A tensor that
/// two modules read moves once.
void inputs_to_host(const RankContext& context, ModuleInputs inputs);
/// At the begin of its backward: brings them back.
void inputs_from_host(const RankContext& context, ModuleInputs inputs);

}  // namespace mgplan::model
