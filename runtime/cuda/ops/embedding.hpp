#pragma once
// See model/ops/embedding.hpp.

#include "model/ops/scratch.hpp"
#include "runtime/cuda/ops/by_key.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

template <class Word>
struct GatherRows {
    const std::int32_t* ids;
    const Word* table;
    Word* y;
    std::int64_t width, first, table_rows;
    MGPLAN_BOTH void operator()(std::int64_t i) const {
        const auto [row, column] = row_column(i, width);
        const std::int64_t place = ids[row] - first;
        y[i] = place >= 0 && place < table_rows ? table[place * width + column] : Word{};
    }
};

/// A part of the id: rows with the same id have the same one.
struct BucketOfId {
    const std::int32_t* ids;
    std::int32_t* buckets;
    MGPLAN_BOTH void operator()(std::int64_t row) const {
        buckets[row] = static_cast<std::int32_t>(static_cast<std::uint32_t>(ids[row]) % model::kEmbeddingBuckets);
    }
};

/// Links each row to the next one with the same id, and marks rows that have one before them. Rows are walked by the row
/// that has none, in order, without atomics: the sum is the same on every run. One team for each place of by_bucket, where
/// the rows of a bucket are contiguous in rising order: a search through all later rows of each row would take quadratic time.
struct LinkRows {
    const std::int32_t *ids, *by_bucket;
    const std::int64_t *counts, *starts;  // by bucket
    std::int32_t *next, *has_earlier;     // has_earlier starts as zeros

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t place) const {
        const std::int32_t row = by_bucket[place], id = ids[row];
        const std::int64_t bucket = static_cast<std::uint32_t>(id) % model::kEmbeddingBuckets, end = starts[bucket] + counts[bucket];
        std::int64_t found = end;
        constexpr std::int64_t kStretch = 1024;  // looked through at once: most repeated ids are found early
        for (std::int64_t begin = place + 1; begin < end && found == end; begin += kStretch) {
            const std::int64_t count = end - begin < kStretch ? end - begin : kStretch;
            found = team.reduce(count, end, Smaller{}, [&](std::int64_t i) { return ids[by_bucket[begin + i]] == id ? begin + i : end; });
        }
        team.once([&] {
            next[row] = found < end ? by_bucket[found] : -1;
            if (found < end) has_earlier[by_bucket[found]] = 1;
        });
    }
};

template <class Element, class Gradient>
struct AddLinkedRows {
    using Sum = Compute<Element>;
    const Element* dy;
    const std::int32_t *ids, *next, *has_earlier;
    Gradient* gradient;
    std::int64_t width, first, table_rows;

    MGPLAN_BOTH void operator()(std::int64_t i) const {
        auto [row, column] = row_column(i, width);
        const std::int64_t place = ids[row] - first;
        if (place < 0 || place >= table_rows || has_earlier[row] != 0) return;
        Sum sum = Sum(gradient[place * width + column]);
        for (; row >= 0; row = next[row]) sum += Sum(dy[row * width + column]);
        gradient[place * width + column] = Gradient(sum);
    }
};

template <class Launcher>
void embedding(model::Device& device, const model::EmbeddingArguments& x) {
    const std::int64_t row = x.width * bytes_of(x.table.dtype);
    with_word(static_cast<std::uint64_t>(row) | address(x.table.data) | address(x.y.data), [&]<class Word>() {
        const std::int64_t words = row / static_cast<std::int64_t>(sizeof(Word));
        Launcher::of(device).each(x.rows * words, GatherRows<Word>{values<std::int32_t>(x.ids), values<Word>(x.table), values<Word>(x.y),
                                                                   words, x.first, x.table_rows});
    });
}

template <class Launcher>
void embedding_backward(model::Device& device, const model::EmbeddingBackwardArguments& x) {
    auto&& launcher = Launcher::of(device);
    constexpr std::int64_t kBuckets = model::kEmbeddingBuckets;
    auto* const counts = values<std::int64_t>(x.scratch);
    std::int64_t* const starts = counts + kBuckets + 1;
    auto* const next = reinterpret_cast<std::int32_t*>(starts + kBuckets);  // the rows' buckets at first
    std::int32_t* const has_earlier = next + x.rows;
    std::int32_t* const by_bucket = has_earlier + x.rows;
    const auto* const ids = values<std::int32_t>(x.ids);
    launcher.each(x.rows, BucketOfId{ids, next});
    list_by_key(launcher, next, x.rows, kBuckets, counts, starts, by_bucket);
    launcher.zero(has_earlier, x.rows * 4);
    launcher.teams(x.rows, 64, LinkRows{ids, by_bucket, counts, starts, next, has_earlier});
    with_types(x.dy.dtype, x.gradient.dtype, [&]<class Element, class Gradient>() {
        launcher.each(x.rows * x.width, AddLinkedRows<Element, Gradient>{values<Element>(x.dy), ids, next, has_earlier,
                                                                         values<Gradient>(x.gradient), x.width, x.first, x.table_rows});
    });
}

}  // namespace mgplan::runtime::cuda
