#include "model/ops/scratch.hpp"

#include <algorithm>

#include "model/ops/checks.hpp"
#include "model/ops/fused_attention.hpp"

namespace mgplan::model {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kScoreBytes = 256 * kMiB;

bool on_gpu(const KernelTraits& traits) {
    return traits.kind == DeviceKind::cuda;
}

/// Hands out parts of a workspace one after another.
class Parts {
public:
    std::int64_t add(std::int64_t bytes) {
        const std::int64_t begin = total_;
        total_ += (bytes + 255) / 256 * 256;
        return begin;
    }
    [[nodiscard]] std::int64_t total() const { return total_; }

private:
    std::int64_t total_ = 0;
};

}  // namespace

Tensor take_scratch(Device& device, std::int64_t bytes, std::string_view name) {
    if (bytes == 0) return {};
    return device.empty({(bytes + 3) / 4}, Dtype::fp32, MemoryCategory::workspace, name);
}

std::int64_t matmul_workspace_bytes(const KernelTraits& traits) {
    if (!on_gpu(traits)) return 0;
    return (traits.architecture >= 90 ? 32 : 4) * kMiB;
}

std::int64_t column_sum_parts(const KernelTraits& traits, std::int64_t rows) {
    return on_gpu(traits) ? std::clamp<std::int64_t>((rows + 63) / 64, 1, 128) : 1;
}

std::int64_t reduction_parts(std::int64_t elements) {
    return std::clamp<std::int64_t>((elements + 8191) / 8192, 1, 1024);
}

std::int64_t sums_of_squares_scratch_bytes(const KernelTraits& traits, std::span<const std::int64_t> elements) {
    if (!on_gpu(traits)) return 0;
    std::int64_t values = 0;
    for (const std::int64_t each : elements) values += reduction_parts(each);
    return values * 8;
}

std::int64_t embedding_backward_scratch_bytes(const KernelTraits& traits, std::int64_t rows) {
    return on_gpu(traits) ? (2 * kEmbeddingBuckets + 1) * 8 + 3 * rows * 4 : 0;
}

std::int64_t auxiliary_loss_scratch_bytes(const KernelTraits& traits, std::int64_t rows) {
    return on_gpu(traits) ? rows * 8 : 0;
}

std::int64_t expert_scratch_bytes(const KernelTraits& traits, std::int64_t experts) {
    return on_gpu(traits) ? experts * 8 : 0;
}

std::int64_t capacity_scratch_bytes(const KernelTraits& traits, std::int64_t entries, std::int64_t experts) {
    return on_gpu(traits) ? (2 * experts + 1) * 8 + entries * 4 : 0;
}

AttentionWorkspace attention_workspace(const KernelTraits& traits, Dtype dtype, const AttentionSizes& sizes, bool backward, bool fused) {
    AttentionWorkspace space;
    Parts parts;
    const std::int64_t batch = sizes.query_positions.batch, heads = sizes.heads;
    const std::int64_t places = sizes.query_positions.places(), key_places = sizes.key_positions.places();
    if (fused) {
        const auto part = fused_part(traits, dtype, sizes);
        MGPLAN_ASSERT(part.has_value(), "a library does a part of this attention");
        const std::int64_t queries = part->queries;
        space.log_sum_exp = parts.add(batch * heads * queries * 4);
        if (backward) {
            space.delta = parts.add(batch * heads * queries * 4);
            space.query_sums = parts.add(batch * heads * queries * sizes.qk_dim * 4);
            if (heads != sizes.kv_heads) space.library_bytes += batch * heads * part->keys * (sizes.qk_dim + sizes.v_dim) * 2;
            if (traits.architecture < 90) space.library_bytes += batch * heads * ((queries + 7) / 8 * 8) * sizes.qk_dim * 4;
        }
        space.library_bytes += traits.architecture == 90 ? 256 : space.library_bytes > 0 ? 128 : 0;
        space.library = parts.add(space.library_bytes);
        space.total = parts.total();
        return space;
    }
    const std::int64_t wide = bytes_of(statistics_dtype(dtype));
    const bool rounded = bytes_of(dtype) < wide;
    const std::int64_t row = batch * heads * key_places;  // scores of one query place
    const std::int64_t copies = backward ? 2 : 1;
    const std::int64_t bytes = row * (wide + (rounded ? bytes_of(dtype) : 0)) * copies;
    space.block = std::clamp<std::int64_t>(kScoreBytes / std::max<std::int64_t>(bytes, 1), 1, std::max<std::int64_t>(places, 1));
    space.scores = parts.add(space.block * row * wide);
    if (rounded) space.weights = parts.add(space.block * row * bytes_of(dtype));
    if (backward) {
        space.d_scores = parts.add(space.block * row * wide);
        if (rounded) {
            space.d_weights = parts.add(space.block * row * bytes_of(dtype));
            space.key_sums = parts.add(batch * sizes.kv_heads * key_places * sizes.qk_dim * wide);
            space.value_sums = parts.add(batch * sizes.kv_heads * key_places * sizes.v_dim * wide);
        }
    }
    space.library_bytes = matmul_workspace_bytes(traits);
    space.library = parts.add(space.library_bytes);
    space.total = parts.total();
    return space;
}

ScanWorkspace scan_workspace(const KernelTraits& traits, Dtype dtype, const StateSpaceSizes& sizes, bool backward) {
    constexpr std::int64_t kScanBytes = 256 * kMiB;
    const std::int64_t narrow = bytes_of(dtype), wide = bytes_of(statistics_dtype(dtype));
    const std::int64_t length = std::min(sizes.chunk, sizes.places), whole = sizes.places / length;
    // Sizes of a chunk of all sequences.
    const std::int64_t values = sizes.batch * length * sizes.inner(), maps = sizes.batch * length * sizes.groups * sizes.state;
    const std::int64_t pairs = sizes.batch * sizes.groups * length * length, weights = sizes.batch * sizes.heads * length * length;
    const std::int64_t states = narrow < wide ? sizes.batch * sizes.inner() * sizes.state : 0;
    const auto lay_out = [&](std::int64_t chunks) {
        ScanWorkspace space;
        Parts parts;
        const auto add = [&](std::int64_t& part, std::int64_t elements, std::int64_t bytes) {
            if (elements > 0) part = parts.add(chunks * elements * bytes);
        };
        for (std::int64_t* const part : {&space.writes, &space.reads}) add(*part, maps, narrow);
        for (std::int64_t* const part : {&space.values, &space.left}) add(*part, values, narrow);
        add(space.weights, weights, narrow);
        add(space.states, states, narrow);
        for (std::int64_t* const part : {&space.of_states, &space.within}) add(*part, values, wide);
        if (backward) {
            for (std::int64_t* const part : {&space.slopes, &space.reached}) add(*part, values, narrow);
            add(space.pairs, pairs, narrow);
            add(space.d_states, states, narrow);
            add(space.along, weights, wide);
            for (std::int64_t* const part : {&space.to_states, &space.inner}) add(*part, values, wide);
            for (std::int64_t* const part : {&space.d_writes, &space.d_reads}) add(*part, maps, wide);
        }
        space.total = parts.total();
        return space;
    };
    const std::int64_t block = std::clamp<std::int64_t>(kScanBytes / std::max<std::int64_t>(1, lay_out(1).total), 1, whole);
    ScanWorkspace space = lay_out(block);
    space.block = block;
    space.length = length;
    space.blocks = (whole + block - 1) / block + (whole * length < sizes.places ? 1 : 0);
    space.library = space.total;
    space.library_bytes = matmul_workspace_bytes(traits);
    space.total += space.library_bytes;
    return space;
}

RuleWorkspace rule_workspace(const KernelTraits& traits, Dtype dtype, const DeltaRuleSizes& sizes, bool backward) {
    constexpr std::int64_t kRuleBytes = 256 * kMiB;
    const std::int64_t narrow = bytes_of(dtype), wide = bytes_of(statistics_dtype(dtype));
    const std::int64_t length = std::min({sizes.chunk, std::int64_t{kMostRulePlaces}, sizes.places}), whole = sizes.places / length;
    // Sizes of a chunk of all sequences.
    const std::int64_t heads = sizes.batch * sizes.value_heads, places = heads * length;
    const std::int64_t maps = places * sizes.key_dim, lines = places * sizes.value_dim, pairs = places * length;
    const std::int64_t states = heads * sizes.key_dim * sizes.value_dim, decays = places * sizes.decays_of_head();
    const std::int64_t scores = sizes.channel_decays ? pairs : pairs / sizes.value_heads * sizes.key_heads;
    const auto lay_out = [&](RuleWorkspace& space, Parts& parts, std::int64_t chunks) {
        const auto add = [&](std::int64_t& part, std::int64_t elements, std::int64_t bytes) {
            part = parts.add(chunks * elements * bytes);
        };
        add(space.strengths, places, wide);
        add(space.decays, decays, wide);
        for (std::int64_t* const part : {&space.units, &space.reads}) add(*part, 2 * maps, narrow);
        for (std::int64_t* const part : {&space.left, &space.found}) add(*part, maps, narrow);
        add(space.values, lines, narrow);
        add(space.scores, 2 * scores, wide);
        for (std::int64_t* const part : {&space.inverses, &space.weights}) add(*part, pairs, narrow);
        if (sizes.strength > 1 && narrow < wide) add(space.remainders, pairs, narrow);
        add(space.states, states, narrow);
        add(space.written, lines, narrow);
        if (!backward) return add(space.outputs, lines, wide);
        add(space.gradients, 3 * lines, narrow);
        add(space.d_states, states, narrow);
        add(space.along, 2 * pairs, wide);
        add(space.pairs, 2 * pairs, narrow);
        for (std::int64_t* const part : {&space.from_states, &space.from_pairs}) add(*part, 2 * maps, wide);
        for (std::int64_t* const part : {&space.to_states, &space.to_pairs}) add(*part, maps, wide);
        add(space.strength_sums, places, wide);
        for (std::int64_t* const part : {&space.decay_sums, &space.end_sums}) add(*part, decays, wide);
    };
    RuleWorkspace one, space;
    Parts of_one, parts;
    lay_out(one, of_one, 1);
    space.block = std::clamp<std::int64_t>(kRuleBytes / std::max<std::int64_t>(1, of_one.total()), 1, whole);
    space.length = length;
    space.whole = whole;
    space.rest = sizes.places - whole * length;
    space.blocks = (whole + space.block - 1) / space.block + (space.rest > 0 ? 1 : 0);
    lay_out(space, parts, space.block);
    if (backward) {
        space.fronts = parts.add((space.blocks + 1) * states * wide);
        space.state_gradient = parts.add(states * wide);
        space.sums = parts.add(space.chunks() * sizes.batch * (sizes.decays() + sizes.value_heads) * wide);
    }
    space.library_bytes = matmul_workspace_bytes(traits);
    space.library = parts.add(space.library_bytes);
    space.total = parts.total();
    return space;
}

}  // namespace mgplan::model
