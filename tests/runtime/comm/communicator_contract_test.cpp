// The contract of model/communicator/communicator.hpp, run by every transport's test program.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <tuple>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "tests/runtime/comm/communicator_contract.hpp"
#include "tests/support/host_device.hpp"

namespace mgplan::tests::communicator_contract_test {
namespace {

using model::CollectiveKind;
using model::Communicator;
using model::MemoryCategory;
using model::Pending;
using model::Reduction;
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
constexpr std::int64_t kPeriod = 13;
double payload(int rank, std::int64_t index) {
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

std::unique_ptr<Communicator> join(const Place& place, const std::string& name, const std::vector<std::int32_t>& ranks) {
    return place.world.join(name, ranks);
}

std::vector<std::int32_t> neighbours(const Place& place, int size) {  // empty for those left over
    std::vector<std::int32_t> ranks;
    const int first = place.world.rank / size * size;
    if (first + size > place.world.size) return {};
    for (int i = 0; i < size; ++i) ranks.push_back(first + i);
    return ranks;
}

std::vector<std::int32_t> strided(const Place& place, int size) {
    std::vector<std::int32_t> ranks;
    const int stride = place.world.size / size;
    if (place.world.rank >= stride * size) return {};
    for (int i = size - 1; i >= 0; --i) ranks.push_back(place.world.rank % stride + i * stride);  // the highest is member 0
    return ranks;
}

// This rank's groups: neighbours, and ranks far apart in falling order. Left-over ranks of the world are in none.
std::vector<Joined> groups(const Place& place, int size) {
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

// --- Reductions ----------------------------------------------------------------------------------------------------

template <class Type>
void check_all_reduce(HostDevice& device, Joined& joined, int rank) {
    for (const std::int64_t elements : {1, 7, 1025, 9'000}) {
        const auto mine = [&](std::int64_t i) { return payload(rank, i); };
        const Tensor sum = make<Type>(device, {elements}, mine);
        joined.communicator->all_reduce(sum, Reduction::sum);
        expect<Type>(device, sum, joined.what + " sum", [&](std::int64_t i) { return joined.reduced.sum(i); });
        const Tensor maximum = make<Type>(device, {elements}, mine);
        joined.communicator->all_reduce(maximum, Reduction::maximum);
        expect<Type>(device, maximum, joined.what + " maximum", [&](std::int64_t i) { return joined.reduced.maximum(i); });
    }
}

TEST_P(EveryTransport, AllReducesSumsAndMaximaOfEveryType) {
    in_groups([](HostDevice& device, Joined& joined, int rank) {
        check_all_reduce<float>(device, joined, rank);
        check_all_reduce<double>(device, joined, rank);
        check_all_reduce<Bf16>(device, joined, rank);
        check_all_reduce<std::int32_t>(device, joined, rank);
    });
}

TEST_P(EveryTransport, DividesTheSumByTheNumberOfRanksForAnAverage) {
    in_groups([](HostDevice& device, Joined& joined, int rank) {
        const int size = joined.communicator->size();
        const auto mine = [&](std::int64_t i) { return payload(rank, i); };
        const Tensor wide = make<double>(device, {100}, mine);
        joined.communicator->all_reduce(wide, Reduction::average);
        expect<double>(device, wide, joined.what, [&](std::int64_t i) { return joined.reduced.sum(i) / size; });
        const Tensor single = make<float>(device, {100}, mine);
        joined.communicator->all_reduce(single, Reduction::average);
        expect<float>(device, single, joined.what,
                      [&](std::int64_t i) { return static_cast<float>(joined.reduced.sum(i)) / static_cast<float>(size); });
        const Tensor whole = make<float>(device, {10 * size}, mine);
        const Tensor part = device.empty({10}, Dtype::fp32, MemoryCategory::communication, "part");
        joined.communicator->reduce_scatter(whole, part, Reduction::average);
        expect<float>(device, part, joined.what, [&](std::int64_t i) {
            return static_cast<float>(joined.reduced.sum(10 * joined.communicator->rank() + i)) / static_cast<float>(size);
        });
        // bf16: the average of equal numbers is that number.
        const Tensor narrow = make<Bf16>(device, {100}, [](std::int64_t i) { return static_cast<double>(i); });
        joined.communicator->all_reduce(narrow, Reduction::average);
        expect<Bf16>(device, narrow, joined.what, [](std::int64_t i) { return static_cast<double>(i); });
    });
}

TEST_P(EveryTransport, RoundsSumsOfBf16Once) {
    // 256 + 1 is 256 in bf16: added in bf16 the ones would be lost.
    in_groups([](HostDevice& device, Joined& joined, int) {
        const int size = joined.communicator->size();
        const Tensor numbers = make<Bf16>(device, {3}, [&](std::int64_t) { return joined.communicator->rank() == 0 ? 256 : 1; });
        joined.communicator->all_reduce(numbers, Reduction::sum);
        // 256 + (size - 1), rounded to a multiple of two, ties to a multiple of four.
        const int ones = size - 1;
        const int rounded = ones % 4 == 3 ? ones + 1 : ones / 2 * 2;
        expect<Bf16>(device, numbers, joined.what, [&](std::int64_t) { return 256 + rounded; });
        const Tensor whole = make<Bf16>(device, {3 * size}, [&](std::int64_t) { return joined.communicator->rank() == 0 ? 256 : 1; });
        const Tensor part = device.empty({3}, Dtype::bf16, MemoryCategory::communication, "part");
        joined.communicator->reduce_scatter(whole, part, Reduction::sum);
        expect<Bf16>(device, part, joined.what, [&](std::int64_t) { return 256 + rounded; });
    });
}

TEST_P(EveryTransport, LetsNoMaximumHideANaN) {
    in_groups([](HostDevice& device, Joined& joined, int rank) {
        const double nan = std::numeric_limits<double>::quiet_NaN();
        const auto bad = static_cast<std::size_t>(joined.communicator->size() / 2);
        const auto mine = [&](std::int64_t i) { return i == 1 && rank == joined.ranks[bad] ? nan : payload(rank, i); };
        const auto wanted = [&](std::int64_t i) { return i == 1 ? nan : joined.reduced.maximum(i); };
        const Tensor single = make<float>(device, {3}, mine);
        joined.communicator->all_reduce(single, Reduction::maximum);
        expect<float>(device, single, joined.what, wanted);
        const Tensor wide = make<double>(device, {3}, mine);
        joined.communicator->all_reduce(wide, Reduction::maximum);
        expect<double>(device, wide, joined.what, wanted);
        const Tensor narrow = make<Bf16>(device, {3}, mine);
        joined.communicator->all_reduce(narrow, Reduction::maximum);
        expect<Bf16>(device, narrow, joined.what, wanted);
    });
}

// --- Gathers and scatters ------------------------------------------------------------------------------------------

template <class Type>
void check_gather_and_scatter(HostDevice& device, Joined& joined, int rank) {
    const int size = joined.communicator->size();
    const int me = joined.communicator->rank();
    for (const std::int64_t rows : {1, 5, 400}) {
        constexpr std::int64_t kColumns = 3;
        const std::int64_t piece = rows * kColumns;
        const Shape part_shape{rows, kColumns};
        const Shape whole_shape{rows * size, kColumns};
        const auto gathered = [&](std::int64_t i) { return payload(joined.ranks[static_cast<std::size_t>(i / piece)], i % piece); };

        const Tensor part = make<Type>(device, part_shape, [&](std::int64_t i) { return payload(rank, i); });
        const Tensor whole = make<Type>(device, whole_shape, [](std::int64_t) { return -7; });
        joined.communicator->all_gather(part, whole);
        expect<Type>(device, whole, joined.what + " all_gather", gathered);

        const Tensor in_place =
            make<Type>(device, whole_shape, [&](std::int64_t i) { return i / piece == me ? payload(rank, i % piece) : -7; });
        joined.communicator->all_gather(in_place.slice(me * rows, (me + 1) * rows), in_place);
        expect<Type>(device, in_place, joined.what + " all_gather in place", gathered);

        const auto scattered = [&](std::int64_t i) { return joined.reduced.sum(me * piece + i); };
        const Tensor source = make<Type>(device, whole_shape, [&](std::int64_t i) { return payload(rank, i); });
        joined.communicator->reduce_scatter(source, part, Reduction::sum);
        expect<Type>(device, part, joined.what + " reduce_scatter", scattered);
        expect<Type>(device, source, joined.what + " source of reduce_scatter", [&](std::int64_t i) { return payload(rank, i); });

        const Tensor own_piece = source.slice(me * rows, (me + 1) * rows);
        joined.communicator->reduce_scatter(source, own_piece, Reduction::sum);
        expect<Type>(device, own_piece, joined.what + " reduce_scatter in place", scattered);
    }
}

TEST_P(EveryTransport, GathersPiecesAndScattersSums) {
    in_groups([](HostDevice& device, Joined& joined, int rank) {
        check_gather_and_scatter<float>(device, joined, rank);
        check_gather_and_scatter<double>(device, joined, rank);
        check_gather_and_scatter<Bf16>(device, joined, rank);
        check_gather_and_scatter<std::int32_t>(device, joined, rank);
    });
}

// Member m's rows in a round; some have none, in round 2 nobody has.
std::int64_t uneven_rows(int member, int round) {
    return round == 2 ? 0 : (3 * member + round) % 4 * (round == 1 ? 40 : 1);
}

template <class Type>
void check_uneven_parts(HostDevice& device, Joined& joined, int rank) {
    constexpr std::int64_t kColumns = 3;
    const int size = joined.communicator->size();
    const auto me = static_cast<std::size_t>(joined.communicator->rank());
    for (int round = 0; round < 3; ++round) {
        std::vector<std::int64_t> rows;
        std::vector<double> gathered;
        std::int64_t before = 0;
        for (int member = 0; member < size; ++member) {
            if (static_cast<std::size_t>(member) == me) before = std::ssize(gathered);
            rows.push_back(uneven_rows(member, round));
            for (std::int64_t i = 0; i < rows.back() * kColumns; ++i)
                gathered.push_back(payload(joined.ranks[static_cast<std::size_t>(member)], i));
        }
        const Shape whole_shape{std::ssize(gathered) / kColumns, kColumns};
        const Tensor part = make<Type>(device, {rows[me], kColumns}, [&](std::int64_t i) { return payload(rank, i); });
        const Tensor whole = make<Type>(device, whole_shape, [](std::int64_t) { return -7; });
        joined.communicator->all_gather_rows(part, whole, rows);
        expect<Type>(device, whole, joined.what + " all_gather_rows",
                     [&](std::int64_t i) { return gathered[static_cast<std::size_t>(i)]; });

        const Tensor source = make<Type>(device, whole_shape, [&](std::int64_t i) { return payload(rank, i); });
        joined.communicator->reduce_scatter_rows(source, part, rows, Reduction::sum);
        expect<Type>(device, part, joined.what + " reduce_scatter_rows", [&](std::int64_t i) { return joined.reduced.sum(before + i); });
    }
}

TEST_P(EveryTransport, GathersAndScattersUnevenParts) {
    in_groups([](HostDevice& device, Joined& joined, int rank) {
        check_uneven_parts<float>(device, joined, rank);
        check_uneven_parts<double>(device, joined, rank);
        check_uneven_parts<Bf16>(device, joined, rank);
    });
}

// --- All-to-all ----------------------------------------------------------------------------------------------------

// Rows from one member to another; many are zero, and in round 2 member 0 sends nothing, in round 3 nobody does.
std::int64_t rows_between(int from, int to, int round) {
    if (round == 3 || (round == 2 && from == 0)) return 0;
    return (3 * from + 5 * to + round) % 4 * (round == 1 ? 40 : 1);
}

template <class Type>
void check_all_to_all(HostDevice& device, Joined& joined) {
    constexpr std::int64_t kColumns = 5;
    const int size = joined.communicator->size();
    const int me = joined.communicator->rank();
    for (int round = 0; round < 4; ++round) {
        std::vector<std::int64_t> send;
        std::vector<std::int64_t> receive;
        std::vector<double> sent;
        std::vector<double> wanted;
        const auto element = [](int from, int to, std::int64_t i) { return static_cast<double>((7 * from + 11 * to + i) % 200); };
        for (int other = 0; other < size; ++other) {
            send.push_back(rows_between(me, other, round));
            receive.push_back(rows_between(other, me, round));
            for (std::int64_t i = 0; i < send.back() * kColumns; ++i) sent.push_back(element(me, other, i));
            for (std::int64_t i = 0; i < receive.back() * kColumns; ++i) wanted.push_back(element(other, me, i));
        }
        const std::int64_t rows_out = std::ssize(sent) / kColumns;
        const std::int64_t rows_in = std::ssize(wanted) / kColumns;
        const Tensor from = make<Type>(device, {rows_out, kColumns}, [&](std::int64_t i) { return sent[static_cast<std::size_t>(i)]; });
        const Tensor to = make<Type>(device, {rows_in + 1, kColumns}, [](std::int64_t) { return -1; });  // one row more: left alone
        joined.communicator->all_to_all(from, to, send, receive);
        expect<Type>(device, to, joined.what + " all_to_all",
                     [&](std::int64_t i) { return i < std::ssize(wanted) ? wanted[static_cast<std::size_t>(i)] : -1; });
    }
}

TEST_P(EveryTransport, SendsUnevenRowsFromEachToEach) {
    in_groups([](HostDevice& device, Joined& joined, int) {
        check_all_to_all<float>(device, joined);
        check_all_to_all<Bf16>(device, joined);
        check_all_to_all<std::int32_t>(device, joined);
    });
}

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

INSTANTIATE_TEST_SUITE_P(InGroupsOf, EveryTransport, testing::ValuesIn(group_sizes()), testing::PrintToStringParamName());

}  // namespace
}  // namespace mgplan::tests::communicator_contract_test
