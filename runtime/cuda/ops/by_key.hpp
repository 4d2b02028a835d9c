#pragma once
// Entries put together by a small key: copies by their expert, tokens by a part of their id. In a fixed order, without
// atomics.

#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// Sets counts[k] to the number of entries with key k, or adds it, one team per key; the team after the last key counts keys that are
/// too large.
template <class Count>
struct CountEntries {
    const std::int32_t* keys;
    Count* counts;
    std::int64_t entries, key_count;
    bool adds = false;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t key) const {
        const std::int64_t count = team.reduce(entries, std::int64_t{0}, Add{}, [&](std::int64_t i) {
            const std::int64_t own = keys[i];
            return std::int64_t{(key == key_count ? own >= key_count : own == key) ? 1 : 0};
        });
        team.once([&] { counts[key] = static_cast<Count>(adds ? counts[key] + count : count); });
    }
};

/// starts[k]: sum of the counts before k's. For one team.
template <class Count>
struct FirstPlaces {
    const Count* counts;
    std::int64_t* starts;
    std::int64_t key_count;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t /*one*/) const {
        team.once([&] {
            std::int64_t sum = 0;
            for (std::int64_t key = 0; key < key_count; ++key) {
                starts[key] = sum;
                sum += counts[key];
            }
        });
    }
};

/// list[starts[k]], …: the entries with key k in rising order, for one team each.
struct ListEntries {
    const std::int32_t* keys;
    const std::int64_t* starts;
    std::int32_t* list;
    std::int64_t entries;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t key) const {
        std::int32_t* const own = list + starts[key];
        team.select(
            entries, [&](std::int64_t i) { return keys[i] == key; },
            [&](std::int64_t i, std::int64_t n) { own[n] = static_cast<std::int32_t>(i); });
    }
};

/// The three: counts (key_count + 1), starts (key_count), list (entries).
template <class Launcher>
void list_by_key(Launcher& launcher, const std::int32_t* keys, std::int64_t entries, std::int64_t key_count, std::int64_t* counts,
                 std::int64_t* starts, std::int32_t* list) {
    launcher.teams(key_count + 1, 256, CountEntries<std::int64_t>{keys, counts, entries, key_count});
    launcher.teams(1, 32, FirstPlaces<std::int64_t>{counts, starts, key_count});
    launcher.teams(key_count, 256, ListEntries{keys, starts, list, entries});
}

}  // namespace mgplan::runtime::cuda
