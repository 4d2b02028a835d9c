// Arguments that Megatron-LM prints become the flags of the job. The lines are in the format of arguments.py's _print_args; names and
// values are those of a job of core 0.10 on four GPUs.
#include "formats/megatron/logged_arguments.hpp"

#include <string>

#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "formats/megatron/megatron_arguments.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats::logged_arguments_test {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

std::string block(const std::string& arguments) {
    std::string text = "using world size: 4\n------------------------ arguments ------------------------\n";
    for (const std::string& one : split(arguments, ' ')) {
        const auto equals = one.find('=');
        const std::string name = one.substr(0, equals);
        text += fmt::format("  {} {} {}\n", name, std::string(48 - name.size(), '.'), one.substr(equals + 1));
    }
    return text +
           "-------------------- end of arguments ---------------------\n > padded vocab (size: 50257) with 431 dummy tokens (new size: "
           "50688)\n";
}

const std::string kArguments =
    "accumulate_allreduce_grads_in_fp32=True add_bias_linear=False apply_rope_fusion=True attention_backend=AttnBackend.auto "
    "async_tensor_model_parallel_allreduce=False bf16=True bias_gelu_fusion=False bias_swiglu_fusion=False context_parallel_size=1 "
    "cp_comm_type=['p2p'] data_parallel_size=1 encoder_num_layers=28 encoder_seq_length=2048 expert_tensor_parallel_size=4 "
    "ffn_hidden_size=10752 fp8=None fp8_margin=0 global_batch_size=512 gradient_accumulation_fusion=False group_query_attention=True "
    "hidden_size=3072 kv_channels=128 kv_lora_rank=32 micro_batch_size=1 moe_router_topk=2 multi_latent_attention=False "
    "normalization=RMSNorm "
    "num_attention_heads=24 num_experts=None num_layers=28 num_query_groups=24 overlap_p2p_comm=False params_dtype=torch.bfloat16 "
    "pipeline_model_parallel_size=1 position_embedding_type=rope rank=0 recompute_granularity=selective recompute_method=None "
    "seq_length=2048 "
    "max_position_embeddings=2048 sequence_parallel=True some_fork_switch=True another_fork_switch=False swiglu=True "
    "tensor_model_parallel_size=4 tokenizer_type=GPT2BPETokenizer train_iters=20 untie_embeddings_and_output_weights=True "
    "use_distributed_optimizer=True virtual_pipeline_model_parallel_size=None world_size=4";

TEST(LoggedArguments, AreTheFlagsOfTheJob) {
    const auto logged = logged_arguments(block(kArguments), "job.log");
    ASSERT_TRUE(logged.has_value());
    EXPECT_EQ(logged->world, 4);
    EXPECT_THAT(logged->left_out, ElementsAre("some_fork_switch True"));
    for (const char* flag : {"--no-bias-swiglu-fusion", "--no-gradient-accumulation-fusion", "--disable-bias-linear", "--bf16"})
        EXPECT_THAT(logged->words, Contains(flag));
    // Derived, of parts that the model lacks, or turned off by validate_args itself.
    for (const char* flag : {"--no-bias-gelu-fusion", "--moe-router-topk", "--kv-lora-rank", "--expert-tensor-parallel-size",
                             "--world-size", "--no-overlap-p2p-communication", "--encoder-seq-length", "--fp8-margin", "--cp-comm-type"})
        EXPECT_THAT(logged->words, Not(Contains(flag)));
    const Job job = read_megatron_arguments(logged->words, "job.log", {.held_against = HeldAgainst::nothing});
    EXPECT_EQ(job.model.layers, 28);
    EXPECT_EQ(job.model.vocab, 50257);
    EXPECT_EQ(job.layout->tp, 4);
    EXPECT_TRUE(job.layout->sequence_parallel);
    EXPECT_EQ(job.layout->recompute, Recompute::selective);
    EXPECT_EQ(job.batch->global_batch, 512);
    EXPECT_FALSE(job.training->megatron.bias_activation_fusion);
    EXPECT_FALSE(job.training->megatron.gradient_accumulation_fusion);
    EXPECT_TRUE(job.training->megatron.rope_fusion);
    EXPECT_FALSE(job.training->overlap_grad_reduce);
    EXPECT_TRUE(job.flags.unknown.empty());
}

TEST(LoggedArguments, OfTheLastJobCount) {
    const auto again = logged_arguments(block("num_layers=2 world_size=8") + block("num_layers=3 world_size=16"), "job.log");
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(again->world, 16);
    EXPECT_THAT(again->words, ElementsAre("--num-layers", "3", "--vocab-size", "50257"));
    EXPECT_FALSE(logged_arguments(" iteration 1/ 2 | elapsed time per iteration (ms): 5.0 |\n", "job.log").has_value());
    EXPECT_FALSE(logged_arguments("------ arguments ------\nno such line\n", "job.log").has_value());
}

}  // namespace
}  // namespace mgplan::formats::logged_arguments_test
