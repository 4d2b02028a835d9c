// Every layout trains the same model: losses and gradient norms of a few steps equal those of one rank, and every byte
// held and sent equals what the same code predicts on shapes alone.

#include <cmath>
#include <functional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "plan/text/errors.hpp"
#include "runtime/comm/in_process/in_process_world.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "tests/model/training/arranged_models.hpp"
#include "tests/model/training/parity_support.hpp"
#include "tests/support/sanitized_share.hpp"

namespace mgplan::model::parity_test {
namespace {

using tests::small_gpt;

ModelSpec small_llama() {
    ModelSpec model = tests::small_llama();
    model.qk_norm = true;
    return model;
}

/// Multi-query attention, whose one kv head tp = 2 and 4 share, with biases and QK-norm.
ModelSpec small_mqa() {
    ModelSpec model = small_llama();
    model.name = "small-mqa";
    model.kv_heads = 1;
    model.qkv_bias = true;
    return model;
}

/// A dense model with the attention of DeepSeek-V2.
ModelSpec small_deepseek() {
    ModelSpec model = small_llama();
    model.name = "small-deepseek";
    model.kv_heads = 4;
    model.head_dim = 0;
    model.mla = MlaSpec{.q_lora_rank = 12, .kv_lora_rank = 10, .qk_nope_head_dim = 6, .qk_rope_head_dim = 4, .v_head_dim = 5};
    return model;
}

/// The same with queries projected directly, as DeepSeek-V2-Lite, and with no norm on the latent.
ModelSpec small_deepseek_lite() {
    ModelSpec model = small_deepseek();
    model.name = "small-deepseek-lite";
    model.mla->q_lora_rank = 0;
    model.qk_norm = false;
    model.normalization = Normalization::layer_norm;
    model.attention_output_bias = true;
    return model;
}

/// Rotary embedding on half of each head, squared ReLU, token types, LayerNorm on q and k, and on the embeddings.
ModelSpec small_nemotron() {
    ModelSpec model = small_gpt();
    model.name = "small-nemotron";
    model.kv_heads = 2;
    model.activation = Activation::squared_relu;
    model.position = PositionEmbedding::rope;
    model.rotary_fraction = 0.5;
    model.tied_embeddings = false;
    model.token_types = 2;
    model.embedding_norm = true;
    model.qk_norm = true;
    return model;
}

/// QK-norm over all heads at once, as OLMo 2.
ModelSpec small_olmo() {
    ModelSpec model = small_llama();
    model.name = "small-olmo";
    model.qk_norm_full_width = true;
    model.kv_heads = 4;
    return model;
}

ModelSpec with_dropout(ModelSpec model) {
    model.name += "-dropout";
    model.hidden_dropout = 0.1;
    return model;
}

ModelSpec untied(ModelSpec model) {
    model.name += "-untied";
    model.tied_embeddings = false;
    return model;
}

/// A model and the length of its sequences.
struct Family {
    std::string name;
    ModelSpec model;
    std::int64_t sequence = 16;
};

std::vector<Case> cases() {
    using enum RecomputeModule;
    return {
        {.name = "dp2", .dp = 2},
        {.name = "dp4_plain", .dp = 4, .distributed_optimizer = false},
        {.name = "mbs2", .micro_batch = 2},
        {.name = "tp2", .tp = 2},
        {.name = "tp2_sp", .tp = 2, .sequence_parallel = true},
        {.name = "pp2", .pp = 2},
        {.name = "pp4", .pp = 4},
        {.name = "pp2_vpp2", .pp = 2, .vpp = 2},
        {.name = "cp2_ring", .cp = 2},
        {.name = "cp4_ring", .cp = 4},
        {.name = "cp2_gather", .cp = 2, .cp_comm_type = CpCommType::all_gather},
        {.name = "cp2_heads", .cp = 2, .cp_comm_type = CpCommType::a2a},
        {.name = "core", .recompute = Recompute::selective, .modules = {core_attn}},
        {.name = "mlp_norm", .recompute = Recompute::selective, .modules = {mlp, layernorm}},
        {.name = "full", .recompute = Recompute::full},
        {.name = "full2_tp2_sp", .tp = 2, .sequence_parallel = true, .recompute = Recompute::full, .recompute_layers = 2},
        {.name = "block", .recompute = Recompute::full, .method = RecomputeMethod::block, .recompute_layers = 2},
        {.name = "tp2_dp2", .tp = 2, .dp = 2, .sequence_parallel = true},
        {.name = "tp2_pp2_dp2", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true},
        {.name = "tp2_cp2_pp2", .tp = 2, .cp = 2, .pp = 2, .sequence_parallel = true},
        {.name = "tp2_cp2_pp2_dp2", .tp = 2, .cp = 2, .pp = 2, .dp = 2, .sequence_parallel = true},
        {.name = "tp2_pp2_vpp2_dp2", .tp = 2, .pp = 2, .vpp = 2, .dp = 2, .micro_batch = 2},
        {.name = "pp4_dp2_mbs2", .pp = 4, .dp = 2, .micro_batch = 2},
        // stages of unequal size, ends on their own
        {.name = "pp2_uneven", .pp = 2, .stages = "Et|tttL"},
        {.name = "pp4_ends_apart", .pp = 4, .stages = "E|tt|tt|L"},
        {.name = "tp2_pp3_loss_apart", .tp = 2, .pp = 3, .sequence_parallel = true, .stages = "Ett|tt|L"},
        {.name = "pp2_vpp3_dp2_uneven", .pp = 2, .vpp = 3, .dp = 2, .stages = "E|t|t|t|t|L"},
        // groups of microbatches
        {.name = "pp2_vpp2_group4", .pp = 2, .vpp = 2, .group_size = 4},
        {.name = "pp2_vpp2_group3_tp2", .tp = 2, .pp = 2, .vpp = 2, .group_size = 3},
        // context parallelism beside the others
        {.name = "tp2_cp2_gather_pp2", .tp = 2, .cp = 2, .pp = 2, .sequence_parallel = true, .cp_comm_type = CpCommType::all_gather},
        {.name = "cp4_gather_dp2", .cp = 4, .dp = 2, .cp_comm_type = CpCommType::all_gather},
        {.name = "cp2_heads_pp2_dp2", .cp = 2, .pp = 2, .dp = 2, .cp_comm_type = CpCommType::a2a},
        {.name = "tp2_cp4_sp", .tp = 2, .cp = 4, .sequence_parallel = true},
        // recompute
        {.name = "core_mlp_norm_tp2_pp2",
         .tp = 2,
         .pp = 2,
         .sequence_parallel = true,
         .recompute = Recompute::selective,
         .modules = {core_attn, mlp, layernorm}},
        {.name = "core_cp2", .cp = 2, .recompute = Recompute::selective, .modules = {core_attn}},
        {.name = "core_cp2_heads", .cp = 2, .cp_comm_type = CpCommType::a2a, .recompute = Recompute::selective, .modules = {core_attn}},
        {.name = "full_pp2_vpp2", .pp = 2, .vpp = 2, .recompute = Recompute::full},
        {.name = "full3_dp2", .dp = 2, .recompute = Recompute::full, .recompute_layers = 3},
        {.name = "block1_tp2_cp2_pp2",
         .tp = 2,
         .cp = 2,
         .pp = 2,
         .sequence_parallel = true,
         .recompute = Recompute::full,
         .method = RecomputeMethod::block,
         .recompute_layers = 1},
        // sixteen ranks
        {.name = "tp4_pp2_dp2", .tp = 4, .pp = 2, .dp = 2, .sequence_parallel = true},
        {.name = "tp4_cp2_pp2", .tp = 4, .cp = 2, .pp = 2, .sequence_parallel = true},
        {.name = "tp2_pp4_dp2", .tp = 2, .pp = 4, .dp = 2, .sequence_parallel = true},
        {.name = "cp2_pp2_vpp2_dp4", .cp = 2, .pp = 2, .vpp = 2, .dp = 4},
        {.name = "tp2_cp2_pp2_vpp2_dp2", .tp = 2, .cp = 2, .pp = 2, .vpp = 2, .dp = 2, .sequence_parallel = true},
        {.name = "tp2_dp8_plain", .tp = 2, .dp = 8, .distributed_optimizer = false},
        // other orders of the axes
        {.name = "pp_dp_cp_tp", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true, .order = "pp-dp-cp-tp"},
        {.name = "dp_cp_tp", .tp = 2, .cp = 2, .dp = 2, .distributed_optimizer = false, .order = "dp-cp-tp"},
        {.name = "cp_tp_dp_pp_vpp2",
         .tp = 2,
         .cp = 2,
         .pp = 2,
         .vpp = 2,
         .dp = 2,
         .sequence_parallel = true,
         .cp_comm_type = CpCommType::all_gather,
         .order = "cp-tp-dp-pp"},
        {.name = "dp_pp_tp_uneven", .tp = 2, .pp = 2, .dp = 2, .stages = "Et|tttL", .order = "dp-pp-tp"},
    };
}

/// Layouts under schedules with divided backwards. dualpipe-v has 2·pp microbatches at least.
std::vector<Case> split_schedule_cases() {
    using enum RecomputeModule;
    using enum SplitSchedule;
    return {
        {.name = "zb_h1_pp2", .pp = 2, .schedule = zb_h1},
        {.name = "zb_h1_pp4", .pp = 4, .schedule = zb_h1},
        {.name = "zb_h1_tp2_pp2_dp2_sp", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true, .schedule = zb_h1},
        {.name = "zb_h1_pp2_selective",
         .pp = 2,
         .recompute = Recompute::selective,
         .modules = {core_attn, mlp, layernorm},
         .schedule = zb_h1},
        {.name = "zb_h1_pp2_full", .pp = 2, .recompute = Recompute::full, .schedule = zb_h1},
        {.name = "zb_h1_pp4_ends_apart", .pp = 4, .stages = "E|tt|tt|L", .schedule = zb_h1},
        {.name = "zb_h2_pp4", .pp = 4, .schedule = zb_h2},
        {.name = "zb_h2_cp2_pp2_dp2", .cp = 2, .pp = 2, .dp = 2, .schedule = zb_h2},
    };
}

/// The same with two chunks of each rank in a V; the model's embeddings must not be tied.
std::vector<Case> v_schedule_cases() {
    using enum SplitSchedule;
    return {
        {.name = "zb_v_pp2", .pp = 2, .vpp = 2, .schedule = zb_v},
        {.name = "zb_v_tp2_pp2_dp2_sp", .tp = 2, .pp = 2, .vpp = 2, .dp = 2, .sequence_parallel = true, .schedule = zb_v},
        {.name = "zb_v_pp3_uneven", .pp = 3, .vpp = 2, .stages = "E|t|t|t|t|L", .schedule = zb_v},
        {.name = "v_half_pp2", .pp = 2, .vpp = 2, .schedule = v_half},
        {.name = "v_min_pp2_full", .pp = 2, .vpp = 2, .recompute = Recompute::full, .schedule = v_min},
        {.name = "v_min_pp4_apart", .pp = 4, .vpp = 2, .stages = "E|t||t||t|t|L", .schedule = v_min},
        {.name = "dualpipe_v_pp2", .pp = 2, .vpp = 2, .schedule = dualpipe_v},
        {.name = "dualpipe_v_pp4_apart", .pp = 4, .vpp = 2, .stages = "E|t||t||t|t|L", .schedule = dualpipe_v},
    };
}

/// Layouts for a variant of the model that touches attention and embedding alone.
std::vector<Case> some_cases() {
    using enum RecomputeModule;
    return {
        {.name = "tp2", .tp = 2},
        {.name = "tp4_sp", .tp = 4, .sequence_parallel = true},
        {.name = "pp2_dp2", .pp = 2, .dp = 2},
        {.name = "cp2_ring", .cp = 2},
        {.name = "tp2_cp2_gather", .tp = 2, .cp = 2, .cp_comm_type = CpCommType::all_gather},
        {.name = "tp2_cp2_pp2_dp2", .tp = 2, .cp = 2, .pp = 2, .dp = 2, .sequence_parallel = true},
        {.name = "tp4_pp2_vpp2_dp2", .tp = 4, .pp = 2, .vpp = 2, .dp = 2, .micro_batch = 2, .sequence_parallel = true},
        {.name = "tp4_pp2_full", .tp = 4, .pp = 2, .recompute = Recompute::full},
        {.name = "tp2_selective",
         .tp = 2,
         .sequence_parallel = true,
         .recompute = Recompute::selective,
         .modules = {core_attn, layernorm, mlp}},
    };
}

std::vector<Case> latent_cases() {
    using enum RecomputeModule;
    std::vector<Case> list = some_cases();
    list.push_back({.name = "cp2_heads", .cp = 2, .cp_comm_type = CpCommType::a2a});
    list.push_back({.name = "tp2_cp2_heads", .tp = 2, .cp = 2, .sequence_parallel = true, .cp_comm_type = CpCommType::a2a});
    list.push_back({.name = "up", .recompute = Recompute::selective, .modules = {mla_up_proj}});
    list.push_back({.name = "up_core_tp2", .tp = 2, .recompute = Recompute::selective, .modules = {mla_up_proj, core_attn}});
    list.push_back({.name = "up_norm_tp2_sp_cp2_pp2",
                    .tp = 2,
                    .cp = 2,
                    .pp = 2,
                    .sequence_parallel = true,
                    .recompute = Recompute::selective,
                    .modules = {mla_up_proj, layernorm, core_attn, mlp}});
    return list;
}

std::vector<Case> cases_without(std::vector<Case> list, bool (*unwanted)(const Case&)) {
    std::erase_if(list, unwanted);
    return list;
}
bool divides_sequence(const Case& c) {
    return c.cp > 1 || c.sequence_parallel;
}

struct Run {
    Family family;
    Case layout;
    Precision precision = Precision::fp64;
};

std::vector<Run> runs() {
    std::vector<Run> list;
    const auto add = [&](const Family& family, const std::vector<Case>& layouts, Precision precision = Precision::fp64) {
        for (const Case& c : layouts) list.push_back({family, c, precision});
    };
    add({"Gpt", small_gpt()}, cases());
    add({"Llama", small_llama()}, cases());
    add({"Mla", small_deepseek()}, latent_cases());
    for (const Family& family : {Family{"Gpt", small_gpt()}, Family{"Llama", small_llama()}, Family{"Mla", small_deepseek()}})
        add(family, some_cases(), Precision::fp32);
    add({"Mla", small_deepseek()}, some_cases(), Precision::bf16);
    add({"MlaLite", small_deepseek_lite()}, latent_cases());
    add({"Mqa", small_mqa()}, some_cases());
    add({"Mqa", small_mqa()}, some_cases(), Precision::bf16);
    add({"Nemotron", small_nemotron()}, some_cases());
    add({"Olmo", small_olmo()}, some_cases());
    for (const ModelSpec& model : {small::small_gemma(), small::small_olmo2(), small::small_neox(), small::small_cohere(),
                                   small::small_granite(), small::small_listed_windows(), small::small_olmo1()}) {
        std::string name;
        for (const char c : model.name.substr(6)) name += c == '-' ? '_' : c;
        add({name, model}, some_cases());
    }
    add({"Odd", small_gpt(), 13}, cases_without(some_cases(), divides_sequence));
    add({"OddRotary", small_deepseek(), 7}, cases_without(some_cases(), divides_sequence));
    add({"GptDropout", with_dropout(small_gpt())}, some_cases());
    add({"MlaDropout", with_dropout(small_deepseek())}, some_cases());
    add({"Llama", small_llama()}, split_schedule_cases());
    add({"Gpt", small_gpt()}, split_schedule_cases());
    add({"Llama", small_llama()}, v_schedule_cases());
    const std::vector<Case> divided{{.name = "zb_h1_tp2_pp2", .tp = 2, .pp = 2, .schedule = SplitSchedule::zb_h1},
                                    {.name = "zb_v_pp2", .pp = 2, .vpp = 2, .schedule = SplitSchedule::zb_v}};
    add({"Mla", small_deepseek()}, divided);
    add({"MlaDropout", with_dropout(small_deepseek())}, divided);
    add({"neox_divided", untied(small::small_neox())}, divided);
    add({"olmo2_divided", untied(small::small_olmo2())}, divided);
    add({"granite_divided", untied(small::small_granite())}, divided);
    return tests::sanitized_share(list, 12);
}

class Parity : public testing::TestWithParam<Run> {};

TEST_P(Parity, LossesAndGradientNormsEqualThoseOfOneRank) {
    const auto& [family, c, precision] = GetParam();
    // bf16 (8 bits) rounds every partial sum anew in each layout. Adam's first steps are the learning rate times a gradient's
    // sign, near zero a sign of rounding alone; so there the norms of later steps part, and only the first is compared.
    const double tolerance = precision == Precision::fp64 ? 1e-10 : precision == Precision::fp32 ? 1e-5 : 1e-2;
    const TrainingTask task = task_for(family.model, c, precision, family.sequence);
    Outcome outcome = train(task);
    expect_equal_steps(outcome.steps, one_rank(family.model, 1, precision, family.sequence).steps, tolerance,
                       precision == Precision::bf16 ? 1 : kSteps);
    for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) expect_prediction_equals(task, outcome, rank);
}

INSTANTIATE_TEST_SUITE_P(Layouts, Parity, testing::ValuesIn(runs()), [](const auto& test) {
    const Run& run = test.param;
    const std::string_view type = run.precision == Precision::fp64 ? "_" : run.precision == Precision::fp32 ? "Fp32_" : "Bf16_";
    return run.family.name + std::string(type) + run.layout.name;
});

TEST(RankTrainer, RefusesAPlanForAnotherWorld) {
    const TrainingTask task = task_for(small_gpt(), {.name = "dp2", .dp = 2}, Precision::fp32);
    MetaDevice device;
    EXPECT_THROW(RankTrainer(task, device, recording_world(0, 4)), ConfigError);
}

TEST(RankTrainer, RefusesIdsOutsideTheVocabularyAsInputsAndAsTargets) {
    const TrainingTask task = task_for(small_gpt(), {.name = "one"}, Precision::fp32);
    const auto refusal_of = [&](std::size_t place, std::int32_t id) -> std::string {
        runtime::InProcessWorld world(1);
        runtime::CpuDevice device;
        RankTrainer trainer(task, device, world.view(0));
        try {
            (void)trainer.step(
                [&](std::int64_t sequence, std::span<std::int32_t> tokens) {
                    tokens_of(sequence, tokens);
                    if (sequence == 5) tokens[place] = id;
                },
                1e-2);
        } catch (const ConfigError& error) {
            return error.what();
        }
        return "";
    };
    using testing::HasSubstr;
    EXPECT_THAT(refusal_of(0, 61), HasSubstr("token 0 of sequence 5, an input, has the id 61, outside the vocabulary of 61"));
    EXPECT_THAT(refusal_of(16, 61), HasSubstr("token 16 of sequence 5, a target, has the id 61"));
    EXPECT_THAT(refusal_of(16, -1), HasSubstr("has the id -1"));
    EXPECT_THAT(refusal_of(7, 1000), HasSubstr("an input and a target, has the id 1000"));
    EXPECT_EQ(refusal_of(16, 60), "");
}

TEST(RankTrainer, DividedBackwardsKeepTheTensorsOfTheirProducts) {
    // The same list with every backward whole, and divided with its weights' gradients right behind: equal to the bit, since the
    // same products run in the same order, and at the same peak but for what B leaves to W.
    const TrainingTask whole = task_for(small_llama(), {.name = "pp2", .pp = 2}, Precision::fp64);
    TrainingTask divided = whole;
    divided.layout.schedule = SplitSchedule::zb_h1;
    const Outcome expected = train(whole), outcome = train(divided);
    for (std::size_t i = 0; i < expected.steps.size(); ++i) {
        EXPECT_EQ(outcome.steps[i].loss, expected.steps[i].loss) << "step " << i;
        EXPECT_EQ(outcome.steps[i].result.grad_norm, expected.steps[i].result.grad_norm) << "step " << i;
    }
    const auto activations = static_cast<std::size_t>(MemoryCategory::activations);
    EXPECT_GT(outcome.memory[1].high_water[activations], expected.memory[1].high_water[activations]);
    for (const MemoryCategory category : {MemoryCategory::parameters, MemoryCategory::gradients, MemoryCategory::optimizer})
        EXPECT_EQ(outcome.memory[1].high_water[static_cast<std::size_t>(category)],
                  expected.memory[1].high_water[static_cast<std::size_t>(category)]);
    for (std::size_t rank = 0; rank < 2; ++rank) EXPECT_EQ(outcome.traffic[rank].totals(), expected.traffic[rank].totals());
}

/// What the trainer says of a task; empty where it accepts.
std::string refusal(const ModelSpec& model, const Case& c, std::int64_t sequence = 16) {
    const TrainingTask task = task_for(model, c, Precision::fp32, sequence);
    try {
        check_features(task);
        return "";
    } catch (const ConfigError& error) {
        return error.what();
    }
}

TEST(RankTrainer, NamesTheFeatureItCannotTrain) {
    using testing::HasSubstr;
    const Case one{.name = "one"}, tp2{.name = "tp2", .tp = 2};
    const auto changed = [](ModelSpec model, const std::function<void(ModelSpec&)>& change) {
        change(model);
        return model;
    };
    const ModelSpec llama = small_llama();
    EXPECT_THAT(refusal(changed(llama, [](ModelSpec& m) { m.rotary_scaling = "dynamic"; }), one), HasSubstr("rotary scaling 'dynamic'"));
    EXPECT_THAT(refusal(changed(llama, [](ModelSpec& m) { m.rotary_scaling = "llama3"; }), one),
                HasSubstr("rotary scaling 'llama3' whose factor is not given"));
    EXPECT_THAT(refusal(changed(small_gpt(), [](ModelSpec& m) { m.mtp_layers = 1; }), {.name = "pp2", .pp = 2}),
                AllOf(HasSubstr("with learned positions"), HasSubstr("with tied embeddings over pp = 2")));
    EXPECT_THAT(refusal(changed(llama, [](ModelSpec& m) { m.attention_dropout = 0.1; }), one), HasSubstr("dropout inside attention"));
    EXPECT_THAT(refusal(changed(small_deepseek(), [](ModelSpec& m) { m.mla->qk_rope_head_dim = 3; }), one),
                HasSubstr("3 values of a head"));
    EXPECT_THAT(refusal(changed(small_olmo(), [](ModelSpec& m) { m.kv_heads = 1; }), tp2),
                HasSubstr("QK-norm over the whole width with tp = 2 above 1 kv heads"));
    EXPECT_EQ(refusal(small_olmo(), tp2), "");
    EXPECT_THAT(refusal(changed(small_llama(), [](ModelSpec& m) { m.qk_norm_per_head = true, m.kv_heads = 1; }), tp2),
                HasSubstr("weights of its own for each head with tp = 2 above 1 kv heads"));
    EXPECT_THAT(refusal(changed(llama, [](ModelSpec& m) { m.heads = 6, m.kv_heads = 3; }), tp2),
                HasSubstr("tp = 2 over 6 heads with 3 kv heads"));
    EXPECT_THAT(refusal(llama, {.name = "cp2", .cp = 2}, 14), HasSubstr("a sequence of 14 tokens, which 2·cp = 4 does not divide"));
    EXPECT_THAT(refusal(llama, {.name = "sp", .tp = 2, .sequence_parallel = true}, 15), HasSubstr("15 tokens a rank"));
    EXPECT_THAT(refusal(small_gpt(), one, 17), HasSubstr("a sequence of 17 tokens with 16 learned positions"));
    EXPECT_EQ(refusal(llama, tp2, 15), "");
    const Case zb_v{.name = "zb_v", .pp = 2, .vpp = 2, .schedule = SplitSchedule::zb_v};
    EXPECT_EQ(refusal(llama, zb_v), "");
    EXPECT_THAT(refusal(changed(llama, [](ModelSpec& m) { m.tied_embeddings = true; }), zb_v),
                HasSubstr("schedule zb-v with tied embeddings"));
    EXPECT_THAT(refusal(changed(llama, [](ModelSpec& m) { m.mtp_layers = 1; }), zb_v),
                HasSubstr("schedule zb-v with multi-token prediction"));
    TrainingTask graphs = task_for(llama, zb_v, Precision::fp32);
    graphs.layout.cuda_graphs.add(CudaGraphScope::full_iteration);
    EXPECT_THAT(features_not_executed(graphs), testing::Contains(HasSubstr("schedule zb-v with CUDA graphs")));
}

TEST(RankTrainer, TracesOnShapesWhatChangesValuesAlone) {
    ModelSpec model = small_olmo();
    model.attention_dropout = 0.1;
    model.rotary_scaling = "dynamic";
    const TrainingTask task = task_for(model, {.name = "tp2", .tp = 2}, Precision::fp16);
    EXPECT_THAT(features_not_executed(task), testing::SizeIs(3)) << "dropout, scaling, type";
    EXPECT_THAT(features_not_executed(task, false), testing::IsEmpty());
    // As many bytes as the other 16-bit type.
    const TrainingTask other = task_for(model, {.name = "tp2", .tp = 2}, Precision::bf16);
    EXPECT_EQ(predict(task, 1, nullptr).memory.peak, predict(other, 1, nullptr).memory.peak);
    runtime::InProcessWorld world(2);
    runtime::CpuDevice device;
    EXPECT_THROW(RankTrainer(task, device, world.view(0)), ConfigError);
}

TEST(RankTrainer, NamesHeadsAndIndexersThatItTracesAlone) {
    ModelSpec labels = small_llama();
    labels.tied_embeddings = false;
    labels.labels = 2;
    const TrainingTask scoring = task_for(labels, {.name = "one"}, Precision::fp32);
    EXPECT_THAT(features_not_executed(scoring), testing::ElementsAre("a head of 2 labels in place of the output layer"));
    EXPECT_THAT(features_not_executed(scoring, false), testing::IsEmpty());
    ModelSpec indexed = small_deepseek();
    indexed.mla->q_lora_rank = 12;
    const std::int64_t plain = predict(task_for(indexed, {.name = "one"}, Precision::fp32), 0, nullptr).memory.peak;
    indexed.mla->index_heads = 2;
    indexed.mla->index_head_dim = 8;
    indexed.mla->index_top_k = 4;
    const TrainingTask sparse = task_for(indexed, {.name = "one"}, Precision::fp32);
    EXPECT_THAT(features_not_executed(sparse), testing::ElementsAre("attention to the 4 keys alone that an indexer chooses"));
    EXPECT_THAT(features_not_executed(sparse, false), testing::IsEmpty());
    EXPECT_GT(predict(sparse, 0, nullptr).memory.peak, plain);
}

TEST(RankTrainer, EachArrangementChangesTheLoss) {
    const auto second_loss = [](const ModelSpec& model) {
        return train(task_for(model, {.name = "one"}, Precision::fp64)).steps.at(1).loss;
    };
    const auto differs = [&](const ModelSpec& model, auto change) {
        ModelSpec other = model;
        change(other);
        EXPECT_GT(std::abs(second_loss(model) - second_loss(other)), 1e-6) << model.name;
    };
    differs(small::small_gemma(), [](ModelSpec& m) { m.post_norms = false; });
    differs(small::small_gemma(), [](ModelSpec& m) { m.embedding_multiplier = 1; });
    differs(small::small_gemma(), [](ModelSpec& m) { m.attention_multiplier = 0; });
    differs(small::small_gemma(), [](ModelSpec& m) { m.window_rotary_base = 0; });
    differs(small::small_olmo2(), [](ModelSpec& m) { m.pre_norms = true; });
    differs(small::small_neox(), [](ModelSpec& m) { m.order = LayerOrder::sequential; });
    differs(small::small_cohere(), [](ModelSpec& m) { m.order = LayerOrder::parallel; });
    differs(small::small_cohere(), [](ModelSpec& m) { m.logit_multiplier = 1; });
    differs(small::small_cohere(), [](ModelSpec& m) { m.rotary_layers.clear(); });
    differs(small::small_granite(), [](ModelSpec& m) { m.residual_multiplier = 1; });
    differs(small::small_listed_windows(), [](ModelSpec& m) { m.window_layers.back() = true; });
}

TEST(RankTrainer, DropoutRotaryBaseAndEpsilonChangeTheLoss) {
    const auto first_loss = [](const ModelSpec& model) {
        return train(task_for(model, {.name = "one"}, Precision::fp64)).steps.front().loss;
    };
    ModelSpec changed = small_llama();
    const double before = first_loss(changed);
    changed.rotary_base = 100;
    const double turned = first_loss(changed);
    EXPECT_NE(turned, before);
    changed.norm_epsilon = 1e-2;
    EXPECT_NE(first_loss(changed), turned);
    EXPECT_NE(first_loss(with_dropout(small_llama())), before);
}

}  // namespace
}  // namespace mgplan::model::parity_test
