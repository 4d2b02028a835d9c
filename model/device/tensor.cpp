#include "model/device/tensor.hpp"

#include "model/device/device.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {

Tensor::Tensor(Shape shape, Dtype dtype, std::shared_ptr<Storage> storage, std::int64_t first_element)
    : shape_(shape), dtype_(dtype), storage_(std::move(storage)), first_element_(first_element) {}

Device& Tensor::device() const {
    MGPLAN_ASSERT(defined(), "the tensor has memory");
    return storage_->device();
}

void* Tensor::data() const {
    if (!defined() || storage_->data() == nullptr) return nullptr;
    return storage_->data() + first_element_ * bytes_of(dtype_);
}

template <>
float* Tensor::as<float>() const {
    MGPLAN_ASSERT(dtype_ == Dtype::fp32, "the tensor holds fp32");
    return static_cast<float*>(data());
}

template <>
double* Tensor::as<double>() const {
    MGPLAN_ASSERT(dtype_ == Dtype::fp64, "the tensor holds fp64");
    return static_cast<double*>(data());
}

template <>
std::uint16_t* Tensor::as<std::uint16_t>() const {
    MGPLAN_ASSERT(dtype_ == Dtype::bf16 || dtype_ == Dtype::fp16, "the tensor holds 16-bit numbers");
    return static_cast<std::uint16_t*>(data());
}

template <>
std::int32_t* Tensor::as<std::int32_t>() const {
    MGPLAN_ASSERT(dtype_ == Dtype::int32, "the tensor holds int32");
    return static_cast<std::int32_t*>(data());
}

Tensor Tensor::view(const Shape& shape) const {
    MGPLAN_ASSERT(shape.elements() == shape_.elements(), "a view keeps the number of elements");
    return {shape, dtype_, storage_, first_element_};
}

Tensor Tensor::slice(std::int64_t begin, std::int64_t end) const {
    MGPLAN_ASSERT(shape_.rank() > 0 && begin >= 0 && begin <= end && end <= shape_[0], "rows inside the tensor");
    const std::int64_t row = shape_[0] == 0 ? 0 : shape_.elements() / shape_[0];
    Shape sliced;
    switch (shape_.rank()) {
        case 1:
            sliced = {end - begin};
            break;
        case 2:
            sliced = {end - begin, shape_[1]};
            break;
        case 3:
            sliced = {end - begin, shape_[1], shape_[2]};
            break;
        case 4:
            sliced = {end - begin, shape_[1], shape_[2], shape_[3]};
            break;
        default:
            sliced = {end - begin, shape_[1], shape_[2], shape_[3], shape_[4]};
            break;
    }
    return {sliced, dtype_, storage_, first_element_ + begin * row};
}

}  // namespace mgplan::model
