#pragma once
// Number formats of parameters, gradients and matrix products.

#include <cstdint>
#include <optional>
#include <string_view>

namespace mgplan {

/// Storage type of an element. int32 holds token ids and row maps, fp8 is e4m3, and e5m2 the other fp8 of products; int32 and e5m2 are no
/// choices a user has.
enum class Dtype : std::uint8_t { fp64, fp32, bf16, fp16, fp8, int32, e5m2 };

/// Bytes of one element.
[[nodiscard]] constexpr std::int64_t bytes_of(Dtype dtype) {
    switch (dtype) {
        case Dtype::fp64:
            return 8;
        case Dtype::fp32:
        case Dtype::int32:
            return 4;
        case Dtype::bf16:
        case Dtype::fp16:
            return 2;
        case Dtype::fp8:
        case Dtype::e5m2:
            return 1;
    }
    return 0;
}

[[nodiscard]] constexpr std::string_view to_string(Dtype dtype) {
    switch (dtype) {
        case Dtype::fp64:
            return "fp64";
        case Dtype::fp32:
            return "fp32";
        case Dtype::bf16:
            return "bf16";
        case Dtype::fp16:
            return "fp16";
        case Dtype::fp8:
            return "fp8";
        case Dtype::int32:
            return "int32";
        case Dtype::e5m2:
            return "e5m2";
    }
    return "";
}

[[nodiscard]] std::optional<Dtype> parse_dtype(std::string_view text);

}  // namespace mgplan
