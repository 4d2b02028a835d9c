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
#include "tests/support/data_folder.hpp"

namespace mgplan::formats::megatron_arguments_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using Words = std::vector<std::string>;

std::string data(const std::string& name) {
    return tests::data_folder() + "/formats/data/" + name;
}

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

const std::string kSmall = "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --vocab-size 1000 --seq-length 64 ";

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

TEST(MegatronArguments, ReadsHowFastTheExpertBiasMoves) {
    const std::string moe = kSmall + "--num-experts 8 --moe-router-enable-expert-bias ";
    EXPECT_EQ(read(moe).model.moe->expert_bias_update_rate, 1e-3);
    EXPECT_EQ(read(moe + "--moe-router-bias-update-rate 0.02").model.moe->expert_bias_update_rate, 0.02);
    EXPECT_THAT(refusal(moe + "--moe-router-bias-update-rate fast"), HasSubstr("--moe-router-bias-update-rate = 'fast'"));
}

TEST(MegatronArguments, SaysWhichFlagWasMeant) {
    EXPECT_THAT(read(kSmall + "--num-layer 8").flags.unknown, ElementsAre(HasSubstr("--num-layer 8 (did you mean --num-layers")));
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
    EXPECT_EQ(training("--bf16").grad_dtype, Dtype::fp32);
    EXPECT_EQ(training("--bf16 --grad-reduce-in-bf16").grad_dtype, Dtype::bf16);
    EXPECT_EQ(training("--fp16").grad_dtype, Dtype::fp16);
    EXPECT_EQ(training("--fp16 --accumulate-allreduce-grads-in-fp32").grad_dtype, Dtype::fp32);
    EXPECT_EQ(training("--bf16 --main-grads-dtype bf16 --use-precision-aware-optimizer --exp-avg-dtype fp8").exp_avg_dtype, Dtype::fp8);
    EXPECT_EQ(training("--bf16 --main-grads-dtype bf16 --use-precision-aware-optimizer").grad_dtype, Dtype::bf16);
    EXPECT_EQ(training("--bf16 --fp8-format hybrid --fp8-recipe blockwise").precision, Precision::fp8);
    EXPECT_EQ(training("--bf16 --fp8-format hybrid --fp8-recipe blockwise").megatron.fp8_recipe, Fp8Recipe::blockwise);
    EXPECT_EQ(training("--bf16 --fp4-format e2m1 --fp4-recipe nvfp4").precision, Precision::nvfp4);
    EXPECT_FALSE(training("--bf16 --fp4-format e2m1").fp8_parameters);
    EXPECT_TRUE(training("--bf16 --fp4-format e2m1 --fp4-param-gather").fp8_parameters);
    EXPECT_THROW(read(kSmall + "--bf16 --fp4-format e2m1 --fp8-format e4m3"), ConfigError);
    EXPECT_EQ(training("--bf16").attention, AttentionBackend::flash);
    EXPECT_EQ(training("--bf16 --attention-backend auto").attention, AttentionBackend::flash);
    EXPECT_EQ(training("--bf16 --attention-backend unfused").attention, AttentionBackend::unfused);
    EXPECT_EQ(training("--bf16 --transformer-impl local").attention, AttentionBackend::unfused);
    EXPECT_EQ(training("--bf16 --transformer-impl local --use-flash-attn").attention, AttentionBackend::flash);
}

TEST(MegatronArguments, KnowsLayoutsRecomputeAndGraphs) {
    const auto layout = [](const std::string& more) { return *read(kSmall + more).layout; };
    EXPECT_EQ(layout("--use-tp-pp-dp-mapping").order.text(), "tp-cp-ep-pp-dp");
    EXPECT_EQ(layout("--cp-comm-type a2a+p2p").cp_comm_type, CpCommType::a2a_p2p);
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
    EXPECT_EQ(layout("--cuda-graph-impl local --cuda-graph-scope full_iteration").cuda_graphs, EnumSet{CudaGraphScope::full_iteration});
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

TEST(MegatronArguments, TakesTheVocabularyFromWhoAsks) {
    const std::string nameless = "--num-layers 4 --hidden-size 512 --num-attention-heads 8 --seq-length 64 ";
    EXPECT_EQ(read_megatron_text(nameless, "flags", {.vocab = 777, .folder = ""}).model.vocab, 777);
    const Job both = read_megatron_text(kSmall + "--tokenizer-type Llama3Tokenizer", "flags", {.vocab = 777, .folder = ""});
    EXPECT_EQ(both.model.vocab, 777);
    EXPECT_THAT(both.flags.without_effect, ElementsAre("--vocab-size", "--tokenizer-type")) << "what does not count is not used";
    const Job named = read(nameless + "--vocab-file /data/gpt2-vocab.json --vocab-extra-ids 3");
    EXPECT_EQ(named.model.vocab, 50260);
    EXPECT_THAT(named.assumptions, Contains(HasSubstr("50,260 tokens (tokenizer of GPT-2, by --vocab-file /data/gpt2-vocab.json)")));
    EXPECT_THAT(refusal(nameless + "--vocab-file my-vocab.json"), HasSubstr("--vocab-size is missing"));
}

TEST(MegatronArguments, KeepsTheBatchOfACommandWithoutALength) {
    const Job job = read("--num-layers 4 --hidden-size 512 --num-attention-heads 8 --vocab-size 1000 --global-batch-size 256");
    EXPECT_FALSE(job.batch.has_value());
    EXPECT_EQ(job.model.default_global_batch, 256);
}

TEST(MegatronArguments, ReadsTheActivationOfApertus) {
    EXPECT_EQ(read(kSmall + "--xielu --disable-bias-linear").model.activation, Activation::xielu);
    const auto parameters = [](const std::string& more) { return total_parameters(read(kSmall + "--disable-bias-linear " + more).model); };
    EXPECT_EQ(parameters("--xielu"), parameters("") + 2 * read(kSmall).model.layers) << "two trained values a layer";
    EXPECT_THAT(refusal(kSmall + "--xielu"), HasSubstr("add --disable-bias-linear or --no-bias-gelu-fusion"));
    EXPECT_THAT(refusal(kSmall + "--xielu --swiglu"), HasSubstr("--xielu excludes --swiglu"));
    EXPECT_EQ(read(kSmall + "--xielu --disable-bias-linear --num-experts 8").flags.not_computed.at(0).flag, "--xielu");
}

TEST(MegatronArguments, ReadsABatchThatGrowsByItsLastStep) {
    const Job job = read(kSmall + "--step-batch-size-schedule '0:384 200B:768 400B:1152'");
    EXPECT_EQ(job.batch->global_batch, 1152);
    EXPECT_THAT(job.assumptions, Contains(HasSubstr("the batch of the schedule's last step, 1152")));
    EXPECT_THAT(job.flags.used, Contains("--step-batch-size-schedule"));
    EXPECT_THAT(refusal(kSmall + "--step-batch-size-schedule 0:8 --global-batch-size 8"), HasSubstr("exclude each other"));
    EXPECT_THAT(refusal(kSmall + "--step-batch-size-schedule 0:8,1B:x"), HasSubstr("'1B:x' is no step"));
    EXPECT_THAT(refusal(kSmall + "--step-batch-size-schedule 0:8,1K:16,1K:32"), HasSubstr("two steps begin with 1000 tokens"));
    EXPECT_THAT(refusal(kSmall + "--step-batch-size-schedule 5:8"), Not(HasSubstr("begins with"))) << "within the first sequence";
    EXPECT_THAT(refusal(kSmall + "--step-batch-size-schedule 64:8"), HasSubstr("begins with 64 tokens, behind the first sequence"));
    EXPECT_THAT(refusal(kSmall + "--step-batch-size-schedule 0:8 --decrease-batch-size-if-needed"),
                HasSubstr("--step-batch-size-schedule and --decrease-batch-size-if-needed exclude each other"));
    EXPECT_THAT(refusal(kSmall + "--step-batch-size-schedule 0:8,9e18:16"), HasSubstr("'9e18:16' is no step"));
    EXPECT_EQ(read(kSmall + "--step-batch-size-schedule 0:8,2M:32,1M:16").batches.steps[1].batch, 16) << "Megatron-LM sorts them";
}

TEST(MegatronArguments, RecomputesWholeMixturesByTheOldName) {
    const auto layout = [](const std::string& more) { return *read(kSmall + "--num-experts 8 " + more).layout; };
    EXPECT_EQ(layout("--moe-layer-recompute").recompute, Recompute::selective);
    EXPECT_EQ(layout("--moe-layer-recompute").recompute_modules, (EnumSet{RecomputeModule::core_attn, RecomputeModule::moe}));
    EXPECT_EQ(layout("--moe-layer-recompute --recompute-granularity selective --recompute-modules layernorm").recompute_modules,
              (EnumSet{RecomputeModule::layernorm, RecomputeModule::moe}));
    EXPECT_THAT(refusal(kSmall + "--num-experts 8 --moe-layer-recompute --recompute-granularity full --recompute-method uniform "
                                 "--recompute-num-layers 1"),
                HasSubstr("--moe-layer-recompute with --recompute-granularity full"));
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
    EXPECT_THAT(not_computed("--bf16 --fp8-format e4m3 --fp8-recipe custom"), ElementsAre("--fp8-recipe"));
    EXPECT_THAT(not_computed("--recompute-granularity selective --recompute-modules mlp gdn_norm_out"), ElementsAre("--recompute-modules"));
    EXPECT_EQ(read(kSmall + "--recompute-granularity selective --recompute-modules mlp gdn_norm_out").layout->recompute_modules,
              EnumSet{RecomputeModule::mlp});
    EXPECT_EQ(read(kSmall + "--recompute-granularity selective --recompute-modules gdn_norm_out").layout->recompute, Recompute::none)
        << "an empty list is no selective recompute";
    EXPECT_THAT(not_computed("--optimizer adaptive_muon"), ElementsAre("--optimizer"));
    EXPECT_THAT(not_computed("--use-megatron-fsdp --megatron-fsdp-version 2"), ElementsAre("--megatron-fsdp-version"));
}

TEST(MegatronArguments, ReadsResidualStreamsAsMainAndAsDevHaveThem) {
    const Job main = read(kSmall +
                          "--enable-mhc-connections --mhc-num-residual-streams 2 --mhc-sinkhorn-iterations 5 "
                          "--recompute-granularity selective --recompute-modules mhc --mhc-recompute-layer-num 3");
    EXPECT_EQ(main.model.hyper_connections, (HyperConnections{.streams = 2, .sinkhorn_iterations = 5}));
    EXPECT_EQ(main.layout->mhc_recompute_layers, 3);
    EXPECT_TRUE(main.layout->recompute_modules.contains(RecomputeModule::mhc));
    EXPECT_THAT(main.assumptions, Contains(HasSubstr("HyperConnectionTransformerLayer"))) << "no model of main builds such layers";
    const Job dev = read(kSmall + "--enable-hyper-connections --use-fused-mhc --num-experts 8 --pipeline-model-parallel-size 2");
    EXPECT_EQ(dev.model.hyper_connections, (HyperConnections{.learned_head = true})) << "defaults of four streams and 20 rounds";
    EXPECT_TRUE(dev.training->megatron.fused_streams);
    EXPECT_FALSE(read(kSmall + "--mhc-num-residual-streams 2").model.hyper_connections) << "not without the switch";
}

TEST(MegatronArguments, RefusesWhatMegatronRefusesBesideResidualStreams) {
    const auto main = [](const std::string& more) { return refusal(kSmall + "--enable-mhc-connections " + more); };
    EXPECT_THAT(main("--pipeline-model-parallel-size 2"), HasSubstr("does not go with --pipeline-model-parallel-size = 2"));
    EXPECT_THAT(main("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
                HasSubstr("does not go with --recompute-granularity full"));
    EXPECT_THAT(main("--mtp-num-layers 1"), HasSubstr("does not go with --mtp-num-layers = 1"));
    EXPECT_THAT(main("--num-experts 8"), HasSubstr("does not go with --num-experts"));
    EXPECT_THAT(main("--fp32-residual-connection"), HasSubstr("does not go with --fp32-residual-connection"));
    EXPECT_THAT(main("--mhc-sinkhorn-iterations 0"), HasSubstr("--mhc-sinkhorn-iterations = 0"));
    EXPECT_THAT(main("--mhc-init-gating-factor -1"), HasSubstr("--mhc-init-gating-factor"));
    EXPECT_THAT(main("--recompute-granularity selective --recompute-modules mhc mlp"), HasSubstr("mhc and mlp, which exclude each other"));
    EXPECT_THAT(main("--use-fused-mhc"), HasSubstr("--use-fused-mhc is of branch dev"));
    EXPECT_THAT(main("--enable-hyper-connections"), HasSubstr("keep one"));
    EXPECT_THAT(refusal(kSmall + "--recompute-granularity selective --recompute-modules mhc"),
                HasSubstr("--recompute-modules mhc needs --enable-mhc-connections"));
}

TEST(MegatronArguments, LeavesOpenWhatIsNotPredictedBesideResidualStreams) {
    const Job graphs = read(kSmall +
                            "--enable-hyper-connections --recompute-granularity selective --recompute-modules mhc "
                            "--cuda-graph-impl transformer_engine --cuda-graph-modules attn");
    ASSERT_EQ(graphs.flags.not_computed.size(), 1U);
    EXPECT_EQ(
        graphs.flags.not_computed[0],
        (FlagNotComputed{"--enable-hyper-connections", "residual streams (mHC) under CUDA graphs of layers", Decides::fit_and_legal}));
    EXPECT_FALSE(graphs.model.hyper_connections);
    EXPECT_EQ(graphs.layout->recompute, Recompute::none);
    EXPECT_EQ(read(kSmall + "--enable-hyper-connections --mtp-num-layers 1").flags.not_computed.size(), 1U);
}

TEST(MegatronArguments, LeavesOutWhatAsksForNothingByItself) {
    const auto open = [](const std::string& more) { return read(kSmall + more).flags.not_computed.size(); };
    EXPECT_EQ(open("--moe-paged-stash-page-size 64 --kitchen-attention-backend fa --dsa-kernel-backend tilelang --mtp-detach-heads"), 0U);
    EXPECT_EQ(open("--disable-fp8-wgrad"), 0U);
    EXPECT_EQ(open("--bf16 --fp8-format e4m3 --disable-fp8-wgrad"), 1U);
    EXPECT_EQ(open("--moe-paged-stash-buffer-size-factor-cpu 1"), 0U);
    EXPECT_EQ(open("--mtp-num-layers 1 --mtp-detach-heads"), 1U);
    EXPECT_THAT(read(kSmall + "--fp16-lm-cross-entropy").flags.without_effect, Contains("--fp16-lm-cross-entropy"));
}

TEST(MegatronArguments, PutsOffWeightGradientsBesideHiddenExchangesAlone) {
    const std::string late = kSmall + "--num-experts 8 --delay-wgrad-compute ";
    EXPECT_TRUE(read(late + "--overlap-moe-expert-parallel-comm").training->megatron.delay_wgrad);
    EXPECT_THAT(refusal(late), HasSubstr("--delay-wgrad-compute needs --overlap-moe-expert-parallel-comm"));
    const std::string overlapped = late + "--overlap-moe-expert-parallel-comm ";
    EXPECT_THAT(refusal(overlapped + "--transformer-impl local"), HasSubstr("needs Transformer Engine"));
    const FlagAccount beside_tp = read(overlapped + "--tensor-model-parallel-size 2 --sequence-parallel --tp-comm-overlap").flags;
    ASSERT_EQ(beside_tp.not_computed.size(), 1U);
    EXPECT_EQ(beside_tp.not_computed[0].decides, Decides::fit_and_legal) << "Transformer Engine stops, Megatron-LM does not";
    const std::string graphed = overlapped + "--overlap-grad-reduce --cuda-graph-impl transformer_engine --cuda-graph-modules attn ";
    EXPECT_THAT(refusal(graphed), HasSubstr("with biases"));
    EXPECT_THAT(refusal(graphed + "--disable-bias-linear --no-gradient-accumulation-fusion"),
                HasSubstr("--no-gradient-accumulation-fusion"));
    EXPECT_TRUE(read(graphed + "--disable-bias-linear").training->megatron.delay_wgrad);
}

TEST(MegatronArguments, ReadsBuffersOfAFixedSizeForExperts) {
    const std::string flexible = kSmall +
                                 "--num-experts 8 --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep "
                                 "--use-transformer-engine-op-fuser ";
    const auto buffers = [&](const std::string& more) { return read(flexible + more).training->megatron.expert_buffers; };
    EXPECT_EQ(buffers(""), ExpertBuffers{});
    EXPECT_EQ(buffers("--moe-expert-rank-capacity-factor 1.5"), (ExpertBuffers{.capacity = 1.5}));
    const std::string stash = "--moe-expert-rank-capacity-factor 1.5 --moe-paged-stash ";
    EXPECT_EQ(buffers(stash), (ExpertBuffers{.capacity = 1.5, .paged_stash = true, .pages = 1.1}));
    EXPECT_EQ(buffers(stash + "--moe-paged-stash-buffer-size-factor-cuda -1.2").pages, -1.2) << "of the rows that there are";
    EXPECT_EQ(buffers(stash + "--moe-paged-stash-buffer-size-factor-cuda 0.5 --moe-paged-stash-buffer-size-factor-cpu 0.8").pages, 0.5);
    const auto open = [&](const std::string& more) {
        std::vector<std::string> flags;
        for (const FlagNotComputed& flag : read(flexible + more).flags.not_computed) {
            if (flag.decides == Decides::fit) flags.push_back(flag.flag);
        }
        return flags;
    };
    EXPECT_THAT(open("--moe-expert-rank-capacity-factor 0.9"), ElementsAre("--moe-expert-rank-capacity-factor")) << "each step runs again";
    EXPECT_THAT(open("--moe-expert-rank-capacity-factor 0 --moe-paged-stash"),
                ElementsAre("--moe-expert-rank-capacity-factor", "--moe-paged-stash"));
    EXPECT_THAT(open(stash + "--moe-paged-stash-buffer-size-factor-cuda 0.9"), ElementsAre("--moe-paged-stash-buffer-size-factor-cuda"));
    const FlagAccount host = read(flexible + stash + "--moe-paged-stash-buffer-size-factor-cpu 1 --moe-paged-stash-page-size 128").flags;
    ASSERT_EQ(host.not_computed.size(), 1U);
    EXPECT_EQ(host.not_computed[0].decides, Decides::nothing);
    EXPECT_THAT(host.without_effect, Contains("--moe-paged-stash-page-size"));

    const Job sorted =
        read(kSmall + "--num-experts 8 --moe-token-dispatcher-type alltoall --moe-flex-dispatcher-backend hybridep " + stash);
    EXPECT_EQ(sorted.training->megatron.expert_buffers, ExpertBuffers{}) << "another dispatcher has none";
    EXPECT_THAT(sorted.flags.without_effect, Contains("--moe-paged-stash"));
    const std::string bare = kSmall + "--num-experts 8 --moe-token-dispatcher-type flex --moe-flex-dispatcher-backend hybridep ";
    EXPECT_THAT(read(bare + stash).assumptions, Contains(HasSubstr("needs neither --use-transformer-engine-op-fuser")));
    EXPECT_THAT(refusal(kSmall + "--num-experts 8 --moe-token-dispatcher-type flex " + stash),
                HasSubstr("hybridep or ncclep, and it is deepep"));
    EXPECT_THAT(refusal(flexible + "--moe-paged-stash"), HasSubstr("--moe-paged-stash needs --moe-expert-rank-capacity-factor; add it"));
    EXPECT_THAT(refusal(flexible + stash + "--cpu-offloading --cpu-offloading-num-layers 1"),
                HasSubstr("--moe-paged-stash does not go with --cpu-offloading"));
    EXPECT_THAT(refusal(flexible + stash + "--fine-grained-activation-offloading --offload-modules moe_act"),
                HasSubstr("--offload-modules moe_act"));
    EXPECT_THAT(refusal(flexible + "--moe-expert-rank-capacity-factor x"), HasSubstr("is no number"));
}

TEST(MegatronArguments, ReadsOptimizers) {
    const auto training = [](const std::string& more) { return *read(kSmall + more).training; };
    EXPECT_EQ(training("").megatron.optimizer, OptimizerKind::adam);
    EXPECT_EQ(training("--optimizer sgd").megatron.optimizer, OptimizerKind::sgd);
    const TrainingSpec muon = training("--optimizer dist_muon --overlap-grad-reduce --overlap-param-gather");
    EXPECT_EQ(muon.megatron.optimizer, OptimizerKind::muon);
    EXPECT_TRUE(muon.distributed_optimizer) << "the older name of Muon with the distributed optimizer";
    EXPECT_FALSE(training("--optimizer muon").distributed_optimizer);
}

TEST(MegatronArguments, ReadsFullySharded) {
    const std::string torch = kSmall + "--use-torch-fsdp2 --no-gradient-accumulation-fusion --untie-embeddings-and-output-weights ";
    const FullyShardedSpec two = read(torch + "--torch-fsdp2-no-reshard-after-forward").training->megatron.fully_sharded;
    EXPECT_EQ(two.kind, FullyShardedKind::torch_fsdp2);
    EXPECT_TRUE(two.shards_parameters());
    EXPECT_FALSE(two.reshard_after_forward);
    const TrainingSpec megatron = *read(kSmall +
                                        "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params --nccl-ub "
                                        "--megatron-fsdp-main-params-dtype auto --megatron-fsdp-main-grads-dtype fp32")
                                       .training;
    EXPECT_EQ(megatron.megatron.fully_sharded.strategy, ShardingStrategy::optim_grads_params);
    EXPECT_TRUE(megatron.megatron.fully_sharded.double_buffer) << "which registered buffers need";
    EXPECT_EQ(megatron.megatron.fully_sharded.main_params, std::nullopt);
    EXPECT_EQ(megatron.megatron.fully_sharded.main_grads, Dtype::fp32);
    EXPECT_TRUE(megatron.distributed_optimizer && megatron.overlap_grad_reduce && megatron.overlap_param_gather);
    EXPECT_FALSE(read(kSmall + "--data-parallel-sharding-strategy optim").training->megatron.fully_sharded.active());
}

TEST(MegatronArguments, RefusesFullyShardedAsMegatronDoes) {
    const std::string torch = kSmall + "--use-torch-fsdp2 --no-gradient-accumulation-fusion --untie-embeddings-and-output-weights ";
    EXPECT_THAT(refusal(torch + "--use-megatron-fsdp"), HasSubstr("exclude each other"));
    EXPECT_THAT(refusal(torch + "--use-distributed-optimizer"), HasSubstr("drop --use-distributed-optimizer"));
    EXPECT_THAT(refusal(torch + "--fp16"), HasSubstr("use --bf16"));
    EXPECT_THAT(refusal(torch + "--ckpt-format torch"), HasSubstr("torch_dist or torch_dcp, not torch"));
    EXPECT_THAT(refusal(torch + "--optimizer muon"), HasSubstr("muon cannot be sharded by PyTorch FSDP2"));
    EXPECT_THAT(refusal(kSmall + "--use-torch-fsdp2"), testing::AllOf(HasSubstr("needs --no-gradient-accumulation-fusion"),
                                                                      HasSubstr("needs --untie-embeddings-and-output-weights")));
    EXPECT_THAT(refusal(kSmall + "--use-megatron-fsdp --ckpt-format torch_dist"), HasSubstr("needs --ckpt-format fsdp_dtensor"));
    EXPECT_THAT(refusal(kSmall + "--use-megatron-fsdp --outer-dp-sharding-strategy optim --num-distributed-optimizer-instances 2"),
                HasSubstr("needs --data-parallel-sharding-strategy optim_grads_params, not no_shard"));
}

TEST(MegatronArguments, ChecksABatchThatRampsUp) {
    EXPECT_THAT(read(kSmall + "--global-batch-size 64 --rampup-batch-size 16 16 1000").assumptions,
                Contains(HasSubstr("the batch behind its ramp-up, 64")));
    const BatchSchedule grouped = read(kSmall + "--global-batch-size 64 --rampup-batch-size 16 16 1_000 --train-samples 5_000").batches;
    EXPECT_EQ(grouped.ramp_up->samples, 1000) << "as Python reads integers";
    EXPECT_EQ(grouped.train_samples, 5000);
    EXPECT_EQ(read(kSmall + "--global-batch-size 2_56").model.default_global_batch, 256) << "all integers alike";
    EXPECT_THAT(refusal(kSmall + "--global-batch-size 2__56"), HasSubstr("--global-batch-size = '2__56'"));
    EXPECT_THAT(refusal(kSmall + "--global-batch-size _256"), HasSubstr("--global-batch-size = '_256'"));
    EXPECT_EQ(read(kSmall + "--rotary-base 1_000_000.0").model.rotary_base, 1e6);
    const Job counted = read(kSmall + "--global-batch-size 64 --rampup-batch-size 16 16 1000 --train-iters 10");
    EXPECT_FALSE(counted.batches.ramp_up.has_value());
    EXPECT_THAT(counted.flags.without_effect, Contains("--rampup-batch-size"));
    EXPECT_THAT(counted.assumptions, Contains(HasSubstr("releases up to core 0.17 stop, for it goes by --train-samples")));
    const Job both = read(kSmall + "--train-iters 10 --train-samples 5");
    EXPECT_FALSE(both.batches.train_samples.has_value());
    EXPECT_THAT(both.assumptions, Contains(HasSubstr("Megatron-LM stops where both are given")));
    ASSERT_EQ(both.flags.not_computed.size(), 1U);
    EXPECT_EQ(both.flags.not_computed[0].decides, Decides::legal);
    EXPECT_THAT(read(kSmall + "--train-iters 10 --train-samples 5 --skip-train").assumptions,
                Contains("--train-iters counts, not --train-samples"))
        << "which is not checked";
    EXPECT_EQ(read(kSmall + "--train-iters $ITERATIONS --train-samples 5").batches.train_samples, 5) << "it may be nothing";
    EXPECT_THAT(counted.flags.used, Contains("--train-iters"));
    EXPECT_THAT(read(kSmall + "--train-iters $ITERATIONS").flags.without_effect, Contains("--train-iters")) << "that nobody knows";
    EXPECT_THAT(refusal(kSmall + "--train-iters many"), HasSubstr("--train-iters = 'many' is not a whole number"));
    EXPECT_THAT(refusal(kSmall + "--rampup-batch-size 16 16"), HasSubstr("as in 16 16 1000000"));
    EXPECT_THAT(refusal(kSmall + "--global-batch-size 64 --rampup-batch-size 128 16 1000"), HasSubstr("begin with at most that"));
    const Job unmet = read(kSmall + "--global-batch-size 64 --rampup-batch-size 16 10 1000");
    EXPECT_FALSE(unmet.batches.ramp_up);
    EXPECT_THAT(unmet.assumptions, Contains(HasSubstr("it does not come from 16 by 10 to 64")));
}

TEST(MegatronArguments, SpreadsDocumentsOverTheRanksThatTheyNeed) {
    const std::string words = kSmall + "--hybrid-context-parallel --max-seqlen-per-dp-cp-rank 32 ";
    EXPECT_EQ(read(words + "--calculate-per-token-loss").most_of_a_document, 32);
    EXPECT_THAT(refusal(words), HasSubstr("needs --calculate-per-token-loss"));
    EXPECT_THAT(refusal(kSmall + "--hybrid-context-parallel --calculate-per-token-loss"), HasSubstr("needs --max-seqlen-per-dp-cp-rank"));
    for (const char* other : {"--pipeline-model-parallel-size 2", "--enable-cuda-graph", "--use-megatron-fsdp", "--dataloader-type cyclic",
                              "--multi-latent-attention"})
        EXPECT_THAT(refusal(words + "--calculate-per-token-loss " + other), HasSubstr("--hybrid-context-parallel")) << other;
    const Job alone = read(kSmall + "--max-seqlen-per-dp-cp-rank 32");
    EXPECT_FALSE(alone.most_of_a_document.has_value());
    EXPECT_EQ(alone.flags.not_computed.size(), 1U);
}

TEST(MegatronArguments, HoldsWeightsInParts) {
    const std::string without_batch = kSmall + "--bf16 --tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards ";
    const std::string words = kSmall + "--bf16 --global-batch-size 64 --tensor-model-parallel-size 2 --tensor-parallel-num-weight-shards ";
    EXPECT_THAT(refusal(without_batch + "8"), HasSubstr("--tensor-parallel-num-weight-shards needs --global-batch-size"));
    EXPECT_EQ(read(without_batch + "8 --eval-global-batch-size 64").training->megatron.weight_shards.dense, 4);
    EXPECT_THAT(refusal(words + "8 --dist-ckpt-optim-fully-reshardable --distrib-optim-fully-reshardable-mem-efficient"),
                HasSubstr("does not go with --dist-ckpt-optim-fully-reshardable and --distrib-optim-fully-reshardable-mem-efficient"));
    EXPECT_THAT(refusal(words + "8 --fp8-recipe mxfp8"), HasSubstr("without --fp8-format leave that recipe out"));
    EXPECT_THAT(refusal(kSmall + "--bf16 --expert-tensor-parallel-num-weight-shards 4 --ddp-average-in-collective"),
                HasSubstr("does not go with --ddp-average-in-collective"))
        << "without experts, too";
    EXPECT_EQ(read(words + "8").training->megatron.weight_shards.dense, 4) << "beside tp";
    EXPECT_THAT(read(words + "2").flags.without_effect, Contains("--tensor-parallel-num-weight-shards"));
    EXPECT_THAT(refusal(words + "5"), HasSubstr("= 5 is no multiple of --tensor-model-parallel-size = 2"));
    EXPECT_THAT(refusal(words + "1"), HasSubstr("= 1 is no multiple of"));
    EXPECT_THAT(refusal(words + "8 --ddp-average-in-collective"), HasSubstr("does not go with --ddp-average-in-collective"));
    EXPECT_THAT(refusal(words + "8 --num-distributed-optimizer-instances 2"), HasSubstr("needs --num-distributed-optimizer-instances 1"));
    EXPECT_THAT(refusal(words + "8 --ckpt-format torch_dcp"), HasSubstr("needs --ckpt-format torch or torch_dist"));
    EXPECT_THAT(refusal(words + "8 --fp4-format e2m1"), HasSubstr("needs --fp4-param-gather"));
    EXPECT_THAT(refusal(words + "8 --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather --use-distributed-optimizer"),
                HasSubstr("needs --fp8-param-gather and --reuse-grad-buf-for-mxfp8-param-ag"));
    EXPECT_THAT(refusal(words + "8 --gtp-remat-opt-in-modules attention"), HasSubstr("use moe_latent_proj"));
    for (const char* open : {"8 --optimizer muon", "8 --fp8-format hybrid", "8 --recompute-granularity selective --recompute-modules mlp",
                             "8 --cuda-graph-impl transformer_engine", "8 --use-transformer-engine-op-fuser"}) {
        const Job job = read(words + open);
        EXPECT_FALSE(job.training->megatron.weight_shards.active()) << open;
        EXPECT_EQ(job.flags.not_computed.size(), 1U) << open;
    }
    const std::string mixture = kSmall + "--bf16 --num-experts 8 --expert-model-parallel-size 2 --disable-bias-linear ";
    const Job experts = read(mixture + "--expert-tensor-parallel-num-weight-shards 4");
    EXPECT_EQ(experts.training->megatron.weight_shards, (WeightShards{.dense = 1, .experts = 4}));
    const Job dense = read(kSmall + "--bf16 --expert-tensor-parallel-num-weight-shards 4");
    EXPECT_FALSE(dense.training->megatron.weight_shards.active());
    EXPECT_EQ(dense.layout->idle_expert_shards, 4) << "by which Megatron-LM divides the world all the same";
    EXPECT_THAT(dense.flags.used, Contains("--expert-tensor-parallel-num-weight-shards"));
}

TEST(MegatronArguments, KeepsFirstAndLastLayersInBf16) {
    const std::string fp8 = kSmall + "--bf16 --fp8-format hybrid --fp8-recipe tensorwise --first-last-layers-bf16 ";
    const auto layers_of = [](const Job& job) {
        return std::pair(job.training->megatron.bf16_layers_at_start, job.training->megatron.bf16_layers_at_end);
    };
    EXPECT_EQ(layers_of(read(fp8)), std::pair(std::int64_t{1}, std::int64_t{1})) << "Megatron-LM's defaults";
    EXPECT_EQ(layers_of(read(fp8 + "--num-layers-at-start-in-bf16 0 --num-layers-at-end-in-bf16 2")),
              std::pair(std::int64_t{0}, std::int64_t{2}));
    EXPECT_THAT(refusal(fp8 + "--num-layers-at-start-in-bf16 2 --pipeline-model-parallel-size 4"),
                HasSubstr("--num-layers-at-start-in-bf16 = 2 is more than the 1 layers of a pipeline stage"));
    EXPECT_THAT(refusal(kSmall + "--bf16 --fp8-format hybrid --first-last-layers-bf16"),
                HasSubstr("does not go with --fp8-recipe delayed"));
    const Job plain = read(kSmall + "--bf16 --first-last-layers-bf16");
    EXPECT_EQ(layers_of(plain), std::pair(std::int64_t{0}, std::int64_t{0}));
    EXPECT_THAT(plain.flags.used, Contains("--first-last-layers-bf16")) << "as all layers are";
    const Job graphs = read(fp8 + "--cuda-graph-impl transformer_engine");
    EXPECT_EQ(graphs.flags.not_computed.size(), 1U);
}

TEST(MegatronArguments, RepeatsOneLayerOfPrediction) {
    const std::string words = kSmall + "--position-embedding-type rope --mtp-use-repeated-layer --mtp-num-layers ";
    const Job job = read(words + "3");
    EXPECT_TRUE(job.model.mtp_repeated);
    EXPECT_EQ(job.model.mtp_weights(job.model.mtp_layers), 1);
    EXPECT_THAT(read(words + "1").flags.without_effect, Contains("--mtp-use-repeated-layer")) << "one layer is one anyway";
}

TEST(MegatronArguments, DecreasesABatchThatIsStated) {
    const Job job = read(kSmall + "--global-batch-size 100 --decrease-batch-size-if-needed");
    EXPECT_TRUE(job.batches.decreases);
    EXPECT_THAT(job.flags.used, Contains("--decrease-batch-size-if-needed"));
    const Job follows = read(kSmall + "--decrease-batch-size-if-needed");
    EXPECT_FALSE(follows.batches.decreases);
    EXPECT_THAT(follows.flags.without_effect, Contains("--decrease-batch-size-if-needed")) << "a microbatch for each dp rank divides";
}

TEST(MegatronArguments, LeavesTheOptimizerOnTheHost) {
    const std::string aware = kSmall + "--bf16 --use-distributed-optimizer --use-precision-aware-optimizer ";
    const TrainingSpec all = *read(aware + "--optimizer-cpu-offload").training;
    EXPECT_EQ(all.offload.optimizer, 1);  // Megatron-LM's own default
    EXPECT_FALSE(all.megatron.overlap_host_update);
    const TrainingSpec half =
        *read(aware + "--optimizer-cpu-offload --optimizer-offload-fraction 0.5 --overlap-cpu-optimizer-d2h-h2d").training;
    EXPECT_EQ(half.offload.optimizer, 0.5);
    EXPECT_TRUE(half.megatron.overlap_host_update);
    EXPECT_THAT(read(aware + "--optimizer-offload-fraction 0.5").flags.without_effect, Contains("--optimizer-offload-fraction"));

    EXPECT_THAT(refusal(kSmall + "--optimizer-cpu-offload"), HasSubstr("needs --use-precision-aware-optimizer"));
    EXPECT_THAT(refusal(aware + "--optimizer-cpu-offload --optimizer-offload-fraction 2"), HasSubstr("is no number from 0 to 1"));
    EXPECT_THAT(refusal(aware + "--optimizer-cpu-offload --fp8-format e4m3 --fp8-recipe mxfp8 --fp8-param-gather"),
                HasSubstr("under delayed scaling alone"));
    const Job fsdp = read(aware + "--optimizer-cpu-offload --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads");
    EXPECT_EQ(fsdp.training->offload.optimizer, 0);
    ASSERT_EQ(fsdp.flags.not_computed.size(), 1U);
    EXPECT_EQ(fsdp.flags.not_computed[0].flag, "--optimizer-cpu-offload");
}

// Rules of branch dev of Megatron-LM at d48bd6be: core/optimizer/optimizer_config.py, __post_init__; training/arguments.py, validate_args.
TEST(MegatronArguments, LeavesOptimizerStateOnTheHostBetweenUpdates) {
    const std::string sharded = kSmall + "--bf16 --use-distributed-optimizer ", chunked = sharded + "--chunked-optimizer-state-offload ",
                      aware = chunked + "--use-precision-aware-optimizer ", muon = chunked + "--optimizer muon ";
    for (const std::string& whole : {chunked, sharded + "--offload-optimizer-states"}) {
        const TrainingSpec training = *read(whole).training;
        EXPECT_EQ(training.offload, OffloadSpec{.states = 1});
        EXPECT_EQ(training.megatron.offload_chunk_mib, 0);
    }
    const TrainingSpec part = *read(chunked + "--optimizer-state-offload-fraction 0.5 --optimizer-state-offload-chunk-size-mb 64").training;
    EXPECT_EQ(part.offload, OffloadSpec{.states = 0.5});
    EXPECT_EQ(part.megatron.offload_chunk_mib, 64);
    EXPECT_EQ(read(muon).training->offload, OffloadSpec{.states = 1});
    EXPECT_EQ(read(aware + "--exp-avg-dtype bf16").training->offload, OffloadSpec{.states = 1});
    // Without a share it asks for nothing, and its rules do not hold.
    EXPECT_EQ(read(kSmall + "--chunked-optimizer-state-offload --optimizer-state-offload-fraction 0 --async-save").training->offload,
              OffloadSpec{});
    EXPECT_THAT(read(sharded + "--optimizer-state-offload-fraction 0.5 --async-save --no-load-optim").flags.without_effect,
                testing::IsSupersetOf({"--optimizer-state-offload-fraction", "--async-save", "--no-load-optim"}));

    EXPECT_THAT(refusal(kSmall + "--bf16 --offload-optimizer-states"), HasSubstr("add --use-distributed-optimizer"));
    EXPECT_THAT(refusal(sharded + "--offload-optimizer-states --optimizer muon"), HasSubstr("use --chunked-optimizer-state-offload"));
    EXPECT_THAT(refusal(chunked + "--optimizer sgd"), HasSubstr("Adam's or Muon's, and here it is sgd; use --optimizer adam or muon"));
    EXPECT_THAT(refusal(kSmall + "--use-distributed-optimizer --chunked-optimizer-state-offload --optimizer muon"),
                HasSubstr("needs bf16 with Muon, not fp32"));
    EXPECT_THAT(refusal(aware + "--optimizer-cpu-offload"), HasSubstr("excludes the optimizer on the host"));
    EXPECT_THAT(refusal(aware + "--exp-avg-sq-dtype fp8"), HasSubstr("takes moments in fp32 and bf16"));
    EXPECT_THAT(refusal(aware + "--main-params-dtype fp16"), HasSubstr("needs main parameters in fp32"));
    EXPECT_THAT(refusal(chunked + "--ckpt-format torch --no-load-optim"), HasSubstr("needs --ckpt-format torch_dist"));
    EXPECT_EQ(read(chunked + "--ckpt-format torch --no-load-optim --no-save-optim").training->offload, OffloadSpec{.states = 1});
    EXPECT_THAT(refusal(chunked + "--async-save"), HasSubstr("does not go with --async-save; leave one out, or add --no-save-optim"));
    EXPECT_THAT(refusal(chunked + "--optimizer-state-offload-fraction 1.5"), HasSubstr("is no number from 0 to 1"));
    EXPECT_THAT(refusal(chunked + "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads --no-save-optim --no-load-optim"),
                HasSubstr("does not go with FSDP"));
}

// core/optimizer/optimizer_config.py, __post_init__, and arguments.py, at d98e8a64.
TEST(MegatronArguments, HasNarrowOptimizerStateWithThePrecisionAwareOptimizerAlone) {
    const std::string bf16 = kSmall + "--bf16 --use-distributed-optimizer ", aware = bf16 + "--use-precision-aware-optimizer ";
    const TrainingSpec training = *read(aware + "--exp-avg-dtype fp8 --exp-avg-sq-dtype fp16 --main-params-dtype fp16").training;
    EXPECT_EQ(training.exp_avg_dtype, Dtype::fp8);
    EXPECT_EQ(training.exp_avg_sq_dtype, Dtype::fp16);
    EXPECT_EQ(training.main_param_dtype, Dtype::fp16);
    for (const std::string narrow :
         {"--exp-avg-dtype fp8", "--exp-avg-sq-dtype bf16", "--main-params-dtype fp16", "--main-grads-dtype bf16"})
        EXPECT_THAT(refusal(bf16 + narrow), HasSubstr(narrow + " needs --use-precision-aware-optimizer; add it"));
    EXPECT_THAT(refusal(aware + "--main-params-dtype bf16"), HasSubstr("--main-params-dtype"));
    EXPECT_THAT(refusal(aware + "--main-grads-dtype bf16 --accumulate-allreduce-grads-in-fp32"), HasSubstr("leave one of them out"));
    EXPECT_THAT(refusal(aware + "--optimizer muon"), HasSubstr("is Adam's, and here it is muon"));
}

TEST(MegatronArguments, LeavesInputsOfModulesOnTheHost) {
    const std::string fine = kSmall + "--bf16 --fine-grained-activation-offloading ";
    const TrainingSpec training = *read(fine + "--offload-modules core_attn attn_proj --min-offloaded-tensor-size 4096").training;
    EXPECT_EQ(training.offload.modules, (EnumSet<OffloadModule>{OffloadModule::core_attn, OffloadModule::attn_proj}));
    EXPECT_EQ(training.megatron.least_offloaded, 4096);
    EXPECT_TRUE(read(kSmall + "--offload-modules core_attn").training->offload.modules.empty());  // nothing asks for it

    EXPECT_THAT(refusal(fine), HasSubstr("needs --offload-modules"));
    EXPECT_THAT(refusal(fine + "--offload-modules mlp"),
                HasSubstr("--offload-modules = 'mlp' is no module that is offloaded; use attn_norm"));
    EXPECT_THAT(refusal(fine + "--offload-modules attn_proj"), HasSubstr("add core_attn"));
    EXPECT_THAT(refusal(fine + "--offload-modules core_attn --cpu-offloading-num-layers 2"), HasSubstr("exclude each other"));
    EXPECT_THAT(refusal(fine + "--offload-modules core_attn --transformer-impl local"), HasSubstr("need Transformer Engine"));
    const Job recomputed = read(fine +
                                "--offload-modules core_attn --recompute-granularity full --recompute-method uniform "
                                "--recompute-num-layers 1");
    EXPECT_TRUE(recomputed.training->offload.modules.empty());
    EXPECT_EQ(recomputed.flags.not_computed.size(), 1U);
}

TEST(MegatronArguments, OffloadsFewerLayersThanThereAre) {
    EXPECT_EQ(read(kSmall + "--cpu-offloading-num-layers 2").training->megatron.offloaded_layers, 2);
    EXPECT_THAT(refusal(kSmall + "--cpu-offloading-num-layers 4"), HasSubstr("at most 3 of the 4 layers"));
    EXPECT_THAT(refusal(kSmall + "--cpu-offloading-num-layers 2 --recompute-granularity full --recompute-method uniform "
                                 "--recompute-num-layers 1"),
                HasSubstr("exclude each other"));
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

TEST(MegatronArguments, TakesTheRowsThatAPaddedVocabularyGives) {
    // argument_utils.py, gpt_config_from_args: args.padded_vocab_size is the table's size, and is padded no more.
    const auto rows = [](const std::string& flags) { return read(kSmall + flags).model.padded_vocab(2); };
    EXPECT_EQ(rows("--vocab-size 50257"), 50432);
    EXPECT_EQ(rows("--vocab-size 50257 --padded-vocab-size 50258"), 50258);
    EXPECT_EQ(rows("--no-pad-vocab-size --vocab-size 50257 --padded-vocab-size 50258"), 50258);
    for (const std::string flags : {"--vocab-size 50257 --padded-vocab-size 50258 --make-vocab-size-divisible-by 64",
                                    "--vocab-size 50257 --padded-vocab-size 50432"}) {
        const ModelSpec model = read(kSmall + flags).model;
        EXPECT_EQ(model.vocab, 50257) << flags;
        for (const int tp : {1, 2, 4, 8}) EXPECT_EQ(model.padded_vocab(tp), model.padded_rows) << flags << " over " << tp;
    }
    EXPECT_THAT(read(kSmall + "--padded-vocab-size 50432 --make-vocab-size-divisible-by 64").flags.without_effect,
                testing::Contains("--make-vocab-size-divisible-by"));
    EXPECT_THAT(
        refusal(kSmall + "--vocab-size 50257 --padded-vocab-size 40000"),
        HasSubstr("--padded-vocab-size = 40000 is less than the 50257 tokens of --vocab-size, which have a row each; use 50257 or more"));
    EXPECT_THAT(refusal(kSmall + "--no-pad-vocab-size"), HasSubstr("--no-pad-vocab-size without --padded-vocab-size"));
}

TEST(MegatronArguments, ReportsEveryProblemTogether) {
    const std::string text = refusal(
        "--num-layers many --hidden-size 99999999999999999999 --seq-length $SEQ --bf16 --fp16 --micro-batch-size 0 "
        "--normalization Norm --tensor-model-parallel-size -2 --moe-layer-freq [0]*x --num-experts 4");
    for (const char* part : {"--num-layers = 'many' is not a whole number", "--hidden-size", "--num-attention-heads is missing",
                             "--seq-length = $SEQ holds a variable that the file does not set", "--bf16 and --fp16 exclude each other",
                             "--micro-batch-size = 0 is out of range", "--normalization = 'Norm' is not known; use LayerNorm or RMSNorm",
                             "--tensor-model-parallel-size = -2 is out of range", "--moe-layer-freq: layer pattern does not parse",
                             "--vocab-size is missing; Megatron-LM reads it from the tokenizer"})
        EXPECT_THAT(text, HasSubstr(part));
}

TEST(MegatronArguments, RefusesWhatItCannotPlan) {
    EXPECT_THAT(refusal(kSmall + "--decoder-num-layers 4"), HasSubstr("models of an encoder and a decoder (T5) cannot be planned"));
    EXPECT_THAT(refusal(kSmall + "--lora-r 16 --lora-target-modules linear_qkv"),
                HasSubstr("--lora-target-modules: adapters (LoRA) cannot be planned"));
    EXPECT_THAT(refusal(kSmall + "--lora-of-a-fork 16"), HasSubstr("--lora-of-a-fork: adapters (LoRA) cannot be planned"));
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
