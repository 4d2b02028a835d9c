#pragma once
// What the tests of the ops share: tensors with known values, their way back, gradients by finite differences.

#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/device/device.hpp"
#include "model/ops/router.hpp"
#include "runtime/bf16.hpp"
#include "runtime/cpu/cpu_device.hpp"

namespace mgplan::model {

inline Tensor make(Device& device, const Shape& shape, Dtype dtype, const std::vector<double>& values) {
    Tensor tensor = device.empty(shape, dtype, MemoryCategory::parameters, "test values");
    EXPECT_EQ(static_cast<std::int64_t>(values.size()), shape.elements());
    if (dtype == Dtype::fp64) device.write(tensor, values.data());
    if (dtype == Dtype::fp32) device.write(tensor, std::vector<float>(values.begin(), values.end()).data());
    if (dtype == Dtype::int32) device.write(tensor, std::vector<std::int32_t>(values.begin(), values.end()).data());
    if (dtype == Dtype::bf16) {
        std::vector<runtime::Bf16> words;
        for (const double value : values) words.emplace_back(static_cast<float>(value));
        device.write(tensor, words.data());
    }
    return tensor;
}

template <class Element>
std::vector<double> read_as(const Tensor& tensor) {
    std::vector<Element> elements(static_cast<std::size_t>(tensor.elements()));
    tensor.device().read(tensor, elements.data());
    return {elements.begin(), elements.end()};
}

/// Values as doubles, whatever the type.
inline std::vector<double> read(const Tensor& tensor) {
    if (tensor.dtype() == Dtype::fp64) return read_as<double>(tensor);
    if (tensor.dtype() == Dtype::fp32) return read_as<float>(tensor);
    if (tensor.dtype() == Dtype::int32) return read_as<std::int32_t>(tensor);
    return read_as<runtime::Bf16>(tensor);
}

/// Makes tensors of one device and type from a fixed stream of numbers. All numbers fit bf16, so that every type starts
/// from the same values.
class Maker {
public:
    Maker(Device& device, Dtype dtype) : device_(device), dtype_(dtype) {}

    [[nodiscard]] Device& device() const { return device_; }
    [[nodiscard]] Dtype dtype() const { return dtype_; }

    /// Multiples of 1/64 in [-1, 1).
    double number() {
        state_ = state_ * 6364136223846793005U + 1442695040888963407U;
        return static_cast<double>(state_ >> 57) / 64 - 1;
    }
    std::vector<double> numbers(std::int64_t count) {
        std::vector<double> list;
        for (std::int64_t i = 0; i < count; ++i) list.push_back(number());
        return list;
    }
    Tensor random(const Shape& shape) { return make(device_, shape, dtype_, numbers(shape.elements())); }
    Tensor random(const Shape& shape, Dtype dtype) { return make(device_, shape, dtype, numbers(shape.elements())); }
    Tensor ids(const std::vector<double>& list, const Shape& shape) { return make(device_, shape, Dtype::int32, list); }
    Tensor zeros(const Shape& shape, Dtype dtype) { return device_.zeros(shape, dtype, MemoryCategory::gradients, "test gradient"); }
    Tensor zeros(const Shape& shape) { return zeros(shape, dtype_); }

private:
    Device& device_;
    Dtype dtype_;
    std::uint64_t state_ = 88172645463325252U;
};

/// Σ y·weights: a loss whose gradient with respect to y is `weights`.
inline double weigh(const Tensor& y, const Tensor& weights) {
    const auto a = read(y), b = read(weights);
    EXPECT_EQ(a.size(), b.size());
    double sum = 0;
    for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
    return sum;
}

inline double largest(const std::vector<double>& values) {
    double most = 0;
    for (const double value : values) most = std::max(most, std::abs(value));
    return most;
}

/// What auxiliary_loss() adds to nothing.
inline double auxiliary_loss_of(const Tensor& scores, RouterScore score, const Tensor& copies, std::int64_t rows, std::int64_t top_k,
                                double coefficient) {
    const Tensor total = scores.device().zeros({1}, Dtype::fp64, MemoryCategory::activations, "loss");
    auxiliary_loss(scores, score, copies, rows, top_k, coefficient, total);
    return read(total).front();
}

/// Differences of at most `tolerance` times the largest expected value.
inline void expect_close(const std::vector<double>& actual, const std::vector<double>& expected, double tolerance,
                         const std::string& what) {
    ASSERT_EQ(actual.size(), expected.size()) << what;
    const double scale = std::max(largest(expected), 1e-30);
    for (std::size_t i = 0; i < actual.size(); ++i) {
        if (actual[i] == expected[i]) continue;  // infinities
        ASSERT_LE(std::abs(actual[i] - expected[i]), tolerance * scale)
            << what << ", element " << i << ": " << actual[i] << " for " << expected[i];
    }
}

/// Compares the gradient of `loss` with respect to x with central differences; x is fp64 and put back as it was.
inline void expect_gradient(const std::string& what, const Tensor& x, const Tensor& gradient, const std::function<double()>& loss) {
    constexpr double kStep = 1e-5, kTolerance = 1e-8;
    const auto before = read(x);
    std::vector<double> slopes;
    auto values = before;
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = before[i] + kStep;
        x.device().write(x, values.data());
        const double above = loss();
        values[i] = before[i] - kStep;
        x.device().write(x, values.data());
        const double below = loss();
        values[i] = before[i];
        slopes.push_back((above - below) / (2 * kStep));
    }
    x.device().write(x, before.data());
    ASSERT_GT(largest(slopes), 1e-3) << what << ": the loss must depend on x for the check to mean anything";
    expect_close(read(gradient), slopes, kTolerance, what);
}

}  // namespace mgplan::model
