#pragma once
// Sizes of a dense row-major tensor.

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace mgplan::model {

/// Up to five dimensions, slowest varying first. A plain value.
class Shape {
public:
    static constexpr int kMostDimensions = 5;

    Shape() = default;
    Shape(std::initializer_list<std::int64_t> sizes);

    [[nodiscard]] int rank() const { return rank_; }
    /// Size of dimension i; negative i counts from the end. An index out of range is a bug (assertion).
    [[nodiscard]] std::int64_t operator[](int i) const;
    /// Product of all sizes; 1 for a scalar.
    [[nodiscard]] std::int64_t elements() const;
    /// Product of all sizes but the last.
    [[nodiscard]] std::int64_t rows() const;
    /// "[4, 1024, 128]"
    [[nodiscard]] std::string text() const;
    bool operator==(const Shape&) const = default;

private:
    std::array<std::int64_t, kMostDimensions> sizes_{};
    int rank_ = 0;
};

}  // namespace mgplan::model
