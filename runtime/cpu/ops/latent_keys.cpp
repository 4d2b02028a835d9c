#include <algorithm>
#include <cstring>
#include <vector>

#include "runtime/cpu/ops/kernels.hpp"
#include "runtime/cpu/ops/numeric.hpp"
#include "runtime/cpu/ops/vector_units.hpp"

namespace mgplan::runtime::cpu {
namespace {

/// A copy of `bytes` contiguous bytes of each row.
struct MovedRows {
    std::byte* to;
    const std::byte* from;
    std::int64_t to_pitch, from_pitch, bytes;
    void move(std::int64_t to_row, std::int64_t from_row) const {
        if (bytes > 0) std::memcpy(to + to_row * to_pitch, from + from_row * from_pitch, static_cast<std::size_t>(bytes));
    }
};

}  // namespace

void join_latent_keys(model::Device& /*device*/, const model::JoinLatentKeysArguments& x) {
    const std::int64_t size = bytes_of(x.k.dtype), own = x.own * size, width = x.width * size, v_dim = x.v_dim * size;
    const auto* const projected = static_cast<const std::byte*>(x.projected.data);
    auto* const k = static_cast<std::byte*>(x.k.data);
    const MovedRows keys{k, projected, own + width, own + v_dim, own},
        shared{k + own, static_cast<const std::byte*>(x.shared.data), own + width, width, width},
        values{static_cast<std::byte*>(x.v.data), projected + own, v_dim, own + v_dim, v_dim};
    for (std::int64_t head = 0; head < x.rows * x.heads; ++head) {
        keys.move(head, head);
        shared.move(head, head / x.heads);
        values.move(head, head);
    }
}

void split_latent_keys(model::Device& /*device*/, const model::SplitLatentKeysArguments& x) {
    const std::int64_t size = bytes_of(x.dk.dtype), own = x.own * size, v_dim = x.v_dim * size, k_dim = x.own + x.width;
    auto* const projected = static_cast<std::byte*>(x.projected.data);
    const MovedRows keys{projected, static_cast<const std::byte*>(x.dk.data), own + v_dim, k_dim * size, own},
        moved_values{projected + own, static_cast<const std::byte*>(x.dv.data), own + v_dim, v_dim, v_dim};
    for (std::int64_t head = 0; head < x.rows * x.heads; ++head) {
        keys.move(head, head);
        moved_values.move(head, head);
    }
    if (x.width == 0) return;
    vectorised([&] {
        with_type(x.dk.dtype, [&]<class Element>() {
            using Sum = Compute<Element>;
            std::vector<Sum> sums(static_cast<std::size_t>(x.width));
            Element* const shared = values<Element>(x.shared);
            for (std::int64_t row = 0; row < x.rows; ++row) {
                std::fill(sums.begin(), sums.end(), Sum{0});
                for (std::int64_t head = 0; head < x.heads; ++head) {
                    const Element* const from = values<Element>(x.dk) + (row * x.heads + head) * k_dim + x.own;
                    for (std::int64_t i = 0; i < x.width; ++i) sums[static_cast<std::size_t>(i)] += Sum(from[i]);
                }
                for (std::int64_t i = 0; i < x.width; ++i) shared[row * x.width + i] = Element(sums[static_cast<std::size_t>(i)]);
            }
        });
    });
}

}  // namespace mgplan::runtime::cpu
