#include "tests/model/training/fp8_chunk.hpp"

#include <cmath>
#include <memory>
#include <mutex>
#include <optional>

#include <gtest/gtest.h>

#include "model/layers/fp8_delayed.hpp"
#include "model/layers/model_chunk.hpp"
#include "model/ops/elementwise.hpp"
#include "plan/text/errors.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/model/ops/support.hpp"
#include "tests/model/training/fp8_block_reference.hpp"

namespace mgplan::model::fp8_test {

namespace reference = tests::fp8_reference;

namespace {

/// Numbers in [-1, 1) that follow from a text.
std::vector<double> numbers_of(const std::string& text, std::int64_t count) {
    std::uint64_t state = 1469598103934665603U;
    for (const char letter : text) state = (state ^ static_cast<std::uint64_t>(letter)) * 1099511628211U;
    std::vector<double> numbers;
    for (std::int64_t i = 0; i < count; ++i) {
        state = state * 6364136223846793005U + 1442695040888963407U;
        numbers.push_back(static_cast<double>(state >> 12) / static_cast<double>(std::uint64_t{1} << 51) - 1);
    }
    return numbers;
}

/// Experts that are divided are the rank's own, though their names are all ranks'.
int holder_of(const Parameter& parameter, const ChunkCase& c, int rank) {
    return parameter.expert ? c.divides_experts() ? rank : 0 : rank % c.tp;
}

std::vector<double> values_of(const ModelSpec& model, const Parameter& parameter, int holder) {
    const bool differs = parameter.shard_axis.has_value() || parameter.expert;
    auto values = numbers_of(model.name + parameter.name + (differs ? std::to_string(holder) : ""), parameter.count());
    const bool norm = parameter.name.find("norm") != std::string::npos, table = parameter.name.starts_with("embedding");
    for (double& value : values) value = norm ? 1 + 0.3 * value : table ? value : 0.2 * value;
    return values;
}

std::size_t size(std::int64_t count) {
    return static_cast<std::size_t>(count);
}

}  // namespace

std::vector<std::vector<std::size_t>> places_of(int cp, std::int64_t tokens) {
    std::vector<std::vector<std::size_t>> parts(static_cast<std::size_t>(cp));
    const std::size_t stretch = static_cast<std::size_t>(tokens) / (2 * parts.size());
    for (std::size_t rank = 0; rank < parts.size(); ++rank) {
        for (const std::size_t first : {rank, 2 * parts.size() - 1 - rank}) {
            for (std::size_t i = 0; i < stretch; ++i) parts[rank].push_back(first * stretch + i);
        }
    }
    return parts;
}

ModelSpec plain_llama() {
    ModelSpec model = tests::small_llama(2);
    model.name = "plain-llama";
    model.layers = 2;
    model.vocab = 64;
    model.position = PositionEmbedding::none;
    model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
    return model;
}

reference::Sizes sizes_of(const ModelSpec& model, const ChunkCase& c) {
    return {size(model.layers),   size(model.hidden), size(model.ffn),           size(model.heads),         size(model.kv_heads),
            size(model.head_dim), size(c.tp),         places_of(c.cp, c.tokens), RankContext{}.norm_epsilon};
}

std::vector<std::vector<std::size_t>> places_outside(const ChunkCase& c) {
    std::vector<std::vector<std::size_t>> parts;
    for (const auto& of_rank : places_of(c.cp, c.tokens)) {
        const std::size_t ranks = c.sequence_parallel ? static_cast<std::size_t>(c.tp) : 1, share = of_rank.size() / ranks;
        for (std::size_t i = 0; i < ranks; ++i)
            parts.emplace_back(of_rank.begin() + static_cast<std::ptrdiff_t>(i * share),
                               of_rank.begin() + static_cast<std::ptrdiff_t>((i + 1) * share));
    }
    return parts;
}

reference::LatentSizes latent_sizes_of(const ModelSpec& model, const ChunkCase& c) {
    if (!model.mla) return {};
    const MlaSpec& mla = *model.mla;
    return {size(mla.q_lora_rank),      size(mla.kv_lora_rank), size(mla.qk_nope_head_dim),
            size(mla.qk_rope_head_dim), size(mla.v_head_dim),   places_outside(c)};
}

ModelSpec mixture() {
    ModelSpec model = small_mixture();
    model.name = "fp8-mixture";
    model.hidden = 64;
    model.ffn = 64;
    model.head_dim = 16;
    model.vocab = 64;
    model.moe->expert_ffn = 32;
    model.moe->shared_ffn = 32;
    return model;
}

ModelSpec latent_mixture() {
    ModelSpec model = mixture();
    model.name = "fp8-latent-mixture";
    model.head_dim = 0;
    model.qk_norm = true;
    model.mla = MlaSpec{.q_lora_rank = 32, .kv_lora_rank = 16, .qk_nope_head_dim = 16, .qk_rope_head_dim = 16, .v_head_dim = 16};
    model.mtp_layers = 1;
    return model;
}

ModelSpec plain(ModelSpec model) {
    model.layers = 2;
    model.moe_layers = {false, true};
    model.position = PositionEmbedding::none;
    model.rotary_fraction = model.mla ? 0 : 1;
    model.mtp_layers = 0;
    model.moe->auxiliary_loss = 0;
    return model;
}

reference::Result mixture_reference(const ModelSpec& model, const ChunkCase& c, const WeightsByRank& weights, reference::Follow* steps) {
    // Ranks beside the first replica of tp have experts alone.
    const auto is_expert = [](const std::string& name) { return name.find(".experts.") != std::string::npos; };
    std::vector<reference::Weights> dense(size(c.tp)), experts(weights.size());
    for (std::size_t rank = 0; rank < weights.size(); ++rank) {
        for (const auto& [name, matrix] : weights[rank]) {
            if (is_expert(name))
                experts[rank].emplace(name, matrix);
            else
                dense[rank].emplace(name, matrix);
        }
    }
    const MoeSpec& moe = *model.moe;
    const bool together = c.divides_experts();
    const reference::MixtureSizes mixture{size(moe.experts), size(moe.top_k), model.moe_layers,
                                          size(c.ep),        size(c.etp),     together ? places_of(1, c.tokens) : places_outside(c)};
    reference::LayeredModel loops(sizes_of(model, c), dense, mixture, experts, latent_sizes_of(model, c));
    loops.follow(steps);
    if (c.scaling == OwnFp8::blockwise) loops.cast_by(reference::block_casts(128, true));
    if (c.scaling == OwnFp8::mxfp8) loops.cast_by(reference::block_casts(32, false));
    const ChunkTokens given = chunk_tokens(c.tokens);
    reference::Result result = loops.run(given.tokens, given.targets);
    result.gradients.resize(weights.size());
    for (std::size_t rank = 0; rank < weights.size(); ++rank) {
        for (const auto& [name, matrix] : loops.expert_gradients()[rank]) result.gradients[rank].emplace(name, matrix);
    }
    return result;
}

std::vector<Case> dense_layouts() {
    using enum RecomputeModule;
    return {
        {.name = "one"},
        {.name = "tp2", .tp = 2},
        {.name = "tp2_sp", .tp = 2, .sequence_parallel = true},
        {.name = "pp2", .pp = 2},
        {.name = "dp2", .dp = 2},
        {.name = "dp2_plain", .dp = 2, .distributed_optimizer = false},
        {.name = "pp2_vpp2", .pp = 2, .vpp = 2},
        {.name = "tp2_sp_pp2_dp2", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true},
        {.name = "modules", .tp = 2, .sequence_parallel = true, .recompute = Recompute::selective, .modules = {core_attn, mlp, layernorm}},
        {.name = "cp2", .cp = 2},
        {.name = "tp2_sp_cp2", .tp = 2, .cp = 2, .sequence_parallel = true},
        {.name = "full", .recompute = Recompute::full},
        {.name = "zb", .pp = 2, .schedule = SplitSchedule::zb_h1}};
}

std::vector<Case> mixture_layouts() {
    using enum RecomputeModule;
    return {{.name = "one"},
            {.name = "tp2_sp", .tp = 2, .sequence_parallel = true},
            {.name = "ep2", .dp = 2, .ep = 2},
            {.name = "tp2_sp_ep4", .tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true},
            {.name = "tp2_sp_ep2_etp2", .tp = 2, .dp = 2, .ep = 2, .etp = 2, .sequence_parallel = true},
            {.name = "pp2", .pp = 2},
            {.name = "pp2_dp2_ep2", .pp = 2, .dp = 2, .ep = 2},
            {.name = "cp2_ep2", .cp = 2, .ep = 2},
            {.name = "modules",
             .tp = 2,
             .sequence_parallel = true,
             .recompute = Recompute::selective,
             .modules = {core_attn, layernorm, moe_act, shared_experts}},
            {.name = "moe", .recompute = Recompute::selective, .modules = {moe}},
            {.name = "full", .recompute = Recompute::full},
            {.name = "zb", .pp = 2, .schedule = SplitSchedule::zb_h1}};
}

ChunkTokens chunk_tokens(std::int64_t tokens) {
    std::vector<std::int32_t> drawn(static_cast<std::size_t>(tokens) + 1);
    tests::tokens_of(3, drawn);
    return {{drawn.begin(), drawn.end() - 1}, {drawn.begin() + 1, drawn.end()}};
}

reference::Result run_chunk(const ModelSpec& model, const ChunkCase& c, WeightsByRank& weights) {
    Layout layout;
    const int ranks = c.ranks();
    layout.sizes.world = ranks;
    layout.sizes.tp = c.tp;
    layout.sizes.cp = c.cp;
    layout.sizes.ep = c.ep;
    layout.sizes.etp = c.etp;
    StageSplitRequest request;
    request.layers = model.layers;
    layout.split = std::make_shared<const StageSplit>(make_stage_split(request));
    const auto matrix = [](const Tensor& tensor) {
        const bool vector = tensor.shape().rank() == 1;
        return reference::Matrix(static_cast<std::size_t>(vector ? 1 : tensor.shape()[0]), static_cast<std::size_t>(tensor.shape()[-1]),
                                 read(tensor));
    };
    reference::Result result;
    const auto holders = static_cast<std::size_t>(model.moe && c.divides_experts() ? ranks : c.tp);
    result.gradients.resize(holders);
    weights.assign(holders, {});
    std::mutex mutex;
    runtime::InProcessWorld world(ranks);
    runtime::run_ranks(world, [&](int rank) {
        runtime::CpuDevice device;
        const int tp_rank = rank % c.tp, cp_rank = rank / c.tp;
        std::vector<std::int32_t> tp_ranks, cp_ranks, all_ranks;
        for (int i = 0; i < ranks; ++i) all_ranks.push_back(i);
        for (int i = 0; i < c.tp; ++i) tp_ranks.push_back(cp_rank * c.tp + i);
        for (int i = 0; i < c.cp; ++i) cp_ranks.push_back(i * c.tp + tp_rank);
        const auto tp = world.view(rank).join("tp", tp_ranks), cp = world.view(rank).join("cp", cp_ranks);
        const auto alone = world.view(rank).join("alone", std::vector<std::int32_t>{rank});
        RankContext context;
        context.device = &device;
        context.tp = tp.get();
        context.cp = cp.get();
        const auto all = world.view(rank).join("all", all_ranks);
        context.ep = c.ep > 1 ? all.get() : alone.get();
        context.etp = c.etp > 1 ? all.get() : alone.get();
        context.tp_cp = all.get();
        context.sequence_parallel = c.sequence_parallel;
        context.cp_comm_type = c.exchange;
        context.dtype = Dtype::fp64;
        WeightTable table;
        std::vector<Weight> in_fp8, experts_in_fp8;
        const auto parameters = stage_parameters(model, layout, 0).front();
        for (const Parameter& parameter : parameters) {
            const auto& s = parameter.shape;
            const Shape shape = s.size() == 1 ? Shape{s[0]} : Shape{s[0], s[1]};
            Weight weight{make(device, shape, Dtype::fp64, values_of(model, parameter, holder_of(parameter, c, rank))),
                          device.zeros(shape, Dtype::fp64, MemoryCategory::gradients, "gradient")};
            if (c.scaling != OwnFp8::none && parameter.linear_weight) {
                weight.fp8 = make_fp8_weight(device, s[0], s[1], c.scaling);
                (parameter.expert ? experts_in_fp8 : in_fp8).push_back(weight);
            }
            table.add(parameter.name, weight);
        }
        ModelChunk chunk(model, layout.split->chunk(0, 0), table, {c.modules, std::nullopt, 0});
        MicrobatchContext microbatch;
        microbatch.sequence = c.tokens;
        const ChunkTokens drawn = chunk_tokens(c.tokens);
        std::vector<double> own_ids, own_targets;
        const auto places = places_of(c.cp, c.tokens);
        for (const std::size_t place : places[static_cast<std::size_t>(cp_rank)]) {
            own_ids.push_back(drawn.tokens[place]);
            own_targets.push_back(drawn.targets[place]);
        }
        const Shape rows{std::ssize(own_ids)};
        const Tensor ids = make(device, rows, Dtype::int32, own_ids), targets = make(device, rows, Dtype::int32, own_targets);
        std::optional<Fp8Delayed> delayed, of_experts;
        if (c.scaling == OwnFp8::delayed) {
            delayed.emplace(device, in_fp8, 1.0 / static_cast<double>(c.tokens));
            of_experts.emplace(device, experts_in_fp8, 1.0 / static_cast<double>(c.tokens));
        }
        // Who has parts of an expert, or of its rows: under ep this rank alone.
        Communicator* const holders_of_expert = c.ep > 1 ? alone.get() : all.get();
        std::vector<double> losses;
        for (int step = 0; step < c.steps; ++step) {
            for (const Parameter& parameter : parameters) fill(table.at(parameter.name).gradient, 0);
            for (const auto* weights_in_fp8 : {&in_fp8, &experts_in_fp8}) {
                for (const Weight& weight : *weights_in_fp8) weight.fp8->fresh = false;
            }
            ChunkSaved saved;
            losses = read(chunk.forward(context, microbatch, ids, targets, saved));
            (void)chunk.backward(context, microbatch, {}, 1.0 / static_cast<double>(c.tokens), ids, targets, saved);
            if (delayed) delayed->update({all.get()});
            if (of_experts) of_experts->update({holders_of_expert});
        }
        const std::scoped_lock lock(mutex);
        for (const Parameter& parameter : parameters) {
            const Weight& weight = table.at(parameter.name);
            const int holder = holder_of(parameter, c, rank);
            weights[static_cast<std::size_t>(holder)].emplace(parameter.name, matrix(weight.value));
            const auto add = [&](int to) {
                const auto [place, fresh] =
                    result.gradients[static_cast<std::size_t>(to)].try_emplace(parameter.name, matrix(weight.gradient));
                if (!fresh) reference::add_to(place->second, matrix(weight.gradient));
            };
            if (parameter.expert) {
                add(holder);
                continue;
            }
            const bool in_parts = c.sequence_parallel && parameter.partial_gradient == PartialGradient::sequence_parallel;
            for (int other = 0; other < c.tp; ++other) {
                if (other == tp_rank || in_parts) add(other);
            }
        }
        if (tp_rank != 0) return;
        for (const double loss : losses) result.loss += loss / static_cast<double>(c.tokens);
    });
    return result;
}

TrainingTask task_of(const ModelSpec& model, const tests::Case& c, std::int64_t sequence, Fp8Recipe recipe) {
    TrainingTask task = task_for(model, c, Precision::fp8, sequence);
    task.training.megatron.fp8_recipe = recipe;
    return task;
}

std::string refusal_of(const TrainingTask& task) {
    try {
        check_features(task);
        return "";
    } catch (const ConfigError& error) {
        return error.what();
    }
}

void expect_steps_near(const tests::Outcome& outcome, const tests::Outcome& one, bool sum_alike, double norm_tolerance) {
    ASSERT_EQ(outcome.steps.size(), one.steps.size());
    const StepReport &first = outcome.steps.front(), &ones = one.steps.front();
    EXPECT_NEAR(first.loss / ones.loss, 1, sum_alike ? 1e-12 : 5e-3);
    EXPECT_NEAR(first.result.grad_norm / ones.result.grad_norm, 1, sum_alike ? 1e-5 : norm_tolerance);
    EXPECT_NEAR(outcome.steps.back().loss / one.steps.back().loss, 1, 0.15);
    EXPECT_LT(outcome.steps.back().loss, first.loss);
}

void expect_those_of_the_reference(const ModelSpec& model, const ChunkCase& c, const reference::Result& result,
                                   const reference::Result& expected) {
    EXPECT_NEAR(result.loss / expected.loss, 1, 1e-5);
    for (std::size_t rank = 0; rank < result.gradients.size(); ++rank) {
        for (const auto& [name, gradient] : expected.gradients[rank])
            expect_close(result.gradients[rank].at(name).values, gradient.values, 1e-5, name + " of rank " + std::to_string(rank));
    }
    // Which the same model without fp8 does not meet.
    WeightsByRank same;
    ChunkCase without = c;
    without.scaling = OwnFp8::none;
    const reference::Result wide = run_chunk(model, without, same);
    EXPECT_GT(std::abs(wide.loss / expected.loss - 1), 1e-5);
    EXPECT_NEAR(wide.loss / expected.loss, 1, 0.05);
}

}  // namespace mgplan::model::fp8_test
