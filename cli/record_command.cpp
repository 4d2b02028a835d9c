#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <ostream>
#include <set>
#include <thread>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "cli/command.hpp"
#include "cli/interrupt_watch.hpp"
#include "cli/options.hpp"
#include "cli/output_file.hpp"
#include "formats/megatron/launch_record.hpp"
#include "formats/megatron/script_surroundings.hpp"
#include "jobs/child.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "reports/table.hpp"

namespace mgplan::cli {
namespace {

namespace fs = std::filesystem;

/// Programs that start training or pass it to others. Each other python on PATH has a stand-in too: python3.11.
constexpr std::array kLaunchers{"python", "python3", "torchrun", "srun",      "sbatch",    "salloc",
                                "mpirun", "mpiexec", "ray",      "deepspeed", "accelerate"};

/// Takes the next free number, and writes its words and its environment into files of that name; runs nothing. Creating a file with
/// noclobber fails where it is there already, so that launches at the same time have numbers of their own. `last` holds a number up to
/// which all are taken, so that none counts from 1.
constexpr std::string_view kStandIn = R"(#!/bin/sh
# A stand-in of mgplan record: writes down the words that it is given.
n=
{ read -r n < "$MGPLAN_RECORD/last"; } 2>/dev/null
case $n in '' | *[!0-9]*) n=0 ;; esac
n=$((n + 1))
set -C
until { printf '' > "$MGPLAN_RECORD/$n"; } 2>/dev/null; do
    n=$((n + 1))
    if [ "$n" -gt 4096 ]; then
        echo "mgplan: more than 4096 launches are not recorded" >&2
        exit 1
    fi
done
set +C
printf '%s\n' "$n" > "$MGPLAN_RECORD/last"
printf '%s\0' "${0##*/}" "$PWD" "$@" > "$MGPLAN_RECORD/$n"
env -0 > "$MGPLAN_RECORD/$n.env" 2>/dev/null
exit 0
)";

/// A folder that is removed with this object.
class RecordFolder {
public:
    RecordFolder() {
        const char* given = std::getenv("TMPDIR");
        std::string path = (given != nullptr && *given != '\0' && std::strchr(given, ':') == nullptr ? std::string(given) : "/tmp") +
                           "/mgplan-record-XXXXXX";
        if (::mkdtemp(path.data()) == nullptr)
            throw RunError(fmt::format("no folder for the stand-ins can be made in {}: {}; set TMPDIR",
                                       fs::path(path).parent_path().string(), std::strerror(errno)));
        path_ = path;
        fs::create_directory(programs());
        fs::create_directory(calls());
    }
    ~RecordFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    RecordFolder(const RecordFolder&) = delete;
    RecordFolder& operator=(const RecordFolder&) = delete;

    [[nodiscard]] fs::path programs() const { return path_ / "programs"; }
    [[nodiscard]] fs::path calls() const { return path_ / "calls"; }

private:
    fs::path path_;
};

/// Returns the names of the stand-ins.
std::set<std::string> stand_in_names(const std::string& path) {
    std::set<std::string> names(kLaunchers.begin(), kLaunchers.end());
    for (const auto& folder : split(path, ':')) {
        std::error_code failed;
        for (fs::directory_iterator entry(folder.empty() ? "." : folder, failed), end; !failed && entry != end; entry.increment(failed)) {
            const std::string name = entry->path().filename().string();
            const auto digits = name.find_first_not_of("0123456789.", std::string_view("python").size());
            if (name.starts_with("python") && digits == std::string::npos) names.insert(name);
        }
    }
    return names;
}

void write_stand_ins(const RecordFolder& folder, const std::set<std::string>& names) {
    for (const auto& name : names) {
        const fs::path file = folder.programs() / name;
        // An empty stand-in would run, and record nothing.
        if (!(std::ofstream(file) << kStandIn << std::flush))
            throw RunError(fmt::format("{} cannot be written: {}; set TMPDIR to a folder with room", file.string(), std::strerror(errno)));
        fs::permissions(file, fs::perms::owner_all);
        // A shell would go on to the real program.
        if (::access(file.c_str(), X_OK) != 0)
            throw RunError(fmt::format("{} holds no programs that can run; set TMPDIR to a folder that does", folder.programs().string()));
    }
}

/// PATH with the stand-ins first. Shell functions of the same names, which bash takes from its environment, hold where a script changes
/// PATH.
std::vector<std::pair<std::string, std::string>> recording_variables(const RecordFolder& folder, const std::string& path) {
    std::vector<std::pair<std::string, std::string>> variables{{"PATH", fmt::format("{}:{}", folder.programs().string(), path)},
                                                               {"MGPLAN_RECORD", folder.calls().string()},
                                                               {"MGPLAN_STAND_INS", folder.programs().string()}};
    for (const std::string_view name : kLaunchers)
        variables.emplace_back(fmt::format("BASH_FUNC_{}%%", name), fmt::format("() {{ \"$MGPLAN_STAND_INS/{}\" \"$@\"\n}}", name));
    return variables;
}

std::vector<std::string> texts_of(const fs::path& file) {
    constexpr std::size_t kMost = std::size_t{8} << 20U;
    std::ifstream stream(file, std::ios::binary);
    std::string all(kMost, '\0');
    stream.read(all.data(), static_cast<std::streamsize>(kMost));
    all.resize(static_cast<std::size_t>(stream.gcount()));
    std::vector<std::string> texts = split(all, '\0');
    if (!texts.empty() && texts.back().empty()) texts.pop_back();  // after the last one
    return texts;
}

formats::RecordedLaunch launch_of(const fs::path& file) {
    std::vector<std::string> texts = texts_of(file);
    if (texts.size() < 2) texts.resize(2);
    formats::RecordedLaunch launch{texts[0], texts[1], {texts.begin() + 2, texts.end()}, {}};
    std::set<std::string> named;
    for (const auto& word : launch.words) {
        for (auto& name : formats::variables_in(word)) named.insert(std::move(name));
    }
    if (named.empty()) return launch;
    for (const auto& text : texts_of(file.string() + ".env")) {
        const auto equals = text.find('=');
        if (equals != std::string::npos && named.contains(text.substr(0, equals)))
            launch.variables[text.substr(0, equals)] = text.substr(equals + 1);
    }
    return launch;
}

/// Runs the command until it and all processes that it started have ended; what they print goes to standard error, where messages go.
/// Returns the status of waitpid().
int run_recorded(const std::vector<std::string>& command, const RecordFolder& folder, const std::string& path) {
    jobs::ChildOptions child_options;
    child_options.words = command;
    child_options.output_to_error = true;
    child_options.variables = recording_variables(folder, path);
    child_options.outlived =
        "mgplan: the command has ended, and processes that it started have not; waiting for them, because they may start training "
        "(Ctrl-C ends them)\n";
    const InterruptWatch watch("mgplan: stopping the script\n", {SIGINT, SIGTERM, SIGHUP});
    jobs::Child child(child_options);
    bool stopped = false;
    while (true) {
        if (const auto status = child.ended()) {
            if (stopped && WIFSIGNALED(*status)) throw RunError("interrupted; nothing is recorded");
            return *status;
        }
        if (watch.interrupted() && !stopped) {
            // Nothing that the script started may live on without the stand-ins.
            child.kill_descendants();
            stopped = true;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

reports::Table table_of(const formats::LaunchRecord& record) {
    using reports::Align;
    reports::Table table(
        {{"launch", Align::right}, {"program", Align::left}, {"trains", Align::left}, {"ranks", Align::right}, {"words", Align::left}});
    const auto trainings = formats::training_launches(record);
    for (std::size_t i = 0; i < record.launches.size(); ++i) {
        constexpr std::size_t kShown = 60;
        const auto number = static_cast<std::int64_t>(i) + 1;
        const auto training = std::find_if(trainings.begin(), trainings.end(), [&](const auto& one) { return one.number == number; });
        const bool trains = training != trainings.end();
        std::string words = fmt::format("{}", fmt::join(record.launches[i].words, " "));
        std::replace(words.begin(), words.end(), '\n', ' ');
        table.add_row({std::to_string(number), record.launches[i].program, trains ? "yes" : "no",
                       trains && training->world.ranks ? std::to_string(*training->world.ranks) : "",
                       words.size() > kShown ? words.substr(0, kShown - 3) + "..." : words});
    }
    return table;
}

}  // namespace

int run_record(const std::vector<std::string>& args, Console& console) {
    Options options(
        "record [options] -- COMMAND [WORDS]",
        "Executes a launch script of yours, as in mgplan record -- bash train.sh, and writes down what it starts: python, torchrun, srun, "
        "sbatch, salloc, mpirun, mpiexec, ray, deepspeed and accelerate are stand-ins that run nothing. Every other command of the script "
        "runs for real, as do those programs where the script calls them by their whole path, or with a PATH or an environment of its "
        "own. It ends when all that the script started has ended. mgplan check --trace FILE judges the record.");
    std::optional<std::string> given_file = "mgplan-record.json";
    options.output_file("record", given_file, "file to write the record to");
    const auto dashes = std::find(args.begin(), args.end(), "--");
    if (!options.parse({args.begin(), dashes}, console.out)) return kDone;
    const std::vector<std::string> command(dashes == args.end() ? dashes : dashes + 1, args.end());
    if (command.empty()) throw ConfigError("the command is missing; give it after --, as in mgplan record -- bash train.sh");

    const char* given = std::getenv("PATH");
    const std::string path = given != nullptr ? given : "/usr/local/bin:/usr/bin:/bin";
    const RecordFolder folder;
    write_stand_ins(folder, stand_in_names(path));
    console.err << fmt::format("mgplan: executing {}; {} only write down their words, every other command in it runs for real\n",
                               fmt::join(command, " "), fmt::join(kLaunchers, ", "));
    console.err.flush();
    const int status = run_recorded(command, folder, path);

    formats::LaunchRecord record{command, jobs::exit_code_of(status), {}};
    for (int number = 1; fs::exists(folder.calls() / std::to_string(number)); ++number) {
        record.launches.push_back(launch_of(folder.calls() / std::to_string(number)));
        if (record.launches.back().program.empty())
            console.err << fmt::format("mgplan: launch {} was not written down; is the disk of {} full?\n", number,
                                       folder.calls().string());
    }
    const std::string json = formats::launch_record_json(record), file = *given_file;
    if (!write_output_file(file, [&](std::ostream& out) { out << json; }))
        throw RunError(fmt::format("--record {}: the file cannot be written; is the folder there, and not full?", file));
    options.write(console, options.format() == Format::json  ? json
                           : options.format() == Format::csv ? table_of(record).to_csv()
                                                             : table_of(record).to_text());
    console.err << fmt::format("mgplan: {} in {}\n", counted(std::ssize(record.launches), "launch", "es"), file);
    if (record.exit_code != 0)
        throw RunError(fmt::format("the command {}, behind {}; what it started until then is recorded", jobs::end_text(status),
                                   counted(std::ssize(record.launches), "launch", "es")));
    return kDone;
}

}  // namespace mgplan::cli
