// --offload: what the prediction follows, that plans with it train, and what is refused.

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "say.hpp"

namespace mgplan::cli::testing::offload_options_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

const std::string kJob = "simulate --world 16 --model llama3-8b --tp 2 --pp 2 --micro-batch 1 --global-batch 64 ";

Json simulated(const std::string& options) {
    const Said said = say(kJob + "--format json " + options);
    EXPECT_TRUE(said.code == kDone || said.code == kNothingFits) << said.err;
    return Json::parse(said.out);
}

std::int64_t term(const Json& answer, const char* name) {
    return answer["predicted"]["memory"]["breakdown"][name].get<std::int64_t>();
}

double seconds(const Json& answer) {
    return answer["predicted"]["iteration_seconds"].get<double>();
}

TEST(OffloadOptions, LeaveWhatTheyNameOnTheHost) {
    const Json plain = simulated("--engine mgplan"), state = simulated("--engine mgplan --offload optimizer"),
               half = simulated("--engine mgplan --offload optimizer:0.5"),
               inputs = simulated("--engine mgplan --offload attn_norm,mlp_norm,core_attn");
    const auto host = [](const Json& answer) { return answer["predicted"]["memory"]["host_bytes"].get<std::int64_t>(); };
    EXPECT_EQ(host(plain), 0);
    EXPECT_EQ(host(state), term(plain, "optimizer"));
    EXPECT_EQ(term(state, "optimizer"), 0);
    EXPECT_NEAR(static_cast<double>(host(half)), 0.5 * static_cast<double>(host(state)), 1e3);
    EXPECT_EQ(term(half, "optimizer") + host(half), term(plain, "optimizer"));
    EXPECT_GT(host(inputs), 0);
    EXPECT_LT(term(inputs, "activations") + host(inputs) / 2, term(plain, "activations"));
    EXPECT_EQ(term(inputs, "optimizer"), term(plain, "optimizer"));
    EXPECT_EQ(state["layout"]["offload"], (Json{{"optimizer", 1.0}}));
    EXPECT_EQ(inputs["layout"]["offload"], (Json{{"modules", {"attn_norm", "core_attn", "mlp_norm"}}}));

    // Twice over the host's link: 63 GB/s each way on a DGX H100 (PCIe 5, configs/clusters/dgx-h100.json).
    EXPECT_GT(seconds(half), seconds(plain));
    EXPECT_NEAR(seconds(state) - seconds(plain), 2 * (seconds(half) - seconds(plain)), 1e-3 * seconds(plain));
    EXPECT_GT(seconds(inputs), seconds(plain));
}

TEST(OffloadOptions, BringStateBackForTheUpdateAlone) {
    for (const std::string engine : {"--engine megatron", "--engine mgplan"}) {
        const Json plain = simulated(engine), states = simulated(engine + " --offload optimizer_states"),
                   half = simulated(engine + " --offload optimizer_states:0.5");
        const auto host = [](const Json& answer) { return answer["predicted"]["memory"]["host_bytes"].get<std::int64_t>(); };
        EXPECT_EQ(host(states), term(plain, "optimizer"));
        EXPECT_EQ(term(states, "optimizer"), 0);  // at the peak, in the passes
        EXPECT_EQ(term(half, "optimizer") + host(half), term(plain, "optimizer"));
        EXPECT_EQ(states["layout"]["offload"], (Json{{"optimizer_states", 1.0}}));
        // 63 GB/s each way on a DGX H100: the way back is seen, that to the host is hidden behind the passes of engine megatron.
        const double one_way = static_cast<double>(host(states)) / 63e9, more = seconds(states) - seconds(plain);
        if (engine == "--engine mgplan")
            EXPECT_NEAR(more, 2 * one_way, 1e-3 * one_way);
        else
            EXPECT_TRUE(more > 0.9 * one_way && more <= one_way) << more << " of " << one_way;
        EXPECT_GT(seconds(half), seconds(plain));
        EXPECT_LT(seconds(half), seconds(states));
    }
}

TEST(OffloadOptions, PlansWithThemTrain) {
    const std::string file = ::testing::TempDir() + "/offload_options_run.json";
    for (const char* memory : {"pool", "arena"}) {
        for (const char* job : {"--model tiny-llama --tp 1 --pp 2 --offload optimizer:0.5,attn_norm,core_attn",
                                "--model tiny-moe --tp 1 --pp 1 --ep 2 --offload optimizer,mlp_norm,moe_act",
                                "--model tiny-llama --tp 1 --pp 1 --offload optimizer_states:0.5"}) {
            const Said planned = say(std::string("plan --engine mgplan --world 2 --micro-batch 1 --global-batch 8 --seq 32 --save-plan ") +
                                     file + " " + job);
            ASSERT_EQ(planned.code, kDone) << planned.err;
            const Said said = say("run " + file + " --steps 2 --format json --memory " + memory);
            ASSERT_EQ(said.code, kDone) << job << said.err;
            const Json run = Json::parse(said.out);
            EXPECT_EQ(run["as_predicted"], true) << run["ranks"][0]["difference"];
            EXPECT_GT(run["ranks"][0]["measured"]["host_bytes"].get<std::int64_t>(), 0);
            EXPECT_EQ(run["ranks"][0]["difference"]["host_bytes"], 0);
        }
    }
}

TEST(OffloadOptions, WhatWaitsOnTheHostIsPredictedUnderEverySchedule) {
    const std::string file = ::testing::TempDir() + "/offload_options_schedule.json";
    for (const char* schedule : {"", " --schedule zb-h1", " --vpp 2 --schedule zb-v"}) {
        const Said planned =
            say(std::string("plan --engine mgplan --world 2 --model tiny-llama --tp 1 --pp 2 --micro-batch 1 --global-batch 8 --seq 32 "
                            "--offload optimizer,core_attn,attn_norm --save-plan ") +
                file + schedule);
        ASSERT_EQ(planned.code, kDone) << planned.err;
        const Json predicted = Json::parse(say("simulate " + file + " --format json").out)["predicted"]["memory"];
        const Json run = Json::parse(say("run " + file + " --steps 1 --format json").out);
        const auto rank = predicted["worst_rank"].get<std::size_t>();
        EXPECT_EQ(predicted["host_bytes"], run["ranks"][rank]["measured"]["host_bytes"]) << schedule;
    }
}

TEST(OffloadOptions, AreMegatronLMsWithoutAnEngine) {
    const Json plain = simulated("--engine megatron"), state = simulated("--offload optimizer"),
               half = simulated("--offload optimizer:0.5"), inputs = simulated("--offload qkv_linear,core_attn,attn_proj");
    const auto host = [](const Json& answer) { return answer["predicted"]["memory"]["host_bytes"].get<std::int64_t>(); };
    EXPECT_EQ(state["layout"]["engine"], "megatron");
    // fp32 parameter and two moments of every element; there its gradient as well.
    EXPECT_EQ(host(state), term(plain, "optimizer") / 12 * 16);
    EXPECT_EQ(host(plain), 0);
    EXPECT_NEAR(static_cast<double>(host(half)), 0.5 * static_cast<double>(host(state)), 1e4);
    EXPECT_NEAR(static_cast<double>(term(half, "optimizer")), 0.5 * static_cast<double>(term(plain, "optimizer")), 1e4);
    EXPECT_LT(term(state, "optimizer"), term(half, "optimizer"));
    EXPECT_GT(seconds(state), seconds(half));
    EXPECT_THAT(state["assumed"].dump(), HasSubstr("cores for each process to update 0.69 billion parameters a second"));

    EXPECT_GT(host(inputs), 0);
    EXPECT_LT(term(inputs, "activations"), term(plain, "activations"));
    EXPECT_EQ(inputs["layout"]["offload"], (Json{{"modules", {"qkv_linear", "core_attn", "attn_proj"}}}));
}

/// A functional test of Megatron-LM at d98e8a64 (tests/functional_tests/test_cases/moe), whose golden values hold the peak of
/// allocated_bytes.all on the last rank.
const std::string kGolden =
    "--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --expert-model-parallel-size 4 --expert-tensor-parallel-size 1 "
    "--use-distributed-optimizer --attention-backend unfused --sequence-parallel --disable-bias-linear --micro-batch-size 1 "
    "--global-batch-size 8 --recompute-granularity selective --recompute-modules layernorm mla_up_proj mlp moe_act --seq-length 4096 "
    "--vocab-size 51200 --num-layers 15 --moe-layer-freq ([0]*3+[1]*12) --hidden-size 1024 --ffn-hidden-size 4096 "
    "--num-attention-heads 32 --kv-channels 128 --max-position-embeddings 4096 --position-embedding-type rope "
    "--make-vocab-size-divisible-by 3232 --normalization RMSNorm --swiglu --untie-embeddings-and-output-weights "
    "--multi-latent-attention --attention-dropout 0 --hidden-dropout 0 --qk-layernorm --num-experts 32 --moe-ffn-hidden-size 1024 "
    "--moe-shared-expert-intermediate-size 1024 --moe-router-load-balancing-type seq_aux_loss --moe-router-topk 4 "
    "--moe-token-dispatcher-type alltoall --moe-grouped-gemm --moe-router-score-function sigmoid --moe-router-enable-expert-bias "
    "--moe-router-dtype fp32 --moe-permute-fusion --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 "
    "--v-head-dim 128 --bf16 --no-check-for-nan-in-loss-and-grad --log-num-zeros-in-grad --log-params-norm "
    "--fine-grained-activation-offloading "
    "--offload-modules expert_fc1 moe_act attn_norm mlp_norm qkv_linear core_attn attn_proj ";

TEST(OffloadOptions, OfModulesAreNearWhatMegatronLMMeasured) {
    const auto last_rank = [](const std::string& more, const std::string& cluster) {
        const TempFile file("offload_golden.args", kGolden + more);
        const Said said = say("simulate --megatron-args " + file.path() + " --world 8 --per-rank --format json --cluster " + cluster);
        return Json::parse(said.out)["ranks"][7]["memory"]["framework_bytes"].get<double>();
    };
    const std::string split = "--pipeline-model-parallel-layout Et*3|(tt|)*6L ",
                      predicting = "--pipeline-model-parallel-layout Et*3|(tt|)*6mL --mtp-num-layers 1 --overlap-moe-expert-parallel-comm ";
    EXPECT_NEAR(last_rank(split, "gb200-nvl72") / 7'109'204'992, 1, 0.05);
    EXPECT_NEAR(last_rank(split, "dgx-h100") / 7'156'871'168, 1, 0.05);
    EXPECT_NEAR(last_rank(predicting, "gb200-nvl72") / 8'285'769'216, 1, 0.07);
    EXPECT_NEAR(last_rank(predicting, "dgx-h100") / 8'320'577'024, 1, 0.07);
}

TEST(OffloadOptions, TravelWithAnExport) {
    const std::string file = ::testing::TempDir() + "/offload_options_export.json";
    ASSERT_EQ(
        say("plan --world 16 --model mixtral-8x7b --routing forced --offload optimizer:0.25,core_attn,expert_fc1 --save-plan " + file).code,
        kDone);
    const Said exported = say("export " + file + " --to megatron-args");
    EXPECT_EQ(exported.code, kDone) << exported.err;
    for (const char* flags : {"--optimizer-cpu-offload", "--optimizer-offload-fraction 0.25", "--use-precision-aware-optimizer",
                              "--fine-grained-activation-offloading", "--offload-modules core_attn expert_fc1",
                              "--moe-router-force-load-balancing", "NVTE_CPU_OFFLOAD_V1=1"})
        EXPECT_THAT(exported.out, HasSubstr(flags));
    EXPECT_THAT(exported.err, Not(HasSubstr("no flag says")));  // it is read back as the plan has it
}

TEST(OffloadOptions, OfStateBetweenUpdatesTravelWithAnExport) {
    const std::string file = ::testing::TempDir() + "/offload_options_states.json";
    const auto exported = [&](const std::string& options) {
        const Said planned = say("plan --world 16 --model llama3-8b --tp 2 --pp 2 --save-plan " + file + " " + options);
        EXPECT_EQ(planned.code, kDone) << planned.err;
        const Said said = say("export " + file + " --to megatron-args --megatron dev");
        EXPECT_THAT(said.err, Not(HasSubstr("no flag says"))) << options;  // it is read back as the plan has it
        return said.out;
    };
    EXPECT_THAT(exported("--offload optimizer_states"),
                AllOf(HasSubstr("--offload-optimizer-states"), Not(HasSubstr("--chunked-optimizer-state-offload"))));
    EXPECT_THAT(exported("--offload optimizer_states:0.5"),
                AllOf(HasSubstr("--chunked-optimizer-state-offload"), HasSubstr("--optimizer-state-offload-fraction 0.5")));
    EXPECT_THAT(exported("--offload optimizer_states --optimizer muon"),
                AllOf(HasSubstr("--chunked-optimizer-state-offload"), Not(HasSubstr("--offload-optimizer-states"))));
    const TempFile command("offload_states.args",
                           "--num-layers 8 --hidden-size 1024 --num-attention-heads 16 --seq-length 2048 --max-position-embeddings 2048 "
                           "--vocab-size 50000 --micro-batch-size 2 --global-batch-size 64 --bf16 --use-distributed-optimizer "
                           "--chunked-optimizer-state-offload --optimizer-state-offload-chunk-size-mb 64");
    ASSERT_EQ(say("plan --world 16 --cluster dgx-h100 --model " + command.path() + " --save-plan " + file).code, kDone);
    EXPECT_THAT(say("export " + file + " --to megatron-args --megatron dev").out, HasSubstr("--optimizer-state-offload-chunk-size-mb 64"));
}

TEST(OffloadOptions, OfMgplansOwnEngineAreExportedWhereMegatronLMHasThem) {
    const std::string file = ::testing::TempDir() + "/offload_options_own_export.json";
    ASSERT_EQ(say("plan --engine mgplan --world 16 --model llama3-8b --offload optimizer,attn_proj --save-plan " + file).code, kDone);
    const Said exported = say("export " + file + " --to megatron-args");
    EXPECT_THAT(exported.out, HasSubstr("--optimizer-cpu-offload"));
    EXPECT_THAT(exported.out, Not(HasSubstr("attn_proj")));  // not without core_attn
    EXPECT_THAT(exported.err, HasSubstr("attn_proj"));
}

TEST(OffloadOptions, HaveToFitTheHostsMemory) {
    EXPECT_EQ(say(kJob + "--offload optimizer --cluster dgx-h100,host_memory_gib=100").code, kDone);
    const Json memory = simulated("--offload optimizer --cluster dgx-h100,host_memory_gib=100")["predicted"]["memory"];
    EXPECT_EQ(memory["host_limit_bytes"], std::int64_t{100} << 30);
    EXPECT_NEAR(memory["node_host_bytes"].get<double>() / memory["host_bytes"].get<double>(), 8, 0.1);  // ranks of one stage
    EXPECT_EQ(simulated("--offload optimizer --cluster gb200-nvl72")["predicted"]["memory"]["host_limit_bytes"], nullptr);
    const Said said = say(kJob + "--offload optimizer --cluster dgx-h100,host_memory_gib=10");
    EXPECT_EQ(said.code, kNothingFits);
    EXPECT_THAT(said.out, HasSubstr("fits_in_host_memory: a node's ranks leave"));
    EXPECT_THAT(in_one_line(said.out), HasSubstr("in the host's memory, which is 10.0 GiB"));
    const std::string tried =
        "plan --world 16 --model llama3-8b --tp 2 --pp 2 --vpp 1 --micro-batch 1 --recompute none --offload optimizer --cluster "
        "dgx-h100,host_memory_gib=1 --search plain --exhaustive ";
    const Said none = say(tried + "--wide");
    EXPECT_EQ(none.code, kNothingFits);
    EXPECT_THAT(in_one_line(none.out),
                AllOf(HasSubstr("Nearest misses:"), HasSubstr("in the host's memory, which is 1.0 GiB; offload less, or use more nodes"),
                      HasSubstr(" of the host's"), Not(HasSubstr("more than the limit")), Not(HasSubstr("would fit with"))));
    const Json search = Json::parse(say(tried + "--format json").out)["search"];
    EXPECT_EQ(search["rejected"]["fits_in_host_memory"], search["legal"]);
    EXPECT_EQ(search["too_large"][0]["rule"], "fits_in_host_memory");
    EXPECT_EQ(search["too_large"][0]["largest_term"], "host");
}

TEST(OffloadOptions, WhatIsNotBuiltIsRefused) {
    const auto refused = [](const std::string& options) {
        const Said said = say(kJob + options);
        EXPECT_EQ(said.code, kBadInput) << options;
        return said.err;
    };
    EXPECT_THAT(refused("--offload weights"), HasSubstr("--offload = 'weights' is no list of optimizer, optimizer:SHARE"));
    EXPECT_THAT(refused("--offload optimizer:1.5"), HasSubstr("with a share above 0 and at most 1"));
    EXPECT_THAT(refused("--offload optimizer_states:0"), HasSubstr("or instead optimizer_states or optimizer_states:SHARE"));
    EXPECT_THAT(refused("--offload optimizer,optimizer_states"), HasSubstr("each once; use such a list"));
    EXPECT_THAT(refused("--offload optimizer_states --optimizer muon --engine mgplan"), HasSubstr("use --optimizer adam, sgd or lion"));
    EXPECT_THAT(refused("--offload optimizer_states --optimizer sgd"), HasSubstr("use --optimizer adam or muon"));
    EXPECT_THAT(refused("--offload optimizer_states --no-distributed-optimizer"), HasSubstr("needs the distributed optimizer"));
    EXPECT_THAT(refused("--offload optimizer_states --sharding full"), HasSubstr("use --sharding optimizer"));
    EXPECT_THAT(refused("--offload core_attn,core_attn"), HasSubstr("each once"));
    EXPECT_THAT(refused("--offload="), HasSubstr("--offload = '' is no list"));
    for (const char* engine : {"--engine mgplan ", ""})
        EXPECT_THAT(refused(engine + std::string("--offload core_attn --recompute full")), HasSubstr("use --recompute none or selective"));
    EXPECT_THAT(refused("--offload moe_act --engine mgplan"), HasSubstr("a model without experts (leave out expert_fc1 and moe_act)"));
    EXPECT_THAT(refused("--offload optimizer --optimizer muon --engine mgplan"), HasSubstr("use --optimizer adam, sgd or lion"));
    EXPECT_THAT(refused("--offload optimizer --optimizer muon"), HasSubstr("use --optimizer adam, or keep it on the device"));
    EXPECT_THAT(refused("--offload attn_proj"), HasSubstr("add core_attn, or leave attn_proj out"));
    EXPECT_THAT(refused("--offload optimizer --no-distributed-optimizer"), HasSubstr("needs the distributed optimizer"));
    EXPECT_THAT(refused("--offload optimizer --sharding full"), HasSubstr("use --sharding optimizer"));
}

TEST(OffloadOptions, AreProposedWhereAPlanWithTheOptimizerOnTheHostIsFaster) {
    const std::string job = "plan --world 2 --model llama3-8b --seq 8k";
    const auto fastest = [&](const char* option) {
        return seconds(Json::parse(say(job + " --top 1 --format json" + option).out)["plans"][0]);
    };
    const double faster = 1 - fastest(" --offload optimizer") / fastest("");
    EXPECT_GT(faster, 0.1) << "this test shows nothing";
    EXPECT_THAT(say(job).out, HasSubstr(fmt::format("\noffload: --offload optimizer -{:.0f} % time", 100 * faster)));
    EXPECT_THAT(say(job + " --offload optimizer").out, Not(HasSubstr("offload: "))) << "it is there already";
    EXPECT_THAT(say(job + " --no-distributed-optimizer").out, Not(HasSubstr("offload: "))) << "Megatron-LM refuses it then";
    EXPECT_THAT(say(job + " --engine mgplan").out, Not(HasSubstr("offload: "))) << "Megatron-LM's alone";
    EXPECT_THAT(say("plan --world 8 --model llama3-8b").out, Not(HasSubstr("offload: "))) << "2 % faster: not worth host memory";
}

}  // namespace
}  // namespace mgplan::cli::testing::offload_options_test
