#include "model/ops/checks.hpp"

#include <fmt/core.h>

namespace mgplan::model {

void expect_float(const Tensor& tensor, std::string_view what) {
    MGPLAN_ASSERT(tensor.defined(), fmt::format("{} has memory", what));
    MGPLAN_ASSERT(is_float(tensor.dtype()), fmt::format("{} holds floats, not {}", what, to_string(tensor.dtype())));
}

void expect_dtype(const Tensor& tensor, Dtype dtype, std::string_view what) {
    MGPLAN_ASSERT(tensor.defined(), fmt::format("{} has memory", what));
    MGPLAN_ASSERT(tensor.dtype() == dtype, fmt::format("{} holds {}, not {}", what, to_string(dtype), to_string(tensor.dtype())));
}

void expect_shape(const Tensor& tensor, const Shape& shape, std::string_view what) {
    MGPLAN_ASSERT(tensor.defined(), fmt::format("{} has memory", what));
    MGPLAN_ASSERT(tensor.shape() == shape, fmt::format("{} has shape {}, not {}", what, shape.text(), tensor.shape().text()));
}

void expect_elements(const Tensor& tensor, std::int64_t elements, std::string_view what) {
    MGPLAN_ASSERT(tensor.defined(), fmt::format("{} has memory", what));
    MGPLAN_ASSERT(tensor.elements() == elements, fmt::format("{} has {} elements, not {}", what, elements, tensor.shape().text()));
}

Device& known_of_shapes(const Tensor& x, std::string_view what) {
    expect_float(x, what);
    MGPLAN_ASSERT(x.shape().rank() == 2, what);
    MGPLAN_ASSERT(!x.device().computes(), "no device computes this: it is known of shapes alone");
    return x.device();
}

void expect_accumulator(const Tensor& into, const Tensor& from, std::string_view what) {
    expect_float(into, what);
    expect_float(from, what);
    MGPLAN_ASSERT(into.dtype() == from.dtype() || (into.dtype() == Dtype::fp32 && bytes_of(from.dtype()) == 2),
                  fmt::format("{} takes sums of {}, not {}", what, to_string(from.dtype()), to_string(into.dtype())));
    expect_same_device(into, from);
}

void expect_rounded_copy(const Tensor& main, const Tensor& copy, std::string_view what) {
    expect_elements(copy, main.elements(), what);
    MGPLAN_ASSERT(main.dtype() == Dtype::fp32 && bytes_of(copy.dtype()) < bytes_of(main.dtype()) &&
                      (!main.device().computes() || copy.dtype() == Dtype::bf16),
                  fmt::format("{} beside fp32 are narrower: bf16 where they have values", what));
    expect_same_device(main, copy);
}

}  // namespace mgplan::model
