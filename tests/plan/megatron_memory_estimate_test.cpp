// Megatron-LM's answers: tests/golden/data/memory.dev.json, recorded from the functions its "function" field names
// (NVIDIA/Megatron-LM @ d98e8a64), Python floats written as integers when integral.

#include "plan/megatron_memory_estimate.hpp"

#include <cmath>
#include <fstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "plan/errors.hpp"
#include "tests/support/data_folder.hpp"

namespace mgplan {
namespace {

using Json = nlohmann::json;

std::optional<std::int64_t> optional_size(const Json& arguments, const char* name) {
    const Json& value = arguments.at(name);
    return value.is_null() ? std::nullopt : std::optional(value.get<std::int64_t>());
}

MegatronEstimateArguments arguments_of(const Json& test) {
    const Json& json = test.at("args");
    const auto size = [&](const char* name) { return optional_size(json, name).value_or(0); };
    MegatronEstimateArguments a;
    a.num_layers = size("num_layers");
    a.hidden_size = size("hidden_size");
    a.ffn_hidden_size = size("ffn_hidden_size");
    a.num_attention_heads = size("num_attention_heads");
    a.kv_channels = size("kv_channels");
    a.num_query_groups = optional_size(json, "num_query_groups");
    a.group_query_attention = json.at("group_query_attention");
    a.swiglu = json.at("swiglu");
    a.rms_norm = json.at("normalization") == "RMSNorm";
    a.add_bias_linear = json.at("add_bias_linear");
    a.untie_embeddings_and_output_weights = json.at("untie_embeddings_and_output_weights");
    a.padded_vocab_size = size("padded_vocab_size");
    a.num_experts = optional_size(json, "num_experts");
    a.moe_router_topk = size("moe_router_topk");
    a.moe_ffn_hidden_size = size("moe_ffn_hidden_size");
    a.moe_shared_expert_intermediate_size = size("moe_shared_expert_intermediate_size");
    a.moe_shared_expert_gate = json.at("moe_shared_expert_gate");
    a.moe_latent_size = optional_size(json, "moe_latent_size");
    for (std::int64_t layer = 0; a.num_experts && layer < a.num_layers; ++layer) {
        const Json& frequency = json.at("moe_layer_freq");
        a.moe_layers.push_back(frequency.is_array() ? frequency.at(static_cast<std::size_t>(layer)) == 1
                                                    : layer % frequency.get<std::int64_t>() == 0);
    }
    a.mtp_num_layers = size("mtp_num_layers");
    a.multi_latent_attention = json.at("multi_latent_attention");
    a.q_lora_rank = optional_size(json, "q_lora_rank");
    a.kv_lora_rank = size("kv_lora_rank");
    a.qk_head_dim = size("qk_head_dim");
    a.qk_pos_emb_head_dim = size("qk_pos_emb_head_dim");
    a.v_head_dim = size("v_head_dim");
    a.seq_length = size("seq_length");
    a.micro_batch_size = size("micro_batch_size");
    a.world_size = size("world_size");
    a.tensor_model_parallel_size = size("tensor_model_parallel_size");
    a.pipeline_model_parallel_size = size("pipeline_model_parallel_size");
    a.virtual_pipeline_model_parallel_size = optional_size(json, "virtual_pipeline_model_parallel_size");
    a.expert_model_parallel_size = size("expert_model_parallel_size");
    a.expert_tensor_parallel_size = size("expert_tensor_parallel_size");
    a.data_parallel_size = size("data_parallel_size");
    a.use_distributed_optimizer = json.at("use_distributed_optimizer");
    a.sequence_parallel = json.at("sequence_parallel");
    a.recompute_selective = json.at("recompute_granularity") == "selective";
    a.num_microbatches = optional_size(test, "num_microbatches");
    return a;
}

void expect_equal(double ours, const Json& theirs, const char* what) {
    const double value = theirs.get<double>();
    EXPECT_LE(std::abs(ours - value), 1e-12 * std::abs(value)) << what << ": " << ours << " instead of " << value;
}

TEST(MegatronMemoryEstimate, ReproducesMegatronNumberForNumber) {
    std::ifstream file(tests::data_folder() + "/golden/data/memory.dev.json");
    int agreed = 0, refused = 0;
    const Json recorded = Json::parse(file);
    for (const auto& test : recorded.at("cases")) {
        SCOPED_TRACE(test.at("id").get<std::string>());
        const MegatronEstimateArguments arguments = arguments_of(test);
        if (test.contains("expect_error")) {
            EXPECT_THROW((void)megatron_memory_estimate(arguments), ConfigError);
            ++refused;
            continue;
        }
        const MegatronMemoryEstimate estimate = megatron_memory_estimate(arguments);
        expect_equal(estimate.weight_and_optimizer_bytes, test.at("weight_and_optimizer_bytes"), "weights and optimizer");
        expect_equal(estimate.activation_bytes_sp, test.at("activation_bytes_sp"), "activations");
        expect_equal(estimate.activation_bytes_without_sp, test.at("activation_bytes_without_sp"), "activations without sp");
        const Json& report = test.at("report_mb");
        expect_equal(estimate.weight_and_optimizer_bytes / 1048576, report.at(0), "reported weights");
        expect_equal(estimate.activation_bytes / 1048576, report.at(1), "reported activations");
        const Json& inside = test.at("intermediate");
        expect_equal(estimate.total_parameters, inside.at("num_total_parameters"), "parameters");
        expect_equal(estimate.active_parameters, inside.at("num_active_parameters"), "active parameters");
        expect_equal(estimate.parameters_on_most_loaded_shard, inside.at("num_parameters_on_most_loaded_model_shard"), "most loaded shard");
        ++agreed;
    }
    EXPECT_EQ(agreed, 32);
    EXPECT_EQ(refused, 1);
}

TEST(MegatronMemoryEstimate, RefusesSizesBelowOneTogether) {
    try {
        (void)megatron_memory_estimate({});
        FAIL() << "accepted";
    } catch (const ConfigError& error) {
        EXPECT_EQ(error.problems().size(), 3U) << error.what();
    }
}

}  // namespace
}  // namespace mgplan
