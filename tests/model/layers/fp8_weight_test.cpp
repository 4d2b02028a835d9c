#include "model/layers/fp8_weight.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/device/device.hpp"
#include "model/ops/elementwise.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/model/ops/support.hpp"

namespace mgplan::model::fp8_weight_test {
namespace {

struct OpCounter final : OpListener {
    void on_op(const OpRecord& record) override {
        ++counts[std::string(record.name)];
        launches += record.launches;
    }
    std::map<std::string, int> counts;
    std::int64_t launches = 0;
};

std::vector<std::uint8_t> bits(const Tensor& codes) {
    std::vector<std::uint8_t> list(static_cast<std::size_t>(codes.elements()));
    codes.device().read(codes, list.data());
    return list;
}

class Fp8Weights : public ::testing::Test {
protected:
    /// Each with a largest value of its own.
    CopiedWeight weight(std::int64_t rows, std::int64_t columns, OwnFp8 scaling) {
        const Tensor values = maker_.random({rows, columns});
        scale(values, static_cast<double>(++made_));
        return {make_fp8_weight(device_, rows, columns, scaling), values};
    }
    OpCounter refreshed(const std::vector<CopiedWeight>& weights) {
        OpCounter counter;
        device_.set_listener(&counter);
        refresh(weights);
        device_.set_listener(nullptr);
        return counter;
    }
    void expect_cast_of(const CopiedWeight& weight, const Tensor& largest) {
        const Fp8Tensor alone{device_.empty(weight.weight.shape(), Dtype::fp8, MemoryCategory::activations, "codes"),
                              device_.zeros({kFp8ScaleElements}, Dtype::fp32, MemoryCategory::activations, "scale")};
        copy(largest, alone.scale.slice(0, 1));
        quantise(weight.weight, alone);
        EXPECT_EQ(bits(weight.copies->values.codes), bits(alone.codes));
        EXPECT_EQ(read(weight.copies->values.scale), read(alone.scale));
        EXPECT_EQ(bits(weight.copies->transposed), bits(transpose_codes(alone.codes)));
    }

    runtime::CpuDevice device_;
    Maker maker_{device_, Dtype::bf16};
    int made_ = 0;
};

TEST_F(Fp8Weights, AreCastAsEachAloneAndMeasuredTogether) {
    std::vector<CopiedWeight> weights;
    for (const std::int64_t rows : {3, 16, 5, 48}) weights.push_back(weight(rows, 7, OwnFp8::current));
    weights.push_back(weights.front());  // a layer may share one
    const OpCounter counter = refreshed(weights);
    EXPECT_EQ(counter.counts, (std::map<std::string, int>{{"largest_magnitude", 1}, {"cast_to_fp8", 4}}));
    EXPECT_EQ(counter.launches, 2 + 4);
    for (std::size_t i = 0; i < 4; ++i) {
        const Tensor scale = device_.zeros({kFp8ScaleElements}, Dtype::fp32, MemoryCategory::activations, "scale");
        find_largest(weights[i].weight, scale);
        expect_cast_of(weights[i], scale.slice(0, 1));
    }
    EXPECT_TRUE(refreshed(weights).counts.empty()) << "all copies are fresh";
    // One that changed is cast alone.
    scale(weights[1].weight, 3);
    weights[1].copies->fresh = false;
    EXPECT_EQ(refreshed(weights).counts.at("cast_to_fp8"), 1);
    const Tensor changed = device_.zeros({kFp8ScaleElements}, Dtype::fp32, MemoryCategory::activations, "scale");
    find_largest(weights[1].weight, changed);
    expect_cast_of(weights[1], changed.slice(0, 1));
}

TEST_F(Fp8Weights, UnderDelayedScalingAreCastByTheirOwnScaleAndRaiseTheLargest) {
    std::vector<CopiedWeight> weights;
    const Tensor scales = device_.zeros({3, kFp8ScaleElements}, Dtype::fp32, MemoryCategory::activations, "scales");
    const Tensor largest = device_.zeros({3}, Dtype::fp32, MemoryCategory::activations, "largest");
    for (std::int64_t i = 0; i < 3; ++i) {
        weights.push_back(weight(6, 5, OwnFp8::delayed));
        Fp8Weight& copies = *weights.back().copies;
        copies.values.scale = scales.slice(i, i + 1).view({kFp8ScaleElements});
        fill(copies.values.scale.slice(0, 1), static_cast<double>(2 * i + 1));
        copies.followed.emplace().weight = {copies.values.scale, largest.slice(i, i + 1)};
    }
    fill(largest.slice(1, 2), 100);
    const OpCounter counter = refreshed(weights);
    EXPECT_EQ(counter.launches, 1 + 3) << "places that are raised begin as they are";
    for (std::int64_t i = 0; i < 3; ++i) {
        const CopiedWeight& each = weights[static_cast<std::size_t>(i)];
        expect_cast_of(each, make(device_, {1}, Dtype::fp32, {static_cast<double>(2 * i + 1)}));
        const Tensor own = device_.zeros({kFp8ScaleElements}, Dtype::fp32, MemoryCategory::activations, "scale");
        find_largest(each.weight, own);
        EXPECT_EQ(read(largest)[static_cast<std::size_t>(i)], i == 1 ? 100 : read(own)[0]);
    }
}

// Blocks keep their own casts, and codes that are the parameter are transposed alone.
TEST_F(Fp8Weights, InBlocksAndStoredOnesStandBesideThem) {
    const Tensor codes = device_.zeros({4, 6}, Dtype::fp8, MemoryCategory::parameters, "codes");
    const std::vector<CopiedWeight> weights{
        weight(16, 32, OwnFp8::blockwise), {make_stored_fp8_weight(device_, codes), Tensor()}, weight(8, 9, OwnFp8::current)};
    const OpCounter counter = refreshed(weights);
    EXPECT_EQ(counter.counts, (std::map<std::string, int>{{"largest_magnitude", 1}, {"cast_to_fp8", 2}, {"transpose_codes", 1}}));
    for (const CopiedWeight& each : weights) EXPECT_TRUE(each.copies->fresh);
}

}  // namespace
}  // namespace mgplan::model::fp8_weight_test
