// Compiled into Python's module alone, instead of the commands that train, start jobs or programs, measure this machine or serve pages.
#include <algorithm>

#include <fmt/core.h>

#include "cli/command.hpp"
#include "cli/options.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::cli {
namespace {

/// Help for `name`, or ConfigError: it is not part of the package.
int refuse(std::string_view name, std::string_view does, const std::vector<std::string>& args, Console& console) {
    const std::string reason =
        fmt::format("{} {}, and the Python package only plans and predicts; build the program from mgplan's sources and call ./mgplan {}",
                    name, does, name);
    if (std::find(args.begin(), args.end(), "--help") == args.end()) throw ConfigError(reason);
    Options options(std::string(name), reason + ".");
    std::vector<std::string> form{"--help"};
    for (std::size_t i = 0; i + 1 < args.size(); ++i) {
        if (args[i] == "--format") form.insert(form.end(), {args[i], args[i + 1]});
    }
    (void)options.parse(form, console.out);
    return kDone;
}

}  // namespace

int run_run(const std::vector<std::string>& args, Console& console) {
    return refuse("run", "trains", args, console);
}
int run_launch(const std::vector<std::string>& args, Console& console) {
    return refuse("launch", "starts jobs that train", args, console);
}
int run_status(const std::vector<std::string>& args, Console& console) {
    return refuse("status", "follows jobs that train", args, console);
}
int run_rank(const std::vector<std::string>& args, Console& console) {
    return refuse("rank", "is one rank of a job that trains", args, console);
}
int run_verify(const std::vector<std::string>& args, Console& console) {
    return refuse("verify", "trains to compare", args, console);
}
int run_record(const std::vector<std::string>& args, Console& console) {
    return refuse("record", "executes a script that starts training", args, console);
}
int run_serve(const std::vector<std::string>& args, Console& console) {
    return refuse("serve", "answers a browser until it is ended", args, console);
}
int run_calibrate(const std::vector<std::string>& args, Console& console) {
    return refuse("calibrate", "measures this machine with the code that trains", args, console);
}

}  // namespace mgplan::cli
