// The memory of chunks put together from single layers, against whole chunks that ran on shapes: byte for byte.

#include "simulator/memory/chunk_profile.hpp"

#include <gtest/gtest.h>

#include "plan/numeric_types.hpp"
#include "simulator/memory/rank_timeline.hpp"
#include "tests/model/training/small_training.hpp"

namespace mgplan::simulator {
namespace {

using model::TrainingTask;
namespace small = model::small;

struct Case {
    std::string name;
    small::Sizes sizes{};
    Recompute recompute = Recompute::none;
    EnumSet<RecomputeModule> modules{};
    RecomputeMethod method = RecomputeMethod::uniform;
    int recompute_layers = 1;
    bool mixtures = false;
};

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
    sizes.traits = {model::DeviceKind::cpu};
    return sizes;
}

class ChunkProfileOf : public testing::TestWithParam<Case> {};

TEST_P(ChunkProfileOf, IsThatOfTheWholeChunk) {
    const Case& c = GetParam();
    for (const ModelSpec& model : c.mixtures ? std::vector{small::mixture()} : std::vector{small::gpt(), small::llama()}) {
        TrainingTask task = small::task(model, c.sizes);
        task.training.precision = Precision::bf16;
        task.layout.recompute = c.recompute;
        task.layout.recompute_modules = c.modules;
        if (c.recompute == Recompute::full) {
            task.layout.recompute_method = c.method;
            task.layout.recompute_num_layers = c.recompute_layers;
        }
        const PieceSizes sizes = sizes_of(task);
        const bool full = c.recompute == Recompute::full;
        const PieceProfiles dense = piece_profiles(trace_dense_pieces(model, sizes));
        PieceProfiles mixtures{};
        if (model.moe) mixtures = piece_profiles(trace_mixture(model, sizes));
        const ShardProfiles shard = shard_profiles(dense, model.moe ? &mixtures : nullptr, sizes, model.hidden);
        const FullRecompute recompute{c.method, c.recompute_layers};
        for (int stage = 0; stage < static_cast<int>(task.layout.sizes.pp); ++stage) {
            const RankProbe probe = probe_rank(task, stage);
            for (int chunk = 0; chunk < task.layout.vpp; ++chunk) {
                const StageChunk& held = task.layout.split->chunk(stage, chunk);
                ChunkContents contents{held.embedding, held.loss, {}, 0};
                for (std::int64_t i = 0; i < held.decoders; ++i) contents.mixtures.push_back(model.is_moe_layer(held.first_decoder + i));
                const PassProfile profile = chunk_profile(shard, contents, full ? &recompute : nullptr);
                const auto index = static_cast<std::size_t>(chunk);
                SCOPED_TRACE(testing::Message() << model.name << " stage " << stage << " chunk " << chunk);
                EXPECT_EQ(profile.forward.peak, probe.forward[index].peak);
                EXPECT_EQ(profile.backward.peak, probe.backward[index].peak);
                EXPECT_EQ(profile.forward.net_total() + profile.backward.net_total(), 0);
            }
        }
    }
}

std::vector<Case> cases() {
    using enum RecomputeModule;
    return {
        {.name = "one"},
        {.name = "tp2_sp", .sizes = {.tp = 2, .sequence_parallel = true}},
        {.name = "tp2", .sizes = {.tp = 2}},
        {.name = "cp2", .sizes = {.cp = 2}},
        {.name = "pp2", .sizes = {.pp = 2}},
        {.name = "pp2_vpp2", .sizes = {.pp = 2, .vpp = 2}},
        {.name = "core", .sizes = {.pp = 2}, .recompute = Recompute::selective, .modules = {core_attn}},
        {.name = "mlp_norm", .sizes = {.pp = 2}, .recompute = Recompute::selective, .modules = {mlp, layernorm}},
        {.name = "full", .sizes = {.pp = 2}, .recompute = Recompute::full},
        {.name = "full2", .recompute = Recompute::full, .recompute_layers = 2},
        {.name = "full3", .recompute = Recompute::full, .recompute_layers = 3},
        {.name = "block", .sizes = {.tp = 2}, .recompute = Recompute::full, .method = RecomputeMethod::block, .recompute_layers = 3},
        {.name = "mixture", .mixtures = true},
        {.name = "mixture_ep2", .sizes = {.dp = 2, .ep = 2}, .mixtures = true},
        {.name = "mixture_full", .recompute = Recompute::full, .recompute_layers = 2, .mixtures = true},
    };
}

INSTANTIATE_TEST_SUITE_P(Layouts, ChunkProfileOf, testing::ValuesIn(cases()), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace mgplan::simulator
