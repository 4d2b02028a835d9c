// Adapters beside frozen weights (LoRA): every layout trains the same ones, bytes held and sent are as predicted, and frozen weights stay.

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/parameters/adapters_of_model.hpp"
#include "tests/model/training/arranged_models.hpp"
#include "tests/model/training/parity_support.hpp"
#include "tests/support/hybrid_models.hpp"
#include "tests/support/sanitized_share.hpp"

namespace mgplan::model::parity_adapters_test {
namespace {

ModelSpec adapted(ModelSpec model, const Adapters& adapters) {
    model.adapters = adapters;
    return model;
}

/// Adapters of rank 4 beside all linear layers outside of routed experts.
Adapters beside_all(bool latent = false) {
    return {.rank = 4, .alpha = 6, .qkv = !latent, .experts = false, .latent = latent};
}

ModelSpec small_mla() {
    ModelSpec model = tests::small_llama();
    model.name = "small-mla";
    model.kv_heads = 4;
    model.head_dim = 0;
    model.qk_norm = true;
    model.mla = MlaSpec{.q_lora_rank = 12, .kv_lora_rank = 10, .qk_nope_head_dim = 6, .qk_rope_head_dim = 4, .v_head_dim = 5};
    return model;
}

ModelSpec small_mqa() {
    ModelSpec model = tests::small_llama();
    model.name = "small-mqa";
    model.kv_heads = 1;
    model.qkv_bias = model.qk_norm = true;
    return model;
}

struct Run {
    std::string name;
    ModelSpec model;
    Case layout;
};

std::vector<Run> runs() {
    using enum RecomputeModule;
    const std::vector<Case> layouts{
        {.name = "dp4", .dp = 4},
        {.name = "dp2_plain", .dp = 2, .distributed_optimizer = false},
        {.name = "tp2", .tp = 2},
        {.name = "tp4_sp", .tp = 4, .sequence_parallel = true},
        {.name = "pp4", .pp = 4},
        {.name = "cp2_ring", .cp = 2},
        {.name = "pp2_vpp2", .pp = 2, .vpp = 2},
        {.name = "tp2_cp2_pp2_dp2", .tp = 2, .cp = 2, .pp = 2, .dp = 2, .sequence_parallel = true},
        {.name = "tp2_full", .tp = 2, .sequence_parallel = true, .recompute = Recompute::full},
        {.name = "tp2_selective",
         .tp = 2,
         .sequence_parallel = true,
         .recompute = Recompute::selective,
         .modules = {core_attn, layernorm, mlp}},
        {.name = "zb_h1_tp2_pp2", .tp = 2, .pp = 2, .schedule = SplitSchedule::zb_h1},
        {.name = "pp4_ends_apart", .pp = 4, .stages = "E|tt|tt|L"},
    };
    const std::vector<Case> of_experts{{.name = "ep2", .dp = 2, .ep = 2},
                                       {.name = "tp2_ep2", .tp = 2, .dp = 2, .ep = 2, .sequence_parallel = true},
                                       {.name = "pp2_ep2", .pp = 2, .dp = 2, .ep = 2}};
    std::vector<Run> list;
    const auto add = [&](const std::string& name, ModelSpec model, const std::vector<Case>& cases) {
        model.name = name + "-adapted";  // by which one_rank() knows a run
        for (const Case& layout : cases) list.push_back({name + "_" + layout.name, model, layout});
    };
    add("llama", adapted(tests::small_llama(), beside_all()), layouts);
    add("llama_qkv", adapted(tests::small_llama(), {.rank = 8, .alpha = 8, .proj = false, .fc1 = false, .fc2 = false, .experts = false}),
        layouts);
    add("llama_fc2", adapted(tests::small_llama(), {.rank = 4, .qkv = false, .proj = false, .fc1 = false, .experts = false}), layouts);
    add("gpt", adapted(tests::small_gpt(), beside_all()), layouts);
    add("mqa", adapted(small_mqa(), beside_all()), layouts);
    add("mla", adapted(small_mla(), beside_all(true)), layouts);
    add("olmo2", adapted(small::small_olmo2(), beside_all()), layouts);
    add("mixture", adapted(small_mixture(), beside_all()), of_experts);
    Adapters of_each = beside_all();
    of_each.experts = true;
    of_each.shared_by_experts = false;
    add("mixture_each", adapted(small_mixture(), of_each), of_experts);
    // Mixers with a state: adapted, and frozen without an adapter of their own.
    Adapters of_hybrids = beside_all();
    of_hybrids.in_proj = of_hybrids.out_proj = true;
    const std::vector<Case> of_states{
        {.name = "tp2_sp", .tp = 2, .sequence_parallel = true},
        {.name = "cp2_dp2", .cp = 2, .dp = 2},
        {.name = "pp2", .pp = 2},
        {.name = "tp2_layernorm", .tp = 2, .sequence_parallel = true, .recompute = Recompute::selective, .modules = {layernorm}}};
    add("nemotron_h", adapted(small::small_nemotron_h(), of_hybrids), of_states);
    add("nemotron_h_frozen", adapted(small::small_nemotron_h(), beside_all()), of_states);
    add("delta_net", adapted(small::small_qwen3_next(), of_hybrids), of_states);
    add("delta_net_frozen", adapted(small::small_qwen3_next(), beside_all()), of_states);
    add("gpt_oss", adapted(small_gpt_oss(), beside_all()), of_experts);
    return tests::sanitized_share(list, 12);
}

class AdapterParity : public testing::TestWithParam<Run> {};

TEST_P(AdapterParity, LossesAndGradientNormsEqualThoseOfOneRank) {
    const auto& [name, model, layout] = GetParam();
    const TrainingTask task = task_for(model, layout, Precision::fp64, 16);
    Outcome outcome = train(task);
    expect_equal_steps(outcome.steps, one_rank(model, 1, Precision::fp64, 16).steps, 1e-10);
    for (int rank = 0; rank < static_cast<int>(task.layout.sizes.world); ++rank) expect_prediction_equals(task, outcome, rank);
}

INSTANTIATE_TEST_SUITE_P(Layouts, AdapterParity, testing::ValuesIn(runs()), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace mgplan::model::parity_adapters_test
