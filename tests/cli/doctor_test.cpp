// `mgplan doctor`: a log next to the prediction of its command. Log lines are written for this test in each program's format; jobs and
// measured values are those of public threads with a known cause, named at each test.
#include <cmath>
#include <functional>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "tests/cli/say.hpp"

namespace mgplan::cli::testing::doctor_test {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string line(int iteration, double milliseconds, int batch) {
    return fmt::format(
        " [2026-01-02 03:04:05] iteration {:8d}/     100 | consumed samples: {:12d} | elapsed time per iteration (ms): {:.1f} | learning "
        "rate: "
        "1.0E-04 | global batch size: {:5d} | lm loss: 1.0E+01 | number of skipped iterations:   0 | number of nan iterations:   0 |\n",
        iteration, iteration * batch, milliseconds, batch);
}

std::string lines(double milliseconds, int batch, int first = 1, int last = 20) {
    std::string text;
    for (int i = first; i <= last; ++i) text += line(i, i == 1 ? 60000 : milliseconds, batch);
    return text;
}

json diagnose(const std::string& words) {
    const Said said = say("doctor " + words + " --format json");
    EXPECT_EQ(said.code, kDone) << said.err;
    return said.code == kDone ? json::parse(said.out) : json();
}

/// Seconds of the change with that name among those that may explain the gap; nothing if it is not among them.
std::optional<double> possible(const json& diagnosis, const std::string& name) {
    for (const auto& one : diagnosis["possible"]) {
        if (one["name"] == name) return one["seconds"].get<double>();
    }
    return std::nullopt;
}

// NVIDIA-NeMo/Megatron-Bridge#5570: Moonlight on 8 H100, one microbatch a rank, 457 ms and 36.618 GB allocated. The host issues kernels too
// slowly: fused rotation is off for latent attention, and the GPU waits.
const std::string kMoonlight =
    "--num-layers 27 --hidden-size 2048 --num-attention-heads 16 --multi-latent-attention --kv-lora-rank 512 --qk-head-dim 128 "
    "--qk-pos-emb-head-dim 64 --v-head-dim 128 --qk-layernorm --seq-length 4096 --max-position-embeddings 8192 --position-embedding-type "
    "rope "
    "--ffn-hidden-size 11264 --swiglu --disable-bias-linear --normalization RMSNorm --vocab-size 163840 "
    "--untie-embeddings-and-output-weights "
    "--attention-dropout 0 --hidden-dropout 0 --num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 1408 "
    "--moe-shared-expert-intermediate-size 2816 --moe-layer-freq ([0]+[1]*26) --moe-grouped-gemm --moe-permute-fusion "
    "--moe-token-dispatcher-type alltoall --moe-shared-expert-overlap --tensor-model-parallel-size 2 --sequence-parallel "
    "--expert-model-parallel-size 8 --expert-tensor-parallel-size 1 --micro-batch-size 1 --global-batch-size 4 --bf16 "
    "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --use-precision-aware-optimizer --main-grads-dtype bf16 "
    "--exp-avg-dtype bf16 --exp-avg-sq-dtype bf16 --no-rope-fusion --cross-entropy-loss-fusion --cross-entropy-fusion-impl te "
    "--train-iters 20 "
    "--lr 1e-4\n";

TEST(Doctor, NamesTheHostOfAStepThatWaitsForIt) {
    const TempFile args("moonlight.args", kMoonlight);
    const TempFile log("moonlight.log",
                       lines(457, 4) +
                           "[Rank 0] (after 2 iterations) memory (GB) | mem-allocated-gigabytes: 30.1 | mem-active-gigabytes: 30.1 | "
                           "mem-reserved-gigabytes: 38.0 | mem-max-allocated-gigabytes: 36.618 | mem-max-reserved-gigabytes: 38.9 | "
                           "mem-alloc-retires: 2 | mem-allocated-count: 571\n");
    const json found = diagnose(log.path() + " " + args.path() + " --world 8 --cluster dgx-h100");
    EXPECT_EQ(found["framework"], "Megatron-Bridge");
    EXPECT_NEAR(found["step"]["measured_seconds"].get<double>(), 0.457, 1e-9);
    const double gap = found["step"]["gap_seconds"];
    EXPECT_GT(gap, 0.05);
    EXPECT_EQ(found["possible"][0]["name"], "host");
    EXPECT_GE(possible(found, "host").value_or(0), gap);
    // Nothing in the log shows it: so it stays unexplained.
    EXPECT_NEAR(found["unexplained_seconds"].get<double>(), gap, 1e-9);
    EXPECT_TRUE(found["shown"].empty());
    ASSERT_EQ(found["memory"].size(), 1U);
    EXPECT_NEAR(found["memory"][0]["predicted_framework_bytes"].get<double>(), 36.618e9, 0.05 * 36.618e9);
    EXPECT_EQ(found["memory_causes"].back()["name"], "allocator retries");
}

// NVIDIA-NeMo/Megatron-Bridge#947: Qwen3-30B-A3B on 16 H100 (tp1 pp2 vpp2 ep2, micro-batch 8, batch 512) went from 14.4 to 15.9 s a step
// when the balancing loss was taken away.
TEST(Doctor, NamesRoutingOfAMixtureWithoutABalancingLoss) {
    const TempFile args(
        "qwen.args",
        "--num-layers 48 --hidden-size 2048 --ffn-hidden-size 6144 --num-attention-heads 32 --group-query-attention --num-query-groups 4 "
        "--kv-channels 128 --qk-layernorm --seq-length 4096 --max-position-embeddings 40960 --position-embedding-type rope --normalization "
        "RMSNorm "
        "--swiglu --disable-bias-linear --untie-embeddings-and-output-weights --vocab-size 151936 --attention-dropout 0 --hidden-dropout 0 "
        "--num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768 --moe-router-load-balancing-type none --moe-grouped-gemm "
        "--moe-permute-fusion --moe-token-dispatcher-type alltoall --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank "
        "2 "
        "--expert-model-parallel-size 2 --expert-tensor-parallel-size 1 --micro-batch-size 8 --global-batch-size 512 --bf16 "
        "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --grad-reduce-in-bf16 --use-precision-aware-optimizer "
        "--cross-entropy-loss-fusion --cross-entropy-fusion-impl te --train-iters 30 --lr 3e-4\n");
    std::string text;
    for (int i = 0; i < 20; ++i)
        text += fmt::format(
            "Training epoch 0, iteration {0}/99 | lr: 3e-06 | global_batch_size: 512 | global_step: {0} | reduced_train_loss: 2.5 | "
            "train_step_timing in s: {1}\n",
            i, i == 0 ? 60.0 : 15.9);
    const TempFile log("nemo.log", text);
    const json found = diagnose(log.path() + " " + args.path() + " --world 16 --cluster dgx-h100");
    EXPECT_EQ(found["framework"], "NeMo");
    EXPECT_NEAR(found["step"]["measured_seconds"].get<double>(), 15.9, 1e-9);
    EXPECT_GT(possible(found, "routing").value_or(0), 0.3);
    EXPECT_FALSE(possible(found, "even routing").has_value());  // would make it faster
}

const std::string kDense =
    "--num-layers 16 --hidden-size 2048 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --ffn-hidden-size 8192 "
    "--swiglu "
    "--disable-bias-linear --normalization RMSNorm --untie-embeddings-and-output-weights --position-embedding-type rope --seq-length 4096 "
    "--max-position-embeddings 8192 --vocab-size 128256 --bf16 --use-flash-attn --use-distributed-optimizer --tensor-model-parallel-size 2 "
    "--sequence-parallel --micro-batch-size 1 --global-batch-size 64 --train-iters 10 --lr 1e-4\n";

TEST(Doctor, CountsWhatTheLogShows) {
    const TempFile args("dense.args", kDense), log("dense.log");
    const std::string words = log.path() + " " + args.path() + " --world 16";
    std::ofstream(log.path()) << lines(1000, 64);
    const double predicted = diagnose(words)["step"]["predicted_seconds"];
    // As predicted: nothing to explain, and what is off in the job is named all the same.
    std::ofstream(log.path()) << lines(predicted * 1000, 64);
    const json same = diagnose(words);
    EXPECT_EQ(same["step"]["as_predicted"], true);
    EXPECT_TRUE(same["possible"].empty());
    EXPECT_FALSE(same["unused_switches"].empty());
    EXPECT_THAT(say("doctor " + words).out, HasSubstr("nothing is left to explain"));
    // Twice as slow, of which one rank's compute takes a half.
    const double half = predicted * 500;
    const auto timers = fmt::format(
        "(min, max) time across ranks (ms):\n    forward-compute ................................: ({:.2f}, {:.2f})\n"
        "    backward-compute ...............................: ({:.2f}, {:.2f})\n",
        100.0, 100.0 + half, 200.0, 200.0);
    std::ofstream(log.path()) << lines(predicted * 2000, 64) + timers;
    const json slow = diagnose(words);
    ASSERT_EQ(slow["shown"].size(), 1U);
    EXPECT_EQ(slow["shown"][0]["name"], "straggler");
    EXPECT_NEAR(slow["shown"][0]["seconds"].get<double>(), predicted / 2, 1e-4);
    EXPECT_NEAR(slow["unexplained_seconds"].get<double>(), predicted / 2, 1e-3);
    EXPECT_TRUE(possible(slow, "network").has_value());
    // Getting faster, with one pause.
    std::ofstream(log.path()) << lines(predicted * 3000, 64, 1, 15) + lines(predicted * 1900, 64, 16, 24) + line(25, predicted * 9000, 64);
    const json settling = diagnose(words);
    EXPECT_EQ(settling["shown"].at(0)["name"], "start-up");
    EXPECT_GE(settling["pauses"]["steps"], 1);
    // Faster than predicted: no cause of slowness is offered.
    std::ofstream(log.path()) << lines(predicted * 300, 64);
    const json fast = diagnose(words);
    EXPECT_FALSE(possible(fast, "network").has_value());
    EXPECT_LT(fast["step"]["gap_seconds"].get<double>(), 0);
}

TEST(Doctor, NamesFragmentationByTheBytesThatTheLogShows) {
    const TempFile args("dense2.args", kDense);
    const TempFile log("dense2.log",
                       lines(1000, 64) +
                           "[Rank 0] (after 2 iterations) memory (MB) | allocated: 9000.0 | max allocated: 12000.0 | reserved: 30000.0 "
                           "| max reserved: 32000.0\n");
    const json found = diagnose(log.path() + " " + args.path() + " --world 16");
    ASSERT_FALSE(found["memory_causes"].empty());
    EXPECT_EQ(found["memory_causes"][0]["name"], "fragmentation");
    EXPECT_EQ(found["memory_causes"][0]["lever"], "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True");
    EXPECT_NEAR(found["memory_causes"][0]["bytes"].get<double>(), 20000.0 * 1048576, 2e9);
}

TEST(Doctor, TakesTheArgumentsThatTheLogPrints) {
    std::string text = "------------------------ arguments ------------------------\n";
    for (const char* one : {"num_layers 16",
                            "hidden_size 2048",
                            "num_attention_heads 32",
                            "group_query_attention True",
                            "num_query_groups 8",
                            "ffn_hidden_size 8192",
                            "swiglu True",
                            "add_bias_linear False",
                            "normalization RMSNorm",
                            "untie_embeddings_and_output_weights True",
                            "position_embedding_type rope",
                            "seq_length 4096",
                            "max_position_embeddings 8192",
                            "bf16 True",
                            "use_distributed_optimizer True",
                            "tensor_model_parallel_size 2",
                            "sequence_parallel True",
                            "micro_batch_size 1",
                            "global_batch_size 64",
                            "world_size 16",
                            "num_experts None"}) {
        const std::string words = one;
        const auto blank = words.find(' ');
        text += fmt::format("  {} {} {}\n", words.substr(0, blank), std::string(48 - blank, '.'), words.substr(blank + 1));
    }
    text +=
        "-------------------- end of arguments ---------------------\n > padded vocab (size: 128256) with 0 dummy tokens (new size: "
        "128256)\n";
    const TempFile log("printed.log", text + lines(1000, 64)), args("dense3.args", kDense);
    const json printed = diagnose(log.path()), given = diagnose(log.path() + " " + args.path() + " --world 16");
    EXPECT_EQ(printed["source"], "the log's arguments");
    EXPECT_EQ(printed["step"]["predicted_seconds"], given["step"]["predicted_seconds"]);
}

TEST(Doctor, DividesAnUpdateOfVerl) {
    const TempFile args("dense4.args", kDense);
    std::string text;
    for (int i = 1; i < 9; ++i) text += fmt::format("step:{} - actor/lr:1e-06 - timing_s/update_actor:80.0 - timing_s/step:400.0\n", i);
    const TempFile log("verl.log", text);
    const json found = diagnose(log.path() + " " + args.path() + " --world 16 --updates 8");
    EXPECT_EQ(found["framework"], "verl");
    EXPECT_NEAR(found["step"]["measured_seconds"].get<double>(), 10, 1e-12);
}

TEST(Doctor, RefusesInOneMessage) {
    const TempFile args("dense5.args", kDense), log("short.log", lines(1000, 64)), empty("empty.log", "nothing here\n");
    const auto refused = [](const std::string& words, const std::string& part) {
        const Said said = say(words.empty() ? "doctor" : "doctor " + words);
        EXPECT_EQ(said.code, kBadInput) << words;
        EXPECT_EQ(said.out, "") << words;
        EXPECT_THAT(said.err, HasSubstr(part)) << words;
    };
    refused("", "LOG is missing");
    refused("no.log", "no.log");
    refused(empty.path() + " " + args.path() + " --world 16", "nor a step of NeMo, ms-swift or verl");
    refused(log.path(), "prints no arguments of Megatron-LM; give the job's command");
    refused(log.path() + " " + args.path(), "--world is missing");
    refused(log.path() + " " + args.path() + " --megatron-args " + args.path() + " --world 16", "and an option both name a command");
    refused(log.path() + " " + args.path() + " --world 16 --global-batch 32", "another global batch size than 32");
    refused(log.path() + " " + args.path() + " --world 16 --updates 0", "--updates");
    EXPECT_THAT(say("doctor " + log.path() + " " + args.path() + " --world 16 --format csv").out,
                AllOf(HasSubstr("step,measured_seconds,1"), HasSubstr("unexplained,seconds,"), Not(HasSubstr("{"))));
}

}  // namespace
}  // namespace mgplan::cli::testing::doctor_test
