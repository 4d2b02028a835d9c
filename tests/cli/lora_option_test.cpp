// Adapters (LoRA) over the commands: planned, simulated, read from others' commands, exported and run.

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plan/text/text_file.hpp"
#include "say.hpp"

namespace mgplan::cli::testing::lora_option_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;

const std::string kJob = " --world 8 --model llama3-8b --seq 2k --global-batch 16 --tp 2 --pp 1";

TEST(LoraOption, StatesWhatIsTrainedAndHoldsItsStateAlone) {
    const std::string words = "simulate --format json" + kJob;
    const Json all = Json::parse(say(words).out), adapted = Json::parse(say(words + " --lora rank=16,targets=qkv").out);
    // 16 rows of the input and of queries, keys and values (6144), in 32 layers.
    EXPECT_EQ(adapted["model"]["trained_parameters"], 32 * 16 * (4096 + 6144));
    EXPECT_FALSE(all["model"].contains("trained_parameters"));
    const auto bytes = [](const Json& answer, const char* term) {
        return answer["predicted"]["memory"]["breakdown"][term].get<std::int64_t>();
    };
    EXPECT_LT(bytes(adapted, "gradients"), bytes(all, "gradients") / 100);
    EXPECT_LT(bytes(adapted, "optimizer"), bytes(all, "optimizer") / 100);
    EXPECT_LT(bytes(adapted, "activations"), bytes(all, "activations"));
    EXPECT_LT(adapted["predicted"]["iteration_seconds"], all["predicted"]["iteration_seconds"]);
    EXPECT_THAT(say("simulate" + kJob + " --lora rank=16,targets=qkv").out,
                HasSubstr("LoRA: rank 16, alpha 32 on qkv; 5,242,880 of 8,035,504,128 parameters trained"));
}

TEST(LoraOption, KeepsFrozenWeightsInFourBits) {
    const std::string job = "simulate --world 1 --model llama3-8b --seq 2k --global-batch 4 --recompute full --lora rank=16,targets=qkv";
    const Json half = Json::parse(say(job + " --format json").out), packed = Json::parse(say(job + ",base=nf4 --format json").out);
    const auto parameters = [](const Json& answer) { return answer["predicted"]["memory"]["breakdown"]["parameters"].get<std::int64_t>(); };
    // The layers' linear weights are in 4 bits: qkv, projection, and three of 14,336; tables, norms and adapters stay.
    const std::int64_t elements = 32LL * 4096 * (6144 + 4096 + 3 * 14336);
    EXPECT_NEAR(static_cast<double>(parameters(half) - parameters(packed)), static_cast<double>(elements) * (2 - 4.127 / 8),
                1e-4 * static_cast<double>(elements));
    EXPECT_GT(packed["predicted"]["iteration_seconds"], half["predicted"]["iteration_seconds"]) << "weights are unpacked";
    EXPECT_THAT(say(job + ",base=nf4").out, HasSubstr("on qkv of weights in nf4; "));
    const TempFile plan("nf4_plan.json", "");
    EXPECT_EQ(say("plan --world 1 --model llama3-8b --global-batch 4 --lora base=nf4 --top 1 --save-plan " + plan.path()).code, kDone);
    EXPECT_THAT(say("simulate " + plan.path()).out, HasSubstr(" of weights in nf4; "));
    expect_refused("export --to bridge-overrides " + plan.path(), "model.adapters: base = nf4 cannot be said to Megatron-Bridge");
    expect_refused(job + ",base=nf4 --precision fp8-current", "frozen weights in nf4 next to quantised products (use --precision bf16)");
    expect_refused(job + ",base=nf4 --engine mgplan", "frozen weights in nf4 (leave base out)");
    expect_refused("simulate --world 8 --model mixtral-8x7b --lora base=nf4", "experts in nf4 (bitsandbytes leaves them in 16 bits");
}

TEST(LoraOption, IsPlannedExportedForBridgeAndForNothingElse) {
    const TempFile plan("lora_plan.json", "");
    const std::string save = " --top 1 --save-plan " + plan.path();
    EXPECT_EQ(say("plan --world 8 --model llama3-8b --global-batch 16 --lora rank=16,targets=qkv,proj" + save).code, kDone);
    EXPECT_THAT(say("export --to bridge-overrides " + plan.path()).out,
                AllOf(HasSubstr("peft.dim=16"), HasSubstr("peft.alpha=32"), HasSubstr("peft.target_modules=[linear_qkv,linear_proj]")));
    expect_refused("export --to megatron-args " + plan.path(),
                   "Megatron-LM's own flags have no adapters (LoRA); export the plan --to bridge-overrides");
    expect_refused("run --weights folder " + plan.path(), "the plan trains adapters (LoRA)");
    EXPECT_THAT(say("simulate " + plan.path()).out, HasSubstr("LoRA: rank 16"));
    EXPECT_THAT(say("plan --world 8 --model mixtral-8x7b --global-batch 64 --lora default" + save).out,
                AllOf(HasSubstr("--to bridge-overrides"), Not(HasSubstr("megatron-args"))));
    EXPECT_THAT(say("export --to bridge-overrides " + plan.path()).out,
                HasSubstr("peft.target_modules=[linear_qkv,linear_proj,linear_fc1,linear_fc2]"))
        << "experts alone have these modules";
}

TEST(LoraOption, IsNamedInEveryView) {
    const std::string words = "LoRA: rank 16, alpha 32 on qkv";
    for (const char* command : {"simulate --markdown --world 8 --tp 2 --pp 1", "plan --markdown --top 1 --world 8", "least --up-to 8",
                                "side-by-side --on 8:dgx-h100 --on 8:dgx-a100-80g"})
        EXPECT_THAT(say(std::string(command) + " --model llama3-8b --seq 2k --global-batch 16 --lora rank=16,targets=qkv").out,
                    HasSubstr(words))
            << command;
}

TEST(LoraOption, SendsNoGradientOfATiedTable) {
    const auto pipeline = [](const std::string& more) {
        const Json answer = Json::parse(say("simulate --format json --world 8 --model llama3.2-1b --pp 2 --global-batch 64" + more).out);
        return answer["predicted"]["exposed_communication_seconds"]["pp"].get<double>();
    };
    EXPECT_LT(pipeline(" --lora default"), pipeline(""));
}

TEST(LoraOption, LeavesAdaptersOfExpertsIn16Bits) {
    const TempFile plan("experts.json", "");
    ASSERT_EQ(
        say("plan --world 8 --model qwen3-30b-a3b --tp 1 --ep 8 --pp 1 --global-batch 64 --lora default --precision fp8-current --top 1 "
            "--save-plan " +
            plan.path())
            .code,
        kDone);
    const auto compute = [](const Json& read) {
        const TempFile file("changed.json", read.dump());
        return Json::parse(say("simulate --format json " + file.path()).out)["predicted"]["compute_seconds"].get<double>();
    };
    Json read = Json::parse(read_text_file(plan.path(), "plan"));
    const double shared = compute(read);
    read["model"]["adapters"]["shared_by_experts"] = false;
    EXPECT_NEAR(compute(read), shared, 0.02 * shared) << "no casts to fp8 in front of their products";
}

TEST(LoraOption, LeavesACommandOpenWhoseAdaptersAreNotPredicted) {
    const auto gate = [](const std::string& more) {
        const TempFile script("open.sh",
                              "megatron sft --model Qwen/Qwen2.5-7B-Instruct --tuner_type lora --tensor_model_parallel_size 4 "
                              "--micro_batch_size 1 --global_batch_size 16 --max_length 2048 " +
                                  more + "\n");
        return say("check --gate --world 8 --megatron-args " + script.path());
    };
    EXPECT_EQ(gate("--lora_rank 8").code, kDone);
    const Said optimizer = gate("--lora_rank 8 --optimizer sgd"), rank = gate("--lora_rank 2");
    EXPECT_EQ(optimizer.code, kCannotSay);
    EXPECT_THAT(optimizer.out, HasSubstr("another optimizer than Adam"));
    EXPECT_EQ(rank.code, kCannotSay);
    EXPECT_THAT(rank.out, HasSubstr("a rank of 2 over tp 4"));
}

TEST(LoraOption, IsReadFromACommandOfMsSwift) {
    const TempFile script("lora.sh",
                          "megatron sft --model Qwen/Qwen2.5-7B-Instruct --tuner_type lora --lora_rank 8 --lora_alpha 32 --target_modules "
                          "all-linear --tensor_model_parallel_size 2 --sequence_parallel true --micro_batch_size 4 --global_batch_size 16 "
                          "--max_length 2048 --loss_scale ignore_empty_think --cross_entropy_loss_fusion true\n");
    const Said said = say("check --top 0 --world 2 --megatron-args " + script.path());
    EXPECT_EQ(said.code, kDone) << said.err;
    EXPECT_THAT(said.out,
                AllOf(HasSubstr("LoRA: rank 8, alpha 32 on qkv, proj, fc1, fc2"), HasSubstr("legal:  yes"), Not(HasSubstr("no version"))));
}

TEST(LoraOption, SaysWhereACommandOfMsSwiftTrainsAllWeights) {
    const std::string command =
        "megatron sft --model Qwen/Qwen2.5-7B-Instruct --micro_batch_size 1 --global_batch_size 16 --max_length 2048 ";
    const auto checked = [&](const std::string& more) {
        const TempFile script("full.sh", command + more + "\n");
        return say("check --top 0 --world 8 --megatron-args " + script.path()).out;
    };
    const char* note = "all weights are trained: ms-swift reads --lora_rank with --tuner_type lora alone";
    EXPECT_THAT(checked("--lora_rank 8"), AllOf(HasSubstr(note), Not(HasSubstr("LoRA: "))));
    EXPECT_THAT(checked("--lora_rank 8 --tuner_type full"), Not(HasSubstr("lora")));
    EXPECT_THAT(checked("--lora_rank 8 --tuner_type lora_llm"), HasSubstr("LoRA: rank 8"));
}

TEST(LoraOption, RefusesByName) {
    expect_refused("plan --world 8 --model llama3-8b --lora targets=experts", "has no linear layer 'experts'; use qkv, proj, fc1, fc2");
    expect_refused("plan --world 8 --model jamba-v0.1 --lora default", "not predicted with mixers other than softmax attention, Mamba-2");
    expect_refused("simulate" + kJob + " --lora rank=5", "tp = 2");
    expect_refused("simulate" + kJob + " --sharding full --lora default", "sharded parameters or gradients (use --sharding optimizer)");
}

}  // namespace
}  // namespace mgplan::cli::testing::lora_option_test
