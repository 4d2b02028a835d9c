// main of the test programs whose ranks are processes: every rank runs all tests, and fails when any rank does.

#include "tests/support/mpi_main.hpp"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/support/host_device.hpp"

namespace mgplan::tests {
namespace {

runtime::MpiWorld* world_of_main = nullptr;

/// The ranks but the first print failures alone.
class FailurePrinter final : public testing::EmptyTestEventListener {
    void OnTestPartResult(const testing::TestPartResult& result) override {
        if (!result.failed()) return;
        fmt::print(stderr, "rank {}: {}:{}: {}\n", the_world().rank(), result.file_name() == nullptr ? "" : result.file_name(),
                   result.line_number(), result.message());
    }
};

}  // namespace

runtime::MpiWorld& the_world() {
    return *world_of_main;
}

}  // namespace mgplan::tests

int main(int argc, char** argv) {
    using namespace mgplan;
    runtime::MpiOptions options;
    options.deadline = std::chrono::seconds(60);
    runtime::MpiWorld world(options);
    tests::world_of_main = &world;
    testing::InitGoogleTest(&argc, argv);
    if (world.rank() != 0) {
        auto& listeners = testing::UnitTest::GetInstance()->listeners();
        delete listeners.Release(listeners.default_result_printer());
        listeners.Append(new tests::FailurePrinter);
    }
    const int own_result = RUN_ALL_TESTS();
    tests::HostDevice device;
    const auto result = device.tensor<std::int32_t>({1}, Dtype::int32, {own_result});
    std::vector<std::int32_t> everyone;
    for (int rank = 0; rank < world.size(); ++rank) everyone.push_back(rank);
    world.join("results", everyone)->all_reduce(result, model::Reduction::maximum);
    return device.values<std::int32_t>(result)[0];
}
