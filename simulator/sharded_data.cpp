#include "simulator/sharded_data.hpp"

#include <algorithm>

#include "simulator/collectives/all_gather.hpp"
#include "simulator/collectives/all_reduce.hpp"
#include "simulator/collectives/reduce_scatter.hpp"

namespace mgplan::simulator {
namespace {

/// Bytes of a gathered parameter and of a reduced gradient.
struct Widths {
    double parameter, gradient;
};

Widths widths_of(const TrainingSpec& training, Engine engine) {
    const FullyShardedSpec& spec = training.megatron.fully_sharded;
    const double compute = static_cast<double>(bytes_of(training.compute_dtype()));
    if (engine == Engine::mgplan)
        return {compute, training.precision == Precision::fp64 ? compute : static_cast<double>(bytes_of(training.grad_dtype))};
    if (spec.kind == FullyShardedKind::torch_fsdp2) return {compute, compute};
    const double main = spec.main_grads ? static_cast<double>(bytes_of(*spec.main_grads)) : compute;
    return {training.fp8_parameters ? 1.0 : compute,
            spec.communicated_grads ? static_cast<double>(bytes_of(*spec.communicated_grads)) : main};
}

/// Gather of the parameters and reduction of the gradients of one unit.
struct UnitSeconds {
    double gather = 0, reduce = 0;
};

UnitSeconds unit_seconds(const StepInputs& in, const ParameterCount& count) {
    const Widths bytes = widths_of(in.workload.training, in.layout.engine);
    const ParameterCount reduced = by_reducing_ranks(in, count);
    const double dense = static_cast<double>(reduced.dense), expert = static_cast<double>(reduced.expert);
    UnitSeconds seconds;
    seconds.gather = all_gather_seconds(dense * bytes.parameter, in.paths.dp_inner, in.calibration);
    seconds.reduce = reduce_scatter_seconds(dense * bytes.gradient, in.paths.dp_inner, in.calibration);
    if (expert > 0) {
        seconds.gather += all_gather_seconds(expert * bytes.parameter, in.paths.edp_inner, in.calibration);
        seconds.reduce += reduce_scatter_seconds(expert * bytes.gradient, in.paths.edp_inner, in.calibration);
    }
    return seconds;
}

/// The hidden and the exposed part of some communication.
struct Hidden {
    double hidden, exposed;
};

Hidden behind(double seconds, double alone, double compute) {
    const double hidden = std::min(std::max(0.0, seconds - alone), compute);
    return {hidden, seconds - hidden};
}

void add_exposed(const StepInputs& in, const Hidden& forward, const Hidden& backward, StageTime& time) {
    const double slower_forward = in.calibration.overlap_cost * forward.hidden,
                 slower_backward = in.calibration.overlap_cost * backward.hidden;
    time.forward += forward.exposed + slower_forward;
    time.backward += backward.exposed + slower_backward;
    time.exposed_data += forward.exposed + backward.exposed + slower_forward + slower_backward;
}

/// Engine mgplan (model/optimizer/unit_traffic.hpp): embedding and head are units too. With overlap only the gather of a pass's first unit
/// and the reduction of its last are exposed; without overlap all are. The embedding's backward reads no parameters; with blocks of several
/// recomputed layers all but the last of a block are gathered once more. A backward also zeroes a unit's gradients, scales them (read and
/// write), and adds the reduced result to the shard.
void add_unit_traffic(const StepInputs& in, const ChunkCensus& chunk, StageTime& time) {
    const TrainingSpec& training = in.workload.training;
    UnitSeconds layers, largest, front, back;
    double gradients = 0, shards = 0;
    const auto add = [&](const ParameterCount& count, std::int64_t copies, UnitSeconds& into) {
        if (copies == 0) return UnitSeconds{};
        const UnitSeconds unit = unit_seconds(in, count);
        const auto times = static_cast<double>(copies);
        into.gather += times * unit.gather;
        into.reduce += times * unit.reduce;
        gradients += times * static_cast<double>(count.dense + count.expert);
        shards += times * (static_cast<double>(count.dense) / static_cast<double>(in.paths.dp_inner.ranks) +
                           static_cast<double>(count.expert) / static_cast<double>(in.paths.edp_inner.ranks));
        return unit;
    };
    for (std::size_t kind = 0; kind < chunk.kinds.size(); ++kind) {
        const UnitSeconds layer = add(in.pieces->layers[kind], chunk.kinds[kind], layers);
        largest.gather = std::max(largest.gather, layer.gather);
        largest.reduce = std::max(largest.reduce, layer.reduce);
    }
    add(in.pieces->embedding, chunk.embedding ? 1 : 0, front);
    add(in.pieces->head, chunk.loss ? 1 : 0, back);
    const auto ahead = [](bool overlaps, double all, double alone) { return overlaps ? alone : all; };
    UnitSeconds forward, backward;
    if (training.megatron.fully_sharded.shards_parameters()) {
        double again = 0;
        if (in.layout.recompute == Recompute::full && in.layout.recompute_method != RecomputeMethod::block)
            again = 1 - 1 / static_cast<double>(std::max<std::int64_t>(1, in.layout.recompute_num_layers));
        forward.gather = front.gather + layers.gather + back.gather;
        backward.gather = layers.gather * (1 + again) + back.gather;
    }
    backward.reduce = front.reduce + layers.reduce + back.reduce;
    const double first = chunk.embedding ? front.gather : largest.gather, last = chunk.loss ? back.gather : largest.gather;
    const double width = widths_of(training, in.layout.engine).gradient;
    const double passed = 3 * (gradients + shards) * width, passing = in.kernels.memory_bound(passed);
    time.backward += passing;
    if (time.modules.counted()) {
        ModuleWork& work = time.modules[ComputeModule::optimizer];
        work.seconds += passing;
        work.bytes += passed;
    }
    add_exposed(in,
                behind(forward.gather, ahead(training.overlap_param_gather, forward.gather, std::min(first, forward.gather)), time.forward),
                behind(backward.gather + backward.reduce,
                       ahead(training.overlap_param_gather, backward.gather, std::min(last, backward.gather)) +
                           ahead(training.overlap_grad_reduce, backward.reduce, chunk.embedding ? front.reduce : largest.reduce),
                       time.backward),
                time);
}

/// Bytes of a gathered element of a layer: with scales if quantised. Embedding table and output layer are never quantised.
double gathered_width(const TrainingSpec& training, bool in_bf16) {
    if (!training.fp8_parameters || in_bf16) return static_cast<double>(bytes_of(training.compute_dtype()));
    return training.format() == QuantisedFormat::nvfp4 ? 0.5 + 1.0 / 16 : 1 + 1.0 / 32;
}

/// Generalized tensor parallelism: each weight is gathered during the GEMM before it, in the forward and again in the backward, and its
/// gradient reduced during the following GEMMs (gtp docs, "Overlap design summary"). The first gather of a pass and the last reduction of a
/// backward are exposed. A layer counts as four weights and its experts as two.
void add_gathered_weights(const StepInputs& in, const ChunkCensus& chunk, StageTime& time) {
    const TrainingSpec& training = in.workload.training;
    const WeightShards& shards = training.megatron.weight_shards;
    const double gradient = static_cast<double>(bytes_of(training.grad_dtype));
    constexpr double kWeights = 4, kOfExperts = 2;
    const auto seconds = [&](const ParameterCount& count, double weights, bool in_bf16) {
        const double width = gathered_width(training, in_bf16);
        UnitSeconds unit;
        const auto add = [&](std::int64_t elements, double number, const GroupPath& path) {
            const double each = static_cast<double>(elements) / number;
            unit.gather += number * all_gather_seconds(each * width, path, in.calibration);
            unit.reduce += number * reduce_scatter_seconds(each * gradient, path, in.calibration);
        };
        if (shards.dense > 1 && count.dense > 0) add(count.dense, weights, in.paths.dp_inner);
        if (shards.experts > 1 && count.expert > 0) add(count.expert, kOfExperts, in.paths.edp_inner);
        return unit;
    };
    UnitSeconds layers, one;
    const auto add = [&](const ParameterCount& count, std::int64_t copies, bool in_bf16) {
        if (copies == 0) return;
        one = seconds(count, kWeights, in_bf16);
        layers.gather += static_cast<double>(copies) * one.gather;
        layers.reduce += static_cast<double>(copies) * one.reduce;
    };
    const std::vector<bool>& in_bf16 = in.pieces->layers_in_bf16;
    for (std::size_t kind = 0; kind < chunk.kinds.size(); ++kind)
        add(in.pieces->layers[kind], chunk.kinds[kind], kind < in_bf16.size() && in_bf16[kind]);
    add(in.pieces->mtp, chunk.mtp, false);  // a shared prediction layer is gathered at each use
    const UnitSeconds front = chunk.embedding ? seconds(in.pieces->embedding, 1, true) : UnitSeconds{},
                      back = chunk.loss ? seconds(in.pieces->head, 1, true) : UnitSeconds{};
    const double first = chunk.embedding ? front.gather : one.gather / kWeights, last = chunk.loss ? back.gather : one.gather / kWeights,
                 summed_last = chunk.embedding ? front.reduce : one.reduce / kWeights;
    const double again = in.layout.recompute == Recompute::full ? layers.gather : 0;
    const double gathered = front.gather + layers.gather + back.gather, reduced = front.reduce + layers.reduce + back.reduce;
    add_exposed(in, behind(gathered, std::min(first, gathered), time.forward),
                behind(layers.gather + back.gather + again + reduced, last + summed_last, time.backward), time);
}

bool holds_parts(const StepInputs& in) {
    return in.layout.engine == Engine::megatron && in.workload.training.megatron.weight_shards.active();
}

}  // namespace

void add_sharded_traffic(const StepInputs& in, const ChunkCensus& chunk, StageTime& time) {
    if (holds_parts(in)) return add_gathered_weights(in, chunk, time);
    const FullyShardedSpec& spec = in.workload.training.megatron.fully_sharded;
    if (!spec.shards_gradients()) return;
    if (in.layout.engine == Engine::mgplan) return add_unit_traffic(in, chunk, time);
    UnitSeconds all, largest;
    const auto add = [&](const ParameterCount& count, std::int64_t copies) {
        if (copies == 0) return;
        const UnitSeconds unit = unit_seconds(in, count);
        all.gather += static_cast<double>(copies) * unit.gather;
        all.reduce += static_cast<double>(copies) * unit.reduce;
        largest.gather = std::max(largest.gather, unit.gather);
    };
    for (std::size_t kind = 0; kind < chunk.kinds.size(); ++kind) add(in.pieces->layers[kind], chunk.kinds[kind]);
    add(in.pieces->mtp, in.workload.model.mtp_weights(chunk.mtp));
    if (spec.kind == FullyShardedKind::torch_fsdp2) {
        add(in.pieces->embedding, chunk.embedding ? 1 : 0);
        add(in.pieces->head, chunk.loss ? 1 : 0);
    }
    // If gathered parameters stay in place, backwards gather nothing, and forwards only at the first microbatch.
    const bool gathers = spec.shards_parameters() && spec.reshard_after_forward;
    const Hidden forward = gathers ? behind(all.gather, largest.gather, time.forward) : Hidden{0, 0};
    const Hidden backward = behind((gathers ? all.gather : 0) + all.reduce, 0, time.backward);
    add_exposed(in, forward, backward, time);
}

DataParallelSeconds sharded_data_seconds(const StepInputs& in, const ParameterCount& count) {
    const FullyShardedSpec& spec = in.workload.training.megatron.fully_sharded;
    const Widths bytes = widths_of(in.workload.training, in.layout.engine);
    const ParameterCount reduced = by_reducing_ranks(in, count);
    const double dense = static_cast<double>(reduced.dense), expert = static_cast<double>(reduced.expert);
    const LayoutPaths& paths = in.paths;
    const bool own = in.layout.engine == Engine::mgplan;  // all gathers and reductions are part of the passes
    DataParallelSeconds seconds;
    switch (spec.strategy) {
        case ShardingStrategy::no_shard:
            seconds.reduce = all_reduce_seconds(dense * bytes.gradient, paths.dp_inner, in.calibration) +
                             all_reduce_seconds(expert * bytes.gradient, paths.edp_inner, in.calibration);
            break;
        case ShardingStrategy::optim: {
            const UnitSeconds all = unit_seconds(in, count);
            seconds.reduce = all.reduce;
            seconds.gather = all.gather;
            break;
        }
        case ShardingStrategy::optim_grads:
            seconds.gather = unit_seconds(in, count).gather;
            if (!own) seconds.reduce = unit_seconds(in, in.pieces->layers.back()).reduce;
            break;
        case ShardingStrategy::optim_grads_params: {
            if (own) break;
            const bool stays = !spec.reshard_after_forward;
            ParameterCount once = in.pieces->embedding;
            once += in.pieces->head;
            if (stays)
                seconds.gather = unit_seconds(in, count).gather;
            else if (spec.kind == FullyShardedKind::megatron_fsdp && in.layout.sizes.pp == 1)
                seconds.gather = unit_seconds(in, once).gather;
            seconds.reduce = unit_seconds(in, in.pieces->layers.back()).reduce;
            break;
        }
    }
    // Traffic that occurs once per iteration is cut by layers.
    const double layer = static_cast<double>(in.pieces->layers.back().total());
    if (spec.strategy != ShardingStrategy::optim_grads_params && layer > 0) seconds.buckets = std::max(1.0, (dense + expert) / layer);
    // Between optimizer instances each rank handles the shard of its instance: gradients are all-reduced, or, if the optimizer state is
    // sharded over instances too, reduce-scattered, and parameters gathered.
    if (paths.dp_outer.ranks > 1) {
        const double part = spec.strategy >= ShardingStrategy::optim ? static_cast<double>(paths.dp_inner.ranks) : 1;
        const double expert_part = spec.strategy >= ShardingStrategy::optim ? static_cast<double>(paths.edp_inner.ranks) : 1;
        const double dense_bytes = dense * bytes.gradient / part, expert_bytes = expert * bytes.gradient / expert_part;
        if (spec.outer_optimizer) {
            seconds.reduce += reduce_scatter_seconds(dense_bytes, paths.dp_outer, in.calibration) +
                              reduce_scatter_seconds(expert_bytes, paths.edp_outer, in.calibration);
            seconds.gather += all_gather_seconds(dense * bytes.parameter / part, paths.dp_outer, in.calibration) +
                              all_gather_seconds(expert * bytes.parameter / expert_part, paths.edp_outer, in.calibration);
        } else {
            seconds.reduce += all_reduce_seconds(dense_bytes, paths.dp_outer, in.calibration) +
                              all_reduce_seconds(expert_bytes, paths.edp_outer, in.calibration);
        }
    }
    return seconds;
}

ParameterCount held_count(const StepInputs& in, const ParameterCount& count) {
    if (!holds_parts(in)) return count;
    const WeightShards& shards = in.workload.training.megatron.weight_shards;
    return {.dense = count.dense / shards.dense, .expert = count.expert / shards.experts};
}

ParameterCount by_reducing_ranks(const StepInputs& in, const ParameterCount& count) {
    if (in.layout.sizes.separates_experts()) return count;
    return {.dense = count.total()};
}

std::array<double, 2> optimizer_shards(const StepInputs& in) {
    const TrainingSpec& training = in.workload.training;
    const FullyShardedSpec& spec = training.megatron.fully_sharded;
    const auto over = [](std::int64_t dense, std::int64_t expert) {
        return std::array{static_cast<double>(std::max<std::int64_t>(1, dense)), static_cast<double>(std::max<std::int64_t>(1, expert))};
    };
    const std::int64_t dense = in.layout.dp() * in.layout.sizes.cp, expert = in.layout.edp();
    if (spec.active()) {
        if (spec.strategy == ShardingStrategy::no_shard) return {1, 1};
        const std::int64_t instances = spec.outer_optimizer ? 1 : std::max(1, training.distributed_optimizer_instances);
        return over(dense / instances, expert / instances);
    }
    return training.distributed_optimizer ? over(dense, expert) : std::array{1.0, 1.0};
}

}  // namespace mgplan::simulator
