#include "formats/megatron/argument_rules.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "formats/megatron/flag_reader.hpp"
#include "plan/cluster/architectures.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

bool is_known(const std::string& value) {
    return !value.empty() && value.find_first_of("$`") == std::string::npos;
}

bool holds_word(std::string_view words, std::string_view word) {
    const auto list = split(std::string(words), ' ');
    return std::find(list.begin(), list.end(), word) != list.end();
}

std::string message_of(const ArgumentRule& rule, const CommandFlags& command) {
    const auto value = command.word(rule.flag);
    return value && !value->empty() ? fmt::format("{} = {} {}", rule.flag, FlagReader::shown(*value), rule.message)
                                    : fmt::format("{} {}", rule.flag, rule.message);
}

constexpr std::array<std::string_view, 4> kVariables{"CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_GRAPHS_USE_NODE_PRIORITY",
                                                     "NVTE_APPLY_QK_LAYER_SCALING", "NVTE_CPU_OFFLOAD_V1"};

}  // namespace

std::span<const std::string_view> variables_of_rules() {
    return kVariables;
}

const std::vector<std::string>* CommandFlags::values_of(std::string_view flag) const {
    for (const auto* flags : {&parsed_.used, &parsed_.not_read}) {
        if (const auto found = flags->find(flag); found != flags->end()) return &found->second;
    }
    return nullptr;
}

bool CommandFlags::has_one_of(std::string_view flags) const {
    const auto list = split(std::string(flags), ' ');
    return std::any_of(list.begin(), list.end(), [this](const auto& flag) { return has(flag); });
}

bool CommandFlags::is_of_slime() const {
    // An entry of the unknown flags holds the flag and the words that follow it.
    const auto& unknown = parsed_.account.unknown;
    return std::any_of(unknown.begin(), unknown.end(), [](const std::string& words) {
        const std::string flag = words.substr(0, words.find_first_of(" ="));
        return flag == "--actor-num-nodes" || flag == "--rollout-batch-size" || flag == "--max-tokens-per-gpu";
    });
}

std::optional<std::string> CommandFlags::word(std::string_view flag, std::string_view fallback) const {
    const auto* const values = values_of(flag);
    if (values == nullptr) return std::string(fallback);
    return !values->empty() && is_known(values->front()) ? std::optional(values->front()) : std::nullopt;
}

bool CommandFlags::is(std::string_view flag, std::string_view value, std::string_view fallback) const {
    return word(flag, fallback) == value;
}

bool CommandFlags::is_none_of(std::string_view flag, std::string_view values, std::string_view fallback) const {
    const auto given = word(flag, fallback);
    return given && !holds_word(values, *given);
}

std::optional<std::int64_t> CommandFlags::whole(std::string_view flag, std::int64_t fallback) const {
    if (!has(flag)) return fallback;
    const auto given = word(flag);
    return given ? parse_integer(without_grouping(*given)) : std::nullopt;
}

std::optional<double> CommandFlags::real(std::string_view flag, double fallback) const {
    if (!has(flag)) return fallback;
    const auto given = word(flag);
    return given ? parse_real(without_grouping(*given)) : std::nullopt;
}

std::vector<std::string> CommandFlags::words(std::string_view flag) const {
    std::vector<std::string> all;
    const auto* const values = values_of(flag);
    if (values == nullptr) return all;
    for (std::string value : *values) {
        if (!is_known(value)) return {};
        std::replace_if(
            value.begin(), value.end(), [](char c) { return c == ',' || c == '[' || c == ']' || c == '"' || c == '\''; }, ' ');
        for (auto& word : split(value, ' ')) {
            if (!word.empty()) all.emplace_back(word);
        }
    }
    return all;
}

bool CommandFlags::lists(std::string_view flag, std::string_view value) const {
    const auto all = words(flag);
    return std::find(all.begin(), all.end(), value) != all.end();
}

bool CommandFlags::may_have_chunks() const {
    if (has_one_of("--num-layers-per-virtual-pipeline-stage --num-virtual-stages-per-pipeline-rank")) return true;
    for (const std::string_view flag : {"--pipeline-model-parallel-layout", "--hybrid-layer-pattern", "--hybrid-override-pattern"}) {
        if (!has(flag)) continue;
        const auto stages = word(flag);
        const auto ranks = whole("--pipeline-model-parallel-size", 1);
        const bool repeats = stages && flag == "--pipeline-model-parallel-layout" && stages->find('*') != std::string::npos;
        if (!stages || !ranks || repeats || std::count(stages->begin(), stages->end(), '|') >= *ranks) return true;
    }
    return false;
}

std::optional<std::string> CommandFlags::variable(const std::string& name) const {
    const auto found = around_.environment.find(name);
    if (found != around_.environment.end()) return is_known(found->second) ? std::optional(found->second) : std::nullopt;
    return around_.whole_environment ? std::optional<std::string>("") : std::nullopt;
}

bool CommandFlags::is_before_blackwell() const {
    return around_.compute_capability && *around_.compute_capability < architectures::kBlackwell;
}

bool CommandFlags::is_since_blackwell() const {
    return around_.compute_capability && *around_.compute_capability >= architectures::kBlackwell;
}

std::vector<std::string> broken_argument_rules(const ParsedFlags& parsed, HeldAgainst against, const JobSurroundings& around) {
    std::vector<std::string> messages;
    if (against == HeldAgainst::nothing) return messages;
    const CommandFlags command(parsed, around);
    const bool bridge = against == HeldAgainst::configurations;
    const bool model_of_checkpoint = command.has("--use-checkpoint-args"),
               sizes_of_checkpoint = command.has("--use-mp-args-from-checkpoint-args");
    const auto is_exempt = [&](const ArgumentRule& rule) {
        return (model_of_checkpoint && rule.exempt.contains(Exemption::checkpoint_model)) ||
               (sizes_of_checkpoint && rule.exempt.contains(Exemption::checkpoint_sizes)) ||
               (bridge && rule.exempt.contains(Exemption::bridge));
    };
    const auto add = [&](std::span<const ArgumentRule> rules) {
        for (const ArgumentRule& rule : rules) {
            if (rule.versions.contains(around.version) && !is_exempt(rule) && rule.broken(command))
                messages.push_back(message_of(rule, command));
        }
    };
    if (!bridge) messages = wrong_value_types(parsed);
    if (against == HeldAgainst::parser) return messages;
    if (against == HeldAgainst::everything) add(rules_of_arguments());
    add(rules_of_configurations());
    return messages;
}

}  // namespace mgplan::formats
