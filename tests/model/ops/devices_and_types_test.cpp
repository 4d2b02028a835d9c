// The same ops in every number type, and on shapes alone.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/meta/meta_device.hpp"
#include "model/ops/elementwise.hpp"
#include "tests/model/ops/every_op.hpp"

namespace mgplan::model::devices_and_types_test {
namespace {

class OpLog final : public OpListener {
public:
    void on_op(const OpRecord& record) override { records.push_back(record); }
    std::vector<OpRecord> records;
};

class EveryOp : public ::testing::TestWithParam<Dtype> {};

TEST_P(EveryOp, AgreesWithFp64) {
    runtime::CpuDevice device, reference_device;
    Maker maker(device, GetParam()), reference_maker(reference_device, Dtype::fp64);
    const auto results = run_every_op(maker), references = run_every_op(reference_maker);
    // A result in bf16 is off by half of 2^-7 of itself; some ops read back a rounded output or saved value.
    const double tolerance = GetParam() == Dtype::bf16 ? 0.012 : GetParam() == Dtype::fp32 ? 2e-6 : 0;
    ASSERT_EQ(results.size(), references.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
        expect_close(read(results[i].second), read(references[i].second), tolerance, results[i].first);
    }
}

TEST_P(EveryOp, HoldsTheSameBytesOnShapesAloneAndOnTheCpu) {
    runtime::CpuDevice cpu;
    MetaDevice meta;
    OpLog log;
    cpu.set_listener(&log);
    {
        Maker on_cpu(cpu, GetParam()), on_meta(meta, GetParam());
        const auto results = run_every_op(on_cpu), shapes = run_every_op(on_meta);
        EXPECT_EQ(cpu.memory(), meta.memory());
        EXPECT_GT(cpu.memory().high_water[static_cast<std::size_t>(MemoryCategory::workspace)], 0);
        ASSERT_EQ(results.size(), shapes.size());
        for (std::size_t i = 0; i < results.size(); ++i) {
            EXPECT_EQ(results[i].second.shape(), shapes[i].second.shape()) << results[i].first;
            EXPECT_EQ(results[i].second.dtype(), shapes[i].second.dtype()) << results[i].first;
            EXPECT_EQ(shapes[i].second.data(), nullptr) << "shapes have no values";
        }
        // One tensor more on one side must show.
        const Tensor leaked = cpu.empty({1}, Dtype::fp32, MemoryCategory::activations, "leaked");
        EXPECT_NE(cpu.memory().current, meta.memory().current);
    }
    EXPECT_THAT(cpu.memory().current, ::testing::Each(0));
    EXPECT_THAT(meta.memory().current, ::testing::Each(0));

    ASSERT_EQ(log.records.size(), meta.ops().size());
    for (std::size_t i = 0; i < log.records.size(); ++i) {
        EXPECT_EQ(log.records[i].name, meta.ops()[i].name);
        EXPECT_EQ(log.records[i].flops, meta.ops()[i].flops) << log.records[i].name;
        EXPECT_EQ(log.records[i].bytes_read, meta.ops()[i].bytes_read) << log.records[i].name;
        EXPECT_EQ(log.records[i].bytes_written, meta.ops()[i].bytes_written) << log.records[i].name;
    }
}

INSTANTIATE_TEST_SUITE_P(InEachType, EveryOp, ::testing::Values(Dtype::fp64, Dtype::fp32, Dtype::bf16),
                         [](const auto& type) { return std::string(to_string(type.param)); });

TEST_P(EveryOp, OfFp8MakesTheSameOfValuesThatEveryTypeHolds) {
    runtime::CpuDevice device, reference_device;
    MetaDevice meta;
    Maker maker(device, GetParam()), reference_maker(reference_device, Dtype::fp64), on_meta(meta, GetParam());
    const auto results = run_fp8_ops(maker), references = run_fp8_ops(reference_maker);
    const double tolerance = GetParam() == Dtype::bf16 ? 0.004 : 0;
    ASSERT_EQ(results.size(), references.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
        const bool product = results[i].second.dtype() == Dtype::bf16;
        expect_close(read(results[i].second), read(references[i].second), product ? tolerance : 0, results[i].first);
    }
}

TEST_P(EveryOp, OfBlocksInFp8MakesTheSameOfValuesThatEveryTypeHolds) {
    for (const bool of_32 : {false, true}) {
        for (const auto run : {run_fp8_block_ops, run_short_fp8_block_ops}) {
            runtime::CpuDevice device, reference_device;
            Maker maker(device, GetParam()), reference_maker(reference_device, Dtype::fp64);
            const auto results = run(maker, of_32), references = run(reference_maker, of_32);
            ASSERT_EQ(results.size(), references.size());
            for (std::size_t i = 0; i < results.size(); ++i) {
                const bool rounds = results[i].second.dtype() == Dtype::bf16;
                expect_close(read(results[i].second), read(references[i].second), rounds ? 0.004 : 0, results[i].first);
            }
        }
    }
}

TEST(MetaDevice, KeepsAllocationsWithNamesAndLifetimes) {
    MetaDevice meta({.keep_allocations = true});
    Tensor first = meta.empty({10}, Dtype::fp32, MemoryCategory::parameters, "first");
    Tensor second = meta.zeros({3}, Dtype::bf16, MemoryCategory::activations, "second");
    const Tensor view = first.view({2, 5}).slice(1, 2);
    first = {};
    second = {};
    const Tensor third = meta.empty({2}, Dtype::fp64, MemoryCategory::activations, "third");
    ASSERT_EQ(meta.allocations().size(), 3U);
    EXPECT_EQ(meta.allocations()[0].returned, -1) << "a view keeps it alive";
    EXPECT_EQ(meta.allocations()[1].name, "second");
    EXPECT_EQ(meta.allocations()[1].bytes, 6);
    EXPECT_EQ(meta.allocations()[1].taken, 1);
    EXPECT_EQ(meta.allocations()[1].returned, 2);
    EXPECT_EQ(meta.allocations()[2].taken, 3);
    EXPECT_EQ(meta.memory().peak, 56);
    EXPECT_EQ(meta.memory().high_water[static_cast<std::size_t>(MemoryCategory::activations)], 16);
    EXPECT_EQ(meta.memory().at_peak[static_cast<std::size_t>(MemoryCategory::activations)], 16);
    meta.restart_high_water();
    EXPECT_EQ(meta.memory().peak, 56);
    EXPECT_EQ(view.data(), nullptr);
    EXPECT_EQ(sum_of_squares(third), 0);
    EXPECT_THROW((void)meta.kernels(), std::logic_error);
}

}  // namespace
}  // namespace mgplan::model::devices_and_types_test
