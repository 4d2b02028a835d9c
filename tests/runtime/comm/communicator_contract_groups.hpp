#pragma once
// Numbers, groups and the fixture of the contract's tests, which stand in several files.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/runtime/comm/communicator_contract.hpp"
#include "tests/support/host_device.hpp"

namespace mgplan::tests::communicator_contract {

using model::Communicator;
using model::Shape;
using model::Tensor;

// --- Numbers of each type ------------------------------------------------------------------------------------------

struct Bf16 {};

template <class Type>
struct Numbers;
template <>
struct Numbers<float> {
    using Stored = float;
    static constexpr Dtype dtype = Dtype::fp32;
    static Stored store(double value) { return static_cast<float>(value); }
    static double load(Stored value) { return value; }
};
template <>
struct Numbers<double> {
    using Stored = double;
    static constexpr Dtype dtype = Dtype::fp64;
    static Stored store(double value) { return value; }
    static double load(Stored value) { return value; }
};
template <>
struct Numbers<std::int32_t> {
    using Stored = std::int32_t;
    static constexpr Dtype dtype = Dtype::int32;
    static Stored store(double value) { return static_cast<std::int32_t>(value); }
    static double load(Stored value) { return value; }
};
template <>
struct Numbers<Bf16> {
    using Stored = std::uint16_t;
    static constexpr Dtype dtype = Dtype::bf16;
    static Stored store(double value) {  // exact for the small whole numbers used here
        const auto narrow = static_cast<float>(value);
        std::uint32_t bits = 0;
        std::memcpy(&bits, &narrow, sizeof bits);
        EXPECT_TRUE(std::isnan(value) || (bits & 0xffffU) == 0) << value << " is no bf16 number";
        return static_cast<std::uint16_t>(bits >> 16U);
    }
    static double load(Stored value) {
        const std::uint32_t bits = std::uint32_t{value} << 16U;
        float wide = 0;
        std::memcpy(&wide, &bits, sizeof wide);
        return wide;
    }
};

template <class Type, class Value>
Tensor make(HostDevice& device, const Shape& shape, const Value& value) {
    std::vector<typename Numbers<Type>::Stored> values;
    for (std::int64_t i = 0; i < shape.elements(); ++i) values.push_back(Numbers<Type>::store(value(i)));
    return device.tensor(shape, Numbers<Type>::dtype, values);
}

template <class Type, class Value>
void expect(HostDevice& device, const Tensor& tensor, const std::string& what, const Value& value) {
    const auto values = device.values<typename Numbers<Type>::Stored>(tensor);
    for (std::size_t i = 0; i < values.size(); ++i) {
        const double wanted = value(static_cast<std::int64_t>(i));
        const double found = Numbers<Type>::load(values[i]);
        if (found != wanted && !(std::isnan(found) && std::isnan(wanted))) {
            ADD_FAILURE() << what << ": element " << i << " of " << values.size() << " is " << found << ", not " << wanted;
            return;
        }
    }
}

// Small enough that sums over 16 ranks are exact in bf16 (8 bits).
inline constexpr std::int64_t kPeriod = 13;
inline double payload(int rank, std::int64_t index) {
    return static_cast<double>((3 * rank + index) % kPeriod) - 4;
}

// --- Groups --------------------------------------------------------------------------------------------------------

// Sum and maximum over a group's payloads.
struct Reduced {
    explicit Reduced(const std::vector<std::int32_t>& ranks) {
        for (std::size_t i = 0; i < kPeriod; ++i) {
            maximum_[i] = -std::numeric_limits<double>::infinity();
            for (const auto rank : ranks) {
                sum_[i] += payload(rank, static_cast<std::int64_t>(i));
                maximum_[i] = std::max(maximum_[i], payload(rank, static_cast<std::int64_t>(i)));
            }
        }
    }
    [[nodiscard]] double sum(std::int64_t index) const { return sum_[static_cast<std::size_t>(index % kPeriod)]; }
    [[nodiscard]] double maximum(std::int64_t index) const { return maximum_[static_cast<std::size_t>(index % kPeriod)]; }

private:
    std::array<double, kPeriod> sum_{};
    std::array<double, kPeriod> maximum_{};
};

struct Joined {
    std::unique_ptr<Communicator> communicator;
    std::vector<std::int32_t> ranks;
    std::string what;
    Reduced reduced;
};

inline std::unique_ptr<Communicator> join(const Place& place, const std::string& name, const std::vector<std::int32_t>& ranks) {
    return place.world.join(name, ranks);
}

inline std::vector<std::int32_t> neighbours(const Place& place, int size) {  // empty for those left over
    std::vector<std::int32_t> ranks;
    const int first = place.world.rank / size * size;
    if (first + size > place.world.size) return {};
    for (int i = 0; i < size; ++i) ranks.push_back(first + i);
    return ranks;
}

inline std::vector<std::int32_t> strided(const Place& place, int size) {
    std::vector<std::int32_t> ranks;
    const int stride = place.world.size / size;
    if (place.world.rank >= stride * size) return {};
    for (int i = size - 1; i >= 0; --i) ranks.push_back(place.world.rank % stride + i * stride);  // the highest is member 0
    return ranks;
}

// This rank's groups: neighbours, and ranks far apart in falling order. Left-over ranks of the world are in none.
inline std::vector<Joined> groups(const Place& place, int size) {
    std::vector<Joined> all;
    for (auto& [name, ranks] : {std::pair{"block", neighbours(place, size)}, std::pair{"strided", strided(place, size)}}) {
        if (ranks.empty()) continue;
        auto communicator = join(place, name, ranks);
        EXPECT_EQ(communicator->size(), size);
        EXPECT_EQ(ranks[static_cast<std::size_t>(communicator->rank())], place.world.rank);
        all.push_back(
            {std::move(communicator), ranks, fmt::format("rank {}, group {} of {}", place.world.rank, name, size), Reduced(ranks)});
    }
    return all;
}

class EveryTransport : public testing::TestWithParam<int> {
protected:
    static void in_groups(const std::function<void(HostDevice&, Joined&, int rank)>& body) {
        on_every_rank([&](const Place& place) {
            HostDevice device;
            for (auto& joined : groups(place, GetParam())) body(device, joined, place.world.rank);
        });
    }
};

}  // namespace mgplan::tests::communicator_contract
