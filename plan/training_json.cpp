#include "plan/training_json.hpp"

#include <nlohmann/json.hpp>

#include "plan/enum_reader.hpp"
#include "plan/errors.hpp"
#include "plan/json_reader.hpp"

namespace mgplan {
namespace {

using Json = nlohmann::ordered_json;

// Far above any real batch; products of these with widths and layers of real models stay inside 64 bits.
constexpr std::int64_t kMostSequences = std::int64_t{1} << 32;
constexpr std::int64_t kMostTokens = std::int64_t{1} << 32;
constexpr std::int64_t kMostInstances = std::int64_t{1} << 20;

const std::vector<std::string> kPrecisionNames{"bf16", "fp16", "fp32", "fp64", "fp8"};
const std::vector<std::string> kDtypeNames{"fp64", "fp32", "bf16", "fp16", "fp8"};
const std::vector<std::string> kAttentionNames{"flash", "unfused"};

}  // namespace

Json training_to_json(const TrainingSpec& training) {
    return Json{{"precision", to_string(training.precision)},
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
    reader.finish();
    problems.throw_if_any();
    return training;
}

Json batch_to_json(const BatchSpec& batch) {
    return Json{{"global_batch", batch.global_batch}, {"sequence", batch.sequence}};
}

BatchSpec batch_from_json(const Json& json, const std::string& where) {
    Problems problems;
    JsonReader reader(json, where, problems);
    BatchSpec batch;
    batch.global_batch = reader.integer("global_batch", 1, kMostSequences);
    batch.sequence = reader.integer("sequence", 1, kMostTokens);
    reader.finish();
    problems.throw_if_any();
    return batch;
}

}  // namespace mgplan
