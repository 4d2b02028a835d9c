#include "formats/megatron/megatron_arguments.hpp"

#include <filesystem>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "formats/megatron/megatron_flags.hpp"
#include "formats/model_source.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"
#include "tests/formats/megatron/read_flags.hpp"
#include "tests/support/data_folder.hpp"

namespace mgplan::formats::megatron_arguments_test {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using tests::megatron::kSmall, tests::megatron::read, tests::megatron::refusal;
using Words = std::vector<std::string>;

std::string data(const std::string& name) {
    return tests::data_folder() + "/formats/data/" + name;
}

TEST(MegatronArguments, UnderstandsTheArgumentsOfPublishedRuns) {
    int read_files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(data(""))) {
        if (entry.path().extension() == ".md") continue;
        const Job job = load_model(entry.path().string());
        EXPECT_TRUE(job.layout && job.batch && job.training) << entry.path();
        EXPECT_THAT(job.flags.unknown, testing::IsEmpty()) << entry.path();
        EXPECT_EQ(job.layout->engine, Engine::megatron);
        EXPECT_EQ(job.model.name, entry.path().stem());
        ++read_files;
    }
    EXPECT_EQ(read_files, 15);
}

TEST(MegatronArguments, ReadsAReleaseRunOfMixtral) {
    const Job job = load_model(data("mixtral-8x7b-release.args"));
    EXPECT_EQ(job.batch, (BatchSpec{.global_batch = 1024, .sequence = 4096}));
    EXPECT_EQ(job.layout->tp, 2);
    EXPECT_EQ(job.layout->pp, 4);
    EXPECT_EQ(job.layout->ep, 4);
    EXPECT_FALSE(job.layout->etp.has_value());
    EXPECT_TRUE(job.layout->sequence_parallel);
    EXPECT_TRUE(job.training->distributed_optimizer && job.training->overlap_grad_reduce && job.training->overlap_param_gather);
    EXPECT_EQ(job.training->precision, Precision::bf16);
    EXPECT_EQ(job.training->grad_dtype, Dtype::fp32);
    EXPECT_EQ(job.model.kv_heads, 8);
    EXPECT_DOUBLE_EQ(job.model.rotary_fraction, 0.5);
    EXPECT_EQ(job.model.moe->experts, 8);
    EXPECT_EQ(job.model.moe->expert_ffn, 14336);
    EXPECT_FALSE(job.training->megatron.rope_fusion);
    EXPECT_THAT(job.flags.without_effect, Contains("--lr"));
}

TEST(MegatronArguments, ReadsLatentAttentionCapacityAndFusedLoss) {
    const Job job = load_model(data("simumax-deepseek-v2-l4.args"));
    ASSERT_TRUE(job.model.mla && job.model.moe);
    EXPECT_EQ(job.model.mla->q_lora_rank, 1536);
    EXPECT_EQ(job.model.moe_layers, (std::vector<bool>{false, true, true, true}));
    EXPECT_DOUBLE_EQ(job.model.moe->capacity_factor, 1);
    EXPECT_TRUE(job.model.moe->pad_to_capacity);
    EXPECT_EQ(job.model.moe->shared_ffn, 3072);
    EXPECT_EQ(job.layout->etp, 1);
    EXPECT_EQ(job.layout->recompute, Recompute::full);
    EXPECT_EQ(job.layout->recompute_num_layers, 0);
    EXPECT_FALSE(job.layout->sequence_parallel) << "switched off with tp = 1";
    EXPECT_TRUE(job.training->fused_cross_entropy && job.training->megatron.te_cross_entropy);
    EXPECT_EQ(job.model.position, PositionEmbedding::rope);
}

TEST(MegatronArguments, ReadsWindowsAndWhichLayersHaveThem) {
    const auto model = [](const std::string& flags) { return read(kSmall + flags).model; };
    EXPECT_EQ(model("--window-size 16,0").sliding_window, 17) << "16 places before its own";
    EXPECT_EQ(model("--window-size (16,0)").sliding_window, 17);
    EXPECT_EQ(model("--window-size 0,0").sliding_window, 1);
    EXPECT_EQ(model("--window-size -1,0").sliding_window, 0);
    const auto every = [&](const std::string& pattern) {
        const ModelSpec spec = model("--window-size 16,0 --window-attn-skip-freq " + pattern);
        return std::pair(spec.sliding_window, spec.full_attention_every);
    };
    EXPECT_EQ(every("2"), std::pair(std::int64_t{17}, std::int64_t{2}));
    EXPECT_EQ(every("[1,1,1,0]"), std::pair(std::int64_t{17}, std::int64_t{4}));
    EXPECT_EQ(every("[1,0]*2"), std::pair(std::int64_t{17}, std::int64_t{2}));
    EXPECT_EQ(every("[1]*4"), std::pair(std::int64_t{17}, std::int64_t{0}));
    EXPECT_EQ(every("[0]*4"), std::pair(std::int64_t{0}, std::int64_t{0}));
    EXPECT_EQ(every("1"), std::pair(std::int64_t{0}, std::int64_t{0})) << "every layer sees all";
    EXPECT_THAT(read(kSmall + "--window-size 16,0 --window-attn-skip-freq [0,1,1,1]").assumptions, Contains(HasSubstr("irregularly")));
    EXPECT_THAT(refusal(kSmall + "--window-size 16,0 --window-attn-skip-freq [1,0]"), HasSubstr("has 2 entries for --num-layers = 4"));
    EXPECT_THAT(refusal(kSmall + "--window-size 16,0 --window-attn-skip-freq 0"), HasSubstr("--window-attn-skip-freq = 0"));
    EXPECT_THAT(read(kSmall + "--window-size 16,0 --window-attn-skip-freq 2").flags.not_computed, testing::IsEmpty());
}

TEST(MegatronArguments, SaysWhichFlagWasMeant) {
    EXPECT_THAT(read(kSmall + "--num-layer 8").flags.unknown,
                ElementsAre(testing::AllOf(HasSubstr("--num-layer 8 (did you mean"), HasSubstr("--num-layers "))));
    EXPECT_THAT(read(kSmall + "--frobnicate").flags.unknown, ElementsAre("--frobnicate"));
    std::string many = kSmall;
    for (int i = 0; i < 250'000; ++i) many += fmt::format("--unheard-of-{} ", i);
    const auto listed = read(many).flags.unknown;
    ASSERT_EQ(listed.size(), 101U);
    EXPECT_EQ(listed.back(), "and 249900 more");
}

TEST(MegatronArguments, RefusesVariablesThatGrowWithoutEnd) {
    std::string script = "A='x " + std::string(4000, '-') + "'\nB=\"$A$A$A$A\"\nC=\"$B$B$B$B\"\n" + kSmall;
    for (int i = 0; i < 4000; ++i) script += " --$C";  // 250 MB
    EXPECT_THAT(refusal(script), HasSubstr("its variables, put in, are more than 1 MiB; give a command with fewer or shorter ones"));
    EXPECT_EQ(read("H=512\n--num-layers 4 --hidden-size $H --num-attention-heads 8 --vocab-size 1000 --seq-length 64").model.hidden, 512);
}

TEST(MegatronArguments, ReadsTheArraysOfAShellScript) {
    const Job job = load_model(data("gpt-oss.sh"));
    EXPECT_EQ(job.model.layers, 24);
    EXPECT_EQ(job.batch->sequence, 8192);
    EXPECT_EQ(job.model.vocab, 201088);
    EXPECT_EQ(job.model.normalization, Normalization::rms_norm);
    EXPECT_TRUE(job.model.attention_sinks && job.model.gated_mlp && job.model.moe->router_bias);
    EXPECT_EQ(job.model.sliding_window, 129) << "its own place and 128 before";
    EXPECT_EQ(job.layout->tp, 2);
    EXPECT_EQ(job.layout->split->pipeline_layout, "Et*3|(tt|)*9ttt|L");
    EXPECT_EQ(job.layout->vpp, 3);
    EXPECT_TRUE(job.training->distributed_optimizer) << "an array extended with +=";
    // The published count of gpt-oss-20b.
    EXPECT_EQ(total_parameters(job.model), total_parameters(load_model("gpt-oss-20b").model));
}

TEST(MegatronArguments, ReadsACommandWithoutArrays) {
    const Job job = load_model(data("plain-command.sh"));
    EXPECT_EQ(job.model.layers, 96);
    EXPECT_EQ(job.model.max_positions, 2048);
    EXPECT_EQ(job.layout->tp, 8);
    EXPECT_EQ(job.layout->layers_per_virtual_stage, 2);
    EXPECT_EQ(job.layout->recompute, Recompute::full) << "flags kept in a variable";
    EXPECT_EQ(job.training->grad_dtype, Dtype::fp16);
    EXPECT_THAT(job.flags.unknown, testing::IsEmpty());
}

TEST(MegatronArguments, ReadsModelArgsOfYaml) {
    const Job job = load_model(data("model-args.yaml"));
    EXPECT_EQ(total_parameters(job.model), total_parameters(load_model("deepseek-v3").model));
    EXPECT_EQ(job.model.moe->dispatcher, TokenDispatcher::deep_ep);
    EXPECT_EQ(job.model.mtp_layers, 1);
    EXPECT_EQ(job.layout->vpp, 4);
    EXPECT_EQ(job.layout->recompute_modules, (EnumSet{RecomputeModule::mla_up_proj, RecomputeModule::moe_act, RecomputeModule::layernorm}));
    EXPECT_FALSE(job.layout->sequence_parallel);
    EXPECT_THAT(job.flags.without_effect, Contains("--rampup-batch-size")) << "7,808 is no multiple of 384";
}

TEST(MegatronArguments, SplitsWordsLikeAShell) {
    EXPECT_THAT(argument_words("--a 'x y' \"z \\\" w\"\t--layout Et*3|(tt|)*29m|L # rest\n--b \\\n 1\r\n--c d#e", "f").words,
                ElementsAre("--a", "x y", "z \" w", "--layout", "Et*3|(tt|)*29m|L", "--b", "1", "--c", "d#e"));
    EXPECT_THAT(argument_words("", "f").words, testing::IsEmpty());
    try {
        (void)argument_words("--a 1\n--b 'open", "f");
        FAIL() << "accepted";
    } catch (const ConfigError& error) {
        EXPECT_THAT(error.what(), HasSubstr("f:2: a single quote (') is not closed"));
    }
}

TEST(MegatronArguments, TakesMegatronsDefaults) {
    const Job job = read(kSmall);
    EXPECT_EQ(job.model.ffn, 2048);
    EXPECT_EQ(job.model.head_dim, 64);
    EXPECT_TRUE(job.model.tied_embeddings && job.model.qkv_bias && job.model.mlp_bias && job.model.attention_output_bias);
    EXPECT_EQ(job.model.position, PositionEmbedding::learned);
    EXPECT_EQ(job.model.normalization, Normalization::layer_norm);
    EXPECT_DOUBLE_EQ(job.model.attention_dropout, 0.1);
    EXPECT_EQ(job.training->precision, Precision::fp32);
    EXPECT_FALSE(job.training->distributed_optimizer || job.training->overlap_grad_reduce || job.training->overlap_param_gather);
    EXPECT_TRUE(job.training->overlap_p2p);
    EXPECT_FALSE(job.batch.has_value()) << "no global batch given";
    EXPECT_EQ(job.model.default_sequence, 64);
    EXPECT_EQ(read(kSmall + "--swiglu").model.ffn, 1344);  // int(4·512·2/3/64)·64
    EXPECT_FALSE(read(kSmall + "--disable-bias-linear").model.qkv_bias);
    EXPECT_TRUE(read(kSmall + "--disable-bias-linear --add-qkv-bias").model.qkv_bias);
    EXPECT_EQ(read(kSmall + "--num-query-groups 2").model.kv_heads, 8) << "counts only with --group-query-attention";
}

TEST(MegatronArguments, KeepsTheRotaryBaseTheScalingsNameAndEpsilon) {
    const ModelSpec plain = read(kSmall + "--position-embedding-type rope").model;
    EXPECT_EQ(plain.rotary_base, 10000);
    EXPECT_EQ(plain.rotary_scaling, "");
    EXPECT_EQ(plain.norm_epsilon, 1e-5);
    const ModelSpec scaled =
        read(kSmall + "--position-embedding-type rope --rotary-base 500000 --use-rope-scaling --norm-epsilon 1e-6").model;
    EXPECT_EQ(scaled.rotary_base, 5e5);
    EXPECT_EQ(scaled.rotary_scaling, "llama3");
    EXPECT_EQ(scaled.rotary_scaling_values, (RotaryScaling{.factor = 8, .original_positions = 8192}));
    EXPECT_EQ(scaled.norm_epsilon, 1e-6);
    EXPECT_EQ(read(kSmall + "--multi-latent-attention").model.rotary_scaling, "yarn") << "MLATransformerConfig's default";
    EXPECT_EQ(read(kSmall + "--multi-latent-attention --rope-type rope").model.rotary_scaling, "");
}

TEST(MegatronArguments, KnowsPrecisionsAndAttentionBackends) {
    const auto training = [](const std::string& more) { return *read(kSmall + more).training; };
    const std::string aware = "--bf16 --main-grads-dtype bf16 --use-precision-aware-optimizer --use-distributed-optimizer ";
    EXPECT_EQ(training("--bf16").grad_dtype, Dtype::fp32);
    EXPECT_EQ(training("--bf16 --grad-reduce-in-bf16").grad_dtype, Dtype::bf16);
    EXPECT_EQ(training("--fp16").grad_dtype, Dtype::fp16);
    EXPECT_EQ(training("--fp16 --accumulate-allreduce-grads-in-fp32").grad_dtype, Dtype::fp32);
    EXPECT_EQ(training(aware + "--exp-avg-dtype fp8").exp_avg_dtype, Dtype::fp8);
    EXPECT_EQ(training(aware).grad_dtype, Dtype::bf16);
    EXPECT_EQ(training("--bf16 --fp8-format hybrid --fp8-recipe blockwise").precision, Precision::fp8);
    EXPECT_EQ(training("--bf16 --fp8-format hybrid --fp8-recipe blockwise").megatron.fp8_recipe, Fp8Recipe::blockwise);
    EXPECT_EQ(training("--bf16 --fp4-format e2m1 --fp4-recipe nvfp4").precision, Precision::nvfp4);
    EXPECT_FALSE(training("--bf16 --fp4-format e2m1").fp8_parameters);
    EXPECT_TRUE(training("--bf16 --fp4-format e2m1 --fp4-param-gather").fp8_parameters);
    EXPECT_THROW((void)read(kSmall + "--bf16 --fp4-format e2m1 --fp8-format e4m3"), ConfigError);
    EXPECT_EQ(training("--bf16").attention, AttentionBackend::flash);
    EXPECT_EQ(training("--bf16 --attention-backend auto").attention, AttentionBackend::flash);
    EXPECT_EQ(training("--bf16 --attention-backend unfused").attention, AttentionBackend::unfused);
    EXPECT_EQ(training("--bf16 --transformer-impl local").attention, AttentionBackend::unfused);
    EXPECT_EQ(training("--bf16 --transformer-impl local --use-flash-attn").attention, AttentionBackend::flash);
}

TEST(MegatronArguments, KnowsLayoutsRecomputeAndGraphs) {
    const auto layout = [](const std::string& more) { return *read(kSmall + more).layout; };
    EXPECT_EQ(layout("--use-tp-pp-dp-mapping").order.text(), "tp-cp-ep-pp-dp");
    EXPECT_EQ(layout("--cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 1").cp_comm_type, CpCommType::a2a_p2p);
    EXPECT_EQ(layout("--recompute-activations").recompute, Recompute::selective);
    EXPECT_EQ(layout("--recompute-activations").recompute_modules, EnumSet{RecomputeModule::core_attn});
    EXPECT_EQ(layout("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2").vpp, 2);
    EXPECT_EQ(layout("--pipeline-model-parallel-size 2 --decoder-first-pipeline-num-layers 1").split->first_stage_layers, 1);
    EXPECT_TRUE(layout("--account-for-loss-in-pipeline-split").split->account_for_loss);
    EXPECT_TRUE(layout("--cuda-graph-scope attn").cuda_graphs.empty()) << "no implementation chosen";
    EXPECT_EQ(layout("--external-cuda-graph --cuda-graph-scope attn").cuda_graphs, EnumSet{CudaGraphScope::attn});
    EXPECT_EQ(layout("--cuda-graph-impl transformer_engine --cuda-graph-modules attn moe_router").cuda_graphs,
              (EnumSet{CudaGraphScope::attn, CudaGraphScope::moe_router}));
    EXPECT_EQ(layout("--cuda-graph-impl local").cuda_graphs, EnumSet{CudaGraphScope::layer});
    EXPECT_EQ(layout("--cuda-graph-impl local --cuda-graph-scope full_iteration --no-check-for-nan-in-loss-and-grad").cuda_graphs,
              EnumSet{CudaGraphScope::full_iteration});
}

TEST(MegatronArguments, ReadsWhereTheInputGradientIsReduced) {
    EXPECT_TRUE(read(kSmall).training->megatron.async_tp_reduce);
    const Job job = read(kSmall + "--no-async-tensor-model-parallel-allreduce");
    EXPECT_FALSE(job.training->megatron.async_tp_reduce);
    EXPECT_THAT(job.flags.without_effect, testing::IsEmpty());
}

TEST(MegatronArguments, SortsFlagsByTheirEffect) {
    const Job job = read(kSmall + "--lr 1e-4 --lr 2e-4 --flextron --made-up-flag a b --bf16 stray --optimizer soap");
    EXPECT_THAT(job.flags.without_effect, ElementsAre("--lr"));
    EXPECT_THAT(job.flags.not_computed,
                ElementsAre(FlagNotComputed{"--flextron", "elastic sub-networks (Flextron)", Decides::fit_and_legal},
                            FlagNotComputed{"--optimizer", "optimizer soap, predicted as Adam", Decides::fit}));
    EXPECT_THAT(job.flags.unknown, ElementsAre("--made-up-flag a b"));
    EXPECT_THAT(job.flags.stray, ElementsAre("stray"));
    EXPECT_THAT(job.flags.used, testing::AllOf(Contains("--bf16"), Contains("--num-layers"), testing::Not(Contains("--optimizer"))));
    EXPECT_EQ(read(kSmall + "--num-layers 6").model.layers, 6) << "the last one counts";
}

TEST(MegatronArguments, TakesBothSpellingsOfASwitch) {
    const Job job = read(kSmall + "--no-tp-comm-overlap-ag --disable-overlap-p2p-communication --no-bias-linear");
    EXPECT_THAT(job.flags.without_effect, ElementsAre("--no-tp-comm-overlap-ag"));
    EXPECT_THAT(job.flags.used, testing::AllOf(Contains("--disable-overlap-p2p-communication"), Contains("--no-bias-linear")));
    EXPECT_THAT(job.flags.unknown, testing::IsEmpty());
    EXPECT_FALSE(job.training->overlap_p2p || job.model.mlp_bias);
}

TEST(MegatronArguments, ReadsTheActivationOfApertus) {
    EXPECT_EQ(read(kSmall + "--xielu --disable-bias-linear").model.activation, Activation::xielu);
    const auto parameters = [](const std::string& more) { return total_parameters(read(kSmall + "--disable-bias-linear " + more).model); };
    EXPECT_EQ(parameters("--xielu"), parameters("") + 2 * read(kSmall).model.layers) << "two trained values a layer";
    EXPECT_THAT(refusal(kSmall + "--xielu"), HasSubstr("add --disable-bias-linear or --no-bias-gelu-fusion"));
    EXPECT_THAT(refusal(kSmall + "--xielu --swiglu"), HasSubstr("--xielu excludes --swiglu"));
    EXPECT_EQ(read(kSmall + "--xielu --disable-bias-linear --num-experts 8").flags.not_computed.at(0).flag, "--xielu");
}

TEST(MegatronArguments, NamesValuesThatItDoesNotCompute) {
    const auto not_computed = [](const std::string& more) {
        Words flags;
        for (const auto& one : read(kSmall + more).flags.not_computed) flags.push_back(one.flag);
        return flags;
    };
    EXPECT_THAT(not_computed("--num-experts 8 --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend ncclep"),
                ElementsAre("--moe-flex-dispatcher-backend"));
    EXPECT_THAT(not_computed("--num-experts 8 --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep"),
                testing::IsEmpty());
    EXPECT_THAT(not_computed("--bf16 --fp8-format e4m3 --fp8-recipe custom --fp8-quantizer-factory own.recipe"),
                ElementsAre("--fp8-quantizer-factory", "--fp8-recipe"));
    EXPECT_THAT(not_computed("--recompute-granularity selective --recompute-modules mlp gdn_norm_out"), ElementsAre("--recompute-modules"));
    EXPECT_EQ(read(kSmall + "--recompute-granularity selective --recompute-modules mlp gdn_norm_out").layout->recompute_modules,
              EnumSet{RecomputeModule::mlp});
    EXPECT_EQ(read(kSmall + "--recompute-granularity selective --recompute-modules gdn_norm_out").layout->recompute, Recompute::none)
        << "an empty list is no selective recompute";
    EXPECT_THAT(not_computed("--optimizer adaptive_muon"), ElementsAre("--optimizer"));
    EXPECT_THAT(not_computed("--use-megatron-fsdp --megatron-fsdp-version 2"), ElementsAre("--megatron-fsdp-version"));
}

TEST(MegatronArguments, LeavesOutWhatAsksForNothingByItself) {
    const auto open = [](const std::string& more) { return read(kSmall + more).flags.not_computed.size(); };
    EXPECT_EQ(open("--moe-paged-stash-page-size 64 --kitchen-attention-backend fa --dsa-kernel-backend tilelang --mtp-detach-heads"), 0U);
    EXPECT_EQ(open("--disable-fp8-wgrad"), 0U);
    EXPECT_EQ(open("--bf16 --fp8-format e4m3 --disable-fp8-wgrad"), 1U);
    EXPECT_EQ(open("--moe-paged-stash-buffer-size-factor-cpu 1"), 0U);
    EXPECT_EQ(open("--position-embedding-type rope --mtp-num-layers 1 --mtp-detach-heads"), 1U);
    EXPECT_THAT(read(kSmall + "--fp16 --fp16-lm-cross-entropy").flags.without_effect, Contains("--fp16-lm-cross-entropy"));
}

TEST(MegatronArguments, MergesMappingsOfYaml) {
    const std::string yaml =
        "BASE: &base\n  --num-layers: 4\n  --hidden-size: 512\n  --bf16: true\n  --seq-length: 64\nMORE: &more\n  --hidden-size: 768\n"
        "  --num-attention-heads: 8\n  --swiglu: true\n";
    EXPECT_THAT(argument_words(yaml + "MODEL_ARGS:\n  <<: *base\n  --num-layers: 6\n  --bf16: false\n", "f").words,
                ElementsAre("--num-layers", "6", "--hidden-size", "512", "--seq-length", "64"))
        << "own keys win, and false takes a merged switch away";
    EXPECT_THAT(argument_words(yaml + "MODEL_ARGS:\n  <<: [*more, *base]\n  --fp16:\n", "f").words,
                testing::UnorderedElementsAre("--num-layers", "4", "--hidden-size", "768", "--bf16", "--seq-length", "64",
                                              "--num-attention-heads", "8", "--swiglu", "--fp16"))
        << "the first of several wins";
    EXPECT_THAT(refusal("MODEL_ARGS:\n  <<: 5\n"), HasSubstr("<< merges what is no mapping"));
}

TEST(MegatronArguments, ReportsEveryProblemTogether) {
    const std::string text = refusal(
        "--num-layers many --hidden-size 99999999999999999999 --seq-length $SEQ --bf16 --fp16 --micro-batch-size 0 "
        "--normalization Norm --tensor-model-parallel-size -2 --moe-layer-freq [0]*x --num-experts 4");
    for (const char* part :
         {"--num-layers = 'many' is not a whole number", "--hidden-size", "--num-attention-heads is missing",
          "--seq-length = $SEQ holds a variable or a command whose value the file does not tell", "--bf16 and --fp16 exclude each other",
          "--micro-batch-size = 0 is out of range", "--normalization = 'Norm' is not known; use LayerNorm or RMSNorm",
          "--tensor-model-parallel-size = -2 is out of range", "--moe-layer-freq: layer pattern does not parse",
          "--vocab-size is missing; Megatron-LM reads it from the tokenizer"})
        EXPECT_THAT(text, HasSubstr(part));
}

TEST(MegatronArguments, ReadsAdaptersOfForks) {
    EXPECT_EQ(read(kSmall + "--lora-r 8 --lora-alpha 16 --lora-target-modules linear_qkv linear_proj").model.adapters,
              (Adapters{.rank = 8, .alpha = 16, .fc1 = false, .fc2 = false, .experts = false, .shared_by_experts = false}));
    EXPECT_EQ(read(kSmall + "--lora-target-modules all-linear").model.adapters,
              (Adapters{.rank = 16, .experts = false, .shared_by_experts = false}))
        << "MindSpeed-LLM's defaults";
    EXPECT_FALSE(read(kSmall).model.adapters);
}

TEST(MegatronArguments, RefusesWhatItCannotPlan) {
    EXPECT_THAT(refusal(kSmall + "--decoder-num-layers 4"), HasSubstr("models of an encoder and a decoder (T5) cannot be planned"));
    EXPECT_THAT(refusal(kSmall + "--lora-of-a-fork 16"), HasSubstr("--lora-of-a-fork: this flag of adapters (LoRA) is not known"));
    EXPECT_THAT(refusal(kSmall + "--lora-target-modules all-linear all-router"),
                HasSubstr("--lora-target-modules all-router: adapters of"));
    EXPECT_THAT(refusal(kSmall + "--lora-target-modules linear_q_down_proj"), HasSubstr("the model has none of these layers"));
    EXPECT_THAT(refusal(kSmall + "--lora-target-modules"), HasSubstr("--lora-target-modules names no module"));
    EXPECT_THAT(refusal(kSmall + "--lora-r 16"), HasSubstr("--lora-r without --lora-target-modules"));
    EXPECT_THAT(refusal(kSmall + "--lora-target-modules all-router"),
                HasSubstr("adapters of this module cannot be planned; use all-linear"));
    EXPECT_THAT(refusal(kSmall + "--lora-target-modules linear_qkv --lora-modules-to-save word_embeddings"),
                HasSubstr("modules trained next to adapters cannot be planned"));
    EXPECT_THAT(refusal(kSmall + "--export-kd-teacher-load teacher --export-kd-cfg kd.yaml"),
                HasSubstr("--export-kd-teacher-load: distillation cannot be planned"));
    EXPECT_THAT(refusal(kSmall + "--kd --num-layers-teacher 8"), HasSubstr("--kd: distillation cannot be planned"));
    EXPECT_THAT(read(kSmall + "--export-kd-cfg kd.yaml").flags.without_effect, Contains("--export-kd-cfg")) << "without a teacher";
    EXPECT_THAT(refusal(kSmall + "--position-embedding-type alibi"), HasSubstr("(ALiBi) cannot be planned"));
    EXPECT_THAT(refusal(kSmall + "--checkpoint-activations"), HasSubstr("write --recompute-granularity full --recompute-method uniform"));
    EXPECT_THAT(refusal(kSmall + "--batch-size 4"), HasSubstr("write --micro-batch-size"));
    EXPECT_THAT(refusal(kSmall + "--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1 "
                                 "--decoder-first-pipeline-num-layers 1"),
                HasSubstr("give --num-virtual-stages-per-pipeline-rank"));
    EXPECT_THAT(refusal("just some prose"), HasSubstr("holds no Megatron-LM flags"));
    EXPECT_THAT(refusal(kSmall + "--num-layers"), HasSubstr("--num-layers needs a value"));
    EXPECT_THAT(refusal(kSmall + "--overlap-param-gather"), HasSubstr("needs --use-distributed-optimizer"));
    EXPECT_THAT(refusal(kSmall + "--pipeline-model-parallel-layout Et*2|t*2|L --pipeline-model-parallel-size 2"),
                HasSubstr("has 3 stages, no multiple of --pipeline-model-parallel-size = 2"));
    EXPECT_THAT(refusal(kSmall + "--pipeline-model-parallel-layout Ex|L"), HasSubstr("^"));
    EXPECT_THAT(refusal("MODEL_ARGS:\n  --num-layers: [1\n"), HasSubstr("not valid YAML"));
    EXPECT_THAT(refusal("MODEL_ARGS: 5\n"), HasSubstr("MODEL_ARGS is no mapping"));
    EXPECT_THAT(refusal("MODEL_ARGS:\n  --num-layers: {a: b}\n"), HasSubstr("--num-layers holds a mapping"));
}

TEST(MegatronArguments, NamesWhatAScriptLeftUnreadWhereSomethingIsMissing) {
    EXPECT_THAT(refusal("A=( --num-layers 4 )\npython train.py ${A[@]} ${GONE[@]}\n"),
                AllOf(HasSubstr("--hidden-size is missing"), HasSubstr("flags takes GONE, which it sets nowhere that is read")));
}

TEST(MegatronArguments, SaysWhyAVariableIsNotKnownInArithmeticToo) {
    for (const std::string batch : {"$GPUS", "${GPUS}", "$((GPUS*16))", "$(( $GPUS * 16 ))"}) {
        const std::string text =
            refusal("GPUS=$(nvidia-smi -L | wc -l)\ntorchrun pretrain_gpt.py " + kSmall + "--global-batch-size \"" + batch + "\"\n");
        EXPECT_THAT(text,
                    AllOf(HasSubstr("--global-batch-size = " + batch + " holds a variable or a command whose value the file does not tell"),
                          HasSubstr("$GPUS is not known: line 1 sets it by a command, which is not run")));
        EXPECT_THAT(text, Not(HasSubstr("does not set")));
    }
}

TEST(MegatronArguments, KeepsDoublingVariablesSmall) {
    std::string script = "A=xxxxxxxxxxxxxxxx\n";
    for (int i = 0; i < 60; ++i) script += "A=$A$A\n";
    const auto words = argument_words(script + "ARGS=(" + kSmall + "--save $A)\n", "script").words;
    EXPECT_LT(words.back().size(), 1U << 20U);
}

RC_GTEST_PROP(MegatronArguments, NeverCrashOnRandomWords, ()) {
    static const Words names = flag_names();
    const auto words = *rc::gen::container<Words>(rc::gen::oneOf(
        rc::gen::elementOf(names),
        rc::gen::elementOf(Words{"1", "0", "-1", "64", "1e30", "9223372036854775808", "nan", "([0]*3+[1]*58)", "Et|(t|)*99999999tL", "none",
                                 "full", "selective", "uniform", "bf16", "$X", "", "--", "alltoall", "a2a"}),
        rc::gen::arbitrary<std::string>()));
    try {
        (void)read_megatron_arguments(words, "random");
    } catch (const ConfigError& error) {
        RC_ASSERT(!error.problems().empty());
    }
}

RC_GTEST_PROP(MegatronArguments, NeverCrashOnRandomText, (const std::string& text)) {
    for (const std::string prefix : {"", "MODEL_ARGS:\n  ", "ARGS=(--num-layers ", "A=\"--hidden-size ", "A=${"}) {
        try {
            (void)argument_words(prefix + text, "random");
        } catch (const ConfigError& error) {
            RC_ASSERT(!error.problems().empty());
        }
    }
}

}  // namespace
}  // namespace mgplan::formats::megatron_arguments_test
