#pragma once
// See model/ops/embedding.hpp.

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

/// Links each row to the next one with the same id, and marks rows that have one before them. Rows are walked by the row
/// that has none, in order, without atomics: the sum is the same on every run.
struct LinkRows {
    const std::int32_t* ids;
    std::int32_t *next, *has_earlier;  // has_earlier starts as zeros
    std::int64_t rows;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        const std::int32_t id = ids[row];
        std::int64_t found = rows;
        constexpr std::int64_t kStretch = 4096;  // looked through at once: most repeated ids are found early
        for (std::int64_t begin = row + 1; begin < rows && found == rows; begin += kStretch) {
            const std::int64_t count = rows - begin < kStretch ? rows - begin : kStretch;
            found = team.reduce(count, rows, Smaller{}, [&](std::int64_t i) { return ids[begin + i] == id ? begin + i : rows; });
        }
        team.once([&] {
            next[row] = found < rows ? static_cast<std::int32_t>(found) : -1;
            if (found < rows) has_earlier[found] = 1;
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
    auto* const next = values<std::int32_t>(x.scratch);
    std::int32_t* const has_earlier = next + x.rows;
    const auto* const ids = values<std::int32_t>(x.ids);
    launcher.zero(has_earlier, x.rows * 4);
    launcher.teams(x.rows, 128, LinkRows{ids, next, has_earlier, x.rows});
    with_types(x.dy.dtype, x.gradient.dtype, [&]<class Element, class Gradient>() {
        launcher.each(x.rows * x.width, AddLinkedRows<Element, Gradient>{values<Element>(x.dy), ids, next, has_earlier,
                                                                         values<Gradient>(x.gradient), x.width, x.first, x.table_rows});
    });
}

}  // namespace mgplan::runtime::cuda
