// The contract of model/communicator/communicator.hpp, run by every transport's test program: broadcasts, messages, what is started and
// waited for later, many rounds, and counts.
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>

#include "tests/runtime/comm/communicator_contract_groups.hpp"

namespace mgplan::tests::communicator_contract {
namespace {

using model::CollectiveKind;
using model::MemoryCategory;
using model::Pending;
using model::Reduction;

// --- Broadcast, barrier, messages ----------------------------------------------------------------------------------

TEST_P(EveryTransport, BroadcastsFromEachMember) {
    in_groups([](HostDevice& device, Joined& joined, int rank) {
        for (int root = 0; root < joined.communicator->size(); ++root) {
            for (const std::int64_t elements : {1, root == 1 ? 20'000 : 30}) {
                const Tensor numbers = make<float>(device, {elements}, [&](std::int64_t i) { return payload(rank, i); });
                joined.communicator->broadcast(numbers, root);
                expect<float>(device, numbers, joined.what,
                              [&](std::int64_t i) { return payload(joined.ranks[static_cast<std::size_t>(root)], i); });
            }
        }
        joined.communicator->barrier();
    });
}

TEST_P(EveryTransport, SendsRoundARingBeforeItReceives) {
    in_groups([](HostDevice& device, Joined& joined, int rank) {
        Communicator& group = *joined.communicator;
        if (group.size() == 1) return;
        const int next = (group.rank() + 1) % group.size();
        const int previous = (group.rank() + group.size() - 1) % group.size();
        const int from = joined.ranks[static_cast<std::size_t>(previous)];
        for (const std::int64_t elements : {0, 1, 20'000}) {  // the last one is past any eager limit
            const Tensor out = make<float>(device, {elements}, [&](std::int64_t i) { return payload(rank, i); });
            const Tensor in = make<float>(device, {elements}, [](std::int64_t) { return -9; });
            group.send(out, next);
            // A sent tensor may be used at once.
            if (elements > 0) device.write(out, std::vector<float>(static_cast<std::size_t>(elements), -5).data());
            group.receive(in, previous);
            expect<float>(device, in, joined.what, [&](std::int64_t i) { return payload(from, i); });
        }
    });
}

TEST_P(EveryTransport, KeepsMessagesBetweenTwoInOrderHoweverTheyAreWaitedFor) {
    in_groups([](HostDevice& device, Joined& joined, int rank) {
        Communicator& group = *joined.communicator;
        constexpr int kMessages = 6;
        std::vector<Tensor> in;
        std::vector<std::unique_ptr<Pending>> pending;
        for (int other = 0; other < group.size(); ++other) {
            if (other == group.rank()) continue;
            for (int m = 0; m < kMessages; ++m) {
                const Tensor out =
                    make<std::int32_t>(device, {1 + m}, [&](std::int64_t i) { return 1000.0 * rank + 10 * m + static_cast<double>(i); });
                group.start_send(out, other)->wait();
                in.push_back(make<std::int32_t>(device, {1 + m}, [](std::int64_t) { return -1; }));
                pending.push_back(group.start_receive(in.back(), other));
            }
        }
        while (!pending.empty()) {  // the last one first
            pending.back()->wait();
            pending.pop_back();
        }
        std::size_t at = 0;
        for (int other = 0; other < group.size(); ++other) {
            if (other == group.rank()) continue;
            for (int m = 0; m < kMessages; ++m) {
                expect<std::int32_t>(device, in[at++], joined.what, [&](std::int64_t i) {
                    return 1000.0 * joined.ranks[static_cast<std::size_t>(other)] + 10 * m + static_cast<double>(i);
                });
            }
        }
    });
}

// --- Asynchronous starts -------------------------------------------------------------------------------------------

TEST_P(EveryTransport, OverlapsTwoGroupsWaitedForInDifferentOrders) {
    on_every_rank([](const Place& place) {
        HostDevice device;
        auto all = groups(place, GetParam());
        std::vector<std::int32_t> everyone(static_cast<std::size_t>(place.world.size));
        std::iota(everyone.begin(), everyone.end(), 0);
        const auto whole_world = join(place, "world", everyone);
        const Reduced in_everyone(everyone);
        const int rank = place.world.rank;
        const auto mine = [&](std::int64_t i) { return payload(rank, i); };
        for (int round = 0; round < 12; ++round) {
            const std::int64_t elements = round % 2 == 0 ? 17 : 6'000;
            const Tensor in_world = make<float>(device, {elements}, mine);
            std::vector<Tensor> in_groups;
            std::vector<std::unique_ptr<Pending>> pending;
            pending.push_back(whole_world->start_all_reduce(in_world, Reduction::sum));
            for (auto& joined : all) {
                const int size = joined.communicator->size();
                in_groups.push_back(make<float>(device, {elements}, mine));
                pending.push_back(joined.communicator->start_all_reduce(in_groups.back(), Reduction::sum));
                in_groups.push_back(make<float>(device, {elements * size}, [](std::int64_t) { return -3; }));
                pending.push_back(joined.communicator->start_all_gather(make<float>(device, {0}, mine), make<float>(device, {0}, mine)));
                const Tensor part = make<float>(device, {elements}, mine);
                pending.push_back(joined.communicator->start_all_gather(part, in_groups.back()));
                in_groups.push_back(part);  // lives until it is waited for
            }
            if ((rank + round) % 3 == 1) std::reverse(pending.begin(), pending.end());
            if ((rank + round) % 3 == 2) std::rotate(pending.begin(), pending.begin() + 1, pending.end());
            for (auto& each : pending) {
                each->wait();
                each->wait();  // again does nothing
            }
            expect<float>(device, in_world, "world", [&](std::int64_t i) { return in_everyone.sum(i); });
            for (std::size_t g = 0; g < all.size(); ++g) {
                const auto& ranks = all[g].ranks;
                expect<float>(device, in_groups[3 * g], all[g].what, [&](std::int64_t i) { return all[g].reduced.sum(i); });
                expect<float>(device, in_groups[3 * g + 1], all[g].what,
                              [&](std::int64_t i) { return payload(ranks[static_cast<std::size_t>(i / elements)], i % elements); });
            }
        }
    });
}

TEST_P(EveryTransport, WaitsInTheDestructorOfWhatWasNotWaitedFor) {
    in_groups([](HostDevice& device, Joined& joined, int rank) {
        const Tensor numbers = make<float>(device, {5000}, [&](std::int64_t i) { return payload(rank, i); });
        { const auto pending = joined.communicator->start_all_reduce(numbers, Reduction::sum); }
        expect<float>(device, numbers, joined.what, [&](std::int64_t i) { return joined.reduced.sum(i); });
    });
}

TEST_P(EveryTransport, KeepsGroupsOfTheSameNameAndRanksApart) {
    on_every_rank([](const Place& place) {
        HostDevice device;
        const auto ranks = neighbours(place, GetParam());
        if (ranks.empty()) return;
        const Reduced reduced(ranks);
        const auto one = join(place, "twin", ranks);
        const auto two = join(place, "twin", ranks);
        const int rank = place.world.rank;
        const Tensor a = make<float>(device, {9}, [&](std::int64_t i) { return payload(rank, i); });
        const Tensor b = make<float>(device, {9}, [&](std::int64_t i) { return payload(rank, i + 5); });
        auto first = one->start_all_reduce(a, Reduction::sum);
        auto second = two->start_all_reduce(b, Reduction::sum);
        if (rank % 2 == 0) std::swap(first, second);
        first->wait();
        second->wait();
        expect<float>(device, a, "first twin", [&](std::int64_t i) { return reduced.sum(i); });
        expect<float>(device, b, "second twin", [&](std::int64_t i) { return reduced.sum(i + 5); });
        if (one->size() > 1) {
            const int next = (one->rank() + 1) % one->size();
            const int previous = (one->rank() + one->size() - 1) % one->size();
            const int from = ranks[static_cast<std::size_t>(previous)];
            two->send(make<float>(device, {1}, [&](std::int64_t) { return 100 + rank; }), next);
            one->send(make<float>(device, {1}, [&](std::int64_t) { return 200 + rank; }), next);
            one->receive(a.slice(0, 1), previous);
            two->receive(b.slice(0, 1), previous);
            expect<float>(device, a.slice(0, 1), "first twin", [&](std::int64_t) { return 200 + from; });
            expect<float>(device, b.slice(0, 1), "second twin", [&](std::int64_t) { return 100 + from; });
        }
    });
}

// --- Many times ----------------------------------------------------------------------------------------------------

TEST_P(EveryTransport, StaysRightOverManyMixedRounds) {
    in_groups([](HostDevice& device, Joined& joined, int rank) {
        Communicator& group = *joined.communicator;
        std::mt19937 random(42);  // the same on every rank
        for (int round = 0; round < 150; ++round) {
            const auto choice = random() % 5;
            const std::int64_t elements = 1 + static_cast<std::int64_t>(random() % (round % 10 == 0 ? 4000 : 40));
            const auto mine = [&](std::int64_t i) { return payload(rank, i + round); };
            const auto sum = [&](std::int64_t i) { return joined.reduced.sum(i + round); };
            const Tensor numbers = make<float>(device, {elements}, mine);
            const std::string what = fmt::format("{} round {}", joined.what, round);
            if (choice == 0) {
                group.all_reduce(numbers, Reduction::sum);
                expect<float>(device, numbers, what, sum);
            } else if (choice == 1) {
                const Tensor whole = make<float>(device, {elements * group.size()}, [](std::int64_t) { return 0; });
                group.all_gather(numbers, whole);
                expect<float>(device, whole, what, [&](std::int64_t i) {
                    return payload(joined.ranks[static_cast<std::size_t>(i / elements)], i % elements + round);
                });
            } else if (choice == 2) {
                const Tensor whole = make<float>(device, {elements * group.size()}, mine);
                group.reduce_scatter(whole, numbers, Reduction::sum);
                expect<float>(device, numbers, what, [&](std::int64_t i) { return sum(group.rank() * elements + i); });
            } else if (choice == 3) {
                const int root = static_cast<int>(random() % static_cast<unsigned>(group.size()));
                group.broadcast(numbers, root);
                expect<float>(device, numbers, what,
                              [&](std::int64_t i) { return payload(joined.ranks[static_cast<std::size_t>(root)], i + round); });
            } else if (group.size() > 1) {
                const int previous = (group.rank() + group.size() - 1) % group.size();
                group.send(numbers, (group.rank() + 1) % group.size());
                group.receive(numbers, previous);
                expect<float>(device, numbers, what,
                              [&](std::int64_t i) { return payload(joined.ranks[static_cast<std::size_t>(previous)], i + round); });
            }
        }
    });
}

// --- Counting ------------------------------------------------------------------------------------------------------

TEST_P(EveryTransport, CountsWhatItMovesAsTheVerbsReportIt) {
    on_every_rank([](const Place& place) {
        HostDevice device;
        const auto ranks = neighbours(place, GetParam());
        if (ranks.empty()) return;
        const auto group = join(place, "counted", ranks);
        model::CollectiveCounter reported;
        group->set_listener(&reported);
        const int size = group->size();
        const auto zero = [](std::int64_t) { return 0; };
        const Tensor part = make<float>(device, {6}, zero);
        const Tensor whole = make<float>(device, {6 * size}, zero);
        group->all_reduce(part, Reduction::sum);
        group->start_all_reduce(make<Bf16>(device, {7}, zero), Reduction::average)->wait();
        group->all_gather(part, whole);
        group->reduce_scatter(whole, part, Reduction::sum);
        group->broadcast(part, size - 1);
        group->barrier();
        std::vector<std::int64_t> rows(static_cast<std::size_t>(size), 2);
        group->all_to_all(make<float>(device, {2 * size, 3}, zero), make<float>(device, {2 * size, 3}, zero), rows, rows);
        if (size > 1) {
            group->send(part, (group->rank() + 1) % size);
            group->receive(part, (group->rank() + size - 1) % size);
        }
        using Total = model::CollectiveTotal;
        const auto wanted = [&](Total total) { return size == 1 ? Total{} : total; };
        EXPECT_EQ(reported.of("counted", CollectiveKind::all_reduce), wanted({2, 24 + 14}));
        EXPECT_EQ(reported.of("counted", CollectiveKind::all_gather), wanted({1, 24 * size}));
        EXPECT_EQ(reported.of("counted", CollectiveKind::reduce_scatter), wanted({1, 24 * size}));
        EXPECT_EQ(reported.of("counted", CollectiveKind::broadcast), wanted({1, 24}));
        EXPECT_EQ(reported.of("counted", CollectiveKind::barrier), wanted({1, 0}));
        EXPECT_EQ(reported.of("counted", CollectiveKind::all_to_all), wanted({1, 24 * size}));
        EXPECT_EQ(reported.of("counted", CollectiveKind::send), wanted({1, 24}));
        EXPECT_EQ(reported.of("counted", CollectiveKind::receive), wanted({1, 24}));
        for (const auto& [key, total] : reported.totals()) {
            EXPECT_EQ(place.traffic.of(key.first, key.second), total) << to_string(key.second);
        }
        EXPECT_EQ(place.traffic.all(), reported.all());
        // One message more is seen.
        if (size > 1) {
            group->set_listener(nullptr);
            group->all_reduce(part, Reduction::sum);
            EXPECT_NE(place.traffic.all(), reported.all());
        }
    });
}

}  // namespace
}  // namespace mgplan::tests::communicator_contract
