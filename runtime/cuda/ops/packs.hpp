#pragma once
// Values that go through memory sixteen bytes at a time. Threads that load two bytes each leave most of a GPU's bandwidth unused: by
// Little's law some 20 KiB must be under way on each multiprocessor (H200: 33 bytes/ns for 600 to 800 ns), and a thread waits for what it
// loaded before it loads more.

#include <cstdint>
#include <stdexcept>

#include "runtime/cuda/ops/launch.hpp"

namespace mgplan::runtime::cuda {

/// N values that lie side by side.
template <class Element, int N>
struct Pack {
    Element values[N];
    MGPLAN_BOTH const Element& operator[](int i) const { return values[i]; }
    MGPLAN_BOTH Element& operator[](int i) { return values[i]; }
};

/// Values of the narrowest of these types in sixteen bytes: packs of wider types take several words.
template <class... Elements>
inline constexpr int kPack = 0;
template <class Element, class... Others>
inline constexpr int kPack<Element, Others...> = 16 / static_cast<int>(sizeof(Element)) > kPack<Others...>
                                                     ? 16 / static_cast<int>(sizeof(Element))
                                                     : kPack<Others...>;

/// On the host, where bodies are tested: what would be a misaligned address on a GPU is a failure.
inline void expect_aligned(const void* place) {
    if (reinterpret_cast<std::uintptr_t>(place) % sizeof(Word16) != 0) throw std::logic_error("a pack at an address that is not aligned");
}

/// Reads N values; for N > 1 `from` is a multiple of sixteen bytes.
template <int N, class Element>
MGPLAN_BOTH Pack<Element, N> load_pack(const Element* from) {
    if constexpr (N == 1) {
        return {{*from}};
    } else {
        constexpr int kWords = static_cast<int>(sizeof(Pack<Element, N>) / sizeof(Word16));
        static_assert(kWords * sizeof(Word16) == sizeof(Pack<Element, N>));
        Pack<Element, N> pack;
#ifdef __CUDA_ARCH__
        Word16 words[kWords];
        for (int i = 0; i < kWords; ++i) words[i] = reinterpret_cast<const Word16*>(from)[i];
        memcpy(&pack, words, sizeof(pack));
#else
        expect_aligned(from);
        std::memcpy(&pack, from, sizeof(pack));
#endif
        return pack;
    }
}

/// Reads whole words, to be taken apart later; `from` is a multiple of sixteen bytes.
template <class Element, int kWords>
MGPLAN_BOTH void load_words(const Element* from, Word16 (&words)[kWords]) {
#ifdef __CUDA_ARCH__
    for (int i = 0; i < kWords; ++i) words[i] = reinterpret_cast<const Word16*>(from)[i];
#else
    expect_aligned(from);
    std::memcpy(words, from, sizeof(words));
#endif
}

/// Reads them one by one, wherever they lie.
template <int N, class Element>
MGPLAN_BOTH Pack<Element, N> gather_pack(const Element* from) {
    Pack<Element, N> pack;
    for (int k = 0; k < N; ++k) pack[k] = from[k];
    return pack;
}

/// Writes N values; the same holds for `to`.
template <int N, class Element>
MGPLAN_BOTH void store_pack(Element* to, const Pack<Element, N>& pack) {
    if constexpr (N == 1) {
        *to = pack[0];
    } else {
#ifdef __CUDA_ARCH__
        constexpr int kWords = static_cast<int>(sizeof(pack) / sizeof(Word16));
        Word16 words[kWords];
        memcpy(words, &pack, sizeof(pack));
        for (int i = 0; i < kWords; ++i) reinterpret_cast<Word16*>(to)[i] = words[i];
#else
        expect_aligned(to);
        std::memcpy(to, &pack, sizeof(pack));
#endif
    }
}

// A body of packs reads and writes N values from element i on in two steps, so that what several packs need is under way at once:
//   template <int N> auto load(std::int64_t i) const             reads
//   template <int N> void finish(std::int64_t i, loaded) const   computes and writes

/// A body of packs, one value at a time.
template <class Body>
struct OneByOne {
    Body body;
    MGPLAN_BOTH void operator()(std::int64_t i) const { body.template finish<1>(i, body.template load<1>(i)); }
};

/// Runs a body of packs over `count` values, N at a time where `bytes`, its addresses and row lengths or-ed together, allow it.
template <int N, class Launcher, class Body>
void each_pack(Launcher&& launcher, std::int64_t count, std::uint64_t bytes, const Body& body) {
    if (bytes % sizeof(Word16) == 0)
        launcher.template packs<N>(count, body);
    else
        launcher.each(count, OneByOne<Body>{body});
}

/// Calls work.operator()<N>() where `bytes`, all addresses and row lengths or-ed together, allow packs, else work.operator()<1>().
template <int N, class Work>
void with_pack(std::uint64_t bytes, Work&& work) {
    if (bytes % sizeof(Word16) == 0)
        work.template operator()<N>();
    else
        work.template operator()<1>();
}

}  // namespace mgplan::runtime::cuda
