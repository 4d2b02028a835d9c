#include "plan/json/training_json.hpp"

#include <array>
#include <optional>
#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "plan/model/model_spec.hpp"
#include "plan/text/enum_reader.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"

namespace mgplan {
namespace {

using Json = nlohmann::ordered_json;

// Far above any real batch; products of these with widths and layers of real models stay inside 64 bits.
constexpr std::int64_t kMostBatchSequences = std::int64_t{1} << 32;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 32;
constexpr std::int64_t kMostInstances = std::int64_t{1} << 20;

const std::vector<std::string> kPrecisionNames{"bf16", "fp16", "fp32", "fp64", "fp8", "nvfp4"};
const std::vector<std::string> kDtypeNames{"fp64", "fp32", "bf16", "fp16", "fp8"};
const std::vector<std::string> kAttentionNames{"flash", "unfused"};

const std::vector<std::string> kFp8RecipeNames{"delayed", "tensorwise", "blockwise", "mxfp8"};

std::optional<Fp8Recipe> parse_fp8_recipe(std::string_view text) {
    for (std::size_t i = 0; i < kFp8RecipeNames.size(); ++i) {
        if (kFp8RecipeNames[i] == text) return static_cast<Fp8Recipe>(i);
    }
    return std::nullopt;
}

const std::vector<std::string> kFusedAttentionNames{"automatic", "flash_attention", "cudnn"};

std::optional<FusedAttention> parse_fused_attention(std::string_view text) {
    for (std::size_t i = 0; i < kFusedAttentionNames.size(); ++i) {
        if (kFusedAttentionNames[i] == text) return static_cast<FusedAttention>(i);
    }
    return std::nullopt;
}

const std::vector<std::string>& software_names() {
    static const std::vector<std::string> names = [] {
        std::vector<std::string> list;
        for (int i = 0; i <= static_cast<int>(kNewestSoftware); ++i) list.emplace_back(to_string(static_cast<Software>(i)));
        return list;
    }();
    return names;
}

template <class Enum>
std::optional<Enum> enum_named(std::string_view text, const std::vector<std::string>& names) {
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i] == text) return static_cast<Enum>(i);
    }
    return std::nullopt;
}

const std::vector<std::string> kOptimizerNames{"adam", "sgd", "lion", "muon", "ademamix"};
const std::vector<std::string> kFullyShardedNames{"none", "torch_fsdp2", "megatron_fsdp"};
const std::vector<std::string> kStrategyNames{"no_shard", "optim", "optim_grads", "optim_grads_params"};

std::optional<OptimizerKind> parse_optimizer(std::string_view text) {
    return enum_named<OptimizerKind>(text, kOptimizerNames);
}
std::optional<FullyShardedKind> parse_fully_sharded(std::string_view text) {
    return enum_named<FullyShardedKind>(text, kFullyShardedNames);
}
std::optional<ShardingStrategy> parse_strategy(std::string_view text) {
    return enum_named<ShardingStrategy>(text, kStrategyNames);
}

Json fully_sharded_to_json(const FullyShardedSpec& spec) {
    const FullyShardedSpec defaults;
    Json json{{"kind", to_string(spec.kind)}, {"strategy", to_string(spec.strategy)}};
    if (spec.outer_optimizer) json["outer_optimizer"] = true;
    if (spec.double_buffer) json["double_buffer"] = true;
    if (!spec.reshard_after_forward) json["reshard_after_forward"] = false;
    if (spec.keep_fp8_transposes) json["keep_fp8_transposes"] = true;
    if (spec.communication_unit != 0) json["communication_unit"] = spec.communication_unit;
    const auto dtype = [&](const char* field, std::optional<Dtype> value, std::optional<Dtype> usual) {
        if (value != usual) json[field] = value ? to_string(*value) : "auto";
    };
    dtype("main_params_dtype", spec.main_params, defaults.main_params);
    dtype("main_grads_dtype", spec.main_grads, defaults.main_grads);
    dtype("communicated_grads_dtype", spec.communicated_grads, defaults.communicated_grads);
    return json;
}

FullyShardedSpec fully_sharded_from_json(const Json& json, const std::string& where, Problems& problems) {
    JsonReader reader(json, where, problems);
    FullyShardedSpec spec;
    spec.kind = read_enum(reader, "kind", parse_fully_sharded, kFullyShardedNames, spec.kind);
    spec.strategy = read_enum(reader, "strategy", parse_strategy, kStrategyNames, spec.strategy);
    spec.outer_optimizer = reader.boolean_or("outer_optimizer", false);
    spec.double_buffer = reader.boolean_or("double_buffer", false);
    spec.reshard_after_forward = reader.boolean_or("reshard_after_forward", true);
    spec.keep_fp8_transposes = reader.boolean_or("keep_fp8_transposes", false);
    spec.communication_unit = reader.integer_or("communication_unit", 0, 0, std::int64_t{1} << 50);
    const auto dtype = [&](const char* field, std::optional<Dtype> usual) -> std::optional<Dtype> {
        if (!reader.has(field)) return usual;
        const std::string name = reader.text(field);
        if (name == "auto") return std::nullopt;
        return enum_of(reader, field, name, parse_dtype, {"auto", "fp32", "bf16", "fp16"}, Dtype::fp32);
    };
    spec.main_params = dtype("main_params_dtype", spec.main_params);
    spec.main_grads = dtype("main_grads_dtype", spec.main_grads);
    spec.communicated_grads = dtype("communicated_grads_dtype", spec.communicated_grads);
    for (const char* field : {"main_params_dtype", "main_grads_dtype", "communicated_grads_dtype"}) reader.ignore(field);
    reader.finish();
    return spec;
}

Json weight_shards_to_json(const WeightShards& shards) {
    Json json{{"dense", shards.dense}, {"experts", shards.experts}};
    if (shards.latent_projections) json["latent_projections"] = true;
    return json;
}

WeightShards weight_shards_from_json(const Json& json, const std::string& where, Problems& problems) {
    constexpr std::int64_t kMost = std::int64_t{1} << 24;  // ranks of a world
    JsonReader reader(json, where, problems);
    WeightShards shards;
    shards.dense = reader.integer_or("dense", 1, 1, kMost);
    shards.experts = reader.integer_or("experts", 1, 1, kMost);
    shards.latent_projections = reader.boolean_or("latent_projections", false);
    reader.finish();
    return shards;
}

struct Switch {
    std::string_view name;
    bool MegatronSwitches::*member;
};

constexpr std::array kSwitches{
    Switch{"transformer_engine", &MegatronSwitches::transformer_engine},
    Switch{"gradient_accumulation_fusion", &MegatronSwitches::gradient_accumulation_fusion},
    Switch{"bias_activation_fusion", &MegatronSwitches::bias_activation_fusion},
    Switch{"bias_dropout_fusion", &MegatronSwitches::bias_dropout_fusion},
    Switch{"masked_softmax_fusion", &MegatronSwitches::masked_softmax_fusion},
    Switch{"rope_fusion", &MegatronSwitches::rope_fusion},
    Switch{"async_tp_reduce", &MegatronSwitches::async_tp_reduce},
    Switch{"moe_permute_fusion", &MegatronSwitches::moe_permute_fusion},
    Switch{"te_cross_entropy", &MegatronSwitches::te_cross_entropy},
    Switch{"attention_mask_in_dataloader", &MegatronSwitches::attention_mask_in_dataloader},
    Switch{"fp8_gradients_in_e4m3", &MegatronSwitches::fp8_gradients_in_e4m3},
    Switch{"attention_softmax_in_fp32", &MegatronSwitches::attention_softmax_in_fp32},
    Switch{"query_key_layer_scaling", &MegatronSwitches::query_key_layer_scaling},
    Switch{"fp32_residual_connection", &MegatronSwitches::fp32_residual_connection},
    Switch{"deterministic", &MegatronSwitches::deterministic},
    Switch{"gradient_checks", &MegatronSwitches::gradient_checks},
    Switch{"log_params_norm", &MegatronSwitches::log_params_norm},
    Switch{"log_num_zeros_in_grad", &MegatronSwitches::log_num_zeros_in_grad},
    Switch{"defer_embedding_wgrad", &MegatronSwitches::defer_embedding_wgrad},
    Switch{"gather_with_optimizer_step", &MegatronSwitches::gather_with_optimizer_step},
    Switch{"moe_shared_expert_overlap", &MegatronSwitches::moe_shared_expert_overlap},
    Switch{"delay_wgrad", &MegatronSwitches::delay_wgrad},
    Switch{"router_fp32", &MegatronSwitches::router_fp32},
    Switch{"precision_aware_optimizer", &MegatronSwitches::precision_aware_optimizer},
    Switch{"pad_buckets", &MegatronSwitches::pad_buckets},
    Switch{"permute_in_hybrid_ep", &MegatronSwitches::permute_in_hybrid_ep},
    Switch{"op_fuser", &MegatronSwitches::op_fuser},
    Switch{"fp8_attention", &MegatronSwitches::fp8_attention},
    Switch{"forced_routing", &MegatronSwitches::forced_routing},
    Switch{"overlap_host_update", &MegatronSwitches::overlap_host_update},
    Switch{"reuse_grad_buffer", &MegatronSwitches::reuse_grad_buffer},
    Switch{"fused_streams", &MegatronSwitches::fused_streams},
    Switch{"fp8_output_projection", &MegatronSwitches::fp8_output_projection},
    Switch{"layer_wise_layout", &MegatronSwitches::layer_wise_layout},
};

Json expert_buffers_to_json(const ExpertBuffers& buffers) {
    return {{"capacity", buffers.capacity}, {"paged_stash", buffers.paged_stash}, {"pages", buffers.pages}};
}

ExpertBuffers expert_buffers_from_json(const Json& json, const std::string& where, Problems& problems) {
    JsonReader reader(json, where, problems);
    ExpertBuffers buffers;
    buffers.capacity = reader.real_or("capacity", 0, 0, kMostExpertCapacity);
    buffers.paged_stash = reader.boolean_or("paged_stash", false);
    buffers.pages = reader.real_or("pages", buffers.pages, -kMostExpertCapacity, kMostExpertCapacity);
    reader.finish();
    if (buffers.paged_stash && buffers.capacity == 0)
        problems.add("{}.paged_stash needs a capacity above 0; give one, or leave the stash out", where);
    return buffers;
}

/// Only what differs from Megatron-LM's defaults is written.
Json switches_to_json(const MegatronSwitches& switches) {
    const MegatronSwitches defaults;
    Json json = Json::object();
    for (const auto& [name, member] : kSwitches) {
        if (switches.*member != defaults.*member) json[std::string(name)] = switches.*member;
    }
    if (switches.fp8_recipe != defaults.fp8_recipe) json["fp8_recipe"] = kFp8RecipeNames.at(static_cast<std::size_t>(switches.fp8_recipe));
    if (switches.fused_attention != defaults.fused_attention)
        json["fused_attention"] = kFusedAttentionNames.at(static_cast<std::size_t>(switches.fused_attention));
    if (switches.wgrad_deferral_limit != 0) json["wgrad_deferral_limit"] = switches.wgrad_deferral_limit;
    if (switches.bucket_size != 0) json["bucket_size"] = switches.bucket_size;
    if (switches.num_buckets != 0) json["num_buckets"] = switches.num_buckets;
    if (switches.dispatcher_sms != 0) json["dispatcher_sms"] = switches.dispatcher_sms;
    if (switches.expert_buffers != defaults.expert_buffers) json["expert_buffers"] = expert_buffers_to_json(switches.expert_buffers);
    if (switches.activation_clamp != 0) json["activation_clamp"] = switches.activation_clamp;
    if (switches.bf16_layers_at_start != 0) json["bf16_layers_at_start"] = switches.bf16_layers_at_start;
    if (switches.bf16_layers_at_end != 0) json["bf16_layers_at_end"] = switches.bf16_layers_at_end;
    if (switches.offloaded_layers != 0) json["offloaded_layers"] = switches.offloaded_layers;
    if (switches.offload_chunk_mib != 0) json["offload_chunk_mib"] = switches.offload_chunk_mib;
    if (switches.document_tokens != 0) json["document_tokens"] = switches.document_tokens;
    if (switches.least_offloaded != defaults.least_offloaded) json["least_offloaded"] = switches.least_offloaded;
    if (switches.optimizer != defaults.optimizer) json["optimizer"] = to_string(switches.optimizer);
    if (switches.weight_shards != defaults.weight_shards) json["weight_shards"] = weight_shards_to_json(switches.weight_shards);
    if (switches.fully_sharded != defaults.fully_sharded) json["fully_sharded"] = fully_sharded_to_json(switches.fully_sharded);
    return json;
}

MegatronSwitches switches_from_json(const Json& json, const std::string& where, Problems& problems) {
    JsonReader reader(json, where, problems);
    MegatronSwitches switches;
    for (const auto& [name, member] : kSwitches) switches.*member = reader.boolean_or(name, switches.*member);
    if (reader.has("fp8_recipe"))
        switches.fp8_recipe = read_enum(reader, "fp8_recipe", parse_fp8_recipe, kFp8RecipeNames, switches.fp8_recipe);
    reader.ignore("fp8_recipe");
    if (reader.has("fused_attention"))
        switches.fused_attention =
            read_enum(reader, "fused_attention", parse_fused_attention, kFusedAttentionNames, switches.fused_attention);
    reader.ignore("fused_attention");
    switches.wgrad_deferral_limit = reader.integer_or("wgrad_deferral_limit", 0, 0, std::int64_t{1} << 30);
    switches.bucket_size = reader.integer_or("bucket_size", 0, 0, std::int64_t{1} << 50);
    switches.num_buckets = reader.integer_or("num_buckets", 0, 0, std::int64_t{1} << 30);
    switches.dispatcher_sms = reader.integer_or("dispatcher_sms", 0, 0, 1024);
    if (const Json* buffers = reader.member("expert_buffers"))
        switches.expert_buffers = expert_buffers_from_json(*buffers, where + ".expert_buffers", problems);
    switches.document_tokens = reader.integer_or("document_tokens", 0, 0, std::int64_t{1} << 27);
    switches.activation_clamp = reader.real_or("activation_clamp", 0, 0, 1e6);
    switches.bf16_layers_at_start = reader.integer_or("bf16_layers_at_start", 0, 0, ModelLimits::layers);
    switches.bf16_layers_at_end = reader.integer_or("bf16_layers_at_end", 0, 0, ModelLimits::layers);
    switches.offloaded_layers = reader.integer_or("offloaded_layers", 0, 0, ModelLimits::layers);
    switches.offload_chunk_mib = reader.integer_or("offload_chunk_mib", 0, 0, kMostOffloadChunk);
    switches.least_offloaded = reader.integer_or("least_offloaded", kLeastOffloaded, 0, std::int64_t{1} << 50);
    if (reader.has("optimizer")) switches.optimizer = read_enum(reader, "optimizer", parse_optimizer, kOptimizerNames, switches.optimizer);
    reader.ignore("optimizer");
    if (const Json* shards = reader.member("weight_shards"))
        switches.weight_shards = weight_shards_from_json(*shards, where + ".weight_shards", problems);
    if (const Json* spec = reader.member("fully_sharded"))
        switches.fully_sharded = fully_sharded_from_json(*spec, where + ".fully_sharded", problems);
    reader.finish();
    return switches;
}

}  // namespace

Json training_to_json(const TrainingSpec& training) {
    Json json{{"precision", to_string(training.precision)},
              {"grad_dtype", to_string(training.grad_dtype)},
              {"distributed_optimizer", training.distributed_optimizer},
              {"distributed_optimizer_instances", training.distributed_optimizer_instances},
              {"overlap_grad_reduce", training.overlap_grad_reduce},
              {"overlap_param_gather", training.overlap_param_gather},
              {"overlap_p2p", training.overlap_p2p},
              {"overlap_tp", training.overlap_tp},
              {"overlap_moe", training.overlap_moe},
              {"attention", to_string(training.attention)},
              {"fused_cross_entropy", training.fused_cross_entropy},
              {"fp8_parameters", training.fp8_parameters},
              {"main_param_dtype", to_string(training.main_param_dtype)},
              {"exp_avg_dtype", to_string(training.exp_avg_dtype)},
              {"exp_avg_sq_dtype", to_string(training.exp_avg_sq_dtype)}};
    if (training.software != kNewestSoftware) json["software"] = to_string(training.software);
    if (training.offload.active()) json["offload"] = offload_words(training.offload);
    if (training.megatron != MegatronSwitches{}) json["megatron"] = switches_to_json(training.megatron);
    return json;
}

TrainingSpec training_from_json(const Json& json, const std::string& where) {
    Problems problems;
    JsonReader reader(json, where, problems);
    const auto dtype = [&](const char* field) { return read_enum(reader, field, parse_dtype, kDtypeNames, Dtype::fp32); };
    TrainingSpec training;
    training.precision = read_enum(reader, "precision", parse_precision, kPrecisionNames, Precision::bf16);
    training.grad_dtype = dtype("grad_dtype");
    training.distributed_optimizer = reader.boolean("distributed_optimizer");
    training.distributed_optimizer_instances = static_cast<int>(reader.integer("distributed_optimizer_instances", 1, kMostInstances));
    training.overlap_grad_reduce = reader.boolean("overlap_grad_reduce");
    training.overlap_param_gather = reader.boolean("overlap_param_gather");
    training.overlap_p2p = reader.boolean("overlap_p2p");
    training.overlap_tp = reader.boolean("overlap_tp");
    training.overlap_moe = reader.boolean("overlap_moe");
    training.attention = read_enum(reader, "attention", parse_attention_backend, kAttentionNames, AttentionBackend::flash);
    training.fused_cross_entropy = reader.boolean("fused_cross_entropy");
    training.fp8_parameters = reader.boolean("fp8_parameters");
    training.main_param_dtype = dtype("main_param_dtype");
    training.exp_avg_dtype = dtype("exp_avg_dtype");
    training.exp_avg_sq_dtype = dtype("exp_avg_sq_dtype");
    if (reader.has("software")) training.software = read_enum(reader, "software", parse_software, software_names(), kNewestSoftware);
    reader.ignore("software");
    if (reader.has("offload")) {
        const auto words = reader.texts("offload");
        const auto offload = parse_offload(words);
        if (!offload)
            problems.add(
                "{}.offload = [{}] is no list of optimizer, optimizer:SHARE with a share above 0 and at most 1, or instead "
                "optimizer_states or optimizer_states:SHARE, and modules, each once; use such a list, or leave it out",
                where, fmt::join(words, ", "));
        training.offload = offload.value_or(OffloadSpec{});
    }
    reader.ignore("offload");
    if (const Json* switches = reader.member("megatron")) training.megatron = switches_from_json(*switches, where + ".megatron", problems);
    reader.finish();
    problems.throw_if_any();
    return training;
}

Json batch_to_json(const BatchSpec& batch) {
    Json json{{"global_batch", batch.global_batch}, {"sequence", batch.sequence}};
    if (!batch.lengths.empty()) json["lengths"] = packed_lengths_to_json(batch.lengths);
    return json;
}

Json batch_schedule_to_json(const BatchSchedule& schedule) {
    Json json = Json::object();
    if (schedule.ramp_up)
        json["ramp_up"] = {
            {"start", schedule.ramp_up->start}, {"increment", schedule.ramp_up->increment}, {"samples", schedule.ramp_up->samples}};
    for (const BatchSchedule::Step& step : schedule.steps)
        json["steps"].push_back({{"from_tokens", step.from_tokens}, {"batch", step.batch}});
    if (schedule.train_iterations) json["train_iterations"] = *schedule.train_iterations;
    if (schedule.train_samples) json["train_samples"] = *schedule.train_samples;
    if (schedule.resumed) json["resumed"] = true;
    if (schedule.decreases) json["decreases"] = true;
    if (schedule.whole_batch > 0) json["whole_batch"] = schedule.whole_batch;
    return json;
}

BatchSchedule batch_schedule_from_json(const Json& json, const std::string& where) {
    Problems problems;
    JsonReader reader(json, where, problems);
    BatchSchedule schedule;
    if (const Json* member = reader.member("ramp_up")) {
        JsonReader ramp(*member, where + ": ramp_up", problems);
        schedule.ramp_up = {ramp.integer("start", 1, kMostBatchSequences), ramp.integer("increment", 1, kMostBatchSequences),
                            ramp.integer("samples", 1, BatchSchedule::most_tokens)};
        ramp.finish();
    }
    if (const Json* steps = reader.member("steps")) {
        if (!steps->is_array() || steps->size() > BatchSchedule::most_stages) {
            problems.add("{}: steps is no list of at most {} steps; write [{{\"from_tokens\": 0, \"batch\": 32}}, …]", where,
                         BatchSchedule::most_stages);
        } else {
            for (const Json& one : *steps) {
                JsonReader step(one, where + ": steps", problems);
                schedule.steps.push_back(
                    {step.integer("from_tokens", 0, BatchSchedule::most_tokens), step.integer("batch", 1, kMostBatchSequences)});
                step.finish();
            }
        }
    }
    for (const auto& [field, value] :
         {std::pair{"train_iterations", &schedule.train_iterations}, std::pair{"train_samples", &schedule.train_samples}}) {
        if (reader.has(field)) *value = reader.integer(field, 1, BatchSchedule::most_tokens);
        reader.ignore(field);
    }
    schedule.resumed = reader.boolean_or("resumed", false);
    schedule.decreases = reader.boolean_or("decreases", false);
    schedule.whole_batch = reader.integer_or("whole_batch", 0, 0, kMostBatchSequences);
    reader.finish();
    problems.throw_if_any();
    return schedule;
}

BatchSpec batch_from_json(const Json& json, const std::string& where) {
    Problems problems;
    JsonReader reader(json, where, problems);
    BatchSpec batch;
    batch.global_batch = reader.integer("global_batch", 1, kMostBatchSequences);
    batch.sequence = reader.integer("sequence", 1, kMostTokens);
    if (const Json* lengths = reader.member("lengths")) {
        try {
            batch.lengths = packed_lengths_from_json(*lengths, where + ".lengths");
        } catch (const ConfigError& error) {
            problems.absorb(error);
        }
    }
    reader.finish();
    problems.throw_if_any();
    return batch;
}

}  // namespace mgplan
