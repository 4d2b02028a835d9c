#pragma once
// See model/ops/latent_keys.hpp.

#include "runtime/cuda/ops/packs.hpp"

namespace mgplan::runtime::cuda {

/// Words of values, moved without looking at them: those of keys and values of a head in turn. Sizes are in words.
template <class Word>
struct JoinLatentKeys {
    const Word *projected, *shared;
    Word *k, *v;
    std::int64_t heads, own, width, v_dim;

    template <int N>
    MGPLAN_BOTH Word load(std::int64_t i) const {
        const auto [head, column] = row_column(i, own + width + v_dim);  // of all rows' heads
        const bool is_own = column < own, is_shared = !is_own && column < own + width;
        const std::int64_t of_head = head * (own + v_dim) + (is_own ? column : column - width);
        // One load from the chosen place: none waits for another's branch.
        return *(is_shared ? shared + row_column(head, heads).row * width + column - own : projected + of_head);
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, Word word) const {
        const auto [head, column] = row_column(i, own + width + v_dim);
        const bool is_key = column < own + width;
        Word* const to = is_key ? k + head * (own + width) : v + head * v_dim - (own + width);
        to[column] = word;
    }
};

/// The same back, but for what all heads share.
template <class Word>
struct SplitLatentKeys {
    const Word *dk, *dv;
    Word* projected;
    std::int64_t own, width, v_dim;

    template <int N>
    MGPLAN_BOTH Word load(std::int64_t i) const {
        const auto [head, column] = row_column(i, own + v_dim);
        return *(column < own ? dk + head * (own + width) + column : dv + head * v_dim + column - own);
    }
    template <int N>
    MGPLAN_BOTH void finish(std::int64_t i, Word word) const {
        projected[i] = word;
    }
};

/// N columns of what all heads share, in the order of the heads; several heads are under way at once.
template <class Element, int N>
struct SumSharedKeys {
    using Sum = Compute<Element>;
    static constexpr int kAtOnce = 4;
    const Element* dk;  ///< from the first head's shared part on
    Element* shared;
    std::int64_t heads, width, k_dim;

    MGPLAN_BOTH void operator()(std::int64_t i) const {
        const auto [row, column] = row_column(i * N, width);
        const Element* from = dk + row * heads * k_dim + column;
        Sum sums[N]{};
        std::int64_t head = 0;
        for (; head + kAtOnce <= heads; head += kAtOnce, from += kAtOnce * k_dim) {
            Pack<Element, N> packs[kAtOnce];
            for (int each = 0; each < kAtOnce; ++each) packs[each] = load_pack<N>(from + each * k_dim);
            for (int each = 0; each < kAtOnce; ++each) {
                for (int k = 0; k < N; ++k) sums[k] += Sum(packs[each][k]);
            }
        }
        for (; head < heads; ++head, from += k_dim) {
            const Pack<Element, N> pack = load_pack<N>(from);
            for (int k = 0; k < N; ++k) sums[k] += Sum(pack[k]);
        }
        Pack<Element, N> result;
        for (int k = 0; k < N; ++k) result[k] = Element(sums[k]);
        store_pack<N>(shared + i * N, result);
    }
};

template <class Launcher>
void join_latent_keys(model::Device& device, const model::JoinLatentKeysArguments& x) {
    const std::int64_t size = bytes_of(x.k.dtype);
    const auto bytes = static_cast<std::uint64_t>((x.own | x.width | x.v_dim) * size) | address(x.projected.data) | address(x.shared.data) |
                       address(x.k.data) | address(x.v.data);
    with_word(bytes, [&]<class Word>() {
        const auto words = [&](std::int64_t values) { return values * size / static_cast<std::int64_t>(sizeof(Word)); };
        const std::int64_t own = words(x.own), width = words(x.width), v_dim = words(x.v_dim);
        Launcher::of(device).template packs<1>(x.rows * x.heads * (own + width + v_dim),
                                               JoinLatentKeys<Word>{values<Word>(x.projected), values<Word>(x.shared), values<Word>(x.k),
                                                                    values<Word>(x.v), x.heads, own, width, v_dim});
    });
}

template <class Launcher>
void split_latent_keys(model::Device& device, const model::SplitLatentKeysArguments& x) {
    auto&& launcher = Launcher::of(device);
    const std::int64_t size = bytes_of(x.dk.dtype), k_dim = x.own + x.width;
    const auto sizes = static_cast<std::uint64_t>((x.own | x.width | x.v_dim) * size);
    with_word(sizes | address(x.dk.data) | address(x.dv.data) | address(x.projected.data), [&]<class Word>() {
        const auto words = [&](std::int64_t values) { return values * size / static_cast<std::int64_t>(sizeof(Word)); };
        const std::int64_t own = words(x.own), width = words(x.width), v_dim = words(x.v_dim);
        launcher.template packs<1>(x.rows * x.heads * (own + v_dim), SplitLatentKeys<Word>{values<Word>(x.dk), values<Word>(x.dv),
                                                                                           values<Word>(x.projected), own, width, v_dim});
    });
    if (x.width == 0) return;
    with_type(x.dk.dtype, [&]<class Element>() {
        with_pack<kPack<Element>>(sizes | address(x.dk.data) | address(x.shared.data), [&]<int N>() {
            launcher.each(x.rows * x.width / N,
                          SumSharedKeys<Element, N>{values<Element>(x.dk) + x.own, values<Element>(x.shared), x.heads, x.width, k_dim});
        });
    });
}

}  // namespace mgplan::runtime::cuda
