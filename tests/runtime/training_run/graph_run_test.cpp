// Training with captured layers: the bits of an eager run, and graphs, slots and bytes as predicted.

#include <algorithm>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/graphs/graph_scopes.hpp"
#include "plan/graphs/graph_slots.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/text/errors.hpp"
#include "runtime/data/synthetic_stream.hpp"
#include "runtime/training_run/training_run.hpp"
#include "tests/support/hybrid_models.hpp"
#include "tests/support/small_models.hpp"

namespace mgplan::runtime::graph_run_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Scope = CudaGraphScope;

struct Case {
    std::string name;
    EnumSet<Scope> scopes{Scope::layer};
    std::int64_t tp = 1, pp = 1, dp = 1, cp = 1;
    int vpp = 1;
    std::int64_t microbatches = 6;
    bool sequence_parallel = true;
    bool experts = false;  ///< in the second and third of four layers
    std::int64_t ep = 1, etp = 1;
    bool shared = false;  ///< experts for every row, with a gate
    bool biased = false;  ///< sigmoid scores, and balanced by expert biases
    double capacity = 0;
    bool pads = false;
    double dropout = 0;
    std::optional<Recompute> recompute{};
    bool learned_positions = false;
    std::int64_t mtp = 0;
    CpCommType cp_comm_type = CpCommType::p2p;
    Precision precision = Precision::fp32;
    Fp8Recipe recipe = Fp8Recipe::tensorwise;  ///< of fp8
    ModelSpec (*of_parts)() = nullptr;         ///< the model, where its layers are of different kinds
};

ModelSpec delta_nets() {
    using namespace model::small;
    ModelSpec model = hybrid("small-delta", {kind("gated_delta_net+mlp", delta_net(), mlp(48, true))}, {0, 0, 0, 0});
    model.position = PositionEmbedding::none;
    return model;
}

void PrintTo(const Case& which, std::ostream* out) {
    *out << which.name;
}

TrainingRunOptions run_of(const Case& which) {
    TrainingRunOptions run;
    ModelSpec& model = run.task.model;
    model = tests::byte_llama(4);
    if (which.of_parts != nullptr) model = which.of_parts();
    model.vocab = 256;
    model.max_positions = 16;
    model.hidden_dropout = which.dropout;
    if (which.learned_positions) model.position = PositionEmbedding::learned;
    model.mtp_layers = which.mtp;
    if (which.experts) {
        MoeSpec& moe = model.moe.emplace();
        moe.experts = 4;
        moe.top_k = 2;
        moe.expert_ffn = 24;
        moe.auxiliary_loss = 0.01;
        moe.shared_ffn = which.shared ? 16 : 0;
        moe.shared_gate = which.shared;
        moe.score = which.biased ? RouterScore::sigmoid : RouterScore::softmax;
        moe.expert_bias = which.biased;
        moe.expert_bias_update_rate = 0.1;
        moe.capacity_factor = which.capacity;
        moe.pad_to_capacity = which.pads;
        model.moe_layers = {false, true, true, false};
    }
    run.task.training.precision = which.precision;
    run.task.training.megatron.fp8_recipe = which.recipe;
    Layout& layout = run.task.layout;
    layout.sizes = {which.tp * which.cp * which.pp * which.dp, which.tp, which.cp,    which.ep,
                    which.experts ? which.etp : which.tp,      which.pp, AxisOrder{}, 1};
    layout.vpp = which.vpp;
    layout.group_size = which.pp;
    layout.cp_comm_type = which.cp_comm_type;
    layout.num_microbatches = which.microbatches;
    layout.sequence_parallel = which.tp > 1 && which.sequence_parallel;
    if (which.recompute == Recompute::full) {
        layout.recompute = Recompute::full;
        layout.recompute_method = RecomputeMethod::uniform;
        layout.recompute_num_layers = 2;
    } else if (which.recompute) {
        layout.recompute = Recompute::selective;
        layout.recompute_modules = {RecomputeModule::core_attn, RecomputeModule::layernorm};
        layout.recompute_modules.add(which.experts ? RecomputeModule::moe_act : RecomputeModule::mlp);
    }
    run.task.batch = {which.microbatches * which.dp, 16};
    layout.split =
        std::make_shared<const StageSplit>(automatic_stage_split(model.layers, which.mtp, static_cast<int>(which.pp), which.vpp).value());
    run.steps = 4;  // eager, captured, replayed twice
    run.memory = MemoryMode::arena;
    run.learning_rate = {.maximum = 1e-2, .decay_steps = 4, .decay = LearningRateDecay::linear};
    run.data = std::make_shared<Sequences>(std::make_shared<SyntheticStream>(1, 256), 16, run.task.batch.global_batch, 1);
    return run;
}

RunValues run_with(TrainingRunOptions run, EnumSet<Scope> scopes) {
    run.task.layout.cuda_graphs = scopes;
    return run_in_process(run);
}

class GraphRun : public testing::TestWithParam<Case> {};

TEST_P(GraphRun, GivesTheBitsOfAnEagerRunAndIsAsPredicted) {
    const TrainingRunOptions run = run_of(GetParam());
    const RunValues eager = run_with(run, {}), graphs = run_with(run, GetParam().scopes);
    ASSERT_EQ(graphs.steps.size(), eager.steps.size());
    for (std::size_t i = 0; i < eager.steps.size(); ++i) {
        EXPECT_EQ(graphs.steps[i].loss, eager.steps[i].loss) << i;
        EXPECT_EQ(graphs.steps[i].mtp_losses, eager.steps[i].mtp_losses) << i;
        EXPECT_EQ(graphs.steps[i].grad_norm, eager.steps[i].grad_norm) << i;
        EXPECT_EQ(graphs.steps[i].auxiliary_loss, eager.steps[i].auxiliary_loss) << i;
    }
    EXPECT_TRUE(graphs.as_predicted);
    const Layout& layout = run.task.layout;
    ScheduleRequest request;
    request.pp = static_cast<int>(layout.sizes.pp);
    request.vpp = layout.vpp;
    request.microbatches = layout.num_microbatches;
    if (layout.vpp > 1) request.group_size = layout.group_size;
    const Schedule schedule(request);
    for (const RankValues& rank : graphs.ranks) {
        EXPECT_EQ(rank.measured, rank.predicted) << rank.rank;
        // The same traffic as without graphs.
        EXPECT_EQ(rank.measured.collectives, eager.ranks[static_cast<std::size_t>(rank.rank)].measured.collectives) << rank.rank;
        EXPECT_GT(rank.graph_nodes, 0) << rank.rank;
        if (GetParam().scopes.contains(Scope::full_iteration)) {
            EXPECT_EQ(rank.measured.graphs.forward_graphs, 1) << rank.rank;
            EXPECT_EQ(rank.measured.graphs.backward_graphs, 0) << rank.rank;
            continue;
        }
        const int stage = static_cast<int>(rank.rank / (layout.sizes.world / layout.sizes.pp));
        std::vector<GraphedChunk> chunks;
        for (int c = 0; c < layout.vpp; ++c) {
            const StageChunk& chunk = layout.split->chunk(stage, c);
            std::int64_t captured = 0;
            for (std::int64_t i = 0; i < chunk.decoders; ++i)
                captured += captured_halves(GetParam().scopes, typed_layer(run.task.model, chunk.first_decoder + i)).any() ? 1 : 0;
            chunks.push_back({{0, captured}});
        }
        const GraphCounts counts = count_graphs(schedule, stage, chunks, GraphPolicy::slots);
        EXPECT_EQ(rank.measured.graphs.forward_graphs, counts.forward_graphs) << rank.rank;
        EXPECT_EQ(rank.measured.graphs.backward_graphs, counts.backward_graphs) << rank.rank;
        EXPECT_EQ(rank.measured.graphs.slots, counts.slots) << rank.rank;
    }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, GraphRun,
    testing::Values(Case{.name = "one"}, Case{.name = "bf16", .precision = Precision::bf16}, Case{.name = "dp2", .dp = 2},
                    Case{.name = "fp8", .precision = Precision::fp8}, Case{.name = "tp2_pp2", .tp = 2, .pp = 2},
                    Case{.name = "tp2_without_sp", .tp = 2, .sequence_parallel = false}, Case{.name = "cp2", .cp = 2},
                    Case{.name = "cp2_all_gather", .cp = 2, .cp_comm_type = CpCommType::all_gather},
                    Case{.name = "cp2_a2a", .cp = 2, .cp_comm_type = CpCommType::a2a}, Case{.name = "pp4", .pp = 4},
                    Case{.name = "pp2_vpp2_dp2", .pp = 2, .dp = 2, .vpp = 2}, Case{.name = "dropout_pp2", .pp = 2, .dropout = 0.1},
                    Case{.name = "recompute", .recompute = Recompute::selective}, Case{.name = "attn", .scopes = {Scope::attn}, .pp = 2},
                    Case{.name = "mlp", .scopes = {Scope::mlp}, .pp = 2}, Case{.name = "attn_mlp", .scopes = {Scope::attn, Scope::mlp}},
                    Case{.name = "attn_of_experts", .scopes = {Scope::attn}, .pp = 2, .experts = true},
                    Case{.name = "attn_mlp_of_experts", .scopes = {Scope::attn, Scope::mlp}, .dp = 2, .experts = true}),
    [](const auto& test) { return test.param.name; });

constexpr EnumSet<Scope> kRouter{Scope::moe_router}, kPermuted{Scope::moe_router, Scope::moe_preprocess},
    kAttentionPermuted{Scope::attn, Scope::moe_router, Scope::moe_preprocess},
    kAllButExperts{Scope::attn, Scope::mlp, Scope::moe_router, Scope::moe_preprocess};
INSTANTIATE_TEST_SUITE_P(
    Mixtures, GraphRun,
    testing::Values(
        Case{.name = "router", .scopes = kRouter, .experts = true},
        Case{.name = "attn_router_pp2", .scopes = {Scope::attn, Scope::moe_router}, .pp = 2, .experts = true, .shared = true},
        Case{.name = "router_with_capacity", .scopes = kRouter, .dp = 2, .experts = true, .ep = 2, .capacity = 1},
        Case{.name = "preprocess", .scopes = kPermuted, .experts = true, .shared = true},
        Case{.name = "attn_preprocess_ep2", .scopes = kAttentionPermuted, .dp = 2, .experts = true, .ep = 2, .shared = true},
        Case{.name = "attn_preprocess_biased_pp2", .scopes = kAttentionPermuted, .pp = 2, .experts = true, .biased = true},
        Case{.name = "all_but_experts_tp2_etp2", .scopes = kAllButExperts, .tp = 2, .experts = true, .etp = 2, .shared = true},
        Case{.name = "all_but_experts_pp2_vpp2", .scopes = kAllButExperts, .pp = 2, .vpp = 2, .experts = true},
        Case{.name = "all_but_experts_cp2", .scopes = kAllButExperts, .cp = 2, .experts = true, .biased = true},
        Case{.name = "preprocess_with_dropout", .scopes = kAllButExperts, .pp = 2, .experts = true, .shared = true, .dropout = 0.1},
        Case{.name = "router_recompute", .scopes = {Scope::attn, Scope::moe_router}, .experts = true, .recompute = Recompute::selective},
        Case{.name = "preprocess_bf16_recompute",
             .scopes = kAttentionPermuted,
             .experts = true,
             .recompute = Recompute::selective,
             .precision = Precision::bf16},
        Case{.name = "preprocess_padded_ep2",
             .scopes = kAttentionPermuted,
             .dp = 2,
             .experts = true,
             .ep = 2,
             .capacity = 1.25,
             .pads = true},
        Case{.name = "experts_padded", .scopes = {Scope::moe}, .experts = true, .shared = true, .capacity = 1, .pads = true},
        Case{.name = "layer_padded_dp4_ep2_etp2",
             .scopes = {Scope::layer},
             .dp = 4,
             .experts = true,
             .ep = 2,
             .etp = 2,
             .capacity = 1.25,
             .pads = true},
        Case{.name = "layer_padded_tp2_pp2",
             .scopes = {Scope::layer},
             .tp = 2,
             .pp = 2,
             .experts = true,
             .ep = 2,
             .biased = true,
             .capacity = 1,
             .pads = true}),
    [](const auto& test) { return test.param.name; });

constexpr EnumSet<Scope> kIteration{Scope::full_iteration};
INSTANTIATE_TEST_SUITE_P(
    Iterations, GraphRun,
    testing::Values(
        Case{.name = "one", .scopes = kIteration}, Case{.name = "bf16_dp2", .scopes = kIteration, .dp = 2, .precision = Precision::bf16},
        Case{.name = "fp8_pp2", .scopes = kIteration, .pp = 2, .precision = Precision::fp8},
        Case{.name = "fp8_blockwise", .scopes = kIteration, .precision = Precision::fp8, .recipe = Fp8Recipe::blockwise},
        Case{.name = "tp2_pp2_with_dropout", .scopes = kIteration, .tp = 2, .pp = 2, .dropout = 0.1},
        Case{.name = "cp2", .scopes = kIteration, .cp = 2}, Case{.name = "pp2_vpp2_dp2", .scopes = kIteration, .pp = 2, .dp = 2, .vpp = 2},
        Case{.name = "pp4", .scopes = kIteration, .pp = 4},
        Case{.name = "mamba_and_attention_tp2_pp2",
             .scopes = kIteration,
             .tp = 2,
             .pp = 2,
             .dropout = 0.1,
             .of_parts = model::small::small_bamba},
        Case{.name = "delta_nets_tp2", .scopes = kIteration, .tp = 2, .of_parts = delta_nets},
        Case{.name = "learned_positions_with_dropout", .scopes = kIteration, .pp = 2, .dropout = 0.1, .learned_positions = true},
        Case{.name = "full_recompute_pp2", .scopes = kIteration, .pp = 2, .recompute = Recompute::full},
        Case{.name = "multi_token_prediction_pp2", .scopes = kIteration, .pp = 2, .mtp = 2},
        Case{.name = "padded_experts_tp2_pp2",
             .scopes = kIteration,
             .tp = 2,
             .pp = 2,
             .experts = true,
             .ep = 2,
             .shared = true,
             .biased = true,
             .capacity = 1.25,
             .pads = true}),
    [](const auto& test) { return test.param.name; });

TEST(GraphCounts, OfMixturesDoNotGrowWithMicrobatches) {
    for (const EnumSet<Scope> scopes : {kAttentionPermuted, EnumSet<Scope>{Scope::attn, Scope::moe_router}}) {
        std::vector<GraphValues> seen;
        for (const std::int64_t microbatches : {4, 16, 64}) {
            TrainingRunOptions run = run_of({.name = "", .pp = 2, .microbatches = microbatches, .experts = true, .shared = true});
            run.steps = 2;
            const RunValues values = run_with(run, scopes);
            EXPECT_TRUE(values.as_predicted);
            seen.push_back(values.ranks.front().measured.graphs);
        }
        EXPECT_EQ(seen[0], seen[1]);
        EXPECT_EQ(seen[0], seen[2]);
        // The first stage holds a dense layer, whose attention is captured, and a mixture, in two slots.
        const std::int64_t stream = 16 * 32 * 4, copies = 2;
        EXPECT_EQ(seen[0].forward_graphs, 4);
        EXPECT_EQ(seen[0].static_input_bytes, 2 * 2 * stream);
        std::vector<NamedBytes> expected{{"hidden_states", 2 * stream}};
        if (scopes == kAttentionPermuted) {
            expected.push_back({"permuted_hidden_states", 2 * copies * stream});
            expected.push_back({"probabilities", 2 * 16 * copies * 4});
            expected.push_back({"residual", 2 * stream});
            expected.push_back({"reversed_permutation_map", 2 * 16 * copies * 4});
            expected.push_back({"shared_experts_output", 2 * stream});
            expected.push_back({"tokens_per_expert", 2 * 4 * 4});
        } else {
            expected.front().bytes += 2 * stream;  // the dense layer's attention and the mixture's norm
            expected.push_back({"probabilities", 2 * 16 * copies * 4});
            expected.push_back({"residual", 2 * stream});
            expected.push_back({"routing_map", 2 * 16 * copies * 4});
            expected.push_back({"shared_experts_output", 2 * stream});
        }
        EXPECT_EQ(seen[0].boundary, expected);
    }
}

TEST(GraphCounts, DoNotGrowWithMicrobatchesAndGrowWithThePipeline) {
    std::int64_t of_pp2 = 0, bytes_of_pp2 = 0;
    for (const std::int64_t pp : {2, 4}) {
        std::vector<GraphValues> seen;
        for (const std::int64_t microbatches : {4, 16, 64}) {
            TrainingRunOptions run = run_of({.name = "", .pp = pp, .microbatches = microbatches});
            run.steps = 2;
            const RunValues values = run_with(run, {Scope::layer});
            EXPECT_TRUE(values.as_predicted);
            seen.push_back(values.ranks.front().measured.graphs);
        }
        EXPECT_EQ(seen[0], seen[1]);
        EXPECT_EQ(seen[0], seen[2]);
        EXPECT_EQ(seen[0].slots, pp);
        // A layer of the first stage is captured once for each slot.
        EXPECT_EQ(seen[0].forward_graphs, pp * 4 / pp);
        const std::int64_t stream = 16 * 32 * 4;
        EXPECT_EQ(seen[0].static_input_bytes, pp * (4 / pp) * stream);
        EXPECT_EQ(seen[0].boundary_bytes, pp * stream);
        if (pp == 2) {
            of_pp2 = seen[0].slots;
            bytes_of_pp2 = seen[0].boundary_bytes;
        } else {
            EXPECT_GT(seen[0].slots, of_pp2);
            EXPECT_GT(seen[0].boundary_bytes, bytes_of_pp2);
        }
    }
}

TEST(GraphRun, AreCutAtCollectives) {
    const RunValues alone = run_with(run_of({.name = ""}), {Scope::layer});
    const RunValues cut = run_with(run_of({.name = "", .tp = 2}), {Scope::layer});
    const GraphValues& graphs = alone.ranks.front().measured.graphs;
    EXPECT_EQ(alone.ranks.front().graph_pieces, graphs.forward_graphs + graphs.backward_graphs);
    EXPECT_GT(cut.ranks.front().graph_pieces, 2 * alone.ranks.front().graph_pieces);
}

/// Collectives of one group in the order of their starts.
class Starts final : public RankObserver {
public:
    explicit Starts(std::vector<std::string>& starts) : starts_(starts) {}
    void on_ready(model::Device& /*device*/, const model::World& /*world*/) override {}
    void on_op(const model::OpRecord& /*record*/) override {}
    void on_collective(const model::CollectiveRecord& record) override {
        if (record.group == "dp-cp") starts_.push_back(std::string(to_string(record.kind)) + std::to_string(record.payload_bytes));
        if (record.group == "pp-backward") starts_.emplace_back("gradient message");
    }

private:
    std::vector<std::string>& starts_;
};

TEST(GraphRun, StartsReductionsAndGathersInTheOrderOfAnEagerRun) {
    TrainingRunOptions run = run_of({.name = "", .pp = 2, .dp = 2});
    run.task.gradients.bucket_size = 2000;  // many buckets
    std::vector<std::string> eager, graphs;
    for (auto* starts : {&eager, &graphs}) {
        run.task.layout.cuda_graphs = starts == &graphs ? EnumSet<Scope>{Scope::layer} : EnumSet<Scope>{};
        run.observe = [starts](int rank) -> std::unique_ptr<RankObserver> {
            return rank == 0 ? std::make_unique<Starts>(*starts) : nullptr;
        };
        static_cast<void>(run_in_process(run));
    }
    EXPECT_GT(std::count_if(eager.begin(), eager.end(), [](const auto& start) { return start.starts_with("reduce_scatter"); }), 4 * 4);
    EXPECT_EQ(eager, graphs);
}

TEST(GraphRun, OfAWholeIterationBeginsWithItsGathersAndStartsReductionsAsAnEagerRunDoes) {
    TrainingRunOptions run = run_of({.name = "", .pp = 2, .dp = 2});
    run.task.gradients.bucket_size = 2000;  // many buckets
    std::vector<std::string> eager, graphs;
    for (auto* starts : {&eager, &graphs}) {
        run.task.layout.cuda_graphs = starts == &graphs ? kIteration : EnumSet<Scope>{};
        run.observe = [starts](int rank) -> std::unique_ptr<RankObserver> {
            return rank == 0 ? std::make_unique<Starts>(*starts) : nullptr;
        };
        static_cast<void>(run_in_process(run));
    }
    // The gathers that end an eager run's step begin the next one's; the loss is all-reduced between.
    const auto gathers = [](const std::string& start) { return start.starts_with("all_gather"); };
    ASSERT_TRUE(gathers(graphs.front()));
    ASSERT_TRUE(gathers(eager.back()));
    const auto first = std::find_if_not(graphs.begin(), graphs.end(), gathers) - graphs.begin();
    const std::vector<std::string> of_one_step(graphs.begin(), graphs.begin() + first);
    EXPECT_TRUE(std::equal(of_one_step.begin(), of_one_step.end(), eager.end() - first));
    std::vector<std::string> expected = of_one_step;
    expected.insert(expected.end(), eager.begin(), eager.end() - first);
    EXPECT_EQ(graphs, expected);
}

TEST(GraphRun, LeavesTheGuardsOfAnArenaAloneAndReadsNoFreedMemory) {
    TrainingRunOptions run = run_of({.name = "", .tp = 2, .pp = 2, .dropout = 0.1});
    for (const EnumSet<Scope> scopes : {EnumSet<Scope>{Scope::layer}, kIteration}) {
        run.check_memory = false;
        const RunValues plain = run_with(run, scopes);
        run.check_memory = true;
        const RunValues checked = run_with(run, scopes);
        EXPECT_TRUE(checked.as_predicted);
        EXPECT_GT(checked.ranks.front().arena.planned_bytes, plain.ranks.front().arena.planned_bytes);
        for (std::size_t i = 0; i < plain.steps.size(); ++i) EXPECT_EQ(checked.steps[i].loss, plain.steps[i].loss) << i;
    }
}

TEST(GraphRun, NeedsAnArena) {
    TrainingRunOptions run = run_of({.name = ""});
    run.memory = MemoryMode::pool;
    EXPECT_THAT([&] { static_cast<void>(run_with(run, {Scope::layer})); },
                testing::ThrowsMessage<std::runtime_error>(HasSubstr("--memory arena")));
}

TEST(GraphRun, RefusesWhatNoGraphHolds) {
    const auto refuses = [](const Case& which, EnumSet<Scope> scopes, const char* why) {
        EXPECT_THAT(
            [&] { static_cast<void>(run_with(run_of(which), scopes)); },
            testing::ThrowsMessage<ConfigError>(AllOf(HasSubstr("--cuda-graphs = "), HasSubstr("(use --cuda-graphs "), HasSubstr(why))));
    };
    refuses({.name = "", .experts = true}, kIteration, "row counts from the host");
    refuses({.name = "", .experts = true}, {Scope::layer}, "row counts from the host");
    refuses({.name = "", .experts = true}, {Scope::moe}, "row counts from the host");
    refuses({.name = "", .experts = true, .capacity = 1}, kPermuted, "how many copies are left");
}

}  // namespace
}  // namespace mgplan::runtime::graph_run_test
