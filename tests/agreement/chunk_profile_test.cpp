// The memory of chunks put together from single layers, against whole chunks that ran on shapes: byte for byte.

#include "simulator/memory/chunk_profile.hpp"

#include <gtest/gtest.h>

#include "plan/parameters/composed_layer.hpp"
#include "plan/training/numeric_types.hpp"
#include "simulator/memory/rank_timeline.hpp"
#include "tests/support/hybrid_models.hpp"
#include "tests/support/small_training.hpp"

namespace mgplan::simulator::chunk_profile_test {
namespace {

using model::TrainingTask;
using tests::Case;

/// Llama with a dense layer in front of mixtures of four experts, two of them for each token.
ModelSpec small_mixture() {
    ModelSpec model = tests::small_llama();
    model.moe.emplace();
    model.moe->experts = 4;
    model.moe->top_k = 2;
    model.moe->expert_ffn = 24;
    model.moe->shared_ffn = 16;
    model.moe_layers = {false, true, true, true};
    return model;
}

ModelSpec predicting(ModelSpec model, std::int64_t depths) {
    model.mtp_layers = depths;
    return model;
}

/// Three residual streams that maps mix; with `learned` weights they come together by.
ModelSpec streaming(ModelSpec model, bool learned) {
    model.hyper_connections = HyperConnections{.streams = 3, .learned_head = learned};
    return model;
}

/// Layers of Gemma 3n: with a cut gate and a window, and with keys of another layer.
ModelSpec small_gemma3n() {
    ModelSpec model = model::small::small_mamba2();
    model.name = "small-gemma3n";
    model.position = PositionEmbedding::rope;
    Gemma3nLayer own{
        .attention = {.heads = 8, .kv_heads = 4, .head_dim = 8, .layer_input_width = 16, .layer_input_rows = 64, .bypass_rank = 8},
        .mlp = {.width = 48, .activation = Activation::gelu},
        .mlp_zero_share = 0.9,
        .streams = 3};
    Gemma3nLayer taken = own;
    taken.attention.shares_kv = true;
    taken.mlp_zero_share = 0;
    taken.mlp.width = 64;
    model.kinds = {model::small::kind("own", own), model::small::kind("taken", taken)};
    for (NamedLayer& kind : model.kinds) kind.layer.norms.after = true;
    model.kinds.front().layer.window = 8;
    model.kind_of_layer = {0, 0, 1, 1};
    return model;
}

/// Whose linear layers multiply in fp8.
ModelSpec in_fp8(ModelSpec model) {
    model.name += "-fp8";
    return model;
}

/// The mixture with sizes that products in fp8 take, and with latent attention.
ModelSpec wide_mixture(bool latent) {
    ModelSpec model = small_mixture();
    model.hidden = 64;
    model.ffn = model.moe->expert_ffn = model.moe->shared_ffn = 32;
    model.head_dim = 16;
    if (!latent) return model;
    model.name += "-latent";
    model.mla = MlaSpec{.q_lora_rank = 32, .kv_lora_rank = 16, .qk_nope_head_dim = 16, .qk_rope_head_dim = 16, .v_head_dim = 16};
    model.kv_heads = model.heads;
    model.head_dim = 0;
    model.qk_norm = true;
    return model;
}

ModelSpec delayed(ModelSpec model) {
    model.name += "-delayed";
    return model;
}

PieceSizes sizes_of(const TrainingTask& task) {
    PieceSizes sizes;
    const Layout& layout = task.layout;
    sizes.tp = layout.sizes.tp;
    sizes.cp = layout.sizes.cp;
    sizes.ep = layout.sizes.ep;
    sizes.etp = layout.sizes.etp;
    sizes.micro_batch = layout.micro_batch;
    sizes.sequence = task.batch.sequence;
    sizes.sequence_parallel = layout.sequence_parallel;
    sizes.cp_comm_type = layout.cp_comm_type;
    if (layout.recompute == Recompute::selective) sizes.modules = layout.recompute_modules;
    sizes.dtype = task.training.compute_dtype();
    sizes.grad_dtype = task.training.grad_dtype;
    sizes.offloaded = task.training.offload.modules;
    sizes.traits = {model::DeviceKind::cpu};
    sizes.fp8 = own_fp8(task.model, task.training);
    return sizes;
}

class ChunkProfileOf : public testing::TestWithParam<Case> {};

TEST_P(ChunkProfileOf, IsThatOfTheWholeChunk) {
    const Case& c = GetParam();
    for (const ModelSpec& model : {tests::small_gpt(),
                                   tests::small_llama(),
                                   small_mixture(),
                                   predicting(tests::small_llama(), 1),
                                   predicting(small_mixture(), 1),
                                   predicting(tests::small_llama(), 2),
                                   predicting(small_mixture(), 4),
                                   streaming(tests::small_llama(), false),
                                   streaming(small_mixture(), true),
                                   model::small::small_mamba2(),
                                   model::small::small_nemotron_h(),
                                   model::small::small_nemotron_h_moe(),
                                   model::small::small_qwen3_next(),
                                   model::small::small_nemotron_predicting(1),
                                   model::small::small_nemotron_predicting(3),
                                   predicting(model::small::small_qwen3_next(), 1),
                                   small_gemma3n(),
                                   in_fp8(tests::small_gpt(2)),
                                   in_fp8(tests::small_llama(2)),
                                   in_fp8(delayed(predicting(tests::small_llama(2), 1))),
                                   in_fp8(wide_mixture(false)),
                                   in_fp8(delayed(wide_mixture(false))),
                                   predicting(in_fp8(wide_mixture(true)), 2)}) {
        const bool fp8 = model.name.ends_with("-fp8");
        if (fp8 && c.offload.active()) continue;  // refused by name
        if (!model.kinds.empty() && !obstacles_of_kinds(model, tests::task_for(model, c, Precision::bf16).layout.sizes).empty())
            continue;                                                 // refused by name
        if (model.moe && c.tp > 1 && !c.sequence_parallel) continue;  // mixtures want sequence parallelism
        if (!model.moe && c.ep > 1) continue;
        if (model.streams() > 1 && !model.kinds.empty() && c.pp > 1) continue;  // refused by name
        // Products in fp8 want 16 rows of a microbatch on a rank, of latents what sequence parallelism leaves of them.
        const std::int64_t rows = fp8 ? 16 * c.cp * (c.sequence_parallel ? c.tp : 1) : 16;
        TrainingTask task = tests::task_for(model, c, fp8 ? Precision::fp8 : Precision::bf16, rows);
        task.training.megatron.fp8_recipe = model.name.find("-delayed") != std::string::npos ? Fp8Recipe::delayed : Fp8Recipe::tensorwise;
        task.balanced_routing = true;
        const PieceSizes sizes = sizes_of(task);
        const bool full = c.recompute == Recompute::full;
        const LayerKinds kinds = layer_kinds(model);
        const auto profile_of = [&](const LayerHalf& half) {
            return piece_profiles(trace_half(model, half, sizes))[static_cast<std::size_t>(piece_of(half))];
        };
        ShardValues<OpProfile> pieces, dense;
        pieces.set_ends(piece_profiles(trace_ends(model, sizes)));
        for (const LayerHalf& mixer : kinds.mixers) pieces.mixers.push_back(profile_of(mixer));
        dense = pieces;
        for (const LayerHalf& half : kinds.feed_forwards) {
            pieces.feed_forwards.push_back(profile_of(half));
            dense.feed_forwards.push_back(half.mixture ? PassProfile{} : pieces.feed_forwards.back());
        }
        ShardProfiles shard = shard_profiles(kinds, pieces, sizes, model.hidden, model.streams());
        ShardProfiles without = shard_profiles(kinds, dense, sizes, model.hidden, model.streams());
        if (model.mtp_layers > 0) {
            for (const bool again : {false, true}) {
                const std::vector<OpProfile> steps =
                    prediction_profiles(trace_prediction(model, kinds.mixer_of_prediction(), sizes, again));
                for (ShardProfiles* profiles : {&shard, &without}) profiles->steps.set_predictions(again, steps);
            }
        }
        // The search's way to the same sums, which adds the mixtures later.
        StepTable<MemoryDelta> deltas = deltas_of(without.steps);
        for (std::size_t kind = 0; kind < kinds.size(); ++kind) {
            if (!kinds.kinds[kind].mixture) continue;
            const PassProfile& mixture = pieces.feed_forwards[static_cast<std::size_t>(kinds.kinds[kind].feed_forward)];
            deltas.set_layer(kind, nested(deltas_of(pieces.mixer(kinds.kinds[kind])), deltas_of(mixture)));
        }
        const ChunkRecompute recompute{c.method, c.recompute_layers};
        for (int stage = 0; stage < static_cast<int>(task.layout.sizes.pp); ++stage) {
            const RankProbe probe = probe_rank(task, stage);
            for (int chunk = 0; chunk < task.layout.vpp; ++chunk) {
                const StageChunk& held = task.layout.split->chunk(stage, chunk);
                ChunkContents contents{held.embedding, held.loss, {}, held.mtp, kinds.of_prediction};
                if (stage + 1 == static_cast<int>(task.layout.sizes.pp)) contents.further_ids = model.mtp_layers;
                for (std::int64_t i = 0; i < held.decoders; ++i)
                    contents.layers.push_back(kinds.of_layer[static_cast<std::size_t>(held.first_decoder + i)]);
                const ChunkRecipe recipe(contents, full ? &recompute : nullptr);
                const PassProfile profile = chunk_profile(shard.steps, recipe);
                const auto index = static_cast<std::size_t>(chunk);
                SCOPED_TRACE(testing::Message()
                             << model.name << " predicting " << model.mtp_layers << " stage " << stage << " chunk " << chunk);
                EXPECT_EQ(profile.forward.peak, probe.forward[index].peak);
                EXPECT_EQ(profile.backward.peak, probe.backward[index].peak);
                EXPECT_EQ(profile.forward.net_total() + profile.backward.net_total(), 0);
                // What waits for the backward.
                EXPECT_EQ(profile.forward.net_total(), probe.forward[index].net_total());
                EXPECT_EQ(recipe.compose(deltas.values).forward, delta_of(profile.forward));
                EXPECT_EQ(recipe.compose(deltas.values).backward.peak, profile.backward.peak);
            }
        }
    }
}

std::vector<Case> cases() {
    using enum RecomputeModule;
    const OffloadSpec streams{.modules = {OffloadModule::attn_norm, OffloadModule::mlp_norm}};
    EnumSet<OffloadModule> attention = streams.modules;
    for (const auto module : {OffloadModule::qkv_linear, OffloadModule::core_attn, OffloadModule::attn_proj}) attention.add(module);
    OffloadSpec inputs;
    for (const OffloadModule module : kOffloadModules) inputs.modules.add(module);
    return {
        {.name = "one"},
        {.name = "micro_batch2", .micro_batch = 2},
        {.name = "tp2_sp", .tp = 2, .sequence_parallel = true},
        {.name = "tp2", .tp = 2},
        {.name = "cp2", .cp = 2},
        {.name = "cp2_a2a", .cp = 2, .cp_comm_type = CpCommType::a2a},
        {.name = "pp2", .pp = 2},
        {.name = "pp2_vpp2", .pp = 2, .vpp = 2},
        {.name = "ep2", .dp = 2, .ep = 2},
        {.name = "core", .pp = 2, .recompute = Recompute::selective, .modules = {core_attn}},
        {.name = "mlp_norm", .pp = 2, .recompute = Recompute::selective, .modules = {mlp, layernorm}},
        {.name = "moe", .recompute = Recompute::selective, .modules = {moe}},
        {.name = "moe_act_shared", .recompute = Recompute::selective, .modules = {moe_act, shared_experts}},
        {.name = "streams_on_the_host_pp2_vpp2", .pp = 2, .vpp = 2, .offload = streams},
        {.name = "inputs_on_the_host", .offload = {.modules = attention}},
        {.name = "inputs_on_the_host_ep2_recomputed",
         .dp = 2,
         .ep = 2,
         .recompute = Recompute::selective,
         .modules = {core_attn, layernorm, moe_act},
         .offload = inputs},
        {.name = "full", .pp = 2, .recompute = Recompute::full},
        {.name = "full2", .recompute = Recompute::full, .recompute_layers = 2},
        {.name = "full3", .recompute = Recompute::full, .recompute_layers = 3},
        {.name = "block",
         .tp = 2,
         .sequence_parallel = true,
         .recompute = Recompute::full,
         .method = RecomputeMethod::block,
         .recompute_layers = 3},
    };
}

INSTANTIATE_TEST_SUITE_P(Layouts, ChunkProfileOf, testing::ValuesIn(cases()), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace mgplan::simulator::chunk_profile_test
