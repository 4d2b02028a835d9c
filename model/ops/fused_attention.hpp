#pragma once
// Decides which attention runs as one fused kernel of a library, and over which of its rows.

#include <cstdint>
#include <optional>

#include "model/device/kernel_traits.hpp"
#include "model/ops/kernel_table.hpp"

namespace mgplan::model {

/// Places of the queries' and of the keys' slice that the kernel works on. The others need no work: no query
/// outside sees a key, and no query at all sees a key outside.
struct FusedPart {
    std::int64_t first_query = 0, queries = 0;
    std::int64_t first_key = 0, keys = 0;
    bool causal = true;  ///< as many queries as keys, each of which sees those up to its own place; false: all see all
};

/// The part that cuDNN does; nothing where separate products do it: not bf16, a window, a soft cap, a single query place, head sizes that
/// are no multiples of 8 or beyond 128 (192 for queries and keys from Hopper on: A100 has no backward beyond 128), or places that are
/// neither of
///  * queries and keys at the same places, in their order: a whole sequence, a context parallel rank's own slice;
///  * two zigzag slices of other ranks (Positions): all queries see the keys' first chunk, or the queries' second chunk sees all keys
///    (Transformer Engine's context_parallel.py cuts its ring in the same three kinds).
[[nodiscard]] std::optional<FusedPart> fused_part(const KernelTraits& traits, Dtype dtype, const AttentionSizes& sizes);

/// Returns the shape that the library gets for a part of attention.
[[nodiscard]] FusedShape fused_shape(const AttentionSizes& sizes, const FusedPart& part, bool backward);

/// Returns true if the library does a pass of it: it has a part for it, and no plan is refused (KernelTraits::fused_plans).
[[nodiscard]] bool attention_is_fused(const KernelTraits& traits, Dtype dtype, const AttentionSizes& sizes, bool backward);

}  // namespace mgplan::model
