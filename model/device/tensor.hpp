#pragma once
// A dense row-major tensor: a shape and a share of a device's memory. Copies are views of the same memory.

#include <cstddef>
#include <cstdint>
#include <memory>

#include "model/device/shape.hpp"
#include "plan/training/numeric_types.hpp"

namespace mgplan::model {

class Device;
class Storage;

/// Holds its memory alive; the last view gives it back to the device's allocator. Empty tensors hold nothing.
class Tensor {
public:
    Tensor() = default;
    Tensor(Shape shape, Dtype dtype, std::shared_ptr<Storage> storage, std::int64_t first_element);

    [[nodiscard]] const Shape& shape() const { return shape_; }
    [[nodiscard]] Dtype dtype() const { return dtype_; }
    [[nodiscard]] std::int64_t elements() const { return shape_.elements(); }
    [[nodiscard]] std::int64_t bytes() const { return elements() * bytes_of(dtype_); }
    /// Returns true if the tensor has a storage (a meta tensor's has no address but exists).
    [[nodiscard]] bool defined() const { return storage_ != nullptr; }
    [[nodiscard]] Device& device() const;

    /// Address of the first element; nullptr on the meta device.
    [[nodiscard]] void* data() const;
    /// The same, checked against the element type's dtype (assertion): float, double, std::uint16_t for bf16.
    template <class Element>
    [[nodiscard]] Element* as() const;

    /// The tensor's storage, and the place in it where the tensor begins, in elements. For graphs, which make tensors of it again.
    [[nodiscard]] const std::shared_ptr<Storage>& storage() const { return storage_; }
    [[nodiscard]] std::int64_t first_element() const { return first_element_; }

    /// The same elements under another shape of equal size.
    [[nodiscard]] Tensor view(const Shape& shape) const;
    /// Rows [begin, end) of the first dimension, without a copy.
    [[nodiscard]] Tensor slice(std::int64_t begin, std::int64_t end) const;

private:
    Shape shape_;
    Dtype dtype_ = Dtype::fp32;
    std::shared_ptr<Storage> storage_;
    std::int64_t first_element_ = 0;
};

}  // namespace mgplan::model
