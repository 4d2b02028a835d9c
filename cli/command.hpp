#pragma once
// One subcommand of mgplan: a name, a line for the overview, and the function that runs it.

#include <functional>
#include <iosfwd>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan {
struct Plan;
}

namespace mgplan::cli {

struct CommandDescription;

/// Exit codes (CLI.md).
enum ExitCode : int { kDone = 0, kBadInput = 2, kNothingFits = 3, kRunFailed = 4, kMissedTolerance = 5, kCannotSay = 6 };

/// The contents of a file that the caller has in memory, and the file's name in messages and results.
struct GivenText {
    std::string name;
    std::string text;
};

/// Streams of a command: results go to `out`, progress and warnings to `err`. run_mgplan() makes text to `err` harmless for a
/// terminal, and text to `out` if that is one; results into a file or a pipe stay as they are.
struct Console {
    std::ostream& out;
    std::ostream& err;
    bool out_is_terminal = false;
    bool err_is_terminal = false;  ///< progress is shown

    // For callers that are programs.
    /// Texts in place of files, by the option that would name one ("model") or by the positional ("PLAN", of several
    /// "PLAN 1", "PLAN 2"): Options::use_texts.
    std::map<std::string, GivenText> texts = {};
    /// Receives the plans of the answers of plan, simulate and check, in the order of the answer, as --save-plan writes them.
    std::function<void(const Plan& plan)> plans = {};
    /// Called about once a second during a search; an exception from it ends the command.
    std::function<void()> waiting = {};
    /// Receives the page of a search, as `plan --html` writes it.
    std::function<void(std::string page)> page = {};
};

struct Command {
    std::string_view name;
    std::string_view summary;
    /// Runs with the arguments after the command's name; throws ConfigError for bad input.
    int (*run)(const std::vector<std::string>& args, Console& console);
};

/// All commands in the order of the overview.
[[nodiscard]] std::span<const Command> commands();

/// Runs the whole program: picks the command, turns errors into messages and exit codes. `args` without the program's name.
int run_mgplan(const std::vector<std::string>& args, Console& console);

// One file per subcommand.
int run_plan(const std::vector<std::string>& args, Console& console);
int run_least(const std::vector<std::string>& args, Console& console);
int run_rl(const std::vector<std::string>& args, Console& console);
int run_side_by_side(const std::vector<std::string>& args, Console& console);
int run_simulate(const std::vector<std::string>& args, Console& console);
int run_diff(const std::vector<std::string>& args, Console& console);
int run_groups(const std::vector<std::string>& args, Console& console);
int run_schedule(const std::vector<std::string>& args, Console& console);
int run_split(const std::vector<std::string>& args, Console& console);
int run_buffers(const std::vector<std::string>& args, Console& console);
int run_graphs(const std::vector<std::string>& args, Console& console);
int run_run(const std::vector<std::string>& args, Console& console);
int run_launch(const std::vector<std::string>& args, Console& console);
int run_status(const std::vector<std::string>& args, Console& console);
/// Not in the overview: the scripts of launch call it.
int run_rank(const std::vector<std::string>& args, Console& console);
int run_verify(const std::vector<std::string>& args, Console& console);
int run_calibrate(const std::vector<std::string>& args, Console& console);
int run_doctor(const std::vector<std::string>& args, Console& console);
int run_check(const std::vector<std::string>& args, Console& console);
int run_record(const std::vector<std::string>& args, Console& console);
int run_export(const std::vector<std::string>& args, Console& console);
int run_models(const std::vector<std::string>& args, Console& console);
int run_clusters(const std::vector<std::string>& args, Console& console);
int run_recipes(const std::vector<std::string>& args, Console& console);
int run_serve(const std::vector<std::string>& args, Console& console);
// These two describe all commands. `describe` gives them the descriptions, so that their library needs nothing of the table, which
// is in another one: linkers that read libraries once, in order, would not find it.
using DescribeCommands = std::vector<CommandDescription> (*)();
int run_completion(const std::vector<std::string>& args, Console& console, DescribeCommands describe);

}  // namespace mgplan::cli
