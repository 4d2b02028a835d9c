#include "simulator/memory/sharded_state.hpp"

#include <algorithm>

#include "plan/text/rounding.hpp"

namespace mgplan::simulator {
namespace {

/// megatron_fsdp.py: minimum communicated at once without --suggested-communication-unit-size, elements.
constexpr std::int64_t kLeastCommunicationUnit = 1'000'000'000;

std::int64_t shard(const std::array<std::int64_t, 2>& elements, const ShardingRanks& ranks, std::int64_t copies) {
    return divide_up(elements[0], ranks.inner[0] * copies) + divide_up(elements[1], ranks.inner[1] * copies);
}

std::array<std::int64_t, 2> all(const UnitElements& unit) {
    return {unit.plain[0] + unit.quantised[0], unit.plain[1] + unit.quantised[1]};
}

struct Sharding {
    const FullyShardedSpec& spec;
    const TrainingSpec& training;
    const ShardingRanks& ranks;

    [[nodiscard]] bool mxfp8() const { return training.format() == QuantisedFormat::mxfp8; }

    /// Bytes of a unit's weights as stored. The two copies of mxfp8 are both parameters (fp8_need_transpose_data); other recipes create the
    /// second from the first.
    [[nodiscard]] std::int64_t stored(const UnitElements& unit, std::int64_t shards_dense, std::int64_t shards_expert) const {
        const std::int64_t plain = divide_up(unit.plain[0], shards_dense) + divide_up(unit.plain[1], shards_expert);
        const std::int64_t copies = mxfp8() ? 2 : 1;
        const std::int64_t quantised = divide_up(unit.quantised[0], shards_dense) + divide_up(unit.quantised[1], shards_expert);
        return plain * bytes_of(training.compute_dtype()) + copies * quantised;
    }
    [[nodiscard]] std::int64_t whole(const UnitElements& unit) const { return stored(unit, 1, 1); }
    /// Bytes of a unit's weights in use: a pass uses one of mxfp8's two copies; other recipes' second copy lives as long as the unit is
    /// gathered.
    [[nodiscard]] std::int64_t in_use(const UnitElements& unit) const {
        const std::int64_t plain = (unit.plain[0] + unit.plain[1]) * bytes_of(training.compute_dtype());
        const std::int64_t elements = unit.quantised[0] + unit.quantised[1];
        return plain + elements + (mxfp8() ? 0 : unit.quantised_bytes.columnwise);
    }
};

/// Smallest multiple of `unit` that is at least `room`, in elements; at most `total`.
std::int64_t up_to_and_over(std::int64_t room, std::int64_t unit, std::int64_t total) {
    return unit == 0 ? 0 : std::min(total, divide_up(room, unit) * unit);
}

/// Adds the bytes of main parameters and moments of `owned` elements, and the update's copies.
void add_optimizer(ModelStateBytes& bytes, std::int64_t owned, std::int64_t main_bytes, std::int64_t gradient_bytes,
                   const TrainingSpec& training) {
    const int moments = kept_moments(training.megatron.optimizer);
    std::int64_t states = bytes_of(training.exp_avg_dtype);
    if (moments > 1) states += (moments - 1) * bytes_of(training.exp_avg_sq_dtype);
    bytes.optimizer += owned * (main_bytes + states);
    // The update reads gradients in the main parameters' type, Transformer Engine's precision-aware Adam in their own
    // (megatron_fsdp_use_decoupled_grad).
    if (!training.megatron.precision_aware_optimizer && main_bytes > gradient_bytes) bytes.update += owned * main_bytes;
}

ModelStateBytes fsdp2(const ShardedChunk& chunk, const Sharding& s) {
    UnitElements everything = chunk.layers;
    everything += chunk.front;
    everything += chunk.back;
    const std::int64_t width = bytes_of(s.training.compute_dtype());
    const auto bytes = [&](const UnitElements& unit) { return unit.elements() * width; };
    const std::int64_t owned = shard(all(everything), s.ranks, 1);
    const std::int64_t layer = bytes(chunk.largest_layer);
    const std::int64_t two_units = layer + std::max({layer, bytes(chunk.front), bytes(chunk.back)});
    ModelStateBytes state;
    state.parameters = owned * width + (s.spec.reshard_after_forward ? std::min(two_units, bytes(everything)) : bytes(everything));
    state.gradients = owned * width + std::min(two_units, bytes(everything));
    const bool mixed = width == 2;
    add_optimizer(state, owned, mixed ? 4 : 0, width, s.training);
    return state;
}

ModelStateBytes megatron_fsdp(const ShardedChunk& chunk, const Sharding& s) {
    UnitElements rest = chunk.front, everything = chunk.layers;
    rest += chunk.back;
    everything += rest;
    const FullyShardedSpec& spec = s.spec;
    const ShardingRanks& ranks = s.ranks;
    const std::int64_t layer = chunk.largest_layer.elements(), layers = chunk.layers.elements();
    std::int64_t unit = spec.communication_unit;
    if (unit == 0) unit = std::max(kLeastCommunicationUnit, 2 * layer);

    ModelStateBytes state;
    if (spec.strategy == ShardingStrategy::optim_grads_params) {
        state.parameters = s.stored(everything, ranks.inner[0], ranks.inner[1]) + s.whole(rest);
        const std::int64_t gathered =
            spec.double_buffer ? std::min(2 * layer, layers) : std::min(layers, layer + up_to_and_over(unit / 2, layer, layers));
        if (layer > 0) state.parameters += s.in_use(chunk.largest_layer) * divide_up(gathered, layer);
    } else {
        state.parameters = s.whole(everything);
        if (everything.quantised_bytes.columnwise > 0 && !s.mxfp8())
            state.parameters +=
                spec.keep_fp8_transposes ? everything.quantised_bytes.columnwise : chunk.largest_layer.quantised_bytes.columnwise;
    }
    if (everything.quantised_bytes.scales > 0) state.parameters += everything.quantised_bytes.scales;

    const std::int64_t compute = bytes_of(s.training.compute_dtype());
    const std::int64_t gradient = spec.main_grads ? bytes_of(*spec.main_grads) : compute;
    const std::int64_t communicated = spec.communicated_grads ? bytes_of(*spec.communicated_grads) : gradient;
    if (spec.strategy >= ShardingStrategy::optim_grads) {
        const std::int64_t waiting = spec.double_buffer ? std::min(2 * layer, layers) : std::min(layers, unit + layer);
        state.gradients = shard(all(everything), ranks, 1) * gradient + waiting * communicated;
    } else {
        state.gradients = everything.elements() * gradient;
    }

    const std::int64_t copies = spec.outer_optimizer ? ranks.outer : 1;
    const std::int64_t owned = spec.strategy == ShardingStrategy::no_shard ? everything.elements() : shard(all(everything), ranks, copies);
    add_optimizer(state, owned, spec.main_params && compute < 4 ? bytes_of(*spec.main_params) : 0, gradient, s.training);
    return state;
}

}  // namespace

UnitElements& UnitElements::operator+=(const UnitElements& other) {
    for (std::size_t i = 0; i < 2; ++i) {
        plain[i] += other.plain[i];
        quantised[i] += other.quantised[i];
    }
    quantised_bytes += other.quantised_bytes;
    return *this;
}

UnitElements UnitElements::times(std::int64_t count) const {
    return {{plain[0] * count, plain[1] * count}, {quantised[0] * count, quantised[1] * count}, quantised_bytes.times(count)};
}

ModelStateBytes sharded_state_bytes(const ShardedChunk& chunk, const ShardingRanks& ranks, const TrainingSpec& training) {
    const Sharding sharding{training.megatron.fully_sharded, training, ranks};
    return sharding.spec.kind == FullyShardedKind::torch_fsdp2 ? fsdp2(chunk, sharding) : megatron_fsdp(chunk, sharding);
}

}  // namespace mgplan::simulator
