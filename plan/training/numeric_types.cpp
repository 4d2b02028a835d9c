#include "plan/training/numeric_types.hpp"

namespace mgplan {

std::optional<Dtype> parse_dtype(std::string_view text) {
    for (const Dtype dtype : {Dtype::fp64, Dtype::fp32, Dtype::bf16, Dtype::fp16, Dtype::fp8}) {
        if (to_string(dtype) == text) return dtype;
    }
    return std::nullopt;
}

}  // namespace mgplan
