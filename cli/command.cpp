#include "cli/command.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <ostream>
#include <sstream>

#include <fmt/core.h>

#include "cli/command_description.hpp"
#include "cli/terminal_stream.hpp"
#include "formats/model_source.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::cli {
namespace {

constexpr std::array kCommands{
    Command{"plan", "rank the layouts of a model on N GPUs (the default command)", run_plan},
    Command{"least", "find the least number of GPUs on which a model fits", run_least},
    Command{"rl", "plan a step of RL: trainer and rollout on shared or split GPUs", run_rl},
    Command{"side-by-side", "compare clusters, precisions or batches: the best plan of each", run_side_by_side},
    Command{"simulate", "predict memory and time of one layout", run_simulate},
    Command{"diff", "compare two plans: settings, time, memory", run_diff},
    Command{"groups", "list the rank groups of a layout", run_groups},
    Command{"schedule", "show the pipeline schedule of every rank", run_schedule},
    Command{"split", "show which layers each pipeline stage holds", run_split},
    Command{"buffers", "show parameter and gradient buffers, buckets and shards", run_buffers},
    Command{"graphs", "count CUDA graphs and the buffers they need", run_graphs},
    Command{"run", "train a plan for some steps and compare with its prediction", run_run},
    Command{"launch", "start a plan's ranks here or on a cluster, and follow the job", run_launch},
    Command{"status", "show launched jobs", run_status},
    Command{"verify", "compare a prediction with a run, or with a Megatron-LM log", run_verify},
    Command{"calibrate", "measure this machine and write a cluster file", run_calibrate},
    Command{"check", "check a launch command: legal? fits? how fast? what is better?", run_check},
    Command{"doctor", "explain the step time and memory in a job's log", run_doctor},
    Command{"record", "run a launch script and record what it starts", run_record},
    Command{"export", "export a plan for the training framework", run_export},
    Command{"models", "list the model presets, or show one", run_models},
    Command{"clusters", "list the cluster presets, or show one", run_clusters},
    Command{"recipes", "list NVIDIA's recipes, show one, or check them", run_recipes},
    Command{"completion", "print a completion script for bash, zsh or fish",
            [](const std::vector<std::string>& args, Console& console) { return run_completion(args, console, describe_commands); }},
    Command{"serve", "explore layouts in the browser", run_serve},
};

std::string overview() {
    std::string text =
        "usage: mgplan --world N --model CFG [options]  rank layouts (mgplan plan --help)\n"
        "       mgplan COMMAND [options]                (mgplan COMMAND --help)\n\n"
        "mgplan plans and predicts how to spread the training of a large language model\nover N GPUs.\n\nCommands:\n";
    for (const auto& command : kCommands) text += fmt::format("  {:<12} {}\n", command.name, command.summary);
    text +=
        "\nExit codes: 0 done, 2 bad usage or input, 3 no layout fits, 4 the run failed,\n"
        "5 a prediction missed its tolerance, 6 check --gate cannot say.\n";
    return text;
}

int dispatch(const std::vector<std::string>& args, Console& console) {
    if (args.empty())
        throw ConfigError("mgplan needs a world size and a model: mgplan --world 16 --model llama3-8b (mgplan --help lists everything)");
    const std::string& first = args.front();
    if (first == "help" && args.size() > 1) return dispatch({args[1], "--help"}, console);
    if (first == "--help" || first == "-h" || first == "help") {
        console.out << overview();
        return kDone;
    }
    if (first == "--version") {
        console.out << "mgplan " << MGPLAN_VERSION << "\n";
        return kDone;
    }
    if (first.starts_with("-")) return run_plan(args, console);
    for (const auto& command : kCommands) {
        if (command.name == first) return command.run({args.begin() + 1, args.end()}, console);
    }
    if (first == "rank") return run_rank({args.begin() + 1, args.end()}, console);
    std::vector<std::string> names;
    for (const auto& command : kCommands) names.emplace_back(command.name);
    const auto models = formats::preset_names();
    if (std::find(models.begin(), models.end(), first) != models.end())
        throw ConfigError(
            fmt::format("{} is a model, no command; write mgplan --world N --model {}, or mgplan models show {}", first, first, first));
    const std::string hint = did_you_mean(first, names);
    throw ConfigError(
        fmt::format("unknown command '{}'; {}", first.substr(0, 60), hint.empty() ? "mgplan --help lists the commands" : hint));
}

/// Prints a problem with lines after the first indented, so that none that came from outside looks like one of mgplan's own.
void say_problem(std::ostream& err, std::string_view problem) {
    constexpr std::string_view kIndent = "    ";
    err << "mgplan: ";
    for (bool first = true;; first = false) {
        const auto end = problem.find('\n');
        const std::string_view line = problem.substr(0, end);
        err << (first || line.starts_with(kIndent) ? "" : kIndent) << line << "\n";
        if (end == std::string_view::npos) return;
        problem.remove_prefix(end + 1);
    }
}

}  // namespace

std::span<const Command> commands() {
    return kCommands;
}

std::vector<CommandDescription> describe_commands() {
    std::vector<CommandDescription> described;
    for (const auto& command : commands()) {
        std::ostringstream out;
        std::ostringstream err;
        Console console{out, err};
        command.run({"--help", "--format", "json"}, console);
        described.push_back(command_from_json(out.str()));
        described.back().name = command.name;
        described.back().summary = command.summary;
    }
    return described;
}

int run_mgplan(const std::vector<std::string>& args, Console& asked) {
    TerminalStream out(asked.out), err(asked.err);
    Console console{asked.out_is_terminal ? out : asked.out,
                    err,
                    asked.out_is_terminal,
                    asked.err_is_terminal,
                    asked.texts,
                    asked.plans,
                    asked.waiting};
    try {
        const int code = dispatch(args, console);
        if (!console.out.flush()) throw RunError("standard output cannot be written; is the disk full or the reader gone?");
        return code;
    } catch (const ConfigError& error) {
        for (const auto& problem : error.problems()) say_problem(console.err, problem);
        return kBadInput;
    } catch (const RunError& error) {
        say_problem(console.err, error.what());
        return kRunFailed;
    } catch (const std::bad_alloc&) {
        console.err << "mgplan: out of memory on this machine; ask for a smaller world or restrict the search with --tp, --pp …\n";
        return kRunFailed;
    } catch (const std::exception& error) {
        say_problem(console.err, fmt::format("internal error: {}", error.what()));
        return kRunFailed;
    }
}

}  // namespace mgplan::cli
