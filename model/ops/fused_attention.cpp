#include "model/ops/fused_attention.hpp"

#include "model/ops/scratch.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

/// Returns true if all of chunk i of `a` comes before all of chunk j of `b`.
bool before(const Positions& a, std::size_t i, const Positions& b, std::size_t j) {
    return a.first[i] + a.chunk_length <= b.first[j];
}

std::optional<FusedPart> part_of(const Positions& queries, const Positions& keys) {
    if (queries.chunks != keys.chunks || queries.chunk_length != keys.chunk_length) return std::nullopt;
    const std::int64_t length = queries.chunk_length, all = queries.places();
    const bool two = queries.chunks == 2;
    if (queries.first[0] == keys.first[0] && (!two || queries.first[1] == keys.first[1])) {
        // Places of the slice are in the order of the sequence, and so the mask is that of their numbers.
        if (two && !before(queries, 0, queries, 1)) return std::nullopt;
        return FusedPart{0, all, 0, all, true};
    }
    if (!two) return std::nullopt;
    if (before(keys, 0, queries, 0) && before(keys, 0, queries, 1) && before(queries, 0, keys, 1) && before(queries, 1, keys, 1))
        return FusedPart{0, all, 0, length, false};
    if (before(queries, 0, keys, 0) && before(queries, 0, keys, 1) && before(keys, 0, queries, 1) && before(keys, 1, queries, 1))
        return FusedPart{length, length, 0, all, false};
    return std::nullopt;
}

}  // namespace

std::optional<FusedPart> fused_part(const KernelTraits& traits, Dtype dtype, const AttentionSizes& sizes) {
    if (traits.kind != DeviceKind::cuda || !traits.fused_attention || traits.architecture < 80) return std::nullopt;
    const std::int64_t widest = traits.architecture >= 90 ? 192 : 128;
    if (dtype != Dtype::bf16 || sizes.window > 0 || sizes.soft_cap > 0 || sizes.qk_dim % 8 != 0 || sizes.v_dim % 8 != 0 ||
        sizes.qk_dim > widest || sizes.v_dim > 128)
        return std::nullopt;
    const auto part = part_of(sizes.query_positions, sizes.key_positions);
    return part && part->queries > 1 && part->keys > 1 ? part : std::nullopt;
}

FusedShape fused_shape(const AttentionSizes& sizes, const FusedPart& part, bool backward) {
    MGPLAN_ASSERT(!sizes.packed || (part.first_query == 0 && part.first_key == 0 && part.queries == part.keys && part.causal),
                  "packed heads are those of whole slices");
    return {sizes.query_positions.batch,
            sizes.heads,
            sizes.kv_heads,
            part.queries,
            part.keys,
            sizes.qk_dim,
            sizes.v_dim,
            part.causal,
            backward,
            sizes.packed};
}

bool attention_is_fused(const KernelTraits& traits, Dtype dtype, const AttentionSizes& sizes, bool backward) {
    const auto part = fused_part(traits, dtype, sizes);
    if (!part) return false;
    if (traits.fused_plans == nullptr) return true;
    const std::int64_t workspace = attention_workspace(traits, dtype, sizes, backward, true).library_bytes;
    return !traits.fused_plans->refuses(fused_shape(sizes, *part, backward), workspace);
}

}  // namespace mgplan::model
