#include "model/communicator/recording_communicator.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "model/communicator/collective_counter.hpp"
#include "tests/support/host_device.hpp"

namespace mgplan::model::recording_communicator_test {
namespace {

TEST(RecordingCommunicator, PosesAsAnyRankOfAnyWorldAndReportsWhatItWouldSend) {
    tests::HostDevice device;
    CollectiveCounter counter;
    const World world = recording_world(12'345, 16'384, &counter);
    std::vector<std::int32_t> ranks;
    for (std::int32_t rank = 12'344; rank < 12'352; ++rank) ranks.push_back(rank);
    const auto tp = world.join("tp", ranks);
    EXPECT_EQ(tp->size(), 8);
    EXPECT_EQ(tp->rank(), 1);
    const auto alone = world.join("cp", std::vector<std::int32_t>{12'345});

    const auto tensor = [&](std::int64_t elements) { return device.zeros({elements}, Dtype::bf16, MemoryCategory::communication, "t"); };
    tp->all_reduce(tensor(10), Reduction::sum);
    tp->start_all_reduce(tensor(6), Reduction::average)->wait();
    tp->all_gather(tensor(10), tensor(80));
    tp->reduce_scatter(tensor(80), tensor(10), Reduction::sum);
    const std::vector<std::int64_t> rows(8, 2);
    tp->all_to_all(tensor(16), tensor(16), rows, rows);
    tp->broadcast(tensor(3), 7);
    tp->send(tensor(4), 0);
    tp->receive(tensor(5), 2);
    tp->barrier();
    alone->all_reduce(tensor(10), Reduction::sum);
    alone->all_gather(tensor(10), tensor(10));

    using enum CollectiveKind;
    EXPECT_EQ(counter.of("tp", all_reduce), (CollectiveTotal{2, 32}));
    EXPECT_EQ(counter.of("tp", all_gather), (CollectiveTotal{1, 160}));
    EXPECT_EQ(counter.of("tp", reduce_scatter), (CollectiveTotal{1, 160}));
    EXPECT_EQ(counter.of("tp", all_to_all), (CollectiveTotal{1, 32}));
    EXPECT_EQ(counter.of("tp", broadcast), (CollectiveTotal{1, 6}));
    EXPECT_EQ(counter.of("tp", send), (CollectiveTotal{1, 8}));
    EXPECT_EQ(counter.of("tp", receive), (CollectiveTotal{1, 10}));
    EXPECT_EQ(counter.of("tp", barrier), (CollectiveTotal{1, 0}));
    EXPECT_EQ(counter.totals().size(), 8U) << "groups of one send nothing";
    EXPECT_EQ(counter.all(), (CollectiveTotal{9, 408}));
}

/// Beginnings and waits, in order.
class Waits final : public CollectiveListener {
public:
    void on_collective(const CollectiveRecord& record) override { heard.push_back("begin " + std::string(to_string(record.kind))); }
    void on_waiting(CollectiveKind kind) override { heard.push_back("wait for " + std::string(to_string(kind))); }
    std::vector<std::string> heard;
};

TEST(RecordingCommunicator, TellsWhereWhatWasBegunIsWaitedFor) {
    tests::HostDevice device;
    RecordingCommunicator group("tp", 2, 0), alone("cp", 1, 0);
    Waits waits;
    group.set_listener(&waits);
    alone.set_listener(&waits);
    const auto tensor = [&](std::int64_t elements) { return device.zeros({elements}, Dtype::bf16, MemoryCategory::communication, "t"); };
    const auto gather = group.start_all_gather(tensor(4), tensor(8));
    const auto scatter = group.start_reduce_scatter(tensor(8), tensor(4), Reduction::sum);
    scatter->wait();
    gather->wait();
    alone.start_all_gather(tensor(4), tensor(4))->wait();
    EXPECT_EQ(waits.heard,
              (std::vector<std::string>{"begin all_gather", "begin reduce_scatter", "wait for reduce_scatter", "wait for all_gather"}));
    group.set_listener(nullptr);  // nobody is told any more
    gather->wait();
    EXPECT_EQ(waits.heard.size(), 4U);
}

TEST(RecordingCommunicator, ThrowsAfterAnAbort) {
    tests::HostDevice device;
    RecordingCommunicator group("dp", 4, 2);
    group.abort("no memory left");
    group.abort("a later reason");
    const Tensor tensor = device.zeros({1}, Dtype::fp32, MemoryCategory::communication, "t");
    try {
        group.all_reduce(tensor, Reduction::sum);
        FAIL() << "should have thrown";
    } catch (const CommunicationError& error) {
        EXPECT_STREQ(error.what(), "rank 2, all_reduce in group dp: no memory left");
    }
    EXPECT_THROW(group.barrier(), CommunicationError);
}

TEST(CollectiveCounter, DiffersAfterOneMoreMessage) {
    CollectiveCounter a;
    CollectiveCounter b;
    for (CollectiveCounter* counter : {&a, &b}) counter->add("tp", CollectiveKind::send, 8);
    EXPECT_EQ(a, b);
    b.add("tp", CollectiveKind::send, 0);
    EXPECT_NE(a, b);
    b.clear();
    EXPECT_EQ(b.all(), CollectiveTotal{});
}

TEST(GroupText, ListsTheFirstRanksOfLongGroups) {
    EXPECT_EQ(group_text("tp", std::vector<std::int32_t>{3}), "tp (rank 3)");
    EXPECT_EQ(group_text("dp", std::vector<std::int32_t>{0, 8}), "dp (ranks 0, 8)");
    std::vector<std::int32_t> many(20);
    for (std::size_t i = 0; i < many.size(); ++i) many[i] = static_cast<std::int32_t>(i);
    EXPECT_EQ(group_text("w", many), "w (ranks 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, … 20 in all)");
}

}  // namespace
}  // namespace mgplan::model::recording_communicator_test
