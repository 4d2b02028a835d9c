// Megatron-LM commands whose layers differ in their mixer.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/megatron/megatron_arguments.hpp"
#include "plan/layout/pipeline_layout.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::formats::megatron_hybrid_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kBase = "--hidden-size 512 --num-attention-heads 8 --vocab-size 1000 --seq-length 64 --global-batch-size 8 --bf16 ";
const std::string kRms = kBase + "--normalization RMSNorm --disable-bias-linear ";

Job read(const std::string& flags) {
    return read_megatron_text(flags, "flags");
}

std::string refusal(const std::string& flags) {
    try {
        (void)read(flags);
    } catch (const ConfigError& error) {
        return error.what();
    }
    return "accepted";
}

std::vector<std::string> names(const ModelSpec& model) {
    std::vector<std::string> list;
    for (const std::uint16_t kind : model.kind_of_layer) list.push_back(model.kinds.at(kind).name);
    return list;
}

std::vector<std::string> not_computed(const Job& job) {
    std::vector<std::string> flags;
    for (const auto& one : job.flags.not_computed) flags.push_back(one.flag);
    return flags;
}

/// Parameters of one tp rank's whole model.
std::int64_t elements(const ModelSpec& model) {
    StageChunk whole;
    whole.embedding = whole.loss = true;
    whole.decoders = model.layers;
    std::int64_t sum = 0;
    for (const Parameter& parameter : chunk_parameters(model, {}, whole)) sum += parameter.count();
    return sum;
}

TEST(MegatronHybrid, APatternsLettersAreLayers) {
    const Job job =
        read(kRms + "--num-layers 3 --hybrid-layer-pattern M-*M --untie-embeddings-and-output-weights --position-embedding-type none");
    const ModelSpec& model = job.model;
    EXPECT_EQ(model.layers, 4) << "the pattern counts, not --num-layers";
    EXPECT_THAT(names(model), ElementsAre("mamba2", "mlp", "attention", "mamba2"));
    EXPECT_FALSE(is_counted_only(model));
    const auto mixer = std::get<Mamba2>(*model.kinds.front().layer.mixer);
    EXPECT_EQ(mixer.inner_width, 1024);
    EXPECT_EQ(mixer.heads, 16);  // 2 · 512 / 64
    EXPECT_EQ(mixer.groups, 8);
    EXPECT_EQ(mixer.state_size, 128);
    // in_proj, conv1d with its bias, dt_bias, A_log, D, norm, out_proj, and the norm in front.
    const std::int64_t inner = 1024, maps = 2 * 8 * 128, heads = 16;
    const std::int64_t mamba = (2 * inner + maps + heads) * 512 + (inner + maps) * (4 + 1) + 3 * heads + inner + inner * 512 + 512;
    const std::int64_t mlp = 2 * 512 * 4 * 512 + 512, attention = 4 * 512 * 512 + 512;
    EXPECT_EQ(elements(model), 2 * mamba + mlp + attention + 2 * 1024 * 512 + 512);
}

TEST(MegatronHybrid, MambasSizesFollowTheirFlags) {
    const auto sizes = [](const std::string& flags) {
        return std::get<Mamba2>(*read(kRms + "--hybrid-layer-pattern M " + flags).model.kinds.at(0).layer.mixer);
    };
    EXPECT_EQ(sizes("--mamba-state-dim 64").state_size, 64);
    EXPECT_EQ(sizes("--mamba-head-dim 32").heads, 32);
    EXPECT_EQ(sizes("--mamba-num-groups 4").groups, 4);
    EXPECT_EQ(sizes("--mamba-num-heads 24 --mamba-head-dim 80").inner_width, 24 * 80);
}

TEST(MegatronHybrid, NormsWithBiasesAreLayersToo) {
    const ModelSpec model = read(kBase + "--hybrid-layer-pattern M*-").model;
    EXPECT_FALSE(is_counted_only(model)) << "LayerNorm in front of Mamba-2, biases of attention and MLP";
    const ModelSpec plain = read(kRms + "--hybrid-layer-pattern M*-").model;
    EXPECT_EQ(elements(model) - elements(plain), 4 * 512 + (3 * 512 + 512) + (2048 + 512)) << "norms; attention; MLP";
}

TEST(MegatronHybrid, ExpertsStandWhereThePatternHasThem) {
    const Job job = read(kRms +
                         "--hybrid-layer-pattern MEM*E --num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 128 "
                         "--moe-shared-expert-intermediate-size 256");
    EXPECT_THAT(names(job.model), ElementsAre("mamba2", "moe", "mamba2", "attention", "moe"));
    EXPECT_EQ(job.model.moe_layers, (std::vector<bool>{false, true, false, false, true}));
    EXPECT_FALSE(is_counted_only(job.model));
    // moe_layer.py: two maps of 512·64 beside experts whose matrices are 64 wide, not 512.
    const Job latent = read(kRms +
                            "--hybrid-layer-pattern MEM*E --num-experts 4 --moe-router-topk 2 --moe-ffn-hidden-size 128 "
                            "--moe-shared-expert-intermediate-size 256 --moe-latent-size 64");
    EXPECT_FALSE(is_counted_only(latent.model));
    EXPECT_THAT(not_computed(latent), testing::IsEmpty());
    EXPECT_EQ(elements(latent.model) - elements(job.model), 2 * (2 * 512 * 64 - 4 * 2 * 128 * (512 - 64)));
    EXPECT_THAT(refusal(kRms + "--hybrid-layer-pattern MEM"), HasSubstr("--num-experts is missing"));
    const Job dense = read(kRms + "--hybrid-layer-pattern M-M --num-experts 4 --moe-router-topk 2");
    EXPECT_THAT(not_computed(dense), ElementsAre("--num-experts"));
    const Job switched = read(kRms + "--hybrid-layer-pattern M-M --num-experts 4 --moe-router-dtype fp32 --moe-permute-fusion");
    EXPECT_THAT(switched.flags.without_effect, testing::IsSupersetOf({"--moe-router-dtype", "--moe-permute-fusion"}));
    EXPECT_FALSE(dense.model.moe.has_value());
}

TEST(MegatronHybrid, RatiosMakeTheOldPattern) {
    const auto layers = [](const std::string& flags) { return names(read(kRms + "--is-hybrid-model --num-layers 10 " + flags).model); };
    const std::string m = "mamba2", a = "attention", p = "mlp";
    EXPECT_THAT(layers("--hybrid-attention-ratio 0.2"), ElementsAre(m, m, m, a, m, m, a, m, m, m));
    EXPECT_THAT(layers("--hybrid-attention-ratio 0.1 --hybrid-mlp-ratio 0.4"), ElementsAre(m, p, m, m, p, a, m, p, m, p));
    EXPECT_THAT(layers(""), testing::Each(m));
    EXPECT_THAT(refusal(kRms + "--is-hybrid-model --num-layers 10 --hybrid-attention-ratio 1.5"), HasSubstr("--hybrid-attention-ratio"));
}

TEST(MegatronHybrid, HybridModelsOwnSpecChangesNothing) {
    const std::string own = "--spec megatron.core.models.hybrid.hybrid_layer_specs hybrid_stack_spec";
    EXPECT_THAT(not_computed(read(kRms + "--hybrid-layer-pattern M- " + own)), testing::IsEmpty());
    EXPECT_THAT(not_computed(read(kRms + "--hybrid-layer-pattern M- --spec mine.layers my_spec")), ElementsAre("--spec"));
    EXPECT_THAT(not_computed(read(kRms + "--num-layers 2 " + own)), ElementsAre("--spec"));
}

TEST(MegatronHybrid, BarsAreStages) {
    const Job job = read(kRms + "--hybrid-layer-pattern 'M-|M*|-M|M' --pipeline-model-parallel-size 2");
    ASSERT_TRUE(job.layout);
    EXPECT_EQ(job.layout->vpp, 2);
    EXPECT_THAT(parse_pipeline_layout(job.layout->split->pipeline_layout.value()), ElementsAre("Ett", "tt", "tt", "tL"));
    EXPECT_EQ(job.model.layers, 7);
    EXPECT_THAT(refusal(kRms + "--hybrid-layer-pattern 'M|M|M' --pipeline-model-parallel-size 2"),
                HasSubstr("--hybrid-layer-pattern has 3 stages, no multiple of --pipeline-model-parallel-size = 2"));
    EXPECT_THAT(refusal(kRms + "--hybrid-layer-pattern 'MM|M' --pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 2"),
                HasSubstr("--decoder-first-pipeline-num-layers with --hybrid-layer-pattern"));
    EXPECT_THAT(refusal(kRms + "--hybrid-layer-pattern MM --num-virtual-stages-per-pipeline-rank 2"),
                HasSubstr("write stages into the pattern with |"));
}

TEST(MegatronHybrid, WhatIsNotComputedIsNamed) {
    EXPECT_THAT(not_computed(read(kRms + "--position-embedding-type rope --hybrid-layer-pattern 'M*/*M/*M'")),
                ElementsAre("--hybrid-layer-pattern"))
        << "two mixers in a depth";
    EXPECT_THAT(not_computed(read(kRms + "--position-embedding-type rope --mtp-num-layers 1 --hybrid-layer-pattern 'M*/*M'")),
                ElementsAre("--mtp-num-layers"));
    EXPECT_THAT(refusal(kRms + "--hybrid-layer-pattern M+M"), HasSubstr("sparse or latent attention"));
    EXPECT_THAT(refusal(kRms + "--hybrid-layer-pattern MxM"), HasSubstr("holds 'x'"));
    EXPECT_THAT(refusal(kRms + "--hybrid-layer-pattern ''"), HasSubstr("--hybrid-layer-pattern"));
    EXPECT_THAT(refusal(kRms + "--hybrid-layer-pattern M --hybrid-override-pattern M"), HasSubstr("give the pattern twice"));
    EXPECT_THAT(refusal(kRms + "--hybrid-layer-pattern M --mamba-num-groups 3"),
                HasSubstr("--mamba-num-groups = 3 does not divide the 16"));
    EXPECT_THAT(refusal(kRms + "--hybrid-layer-pattern M --mamba-head-dim 48"), HasSubstr("--mamba-head-dim = 48 does not divide"));
}

TEST(MegatronHybrid, DepthsOfPredictionAreALayerOfTheirOwn) {
    const std::string experts = kRms + "--position-embedding-type none --num-experts 4 --moe-router-topk 2 ";
    const auto prediction = [](const Job& job) { return job.model.kinds.at(job.model.kind_of_prediction.value()).name; };
    const Job pair = read(experts + "--hybrid-layer-pattern 'M*EM/*E/*E'");
    EXPECT_EQ(pair.model.mtp_layers, 2);
    EXPECT_EQ(prediction(pair), "attention+moe");
    EXPECT_TRUE(pair.model.is_moe_layer(pair.model.layers)) << "the last decoder layer has no experts";
    EXPECT_THAT(not_computed(pair), testing::IsEmpty());
    const Job old = read(experts + "--hybrid-layer-pattern M*EM --mtp-hybrid-override-pattern *E --mtp-num-layers 2");
    EXPECT_EQ(old.model, pair.model) << "the name before";
    const Job dense = read(experts + "--hybrid-layer-pattern 'M*ME/*-'");
    EXPECT_EQ(prediction(dense), "attention+mlp");
    EXPECT_FALSE(dense.model.is_moe_layer(dense.model.layers));
    EXPECT_EQ(prediction(read(experts + "--hybrid-layer-pattern 'M*ME/E'")), "moe") << "a kind of the decoder's";
    EXPECT_FALSE(layer_kinds(read(experts + "--hybrid-layer-pattern 'M*ME/E'").model).prediction_in_graphs) << "a stack all the same";
    // Without depths in a pattern Megatron-LM makes none (arguments.py).
    for (const char* none :
         {"--mtp-num-layers 2", "--mtp-hybrid-override-pattern *-", "--mtp-hybrid-override-pattern *- --mtp-num-layers 0"}) {
        const Job without = read(kRms + "--position-embedding-type none --hybrid-layer-pattern M*M- " + none);
        EXPECT_EQ(without.model.mtp_layers, 0) << none;
        EXPECT_FALSE(without.model.kind_of_prediction) << none;
    }
    EXPECT_EQ(read(kRms + "--position-embedding-type none --hybrid-layer-pattern M*M-/ --mtp-num-layers 1 --mtp-hybrid-override-pattern *-")
                  .model.mtp_layers,
              0);
    const Job stages = read(kRms + "--position-embedding-type none --hybrid-layer-pattern 'M*|M-/*-' --pipeline-model-parallel-size 2");
    EXPECT_THAT(parse_pipeline_layout(stages.layout->split->pipeline_layout.value()), ElementsAre("Ett", "ttmL"));
}

TEST(MegatronHybrid, DepthsOfPredictionThatDoNotSuitAreRefused) {
    const std::string plain = kRms + "--position-embedding-type none ";
    EXPECT_THAT(refusal(plain + "--hybrid-layer-pattern 'M*M-/*-/*'"), HasSubstr("the patterns after / differ"));
    EXPECT_THAT(refusal(plain + "--hybrid-layer-pattern 'M*M-//*-'"), HasSubstr("the patterns after / differ"));
    EXPECT_THAT(refusal(plain + "--hybrid-layer-pattern 'M*M-/*|-'"), HasSubstr("| ends a stage in front of the first /"));
    EXPECT_THAT(refusal(plain + "--hybrid-layer-pattern 'M*M-/X'"), HasSubstr("holds 'X'"));
    EXPECT_THAT(refusal(plain + "--hybrid-layer-pattern 'M*M-/*E'"), HasSubstr("--num-experts is missing or 0"));
    EXPECT_THAT(refusal(plain + "--hybrid-layer-pattern M*ME --num-experts 0"), HasSubstr("--num-experts"));
    const std::string stages = plain + "--hybrid-layer-pattern 'M*|M-' --pipeline-model-parallel-size 2 --mtp-hybrid-override-pattern *- ";
    EXPECT_THAT(refusal(stages + "--mtp-num-layers -1"), HasSubstr("--mtp-num-layers = -1 is out of range"));
    EXPECT_THAT(refusal(stages + "--mtp-num-layers 99999999999"), HasSubstr("--mtp-num-layers = 99999999999 is out of range"));
}

// Main at d98e8a64 builds them (hybrid_layer_specs.py); their output norm is LayerNorm then.
TEST(MegatronHybrids, LeaveDeltaNetsWithLayerNormOpen) {
    const Job job = read(kBase + "--hybrid-layer-pattern G");
    EXPECT_NO_THROW(validate(job.model, "model"));
    EXPECT_FALSE(is_counted_only(job.model)) << "it is predicted";
    const FlagAccount& account = job.flags;
    ASSERT_EQ(account.not_computed.size(), 1U);
    EXPECT_EQ(account.not_computed[0].flag, "--hybrid-layer-pattern");
    EXPECT_EQ(account.not_computed[0].decides, Decides::fit_and_legal);
}

const std::string kDelta = kRms + "--num-layers 4 --swiglu --experimental-attention-variant gated_delta_net ";

TEST(MegatronHybrid, DeltaNetsStandBetweenLayersOfAttention) {
    const Job job =
        read(kDelta + "--linear-attention-freq 4 --attention-output-gate --qk-layernorm --group-query-attention --num-query-groups 2");
    EXPECT_THAT(names(job.model), ElementsAre("gated_delta_net+mlp", "gated_delta_net+mlp", "gated_delta_net+mlp", "attention+mlp"));
    EXPECT_FALSE(is_counted_only(job.model));
    const auto mixer = std::get<GatedDeltaNet>(*job.model.kinds.front().layer.mixer);
    EXPECT_EQ(mixer.key_heads, 16);
    EXPECT_EQ(mixer.value_heads, 32);
    EXPECT_THAT(names(read(kDelta + "--linear-attention-freq ([1]+[0])*2").model),
                ElementsAre("gated_delta_net+mlp", "attention+mlp", "gated_delta_net+mlp", "attention+mlp"));
    EXPECT_THAT(refusal(kDelta + "--linear-attention-freq [1,0]"), HasSubstr("has 2 entries for --num-layers = 4"));
    EXPECT_THAT(refusal(kDelta), HasSubstr("--linear-attention-freq is missing"));
    EXPECT_THAT(refusal(kDelta + "--linear-attention-freq 4 --linear-num-value-heads 24"), HasSubstr("is no multiple of"));
}

TEST(MegatronHybrid, WithLayerNormDeltaNetsAreNamed) {
    const Job job = read(kBase +
                         "--num-layers 4 --experimental-attention-variant gated_delta_net --linear-attention-freq 4 "
                         "--linear-key-head-dim 64");
    EXPECT_THAT(not_computed(job),
                testing::UnorderedElementsAre("--experimental-attention-variant", "--linear-attention-freq", "--linear-key-head-dim"));
    EXPECT_TRUE(job.model.kinds.empty());
    EXPECT_THAT(not_computed(read(kBase + "--num-layers 4 --experimental-attention-variant dsa --no-rope-fusion")),
                ElementsAre("--experimental-attention-variant"));
}

TEST(MegatronHybrid, AnIndexerBelongsToLatentAttention) {
    const std::string variant = kRms + "--num-layers 2 --experimental-attention-variant dsa --no-rope-fusion ";
    const std::string sizes = "--dsa-indexer-n-heads 4 --dsa-indexer-head-dim 128 --dsa-indexer-topk 64 ";
    const Job job = read(variant + sizes + "--multi-latent-attention --q-lora-rank 96");
    ASSERT_TRUE(job.model.mla.has_value());
    EXPECT_EQ(job.model.mla->index_heads, 4);
    EXPECT_EQ(job.model.mla->index_head_dim, 128);
    EXPECT_EQ(job.model.mla->index_top_k, 64);
    EXPECT_THAT(not_computed(job), testing::IsEmpty());
    const Job without_rank = read(variant + "--multi-latent-attention " + sizes);
    EXPECT_EQ(not_computed(without_rank).size(), 4U) << "Megatron-LM gives the indexer the layer's input then";
    EXPECT_EQ(without_rank.model.mla->index_heads, 0);
    EXPECT_THAT(refusal(variant + "--multi-latent-attention --qk-layernorm " + sizes), HasSubstr("needs --q-lora-rank"));
    EXPECT_THAT(refusal(variant + "--multi-latent-attention --q-lora-rank 96 --dsa-indexer-n-heads 4 --dsa-indexer-topk 64"),
                HasSubstr("--experimental-attention-variant dsa needs --dsa-indexer-head-dim"));
    EXPECT_THAT(not_computed(read(variant + sizes)),
                testing::UnorderedElementsAre("--experimental-attention-variant", "--dsa-indexer-n-heads", "--dsa-indexer-head-dim",
                                              "--dsa-indexer-topk"));
}

TEST(MegatronHybrid, AGateOfAttentionsOutputIsAttentions) {
    EXPECT_TRUE(read(kRms + "--num-layers 2 --attention-output-gate").model.attention_output_gate);
    EXPECT_THAT(refusal(kRms + "--num-layers 2 --attention-output-gate --multi-latent-attention"),
                HasSubstr("which Megatron-LM does not have"));
}

}  // namespace
}  // namespace mgplan::formats::megatron_hybrid_test
