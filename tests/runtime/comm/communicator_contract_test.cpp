// The contract of model/communicator/communicator.hpp, run by every transport's test program: reductions, gathers, scatters, all-to-all.
#include <cstdint>
#include <limits>
#include <tuple>

#include "tests/runtime/comm/communicator_contract_groups.hpp"

namespace mgplan::tests::communicator_contract {
namespace {

using model::MemoryCategory;
using model::Reduction;

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

INSTANTIATE_TEST_SUITE_P(InGroupsOf, EveryTransport, testing::ValuesIn(group_sizes()), testing::PrintToStringParamName());

}  // namespace
}  // namespace mgplan::tests::communicator_contract
