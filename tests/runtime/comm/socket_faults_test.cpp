// What ranks over sockets do when something goes wrong, and what their sums are.
#include <array>
#include <atomic>
#include <functional>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/comm/socket/socket_world.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/support/socket_mesh.hpp"

namespace mgplan::tests::socket_faults_test {
namespace {

using namespace std::chrono_literals;
using model::MemoryCategory;
using model::Reduction;
using model::Tensor;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::array<std::int32_t, 3> kAll{0, 1, 2};

/// Runs the body on three ranks; what each of them threw, in their order.
std::vector<std::string> on_three_ranks(const std::function<void(int rank, const model::World& world)>& body,
                                        std::chrono::milliseconds deadline = 30s, const std::function<std::string()>& ended = {}) {
    auto mesh = socket_mesh(3);
    std::vector<std::string> said(3);
    std::vector<std::thread> ranks;
    for (int rank = 0; rank < 3; ++rank) {
        ranks.emplace_back([&, rank] {
            const auto index = static_cast<std::size_t>(rank);
            try {
                runtime::SocketWorld world(rank, std::move(mesh[index]), {deadline, ended});
                body(rank, world.view());
            } catch (const std::exception& error) {
                said[index] = error.what();
            }
        });
    }
    for (auto& each : ranks) each.join();
    return said;
}

Tensor filled(model::Device& device, std::int64_t elements, int rank) {
    std::vector<float> values(static_cast<std::size_t>(elements));
    // Sums of these depend on the order in which they are made.
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = 1.0F / static_cast<float>(1 + rank * 977 + static_cast<int>(i));
    const Tensor tensor = device.empty({elements}, Dtype::fp32, MemoryCategory::communication, "values");
    device.write(tensor, values.data());
    return tensor;
}

TEST(SocketWorld, MakesTheSumsOfThreadsToTheBit) {
    for (const std::int64_t elements : {1, 2, 7, 100'003}) {
        std::vector<std::vector<float>> threads(3), sockets(3);
        const auto sum = [&](std::vector<std::vector<float>>& to, int rank, const model::World& world) {
            runtime::CpuDevice device;
            const Tensor tensor = filled(device, elements, rank);
            world.join("tp", kAll)->all_reduce(tensor, Reduction::sum);
            auto& values = to[static_cast<std::size_t>(rank)];
            values.resize(static_cast<std::size_t>(elements));
            device.read(tensor, values.data());
        };
        runtime::InProcessWorld world(3);
        runtime::run_ranks(world, [&](int rank) { sum(threads, rank, world.view(rank)); });
        for (const auto& said : on_three_ranks([&](int rank, const model::World&view) { sum(sockets, rank, view); })) EXPECT_EQ(said, "");
        for (const auto& values : sockets) EXPECT_EQ(values, threads[0]) << elements;
    }
}

TEST(SocketWorld, ARankThatFailsEndsTheOthers) {
    const auto said = on_three_ranks([&](int rank, const model::World& world) {
        runtime::CpuDevice device;
        const auto group = world.join("dp", kAll);
        if (rank == 1) throw RunError("out of order");
        group->all_reduce(filled(device, 1000, rank), Reduction::sum);
    });
    EXPECT_EQ(said[1], "out of order");
    for (const std::size_t rank : {0U, 2U}) {
        EXPECT_THAT(said[rank], AllOf(HasSubstr("all_reduce in group dp (ranks 0, 1, 2)"), HasSubstr("connection ended")));
    }
}

TEST(SocketWorld, ASilentRankEndsTheOthersAtTheDeadline) {
    const auto said = on_three_ranks(
        [&](int rank, const model::World& world) {
            const auto group = world.join("dp", kAll);
            if (rank == 2) std::this_thread::sleep_for(1500ms);
            group->barrier();
        },
        500ms);
    for (const std::size_t rank : {0U, 1U})
        EXPECT_THAT(said[rank], HasSubstr("barrier in group dp (ranks 0, 1, 2) was not done after 500 ms"));
    EXPECT_NE(said[2], "");
}

TEST(SocketWorld, EndsWhenItIsToldTo) {
    std::atomic<bool> over = false;
    const auto said = on_three_ranks(
        [&](int rank, const model::World& world) {
            const auto group = world.join("dp", kAll);
            if (rank == 2) {
                std::this_thread::sleep_for(200ms);
                over = true;
            }
            for (;;) group->barrier();
        },
        30s, [&] { return over ? std::string("somebody pulled the plug") : std::string(); });
    for (const auto& each : said) EXPECT_THAT(each, HasSubstr("somebody pulled the plug"));
}

TEST(SocketWorld, MembersThatIssueDifferentOperationsAreTold) {
    const auto said = on_three_ranks([&](int rank, const model::World& world) {
        runtime::CpuDevice device;
        const auto group = world.join("tp", kAll);
        group->all_reduce(filled(device, rank == 0 ? 10 : 20, rank), Reduction::sum);
    });
    EXPECT_THAT(said[0],
                AllOf(HasSubstr("rank 0 came with all_reduce of 40 bytes of fp32"), HasSubstr("with all_reduce of 80 bytes of fp32"),
                      HasSubstr("as the same operation of group tp (ranks 0, 1, 2)")));
    for (const auto& each : said) EXPECT_NE(each, "");
}

TEST(SocketWorld, MembersThatJoinDifferentGroupsAreTold) {
    const auto said =
        on_three_ranks([&](int rank, const model::World& world) { static_cast<void>(world.join(rank == 1 ? "cp" : "tp", kAll)); });
    EXPECT_THAT(said[1], HasSubstr("rank 1 joins group cp 0 1 2 while rank 0 joins group tp 0 1 2"));
    for (const auto& each : said) EXPECT_NE(each, "");
}

TEST(SocketWorld, AbortStopsAWaitFromAnyThread) {
    const auto said = on_three_ranks([&](int rank, const model::World& world) {
        const auto group = world.join("tp", kAll);
        if (rank != 0) {
            group->barrier();
            return;
        }
        std::thread other([&] {
            std::this_thread::sleep_for(100ms);
            group->abort("enough");
        });
        try {
            runtime::CpuDevice device;
            group->receive(filled(device, 4, rank), 1);
        } catch (...) {
            other.join();
            throw;
        }
        other.join();
    });
    EXPECT_THAT(said[0], HasSubstr("enough"));
    for (const std::size_t rank : {1U, 2U}) EXPECT_THAT(said[rank], HasSubstr("connection ended"));
}

}  // namespace
}  // namespace mgplan::tests::socket_faults_test
