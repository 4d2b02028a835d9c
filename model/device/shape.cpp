#include "model/device/shape.hpp"

#include <fmt/format.h>

#include "plan/text/errors.hpp"

namespace mgplan::model {

Shape::Shape(std::initializer_list<std::int64_t> sizes) : rank_(static_cast<int>(sizes.size())) {
    MGPLAN_ASSERT(rank_ <= kMostDimensions, "a tensor has at most five dimensions");
    std::size_t i = 0;
    for (const auto size : sizes) {
        MGPLAN_ASSERT(size >= 0, "sizes are not negative");
        sizes_[i++] = size;
    }
}

std::int64_t Shape::operator[](int i) const {
    const int index = i < 0 ? rank_ + i : i;
    MGPLAN_ASSERT(index >= 0 && index < rank_, "dimension inside the shape");
    return sizes_[static_cast<std::size_t>(index)];
}

std::int64_t Shape::elements() const {
    std::int64_t product = 1;
    for (int i = 0; i < rank_; ++i) product *= sizes_[static_cast<std::size_t>(i)];
    return product;
}

std::int64_t Shape::rows() const {
    std::int64_t product = 1;
    for (int i = 0; i + 1 < rank_; ++i) product *= sizes_[static_cast<std::size_t>(i)];
    return product;
}

std::string Shape::text() const {
    return fmt::format("[{}]", fmt::join(sizes_.begin(), sizes_.begin() + rank_, ", "));
}

}  // namespace mgplan::model
