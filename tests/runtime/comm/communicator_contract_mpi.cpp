// The contract's ranks as processes: every rank runs all tests, and fails when any rank does.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "runtime/comm/mpi/mpi_world.hpp"
#include "tests/runtime/comm/communicator_contract.hpp"
#include "tests/support/host_device.hpp"

namespace mgplan::tests {
namespace {

runtime::MpiWorld* the_world = nullptr;

/// Of the ranks but the first: failures alone.
class FailurePrinter final : public testing::EmptyTestEventListener {
    void OnTestPartResult(const testing::TestPartResult& result) override {
        if (!result.failed()) return;
        fmt::print(stderr, "rank {}: {}:{}: {}\n", the_world->rank(), result.file_name() == nullptr ? "" : result.file_name(),
                   result.line_number(), result.message());
    }
};

}  // namespace

int world_size() {
    return the_world->size();
}

void on_every_rank(const std::function<void(const Place&)>& body) {
    the_world->traffic().clear();
    the_world->run([&] { body({the_world->view(), the_world->traffic()}); });
}

}  // namespace mgplan::tests

int main(int argc, char** argv) {
    using namespace mgplan;
    runtime::MpiOptions options;
    options.deadline = std::chrono::seconds(60);
    runtime::MpiWorld world(options);
    tests::the_world = &world;
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
