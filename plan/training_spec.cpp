#include "plan/training_spec.hpp"

namespace mgplan {

std::optional<Precision> parse_precision(std::string_view text) {
    for (const Precision precision :
         {Precision::bf16, Precision::fp16, Precision::fp32, Precision::fp64, Precision::fp8, Precision::nvfp4}) {
        if (to_string(precision) == text) return precision;
    }
    return std::nullopt;
}

std::optional<AttentionBackend> parse_attention_backend(std::string_view text) {
    for (const AttentionBackend backend : {AttentionBackend::flash, AttentionBackend::unfused}) {
        if (to_string(backend) == text) return backend;
    }
    return std::nullopt;
}

}  // namespace mgplan
