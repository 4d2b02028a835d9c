#pragma once
// Models whose layers nothing here computes: their parameters are counted, and nothing else follows from them.

#include <string>

#include "plan/model/model_spec.hpp"

namespace mgplan {

/// True if layers of the model, or tensors outside them, are none that mgplan computes, so that they are counted and
/// nothing else.
[[nodiscard]] bool is_counted_only(const ModelSpec& model);
/// Throws ConfigError where is_counted_only(): no memory, time or job follows from such a model. `where` begins the message.
void refuse_counted_only(const ModelSpec& model, const std::string& where);
/// The same, and throws where kinds describe the layers at all: kernels of those that are computed are not measured yet.
void refuse_unmeasured(const ModelSpec& model, const std::string& where);

}  // namespace mgplan
