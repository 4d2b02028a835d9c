#pragma once
// See model/ops/router.hpp; the formulas are those of runtime/cpu/ops/router.cpp.

#include <algorithm>
#include <vector>

#include "runtime/cuda/ops/add_sum.hpp"
#include "runtime/cuda/ops/arrays.hpp"
#include "runtime/cuda/ops/by_key.hpp"
#include "runtime/cuda/ops/elementwise.hpp"
#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

template <class Sum>
struct SoftmaxOf {
    Sum maximum, sum;
};

template <class Element, class Team>
MGPLAN_BOTH SoftmaxOf<Compute<Element>> softmax_of(const Team& team, const Element* logits, std::int64_t count) {
    using Sum = Compute<Element>;
    const Sum most = team.reduce(count, -infinity<Sum>(), Larger{}, [&](std::int64_t i) { return Sum(logits[i]); });
    const Sum sum = team.reduce(count, Sum{0}, Add{}, [&](std::int64_t i) { return exponential(Sum(logits[i]) - most); });
    return {most, sum};
}

template <class Element>
struct RouteRow {
    using Sum = Compute<Element>;
    const Element* logits;
    std::int32_t* experts;
    Sum *probabilities, *scores;
    std::int64_t expert_count, top_k;
    bool softmax, balanced;
    const Sum* bias;  ///< nullptr: none
    std::int64_t groups, group_top_k, group_scores;
    bool normalised;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        const Element* const in = logits + row * expert_count;
        Sum* const score = scores + row * expert_count;
        Sum* const chosen = probabilities + row * top_k;
        if (softmax) {
            const auto whole = softmax_of(team, in, expert_count);
            team.each(expert_count, [&](std::int64_t i) { score[i] = exponential(Sum(in[i]) - whole.maximum) / whole.sum; });
        } else {
            team.each(expert_count, [&](std::int64_t i) { score[i] = 1 / (1 + exponential(-Sum(in[i]))); });
        }
        team.barrier();
        std::int32_t* const ids = experts + row * top_k;
        if (balanced) {
            team.each(top_k, [&](std::int64_t slot) { ids[slot] = static_cast<std::int32_t>((row * top_k + slot) % expert_count); });
        } else {
            const auto key = [&](std::int64_t i) {
                const Sum own = softmax && bias == nullptr ? Sum(in[i]) : score[i];
                return bias == nullptr ? own : own + bias[i];
            };
            choose(team, key, groups_taken(team, key), ids);
        }
        team.barrier();
        if (!softmax || !normalised) {
            team.each(top_k, [&](std::int64_t slot) { chosen[slot] = score[ids[slot]]; });
            if (!normalised) return;
        } else {
            const Sum most = team.reduce(top_k, -infinity<Sum>(), Larger{}, [&](std::int64_t slot) { return Sum(in[ids[slot]]); });
            team.each(top_k, [&](std::int64_t slot) { chosen[slot] = exponential(Sum(in[ids[slot]]) - most); });
        }
        team.barrier();
        const Sum sum = team.reduce(top_k, Sum{0}, Add{}, [&](std::int64_t slot) { return chosen[slot]; });
        team.each(top_k, [&](std::int64_t slot) { chosen[slot] /= sum; });
    }

private:
    /// Sum of the group's largest keys, from the largest on.
    template <class Key>
    MGPLAN_BOTH Sum group_sum(Key key, std::int64_t group) const {
        const std::int64_t members = expert_count / groups, first = group * members;
        Candidate<Sum> last{Sum{0}, -1};
        Sum sum = 0;
        for (std::int64_t slot = 0; slot < group_scores; ++slot) {
            Candidate<Sum> best{Sum{0}, -1};
            for (std::int64_t i = first; i < first + members; ++i) {
                const Candidate<Sum> here{key(i), i};
                if ((slot == 0 || precedes(last, here)) && precedes(here, best)) best = here;
            }
            sum += best.value;
            last = best;
        }
        return sum;
    }

    /// A bit for each group that the row takes; every lane gets it.
    template <class Team, class Key>
    MGPLAN_BOTH std::uint64_t groups_taken(const Team& team, Key key) const {
        std::uint64_t taken = 0;
        if (groups == 0) return taken;
        for (std::int64_t slot = 0; slot < group_top_k; ++slot) {
            const Candidate<Sum> best = team.reduce(groups, Candidate<Sum>{Sum{0}, -1}, First{}, [&](std::int64_t group) {
                if (((taken >> group) & 1U) != 0) return Candidate<Sum>{Sum{0}, -1};
                return Candidate<Sum>{group_sum(key, group), group};
            });
            taken |= std::uint64_t{1} << best.place;
        }
        return taken;
    }

    /// Chooses experts one after another: each time the first after the last one chosen.
    template <class Team, class Key>
    MGPLAN_BOTH void choose(const Team& team, Key key, std::uint64_t taken, std::int32_t* ids) const {
        Candidate<Sum> last{Sum{0}, -1};
        for (std::int64_t slot = 0; slot < top_k; ++slot) {
            const Candidate<Sum> best = team.reduce(expert_count, Candidate<Sum>{Sum{0}, -1}, First{}, [&](std::int64_t i) {
                if (groups > 0 && ((taken >> (i / (expert_count / groups))) & 1U) == 0) return Candidate<Sum>{Sum{0}, -1};
                const Candidate<Sum> here{key(i), i};
                return slot == 0 || precedes(last, here) ? here : Candidate<Sum>{Sum{0}, -1};
            });
            team.once([&] { ids[slot] = static_cast<std::int32_t>(best.place); });
            last = best;
        }
    }
};

template <class Sum>
struct RouteGradient {
    const Sum *d_probabilities, *probabilities, *scores;
    const std::int32_t* experts;
    Sum* d_logits;
    std::int64_t expert_count, top_k;
    bool softmax, normalised;

    MGPLAN_BOTH void operator()(std::int64_t i) const {
        const auto [row, expert] = row_column(i, expert_count);
        Sum mean = 0;
        std::int64_t mine = -1;
        for (std::int64_t slot = row * top_k; slot < (row + 1) * top_k; ++slot) {
            if (softmax || normalised) mean += probabilities[slot] * d_probabilities[slot];
            if (experts[slot] == expert) mine = slot;
        }
        const Sum slope = softmax ? Sum{1} : 1 - scores[i];
        // A softmax over all is moved by every logit.
        if (mine < 0)
            d_logits[i] = softmax && !normalised ? -scores[i] * mean : Sum{0};
        else
            d_logits[i] = probabilities[mine] * slope * (d_probabilities[mine] - mean);
    }
};

/// An unsigned number that orders as the probability does; NaN as -1.
template <class Number>
MGPLAN_BOTH std::uint64_t order_key(Number value) {
    using Word = std::conditional_t<sizeof(Number) == 8, std::uint64_t, std::uint32_t>;
    constexpr Word kSign = Word{1} << (8 * sizeof(Word) - 1);
    const Word word = bits_as<Word>(not_a_number(value) ? Number{-1} : value + Number{0});  // -0 becomes 0
    return (word & kSign) != 0 ? static_cast<Word>(~word) : static_cast<Word>(word | kSign);
}

/// One team for each expert: sets its entries after the first `capacity` by falling probability to -1; of equal ones the upper are
/// kept. The smallest probability that is kept is found bit by bit, so nothing is sorted.
template <class Element>
struct DropBeyondCapacity {
    using Number = Compute<Element>;
    const std::int32_t* by_expert;  ///< all entries, those of an expert together, in rising order
    const std::int64_t *counts, *starts;
    const Element* probabilities;
    std::int32_t* kept;
    std::int64_t capacity;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t expert) const {
        const std::int64_t count = counts[expert];
        if (count <= capacity) return;
        const std::int32_t* const own = by_expert + starts[expert];
        const auto key = [&](std::int64_t i) { return order_key(Number(probabilities[own[i]])); };
        const auto count_from = [&](std::uint64_t least) {
            return team.reduce(count, std::int64_t{0}, Add{}, [&](std::int64_t i) { return std::int64_t{key(i) >= least ? 1 : 0}; });
        };
        std::uint64_t least = 0;  // the largest that `capacity` entries reach
        for (int bit = 8 * static_cast<int>(sizeof(Number)); bit-- > 0;) {
            const std::uint64_t higher = least | (std::uint64_t{1} << bit);
            if (count_from(higher) >= capacity) least = higher;
        }
        const std::int64_t room = capacity - count_from(least + 1);  // for entries that are equal to it
        team.select(
            count, [&](std::int64_t i) { return key(i) == least; },
            [&](std::int64_t i, std::int64_t n) {
                if (n >= room) kept[own[i]] = -1;
            });
        team.each(count, [&](std::int64_t i) {
            if (key(i) < least) kept[own[i]] = -1;
        });
    }
};

template <class Element>
struct AuxiliaryLossRow {
    const Element* scores;
    const std::int32_t* copies;
    double* losses;
    std::int64_t expert_count;
    bool softmax;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        const auto score = [&](std::int64_t e) { return static_cast<double>(Compute<Element>(scores[row * expert_count + e])); };
        const double sum = softmax ? 1.0 : team.reduce(expert_count, 0.0, Add{}, score);
        const double loss =
            team.reduce(expert_count, 0.0, Add{}, [&](std::int64_t e) { return static_cast<double>(copies[e]) * score(e); });
        team.once([&] { losses[row] = loss / sum; });
    }
};

template <class Element>
struct AuxiliaryLossGradient {
    using Sum = Compute<Element>;
    const Element* scores;
    const std::int32_t* copies;
    Element* d_logits;
    std::int64_t expert_count;
    Sum factor;
    bool softmax;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t row) const {
        const Element* const in = scores + row * expert_count;
        Element* const into = d_logits + row * expert_count;
        const Sum sum = softmax ? Sum{1} : team.reduce(expert_count, Sum{0}, Add{}, [&](std::int64_t e) { return Sum(in[e]); });
        const auto probability = [&](std::int64_t e) { return Sum(in[e]) / sum; };
        const Sum mean =
            team.reduce(expert_count, Sum{0}, Add{}, [&](std::int64_t e) { return probability(e) * static_cast<Sum>(copies[e]); });
        team.each(expert_count, [&](std::int64_t e) {
            const Sum slope = probability(e) * (static_cast<Sum>(copies[e]) - mean) * (softmax ? Sum{1} : 1 - Sum(in[e]));
            into[e] = Element(Sum(into[e]) + factor * slope);
        });
    }
};

/// Experts with the same room each.
struct EqualPlaces {
    std::int64_t* starts;
    std::int64_t capacity;
    MGPLAN_BOTH void operator()(std::int64_t expert) const { starts[expert] = expert * capacity; }
};

struct FillIds {
    std::int32_t* ids;
    std::int32_t value;
    MGPLAN_BOTH void operator()(std::int64_t i) const { ids[i] = value; }
};

/// A body of packs of one word.
template <class Word>
struct GatherCopies {
    const Word* x;
    const std::int32_t* source;
    Word* y;
    std::int64_t top_k, width;

    template <int N>
    MGPLAN_BOTH Word load(std::int64_t i) const {
        static_assert(N == 1);
        const auto [copy, column] = row_column(i, width);
        const std::int64_t entry = source[copy];
        return entry < 0 ? Word{} : x[entry / top_k * width + column];
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, const Word& word) const {
        y[i] = word;
    }
};

struct InvertSource {
    const std::int32_t* source;
    std::int32_t* inverse;
    MGPLAN_BOTH void operator()(std::int64_t copy) const {
        if (source[copy] >= 0) inverse[source[copy]] = static_cast<std::int32_t>(copy);
    }
};

/// Sums of the copies of N columns of a row. Two copies are under way at once, and are added in order.
template <class Element, int N>
struct SumCopies {
    using Sum = Compute<Element>;
    const Element* x;
    const std::int32_t* inverse;
    Element* y;
    std::int64_t top_k, width;

    /// A copy that was dropped has another one's values here, which nobody adds: a load under a condition would hold up the next one.
    struct Copy {
        Pack<Element, N> values;
        bool kept;
    };
    MGPLAN_BOTH Copy copy_of(std::int64_t entry, std::int64_t column) const {
        const std::int64_t copy = inverse[entry];
        return {load_pack<N>(x + (copy < 0 ? 0 : copy) * width + column), copy >= 0};
    }
    MGPLAN_BOTH void operator()(std::int64_t index) const {
        const auto [row, pack] = row_column(index, width / N);
        const std::int64_t column = pack * N, first = row * top_k, end = first + top_k;
        Pack<Sum, N> sums{};
        const auto add = [&](const Copy& copy) {
            for (int k = 0; k < N; ++k) sums[k] += copy.kept ? Sum(copy.values[k]) : Sum{0};
        };
        std::int64_t entry = first;
        for (; entry + 1 < end; entry += 2) {
            const auto one = copy_of(entry, column), other = copy_of(entry + 1, column);
            add(one);
            add(other);
        }
        if (entry < end) add(copy_of(entry, column));
        Pack<Element, N> result;
        for (int k = 0; k < N; ++k) result[k] = Element(sums[k]);
        store_pack<N>(y + row * width + column, result);
    }
};

template <class Element>
struct GatherValues {
    const Element* x;
    const std::int32_t* source;
    Element* y;
    MGPLAN_BOTH void operator()(std::int64_t copy) const { y[copy] = source[copy] < 0 ? Element(0.0F) : x[source[copy]]; }
};

template <class Element>
struct ScatterValues {
    const Element* x;
    const std::int32_t* source;
    Element* y;
    MGPLAN_BOTH void operator()(std::int64_t copy) const {
        if (source[copy] >= 0) y[source[copy]] = x[copy];
    }
};

template <class Launcher>
void route(model::Device& device, const model::RouteArguments& x) {
    with_type(x.logits.dtype, [&]<class Element>() {
        using Sum = Compute<Element>;
        Launcher::of(device).teams(
            x.rows, 32,
            RouteRow<Element>{values<Element>(x.logits), values<std::int32_t>(x.experts), values<Sum>(x.probabilities),
                              values<Sum>(x.scores), x.expert_count, x.top_k, x.score == RouterScore::softmax, x.balanced,
                              values<Sum>(x.bias), x.groups, x.group_top_k, x.group_scores, x.normalised});
    });
}

template <class Launcher>
void route_backward(model::Device& device, const model::RouteBackwardArguments& x) {
    const auto run = [&]<class Sum>() {
        Launcher::of(device).each(x.rows * x.expert_count,
                                  RouteGradient<Sum>{values<Sum>(x.d_probabilities), values<Sum>(x.probabilities), values<Sum>(x.scores),
                                                     values<std::int32_t>(x.experts), values<Sum>(x.d_logits), x.expert_count, x.top_k,
                                                     x.score == RouterScore::softmax, x.normalised});
    };
    if (x.scores.dtype == Dtype::fp64) {
        run.template operator()<double>();
    } else {
        run.template operator()<float>();
    }
}

template <class Launcher>
void keep_within_capacity(model::Device& device, const model::CapacityArguments& x) {
    auto&& launcher = Launcher::of(device);
    launcher.copy(x.kept.data, x.experts.data, x.entries * bytes_of(Dtype::int32));
    const auto* const experts = values<std::int32_t>(x.experts);
    auto* const counts = values<std::int64_t>(x.scratch);  // and the number of ids that are no expert's
    std::int64_t* const starts = counts + x.expert_count + 1;
    auto* const by_expert = reinterpret_cast<std::int32_t*>(starts + x.expert_count);
    // Each entry is looked at once for every expert, and some 30 or 60 times for its own alone.
    list_by_key(launcher, experts, x.entries, x.expert_count, counts, starts, by_expert);
    with_type(x.probabilities.dtype, [&]<class Element>() {
        launcher.teams(x.expert_count, 256,
                       DropBeyondCapacity<Element>{by_expert, counts, starts, values<Element>(x.probabilities),
                                                   values<std::int32_t>(x.kept), x.capacity});
    });
}

template <class Launcher>
void auxiliary_loss(model::Device& device, const model::AuxiliaryLossArguments& x) {
    auto&& launcher = Launcher::of(device);
    auto* const losses = values<double>(x.scratch);
    with_type(x.scores.dtype, [&]<class Element>() {
        launcher.teams(x.rows, 32,
                       AuxiliaryLossRow<Element>{values<Element>(x.scores), values<std::int32_t>(x.copies), losses, x.expert_count,
                                                 x.score == RouterScore::softmax});
    });
    launcher.teams(1, AddSum<double>::kLanes, AddSum<double>{losses, values<double>(x.total), x.rows, x.factor});
}

template <class Launcher>
void auxiliary_loss_backward(model::Device& device, const model::AuxiliaryLossArguments& x) {
    with_type(x.scores.dtype, [&]<class Element>() {
        Launcher::of(device).teams(
            x.rows, 32,
            AuxiliaryLossGradient<Element>{values<Element>(x.scores), values<std::int32_t>(x.copies), values<Element>(x.d_logits),
                                           x.expert_count, static_cast<Compute<Element>>(x.factor), x.score == RouterScore::softmax});
    });
}

/// Ids are those of route(), which names no expert that is not there.
template <class Launcher>
void count_by_expert(model::Device& device, const model::CountByExpertArguments& x) {
    Launcher::of(device).teams(
        x.expert_count, 256,
        CountEntries<std::int32_t>{values<std::int32_t>(x.experts), values<std::int32_t>(x.counts), x.entries, x.expert_count, x.adds});
}

template <class Launcher>
void sort_by_expert(model::Device& device, const model::SortByExpertArguments& x) {
    auto&& launcher = Launcher::of(device);
    auto* const starts = values<std::int64_t>(x.scratch);
    if (x.capacity > 0) {
        launcher.each(x.expert_count, EqualPlaces{starts, x.capacity});
        launcher.each(x.capacity * x.expert_count, FillIds{values<std::int32_t>(x.source), -1});
    } else {
        launcher.teams(1, 32, FirstPlaces<std::int32_t>{values<std::int32_t>(x.counts), starts, x.expert_count});
    }
    launcher.teams(x.expert_count, 256, ListEntries{values<std::int32_t>(x.experts), starts, values<std::int32_t>(x.source), x.entries});
}

template <class Launcher>
void permute_rows(model::Device& device, const model::PermuteArguments& x) {
    const std::int64_t row = x.width * bytes_of(x.x.dtype);
    with_word(static_cast<std::uint64_t>(row) | address(x.x.data) | address(x.y.data), [&]<class Word>() {
        const std::int64_t words = row / static_cast<std::int64_t>(sizeof(Word));
        Launcher::of(device).template packs<1>(
            x.copies * words, GatherCopies<Word>{values<Word>(x.x), values<std::int32_t>(x.source), values<Word>(x.y), x.top_k, words});
    });
}

template <class Launcher>
void unpermute_rows(model::Device& device, const model::PermuteArguments& x) {
    auto&& launcher = Launcher::of(device);
    if (x.copies == 0) return launcher.zero(x.y.data, x.rows * x.width * bytes_of(x.y.dtype));
    auto* const inverse = values<std::int32_t>(x.inverse);
    launcher.each(x.rows * x.top_k, FillIds{inverse, -1});
    launcher.each(x.copies, InvertSource{values<std::int32_t>(x.source), inverse});
    with_type(x.x.dtype, [&]<class Element>() {
        const std::uint64_t bytes = address(x.x.data) | address(x.y.data) | static_cast<std::uint64_t>(x.width) * sizeof(Element);
        with_pack<kPack<Element>>(bytes, [&]<int N>() {
            launcher.each(x.rows * x.width / N,
                          SumCopies<Element, N>{values<Element>(x.x), inverse, values<Element>(x.y), x.top_k, x.width});
        });
    });
}

template <class Launcher>
void permute_probabilities(model::Device& device, const model::PermuteArguments& x) {
    with_type(x.x.dtype, [&]<class Element>() {
        Launcher::of(device).each(x.copies,
                                  GatherValues<Element>{values<Element>(x.x), values<std::int32_t>(x.source), values<Element>(x.y)});
    });
}

template <class Launcher>
void unpermute_probabilities(model::Device& device, const model::PermuteArguments& x) {
    auto&& launcher = Launcher::of(device);
    launcher.zero(x.y.data, x.rows * x.top_k * bytes_of(x.y.dtype));
    with_type(x.x.dtype, [&]<class Element>() {
        launcher.each(x.copies, ScatterValues<Element>{values<Element>(x.x), values<std::int32_t>(x.source), values<Element>(x.y)});
    });
}

/// Copies of many blocks, a team for each share of one.
template <class Word>
struct CopyOfBlocks {
    struct Array {
        const Word* from;
        Word* to;
        std::int64_t words;
    };
    ArrayList<Array> list;

    template <class Team>
    MGPLAN_BOTH void operator()(const Team& team, std::int64_t share) const {
        const auto [block, index] = list.share_of(share);
        const Piece piece = share_of(block.words, index);
        const Word* const from = block.from + piece.begin;
        Word* const to = block.to + piece.begin;
        team.template each_pack<1>(
            piece.count, [&](auto /*size*/, std::int64_t i) { return from[i]; },
            [&](auto /*size*/, std::int64_t i, const Word& word) { to[i] = word; });
    }
};

template <class Launcher>
void reorder_blocks(model::Device& device, const model::ReorderBlocksArguments& x) {
    auto&& launcher = Launcher::of(device);
    std::vector<std::int64_t> starts(static_cast<std::size_t>(x.blocks));
    for (std::size_t block = 1; block < starts.size(); ++block) starts[block] = starts[block - 1] + x.block_rows[block - 1];
    with_word(static_cast<std::uint64_t>(x.row_bytes) | address(x.x.data) | address(x.y.data), [&]<class Word>() {
        using Body = CopyOfBlocks<Word>;
        static_assert(sizeof(Body) + sizeof(std::int64_t) <= kMostParameterBytes);
        const std::int64_t row = x.row_bytes / static_cast<std::int64_t>(sizeof(Word));
        std::vector<typename Body::Array> moves;  // of blocks with rows, by place
        Word* to = values<Word>(x.y);
        for (std::int64_t i = 0; i < x.blocks; ++i) {
            const std::int64_t block = x.order[i], words = x.block_rows[block] * row;
            if (words == 0) continue;
            moves.push_back({values<Word>(x.x) + starts[static_cast<std::size_t>(block)] * row, to, words});
            to += words;
        }
        const auto move = [&](std::int64_t i) { return moves[static_cast<std::size_t>(i)]; };
        each_list<typename Body::Array>(
            std::ssize(moves), move, [&](std::int64_t i) { return shares_of(move(i).words); },
            [&](const auto& list, std::int64_t shares) { launcher.teams(shares, 256, Body{list}); });
    });
}

}  // namespace mgplan::runtime::cuda
