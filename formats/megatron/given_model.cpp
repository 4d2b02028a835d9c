#include "formats/megatron/given_model.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "formats/megatron/flag_rows.hpp"
#include "formats/megatron/megatron_arguments.hpp"
#include "plan/layout/stage_split.hpp"

namespace mgplan::formats {
namespace {

/// Flags that are a model of their own.
constexpr std::array<std::string_view, 6> kSizes{"--num-layers",          "--encoder-num-layers",   "--hidden-size",
                                                 "--num-attention-heads", "--hybrid-layer-pattern", "--hybrid-override-pattern"};

/// Lengths and batch are the command's.
bool is_of_the_run(std::string_view flag) {
    return flag == "--seq-length" || flag == "--global-batch-size";
}

std::vector<std::string> words_of_model(const ModelSpec& model) {
    Plan plan;
    plan.model = model;
    plan.layout.split =
        std::make_shared<const StageSplit>(*automatic_stage_split(model.layers, model.mtp_layers, 1, 1));  // one stage holds all layers
    Job settings = job_of(plan);
    settings.model.max_positions = model.max_positions;
    FlagWriter out(plan);
    for (const FlagTopic& topic : flag_parts().front().topics) write_topic(out, topic, settings);
    std::vector<std::string> words;
    for (auto& flag : out.take()) {
        if (is_of_the_run(flag.name)) continue;
        words.push_back(std::move(flag.name));
        for (auto& value : flag.values) words.push_back(std::move(value));
    }
    return words;
}

/// The flags of the model; for layers that no flags describe, those of a model of the same sizes with plain layers. take_given_model()
/// puts the layers back.
std::vector<std::string> flags_of_model(const ModelSpec& model) {
    try {
        return words_of_model(model);
    } catch (const ConfigError&) {
        ModelSpec plain = model;
        plain.kinds.clear();
        plain.kind_of_layer.clear();
        plain.counted.clear();
        return words_of_model(plain);
    }
}

/// Takes what a command may say of any network over from the other model.
void take_run_settings(ModelSpec& model, const ModelSpec& other) {
    model.default_sequence = other.default_sequence;
    model.mtp_layers = other.mtp_layers;
    model.mtp_repeated = other.mtp_repeated;
    model.default_global_batch = other.default_global_batch;
    model.max_positions = other.max_positions;
    model.attention_dropout = other.attention_dropout;
    model.hidden_dropout = other.hidden_dropout;
    model.init_deviation = other.init_deviation;
    model.vocab = other.vocab;
    model.padded_rows = other.padded_rows;
    model.vocab_divisor = other.vocab_divisor;
    if (!model.moe || !other.moe) return;
    MoeSpec& moe = *model.moe;
    moe.dispatcher = other.moe->dispatcher;
    moe.grouped_gemm = other.moe->grouped_gemm;
    moe.capacity_factor = other.moe->capacity_factor;
    moe.pad_to_capacity = other.moe->pad_to_capacity;
    moe.auxiliary_loss = other.moe->auxiliary_loss;
    moe.sequence_auxiliary_loss = other.moe->sequence_auxiliary_loss;
    moe.expert_bias_update_rate = other.moe->expert_bias_update_rate;
}

}  // namespace

void add_given_model(ParsedFlags& parsed, const ModelSpec& model, const std::string& where) {
    for (const std::string_view flag : kSizes) {
        if (parsed.used.contains(flag))
            throw ConfigError(fmt::format("--model and {} of {} both name a model; give one of them", flag, where));
    }
    ParsedFlags given = parse_flags(flags_of_model(model));
    for (auto& [flag, values] : given.used) parsed.used.try_emplace(flag, std::move(values));
}

void take_given_model(Job& job, const ModelSpec& model, const std::string& where, Problems& problems) {
    if (!problems.empty()) return;
    std::vector<std::string> words = flags_of_model(model);
    for (const char* word : {"--micro-batch-size", "1", "--global-batch-size", "1", "--seq-length", "1"}) words.emplace_back(word);
    const ModelSpec alone = read_megatron_arguments(words, where, {.held_against = HeldAgainst::nothing}).model;
    ModelSpec read = job.model;
    take_run_settings(read, alone);
    read.name = alone.name;
    read.source = alone.source;
    if (!(read == alone))
        problems.add(
            "{}: flags of the command describe another network than --model {}; leave out those that name sizes, norms, "
            "activations, positions or experts",
            where, model.name);
    ModelSpec given = model;
    take_run_settings(given, job.model);
    job.model = std::move(given);
}

}  // namespace mgplan::formats
