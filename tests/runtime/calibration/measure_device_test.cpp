// What goes to a card before a large product is measured on it.

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "model/device/memory_operations.hpp"
#include "runtime/calibration/calibrate.hpp"
#include "runtime/cpu/ops/kernels.hpp"
#include "tests/support/host_device.hpp"

namespace mgplan::runtime::measure_device_test {
namespace {

/// The CPU's kernels behind a bus that counts.
class Card final : public model::Device, private model::MemoryOperations {
public:
    Card() : Device(model::DeviceKind::cpu, {}, std::make_unique<tests::HostAllocator>(), &cpu::kernels()) {}
    [[nodiscard]] model::MemoryOperations* memory_operations() override { return this; }

    std::int64_t uploaded = 0, copied = 0, finished = 0;
    std::vector<std::byte> first_copied;

private:
    void copy(std::byte* to, const std::byte* from, std::int64_t bytes) override {
        std::memcpy(to, from, static_cast<std::size_t>(bytes));
        if (copied == 0) first_copied.assign(to, to + bytes);
        EXPECT_TRUE(std::equal(to, to + bytes, first_copied.begin())) << "the same values over and over";
        copied += bytes;
        finished = 0;
    }
    void reduce(Dtype /*dtype*/, model::Reduction /*reduction*/, std::span<const std::byte* const> /*inputs*/,
                std::span<std::byte* const> /*outputs*/, std::int64_t /*begin*/, std::int64_t /*end*/) override {
        ADD_FAILURE() << "nothing is added up";
    }
    void finish() override { ++finished; }
    void do_write(void* to, const void* from, std::int64_t bytes) override {
        std::memcpy(to, from, static_cast<std::size_t>(bytes));
        uploaded += bytes;
    }
    void do_read(void* to, const void* from, std::int64_t bytes) override { std::memcpy(to, from, static_cast<std::size_t>(bytes)); }
    void do_zero(void* memory, std::int64_t bytes) override { std::memset(memory, 0, static_cast<std::size_t>(bytes)); }
};

TEST(MeasureDevice, CopiesTheValuesOfLargeMatricesOnTheCard) {
    constexpr std::int64_t kRows = 4096, kWidth = 512, kDifferent = 1'048'573;
    CalibrateOptions options;
    options.work.products.insert({kRows, 1, kWidth, false, false, false, Dtype::fp32});
    options.seconds = 1e-6;
    options.most_bytes = 0;
    ClusterCalibration into;
    Card card;
    ASSERT_TRUE(measure_device(card, options, into));
    ASSERT_EQ(into.products.size(), 1U);
    EXPECT_EQ(card.copied, kRows * kWidth * 4) << "all of the large matrix";
    EXPECT_EQ(card.finished, 1) << "before it is measured";
    EXPECT_LT(card.uploaded, kDifferent * 4 + 4096) << "its different values once, and the small matrix";
    std::vector<float> numbers(kDifferent);
    std::memcpy(numbers.data(), card.first_copied.data(), kDifferent * 4);
    EXPECT_TRUE(std::all_of(numbers.begin(), numbers.end(), [](float x) { return x >= -1 && x < 1; }));
    std::sort(numbers.begin(), numbers.end());
    EXPECT_GT(std::unique(numbers.begin(), numbers.end()) - numbers.begin(), kDifferent / 2) << "they differ";
}

}  // namespace
}  // namespace mgplan::runtime::measure_device_test
