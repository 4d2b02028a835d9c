#pragma once
// The parameters of one model chunk for `mgplan buffers`: from a file that lists them, or from a model.

#include <string>
#include <string_view>
#include <vector>

#include "model/optimizer/buffer_layout.hpp"

namespace mgplan::cli {

/// Names and buffer parameters at equal indices, in module order.
struct NamedParameters {
    std::vector<std::string> names;
    std::vector<model::BufferParameter> parameters;
};

/// Reads [{"name","shape":[…],"dtype":"bf16|fp16|fp32|fp8","shared_embedding":false,"expert":false}]; an empty shape is one
/// element. Throws ConfigError with the problems found (the first 20 of many): missing, unknown or ill-typed fields,
/// a name used twice, more than model::kMaxBufferNumel elements.
[[nodiscard]] NamedParameters read_parameter_list(std::string_view text, const std::string& where);

}  // namespace mgplan::cli
