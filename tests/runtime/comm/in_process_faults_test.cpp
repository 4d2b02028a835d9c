// Ranks as threads that fail: every other rank stops soon, and says where.
#include "runtime/comm/in_process/in_process_world.hpp"

#include <atomic>
#include <chrono>
#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/host_device.hpp"

namespace mgplan::runtime::in_process_faults_test {
namespace {

using model::CollectiveKind;
using model::CommunicationError;
using model::Communicator;
using model::MemoryCategory;
using model::Reduction;
using model::Tensor;
using testing::AllOf;
using testing::HasSubstr;
using tests::HostDevice;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

std::vector<std::int32_t> ranks_from_to(int begin, int end) {
    std::vector<std::int32_t> ranks(static_cast<std::size_t>(end - begin));
    std::iota(ranks.begin(), ranks.end(), begin);
    return ranks;
}

/// Everything a rank needs to take part in one operation of each kind.
struct Rank {
    Rank(InProcessWorld& world, int rank, int size) : group(world.join(rank, "tp", ranks_from_to(0, size))) {}

    Tensor tensor(std::int64_t elements) { return device.zeros({elements}, Dtype::fp32, MemoryCategory::communication, "test"); }

    // Rank 1 is everybody's partner in the kinds that have one.
    void do_one(CollectiveKind kind) {
        const std::int64_t size = group->size();
        const std::vector<std::int64_t> rows(static_cast<std::size_t>(size), 1);
        switch (kind) {
            case CollectiveKind::all_reduce:
                return group->all_reduce(tensor(5000), Reduction::sum);
            case CollectiveKind::all_gather:
                return group->all_gather(tensor(10), tensor(10 * size));
            case CollectiveKind::reduce_scatter:
                return group->reduce_scatter(tensor(10 * size), tensor(10), Reduction::sum);
            case CollectiveKind::all_to_all:
                return group->all_to_all(tensor(size), tensor(size), rows, rows);
            case CollectiveKind::broadcast:
                return group->broadcast(tensor(10), 1);
            case CollectiveKind::receive:
                if (group->rank() != 1) return group->receive(tensor(10), 1);
                for (int peer = 0; peer < size; ++peer) {
                    if (peer != 1) group->send(tensor(10), peer);
                }
                return;
            case CollectiveKind::send:
                if (group->rank() != 1) group->send(tensor(10), 1);
                return;
            case CollectiveKind::barrier:
                return group->barrier();
        }
    }

    HostDevice device;
    std::unique_ptr<Communicator> group;
};

/// Runs the body; what it threw on each rank, and what run_ranks threw.
struct Outcome {
    std::vector<std::string> errors;
    std::string failure;
    int failed_rank = -1;
    Clock::duration took{};
};

Outcome run_and_catch(InProcessWorld& world, const std::function<void(int rank)>& body, const RunRanksOptions& options = {}) {
    Outcome outcome;
    outcome.errors.resize(static_cast<std::size_t>(world.size()));
    const auto begin = Clock::now();
    try {
        run_ranks(
            world,
            [&](int rank) {
                try {
                    body(rank);
                } catch (const CommunicationError& error) {
                    outcome.errors[static_cast<std::size_t>(rank)] = error.what();
                    throw;
                }
            },
            options);
    } catch (const RankFailure& failure) {
        outcome.failure = failure.what();
        outcome.failed_rank = failure.rank();
    }
    outcome.took = Clock::now() - begin;
    return outcome;
}

class InProcessFaults : public testing::TestWithParam<CollectiveKind> {};
class InProcessWaits : public testing::TestWithParam<CollectiveKind> {};  // all but send, which waits for nobody

std::string name_of(const testing::TestParamInfo<CollectiveKind>& test) {
    return std::string(to_string(test.param));
}

TEST_P(InProcessFaults, ARankThatThrowsStopsAllOthersNamingRankOpAndGroup) {
    InProcessWorld world(4);
    const Outcome outcome = run_and_catch(world, [&](int number) {
        Rank rank(world, number, 4);
        for (int round = 0; round < 3; ++round) rank.do_one(GetParam());
        if (number == 1) throw std::runtime_error("the disk is full");
        for (;;) rank.do_one(GetParam());
    });
    EXPECT_LT(outcome.took, 2s);
    EXPECT_EQ(outcome.failed_rank, 1);
    // Rank 1 sends what others receive, and nobody hears of what is sent to it.
    const CollectiveKind last = GetParam() == CollectiveKind::receive ? CollectiveKind::send : GetParam();
    const std::string failure =
        "rank 1 failed: the disk is full; " + (GetParam() == CollectiveKind::send
                                                   ? "before its first operation"
                                                   : fmt::format("after {} in group tp (ranks 0, 1, 2, 3)", to_string(last)));
    EXPECT_EQ(outcome.failure, failure);
    for (const int other : {0, 2, 3}) {
        EXPECT_EQ(outcome.errors[static_cast<std::size_t>(other)],
                  fmt::format("rank {}, {} in group tp (ranks 0, 1, 2, 3): {}", other, to_string(GetParam()), failure));
    }
    EXPECT_EQ(outcome.errors[1], "");
}

TEST_P(InProcessWaits, ARankThatGoesSilentStopsTheOthersAtTheDeadline) {
    InProcessWorld world(3, {.deadline = 150ms});
    const Outcome outcome = run_and_catch(world, [&](int number) {
        Rank rank(world, number, 3);
        rank.do_one(GetParam());
        if (number == 1) {
            while (!world.aborted()) std::this_thread::sleep_for(1ms);
            return;
        }
        rank.do_one(GetParam());
    });
    EXPECT_LT(outcome.took, 4s);
    EXPECT_THAT(outcome.failure, HasSubstr("no progress within the deadline of 150 ms"));
    EXPECT_THAT(outcome.failure, HasSubstr(fmt::format("in {} of group tp (ranks 0, 1, 2) waits for rank 1", to_string(GetParam()))));
    for (const int other : {0, 2}) {
        EXPECT_THAT(outcome.errors[static_cast<std::size_t>(other)],
                    AllOf(HasSubstr(fmt::format("rank {}, {} in group tp", other, to_string(GetParam()))), HasSubstr("waits for rank 1")));
    }
}

TEST_P(InProcessWaits, ARankThatFinishesEarlyIsNoticedWithoutADeadline) {
    InProcessWorld world(3);
    const Outcome outcome = run_and_catch(world, [&](int number) {
        Rank rank(world, number, 3);
        rank.do_one(GetParam());
        if (number == 1) return;
        rank.do_one(GetParam());
    });
    EXPECT_LT(outcome.took, 4s);
    EXPECT_THAT(outcome.errors[0],
                AllOf(HasSubstr(fmt::format("rank 0, {} in group tp (ranks 0, 1, 2): no rank can go on", to_string(GetParam()))),
                      HasSubstr("rank 2 in"), HasSubstr("waits for rank 1"), HasSubstr("rank 1 already finished")));
}

INSTANTIATE_TEST_SUITE_P(During, InProcessFaults,
                         testing::Values(CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
                                         CollectiveKind::all_to_all, CollectiveKind::broadcast, CollectiveKind::send,
                                         CollectiveKind::receive, CollectiveKind::barrier),
                         name_of);
INSTANTIATE_TEST_SUITE_P(During, InProcessWaits,
                         testing::Values(CollectiveKind::all_reduce, CollectiveKind::all_gather, CollectiveKind::reduce_scatter,
                                         CollectiveKind::all_to_all, CollectiveKind::broadcast, CollectiveKind::receive,
                                         CollectiveKind::barrier),
                         name_of);

TEST(InProcessWorld, StopsRanksThatWaitForEachOther) {
    InProcessWorld world(3);
    const Outcome outcome = run_and_catch(world, [&](int number) {
        Rank rank(world, number, 3);
        if (number == 2) return rank.group->barrier();
        rank.group->receive(rank.tensor(1), 1 - number);
    });
    EXPECT_LT(outcome.took, 4s);
    EXPECT_THAT(outcome.errors[2], AllOf(HasSubstr("rank 0 in receive of group tp (ranks 0, 1, 2) waits for rank 1"),
                                         HasSubstr("rank 1 in receive of group tp (ranks 0, 1, 2) waits for rank 0"),
                                         HasSubstr("rank 2 in barrier of group tp (ranks 0, 1, 2) waits for ranks 0, 1")));
}

TEST(InProcessWorld, DoesNotWaitForPartnersWhenAnErrorDestroysARunningOperation) {
    InProcessWorld world(3);
    const Outcome outcome = run_and_catch(world, [&](int number) {
        Rank rank(world, number, 3);
        const Tensor numbers = rank.tensor(8000);
        if (number == 0) {
            const auto pending = rank.group->start_all_reduce(numbers, Reduction::sum);
            throw std::runtime_error("the loss is NaN");
        }
        rank.group->receive(numbers, 0);
    });
    EXPECT_LT(outcome.took, 2s);
    EXPECT_EQ(outcome.failed_rank, 0);
    EXPECT_EQ(outcome.failure, "rank 0 failed: the loss is NaN; after all_reduce in group tp (ranks 0, 1, 2)");
    EXPECT_THAT(outcome.errors[1], HasSubstr("rank 1, receive in group tp (ranks 0, 1, 2): rank 0 failed while all_reduce in group tp"));
}

TEST(InProcessWorld, StopsMembersThatIssueDifferentOperations) {
    const auto stop = [](const std::function<void(Rank&)>& body) {
        InProcessWorld world(2);
        return run_and_catch(world,
                             [&](int number) {
                                 Rank rank(world, number, 2);
                                 body(rank);
                             })
            .failure;
    };
    EXPECT_THAT(
        stop([](Rank& rank) {
            if (rank.group->rank() == 0) return rank.group->barrier();
            rank.group->broadcast(rank.tensor(4), 1);
        }),
        HasSubstr("rank 0 came with barrier of 0 bytes of fp64, rank 1 with broadcast of 16 bytes of fp32 from member 1 as the same "
                  "operation of group tp (ranks 0, 1)"));
    EXPECT_THAT(stop([](Rank& rank) { rank.group->all_reduce(rank.tensor(4 + rank.group->rank()), Reduction::sum); }),
                HasSubstr("rank 0 came with all_reduce of 16 bytes of fp32 to the sum, rank 1 with all_reduce of 20 bytes"));
    EXPECT_THAT(
        stop([](Rank& rank) { rank.group->all_reduce(rank.tensor(4), rank.group->rank() == 0 ? Reduction::sum : Reduction::maximum); }),
        HasSubstr("rank 1 with all_reduce of 16 bytes of fp32 to the maximum"));
    EXPECT_THAT(stop([](Rank& rank) {
                    const std::vector<std::int64_t> rows{1, 2};
                    rank.group->all_to_all(rank.tensor(3), rank.tensor(3), rows, rows);
                }),
                HasSubstr("rank 0 sends 8 bytes to rank 1, which expects 4, in all_to_all of group tp (ranks 0, 1)"));
    EXPECT_THAT(stop([](Rank& rank) {
                    if (rank.group->rank() == 0) return rank.group->send(rank.tensor(3), 1);
                    rank.group->receive(rank.tensor(4), 0);
                }),
                HasSubstr("rank 1 expects 16 bytes of fp32 and was sent 12 bytes of fp32 in group tp (ranks 0, 1)"));
}

TEST(InProcessWorld, AbortsPresentAndFutureCallsOfEveryGroupFromAnyThread) {
    InProcessWorld world(3);
    std::atomic<int> waiting = 0;
    std::atomic<Clock::rep> asked = 0;
    std::atomic<Clock::rep> last = 0;
    std::thread outside([&] {
        while (waiting < 2) std::this_thread::sleep_for(1ms);
        std::this_thread::sleep_for(5ms);
        asked = Clock::now().time_since_epoch().count();
        world.abort("stopped by the user");
    });
    const Outcome outcome = run_and_catch(world, [&](int number) {
        if (number == 2) {  // another group than the one that waits; its later calls fail too
            while (!world.aborted()) std::this_thread::sleep_for(1ms);
            const auto later = world.join(2, "later", ranks_from_to(2, 3));
            HostDevice device;
            const Tensor one = device.zeros({1}, Dtype::fp32, MemoryCategory::communication, "one");
            EXPECT_THROW(later->all_gather(one, one), CommunicationError);
            Rank rank(world, 2, 3);
            EXPECT_THROW(rank.group->send(one, 0), CommunicationError);
            rank.group->barrier();
            return;
        }
        Rank rank(world, number, 3);
        const auto pair = world.join(number, "pair", ranks_from_to(0, 2));
        ++waiting;
        try {
            if (number == 0) pair->barrier();
            rank.group->barrier();
        } catch (const CommunicationError&) {
            last = std::max<Clock::rep>(last, Clock::now().time_since_epoch().count());
            EXPECT_THROW(pair->barrier(), CommunicationError);
            throw;
        }
    });
    outside.join();
    EXPECT_LT(Clock::duration(last - asked), 500ms);
    EXPECT_EQ(outcome.errors[0], "rank 0, barrier in group pair (ranks 0, 1): stopped by the user");
    EXPECT_EQ(outcome.errors[1], "rank 1, barrier in group tp (ranks 0, 1, 2): stopped by the user");
    EXPECT_EQ(outcome.errors[2], "rank 2, barrier in group tp (ranks 0, 1, 2): stopped by the user");
}

TEST(InProcessWorld, SurvivesADeathAtAnyPoint) {
    constexpr int kRanks = 8;
    std::mt19937 random(7);
    for (int run = 0; run < 50; ++run) {
        const int victim = static_cast<int>(random() % kRanks);
        const int last_step = static_cast<int>(random() % 25);
        const bool while_pending = random() % 2 == 0;
        const auto seed = random();
        InProcessWorld world(kRanks, {.deadline = 60s});
        std::atomic<Clock::time_point> death{};
        const auto die = [&] {
            death = Clock::now();
            throw std::runtime_error("killed");
        };
        const Outcome outcome = run_and_catch(world, [&](int number) {
            Rank everyone(world, number, kRanks);
            const auto half = world.join(number, "half", number < 4 ? ranks_from_to(0, 4) : ranks_from_to(4, 8));
            const auto pair = world.join(number, "pair", ranks_from_to(number / 2 * 2, number / 2 * 2 + 2));
            std::mt19937 same_everywhere(seed);
            for (int step = 0;; ++step) {
                const std::int64_t elements = 1 + static_cast<std::int64_t>(same_everywhere() % 6'000);
                const auto choice = same_everywhere() % 4;
                const Tensor numbers = everyone.tensor(elements);
                const Tensor more = everyone.tensor(4 * elements);
                const auto first = everyone.group->start_all_reduce(numbers, Reduction::sum);
                const auto second = half->start_all_gather(everyone.tensor(0), everyone.tensor(0));
                const Tensor part = everyone.tensor(elements);
                const Tensor other = everyone.tensor(elements);
                const auto third = half->start_all_gather(part, more);
                if (while_pending && step == last_step && number == victim) die();
                if (choice == 0) pair->barrier();
                if (choice == 1) everyone.group->broadcast(other, 3);
                if (choice == 2) {
                    pair->send(other, 1 - pair->rank());
                    pair->receive(other, 1 - pair->rank());
                }
                if (number % 2 == 0) third->wait();
                first->wait();
                if (step == last_step && number == victim) die();
            }
        });
        EXPECT_LT(Clock::now() - death.load(), 5s);
        EXPECT_EQ(outcome.failed_rank, victim);
        EXPECT_THAT(outcome.failure, testing::StartsWith(fmt::format("rank {} failed: killed; after ", victim)));
        for (int rank = 0; rank < kRanks; ++rank) {
            if (rank != victim) {
                EXPECT_THAT(outcome.errors[static_cast<std::size_t>(rank)], HasSubstr(fmt::format("rank {} failed", victim)));
            }
        }
    }
}

TEST(RunRanks, TellsOfRanksThatDoNotReturnAfterAnAbort) {
    InProcessWorld world(3);
    std::atomic<bool> released = false;
    std::string told;
    const Outcome outcome = run_and_catch(world,
                                          [&](int number) {
                                              if (number == 0) throw std::runtime_error("boom");
                                              while (number == 2 && !released) std::this_thread::sleep_for(1ms);
                                          },
                                          {.on_stuck =
                                               [&](const std::string& text) {
                                                   told = text;
                                                   released = true;
                                               },
                                           .patience = 100ms});
    EXPECT_EQ(told, "rank 2 did not stop within 100 ms after: rank 0 failed: boom; before its first operation");
    EXPECT_EQ(outcome.failure, "rank 0 failed: boom; before its first operation");
}

TEST(RunRanks, LetsBadInputThroughAsItIs) {
    InProcessWorld world(2);
    EXPECT_THROW(run_ranks(world, [&](int) { throw ConfigError("--steps = 0 is below 1"); }), ConfigError);
}

TEST(RunRanks, SaysThatMemoryIsShort) {
    InProcessWorld world(2);
    EXPECT_EQ(run_and_catch(world,
                            [&](int rank) {
                                if (rank == 0) throw std::bad_alloc();
                            })
                  .failure.substr(0, 28),
              "rank 0 failed: out of memory");
}

TEST(RunRanks, RunsAWorldTwice) {
    InProcessWorld world(3);
    for (int run = 0; run < 2; ++run) {
        std::atomic<int> done = 0;
        run_ranks(world, [&](int number) {
            Rank rank(world, number, 3);
            // The early ones have left while the last one is still at work; that is no deadlock.
            if (number == 2) std::this_thread::sleep_for(150ms);
            rank.do_one(CollectiveKind::all_reduce);
            ++done;
        });
        EXPECT_EQ(done, 3);
    }
}

TEST(InProcessWorld, LetsNobodyPassABarrierBeforeAllHaveCome) {
    InProcessWorld world(8);
    std::atomic<int> come = 0;
    run_ranks(world, [&](int number) {
        Rank rank(world, number, 8);
        for (int round = 1; round <= 200; ++round) {
            ++come;
            rank.group->barrier();
            EXPECT_GE(come, 8 * round);
            rank.group->barrier();
        }
    });
}

TEST(InProcessWorld, AddsInRankOrderToTheSameBitsEveryTime) {
    constexpr int kRanks = 8;
    constexpr std::size_t kElements = 40'007;
    std::vector<std::vector<float>> numbers(kRanks, std::vector<float>(kElements));
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0, 100);
    for (auto& each : numbers) {
        for (auto& number : each) number = normal(random);
    }
    std::vector<float> wanted = numbers[0];
    for (std::size_t rank = 1; rank < kRanks; ++rank) {
        for (std::size_t i = 0; i < kElements; ++i) wanted[i] += numbers[rank][i];
    }
    for (int run = 0; run < 5; ++run) {
        InProcessWorld world(kRanks);
        run_ranks(world, [&](int number) {
            Rank rank(world, number, kRanks);
            const Tensor tensor =
                rank.device.tensor({static_cast<std::int64_t>(kElements)}, Dtype::fp32, numbers[static_cast<std::size_t>(number)]);
            rank.group->all_reduce(tensor, Reduction::sum);
            EXPECT_EQ(std::memcmp(tensor.data(), wanted.data(), kElements * sizeof(float)), 0) << "rank " << number;
        });
    }
}

TEST(InProcessWorld, KnowsThatAListWithoutTheRankOrWithARankTwiceIsABug) {
    InProcessWorld world(4);
    const auto join = [&](const std::vector<std::int32_t>& ranks) { return world.join(0, "tp", ranks); };
    EXPECT_THROW(static_cast<void>(join({1, 2})), std::logic_error);
    EXPECT_THROW(static_cast<void>(join({0, 1, 1})), std::logic_error);
    EXPECT_THROW(static_cast<void>(join({0, 4})), std::logic_error);
    EXPECT_THROW(static_cast<void>(join({-1, 0})), std::logic_error);
    EXPECT_THROW(static_cast<void>(join({})), std::logic_error);
}

}  // namespace
}  // namespace mgplan::runtime::in_process_faults_test
