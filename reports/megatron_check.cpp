#include "reports/megatron_check.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "plan/layout/switched_layout.hpp"
#include "plan/plan.hpp"
#include "plan/text/shell_quoting.hpp"
#include "plan/text/text.hpp"
#include "reports/blind_accuracy.hpp"
#include "reports/flag_account.hpp"
#include "reports/layout_fields.hpp"
#include "reports/layout_report.hpp"
#include "reports/model_summary.hpp"
#include "reports/prediction_json.hpp"
#include "reports/training_report.hpp"

namespace mgplan::reports {
namespace {

using Json = nlohmann::ordered_json;

std::string values_text(const formats::MegatronFlag& flag) {
    std::vector<std::string> words;
    for (const auto& value : flag.values) words.push_back(shell_word(value));  // layout strings contain shell characters
    return fmt::format("{}", fmt::join(words, " "));
}

std::string flag_text(const formats::MegatronFlag& flag) {
    return flag.values.empty() ? flag.name : flag.name + " " + values_text(flag);
}

std::vector<formats::MegatronFlag> all_flags(const formats::MegatronJob& job) {
    std::vector<formats::MegatronFlag> flags;
    for (const auto& part : job.parts) flags.insert(flags.end(), part.flags.begin(), part.flags.end());
    return flags;
}

/// "1.83 s a step, 12.3% MFU, 3,400 tokens/s per GPU".
std::string speed_text(const simulator::TimePrediction& time) {
    return fmt::format("{} a step, {:.1f}% MFU, {} tokens/s per GPU", human_seconds(time.iteration_seconds), time.mfu * 100,
                       with_thousands(std::llround(time.tokens_per_second_per_gpu)));
}

std::string fit_text(const simulator::MemoryPrediction& memory) {
    if (memory.fits())
        return fmt::format("fits: {} of {} on the fullest rank", human_bytes(memory.deciding_bytes()), human_bytes(memory.limit_bytes));
    return "does not fit: " + missing_text(memory);
}

/// The allocator's setting for jobs that fill over nine tenths of the card. Fragments are predicted for PyTorch's default; growing segments
/// leave hardly any (PyTorch's CUDA notes). A graph of a whole iteration also keeps blocks of other streams (Megatron-Bridge issue 4587).
std::string advice_for_a_tight_fit(const simulator::MemoryPrediction& memory, const Layout& layout) {
    constexpr double kTight = 0.9;
    const auto used = static_cast<double>(memory.deciding_bytes()), card = static_cast<double>(memory.limit_bytes);
    if (!memory.fits() || used < kTight * card) return "";
    const std::string setting =
        fmt::format("PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True{}",
                    layout.cuda_graphs.contains(CudaGraphScope::full_iteration) ? ",\n        graph_capture_record_stream_reuse:True" : "");
    return fmt::format("        a tight fit, {} of it fragments of the allocator: set\n        {}\n",
                       human_bytes(memory.worst.breakdown.fragmentation), setting);
}

/// Settings that the search for better layouts keeps.
constexpr std::string_view kKept =
    "    all with the command's dispatcher, overlaps, types and CUDA graphs, which\n"
    "    mgplan plan --search wide varies too\n";

std::string words(const MegatronCheck& check, const Layout& layout) {
    return summary(layout, check.workload.model, check.workload.training);
}

std::string better_text(const MegatronCheck& check, const BetterLayout& better) {
    const auto faster = gain(check, better);
    std::string text = fmt::format("{}: {}", faster ? fmt::format("{:+.1f}% tokens/s", *faster * 100) : std::string("possible"),
                                   words(check, better.plan.layout));
    text += fmt::format("\n    {}\n    {}\n", speed_text(better.plan.prediction.time), fit_text(better.plan.prediction.memory));
    for (const auto& change : better.changes) text += fmt::format("    {}\n", change);
    return text;
}

}  // namespace

std::vector<std::string> flag_changes(const formats::MegatronJob& from, const formats::MegatronJob& to) {
    const std::vector<formats::MegatronFlag> before = all_flags(from), after = all_flags(to);
    std::map<std::string, const formats::MegatronFlag*> had, has;
    for (const auto& flag : before) had[flag.name] = &flag;
    for (const auto& flag : after) has[flag.name] = &flag;
    std::vector<std::string> changes;
    for (const auto& flag : after) {
        const auto old = had.find(flag.name);
        if (old == had.end())
            changes.push_back("add " + flag_text(flag));
        else if (old->second->values != flag.values)
            changes.push_back(fmt::format("{} {} -> {}", flag.name, values_text(*old->second), values_text(flag)));
    }
    for (const auto& flag : before) {
        if (!has.contains(flag.name)) changes.push_back("drop " + flag_text(flag));
    }
    return changes;
}

std::optional<double> gain(const MegatronCheck& check, const BetterLayout& better) {
    if (!check.asked || !(better.plan.prediction.time.iteration_seconds > 0)) return std::nullopt;
    return check.asked->prediction.time.iteration_seconds / better.plan.prediction.time.iteration_seconds - 1;
}

std::optional<bool> is_legal(const MegatronCheck& check) {
    if (!check.asked) return false;
    return leaves_legality_open(check.flags) ? std::nullopt : std::optional(true);
}

std::optional<bool> fits(const MegatronCheck& check) {
    if (!check.asked || leaves_fit_open(check.flags)) return std::nullopt;
    return check.asked->prediction.memory.fits();
}

GateVerdict gate_verdict(const MegatronCheck& check) {
    const auto legal = is_legal(check);
    if (legal == false) return GateVerdict::illegal;
    // No version's parser accepts all the flags, so that the run they were meant for is not known.
    if (!check.flags.without_a_version.empty()) return GateVerdict::cannot_say;
    const auto fitting = fits(check);
    if (fitting == false) return GateVerdict::does_not_fit;
    return legal && fitting ? GateVerdict::runs : GateVerdict::cannot_say;
}

std::string refusal_line(std::string_view verdict, const std::vector<std::string>& problems) {
    std::string first = problems.front();
    std::replace(first.begin(), first.end(), '\n', ' ');  // such as a text with a mark below it
    const std::size_t others = problems.size() - 1;
    return fmt::format("{}: {}{}\n", verdict, first, others == 0 ? "" : fmt::format(" (and {} more)", others));
}

std::string gate_line(const MegatronCheck& check) {
    switch (gate_verdict(check)) {
        case GateVerdict::illegal:
            return refusal_line("illegal", check.broken);
        case GateVerdict::does_not_fit:
            return fit_text(check.asked->prediction.memory) + "\n";
        case GateVerdict::cannot_say:
            if (!check.flags.unknown.empty())
                return fmt::format("cannot say: no flags of Megatron-LM, which stops at them: {}\n", fmt::join(check.flags.unknown, " "));
            if (!check.flags.without_a_version.empty())
                return fmt::format("cannot say: no version of Megatron-LM has all of {}\n", fmt::join(check.flags.without_a_version, ", "));
            return fmt::format("cannot say: {}\n", fits(check) ? why_legality_is_open(check.flags) : why_fit_is_open(check.flags));
        case GateVerdict::runs:
            break;
    }
    const simulator::Prediction& prediction = check.asked->prediction;
    std::string environment;
    for (const std::string& rule : check.flags.of_environment) environment += fmt::format("; unless the launcher does: {}", rule);
    return fmt::format("runs: {}; {}; {} a step ({} to {}){}\n", words(check, check.asked->layout), fit_text(prediction.memory),
                       human_seconds(prediction.time.iteration_seconds), human_seconds(prediction.time.interval_low),
                       human_seconds(prediction.time.interval_high), environment);
}

std::string megatron_check_text(const MegatronCheck& check) {
    std::string text = workload_text(check.workload) + assumed_text(check.assumed) + flag_account_text(check.flags) + "\n";
    if (check.asked) {
        const Layout& layout = check.asked->layout;
        const simulator::Prediction& prediction = check.asked->prediction;
        if (is_legal(check))
            text += fmt::format("legal:  yes, {}\n", words(check, layout));
        else
            text += fmt::format("legal:  cannot say, {}: {}\n", why_legality_is_open(check.flags), words(check, layout));
        if (fits(check))
            text += fmt::format("memory: {}\n{}", fit_text(prediction.memory), advice_for_a_tight_fit(prediction.memory, layout));
        else
            text += fmt::format("memory: cannot say, {}; without it {}\n", why_fit_is_open(check.flags), fit_text(prediction.memory));
        text += fmt::format("speed:  {}\n        between {} and {} (4 times in 5)", speed_text(prediction.time),
                            human_seconds(prediction.time.interval_low), human_seconds(prediction.time.interval_high));
        const std::string overhead = largest_overhead(prediction.time);
        text += overhead == "-" ? "\n" : fmt::format("; largest overhead: {}\n", overhead);
        text += accuracy_text(check.workload, layout.engine);
        if (check.training) text += "train:  " + training_text(*check.training);
    } else {
        text += "legal:  no\n";
        for (const auto& rule : check.broken) text += fmt::format("    {}\n", rule);
    }
    if (!check.searched) return text + fmt::format("better: not looked for ({})\n", check.why_not_searched);
    const bool fits = check.asked && check.asked->prediction.memory.fits();
    if (check.better.empty()) {
        text += fmt::format("better: {}, of {} layouts timed\n", fits ? "none that is faster" : "none that fits",
                            with_thousands(check.evaluated));
        return text + std::string(kKept);
    }
    text += fmt::format("{}, of {} layouts timed:\n", fits ? "better" : "legal and fitting", with_thousands(check.evaluated));
    for (std::size_t i = 0; i < check.better.size(); ++i) text += fmt::format("  {} {}", i + 1, better_text(check, check.better[i]));
    return text + std::string(kKept);
}

std::string megatron_check_json(const MegatronCheck& check) {
    Json json{{"model", model_summary_to_json(check.workload.model)},
              {"assumed_architecture", assumed_architecture_to_json(check.workload.model)},
              {"legal", nullptr},
              {"problems", check.broken},
              {"fits", nullptr},
              {"layout", nullptr},
              {"predicted", nullptr},
              {"training", nullptr}};
    if (check.asked) {
        json["layout"] = layout_fields(check.workload, check.asked->layout);
        json["predicted"] = prediction_to_json(check.asked->prediction);
        if (check.training) json["training"] = training_to_json(*check.training);
    }
    if (leaves_model_open(check.flags)) {
        for (const char* count : {"parameters", "active_parameters", "mtp_parameters"}) json["model"][count] = nullptr;
    }
    if (const auto legal = is_legal(check)) json["legal"] = *legal;
    if (const auto fitting = fits(check)) json["fits"] = *fitting;
    json["better"] = Json::array();
    for (const auto& better : check.better) {
        const auto faster = gain(check, better);
        json["better"].push_back({{"layout", layout_fields(check.workload, better.plan.layout)},
                                  {"predicted", prediction_to_json(better.plan.prediction)},
                                  {"gain", faster ? Json(*faster) : Json(nullptr)},
                                  {"changes", better.changes}});
    }
    json["evaluated"] = check.evaluated;
    json["batch_source"] = to_string(check.batch_source);
    json["assumed"] = check.assumed;
    add_flag_account(json, check.flags);
    return json.dump(1) + "\n";
}

std::string megatron_check_csv(const MegatronCheck& check) {
    PlanReport rows;
    rows.workload = check.workload;
    if (check.asked) rows.plans.push_back(*check.asked);
    for (const auto& better : check.better) rows.plans.push_back(better.plan);
    return plan_report_csv(rows);
}

}  // namespace mgplan::reports
