#include "jobs/engine.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <csignal>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "jobs/child.hpp"
#include "jobs/job_folder.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::jobs {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

std::string trimmed(std::string text) {
    while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.pop_back();
    return text;
}

bool names_hold(const std::string& names, const std::string& name) {
    return (", " + names + ",").find(", " + name + ",") != std::string::npos;
}

/// mpirun, torchrun or the ranks themselves, below a script.
class ProcessEngine : public Engine {
public:
    ProcessEngine(std::vector<std::string> words, std::string log) : words_(std::move(words)), log_(std::move(log)) {}

    void start() override {
        ChildOptions options;
        options.words = words_;
        options.output = log_;
        // mgplan itself passes Ctrl-C on; and mpirun ends its ranks on SIGTERM, not when it is killed.
        options.own_group = true;
        options.signal_without_parent = SIGTERM;
        child_.emplace(options);
    }
    EngineStatus look(bool /*urgent*/) override {
        const auto ended = child_->ended();
        if (!ended) return {EngineStatus::Phase::running, 0, false, false, ""};
        return {EngineStatus::Phase::ended, exit_code_of(*ended), false, false, "the job " + end_text(*ended)};
    }
    void end(bool now) override {
        if (child_) child_->signal(now ? SIGKILL : SIGTERM);
    }

private:
    std::vector<std::string> words_;
    std::string log_;
    std::optional<Child> child_;
};

/// Returns those of a job's nodes that Slurm reports as down or not responding ("*"): "n3, n4"; empty if there are none.
std::string lost_nodes_by_sinfo(const std::string& nodes) {
    if (nodes.empty()) return "";
    std::string names;
    for (const auto& line : split(ask({"sinfo", "-h", "-N", "-n", nodes, "-o", "%N %T"}, 30s).text, '\n')) {
        const auto blank = line.find(' ');
        if (blank == std::string::npos || (line.find("down", blank) == std::string::npos && !line.ends_with('*'))) continue;
        if (const std::string name = line.substr(0, blank); !names_hold(names, name)) names += (names.empty() ? "" : ", ") + name;
    }
    return names;
}

class SlurmEngine : public Engine {
public:
    SlurmEngine(std::vector<std::string> words, std::string log) : words_(std::move(words)), log_(std::move(log)) {}

    void start() override {
        const Answer answer = ask(words_, kLongest);
        // "17" or "17;cluster", perhaps after warnings.
        const auto lines = split(trimmed(answer.text), '\n');
        const std::string last = lines.empty() ? "" : lines.back();
        number_ = last.substr(0, last.find(';'));
        if (answer.code != 0 || !parse_integer(number_))
            throw RunError(fmt::format("sbatch does not take the job: {}",
                                       trimmed(answer.text).empty() ? fmt::format("exit code {}", answer.code) : trimmed(answer.text)));
    }
    EngineStatus look(bool urgent) override {
        if (status_.phase == EngineStatus::Phase::ended || Clock::now() < next_) return status_;
        try {
            const SlurmJob job = ask_slurm(number_);
            if (job.state.empty())
                status_ = {EngineStatus::Phase::ended, 1, false, false,
                           "Slurm does not know the job any more, and how it ended is not known"};
            else
                status_ = status_with_lost_nodes(job, log_);
        } catch (const RunError& error) {
            status_.text = error.what();  // perhaps it answers the next time
        }
        // Not more often than its daemon bears, with many waiting.
        next_ = Clock::now() + (urgent                                                                         ? 300ms
                                : status_.phase == EngineStatus::Phase::waiting && Clock::now() - begun_ > 60s ? 5000ms
                                                                                                               : 1000ms);
        return status_;
    }
    void end(bool now) override {
        std::vector<std::string> words{"scancel"};
        if (now) words.emplace_back("--signal=KILL");
        words.push_back(number_);
        if (!number_.empty()) static_cast<void>(ask(words, kLongest));
        next_ = {};
    }
    [[nodiscard]] std::string number() const override { return number_; }

private:
    static constexpr auto kLongest = 30s;
    std::vector<std::string> words_;
    std::string log_;
    std::string number_;
    EngineStatus status_;
    Clock::time_point begun_ = Clock::now();
    Clock::time_point next_{};
};

std::string field(std::string_view text, std::string_view name) {
    // "JobId=17 JobName=x … JobState=RUNNING Reason=None …": fields after blanks, and the name comes before all fields that users chose.
    const auto at = text.find(fmt::format(" {}=", name));
    if (at == std::string_view::npos) return "";
    const auto from = at + name.size() + 2;
    return std::string(text.substr(from, text.find_first_of(" \n", from) - from));
}

}  // namespace

SlurmJob read_slurm_job(const std::string& text) {
    SlurmJob job;
    if (text.find("JobId=") == std::string::npos) return job;
    job.state = field(text, "JobState");
    job.reason = field(text, "Reason");
    job.nodes = field(text, "NodeList");
    const std::string codes = field(text, "ExitCode");  // "0:9", code and signal
    const auto colon = codes.find(':');
    const auto code = parse_integer(codes.substr(0, colon));
    const auto signal = colon == std::string::npos ? std::nullopt : parse_integer(codes.substr(colon + 1));
    job.exit_code = static_cast<int>(signal.value_or(0) > 0 ? 128 + *signal : code.value_or(0));
    return job;
}

EngineStatus status_of(const SlurmJob& job) {
    using Phase = EngineStatus::Phase;
    constexpr std::array kWaiting{"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"};
    constexpr std::array kRunning{"RUNNING", "SUSPENDED", "STAGE_OUT", "SIGNALING", "STOPPED", "RESIZING", "COMPLETING"};
    const auto is_in = [&](const auto& states) { return std::find(states.begin(), states.end(), job.state) != states.end(); };
    if (is_in(kWaiting)) return {Phase::waiting, 0, false, false, job.reason == "None" ? "" : job.reason};
    if (is_in(kRunning)) return {Phase::running, 0, false, false, ""};
    if (job.state == "COMPLETED") return {Phase::ended, job.exit_code, false, false, ""};
    const int code = job.exit_code == 0 ? 1 : job.exit_code;
    if (job.state == "CANCELLED") return {Phase::ended, code, true, false, "the job was cancelled in Slurm (scancel)"};
    if (job.state == "NODE_FAIL") return {Phase::ended, code, false, true, "Slurm lost one of the job's nodes"};
    if (job.state == "TIMEOUT")
        return {Phase::ended, code, false, false, "Slurm ended the job at its time limit (SBATCH_TIMELIMIT sets another)"};
    if (job.state == "OUT_OF_MEMORY") return {Phase::ended, code, false, false, "Slurm ended the job for its memory"};
    return {Phase::ended, code, false, false, fmt::format("by Slurm the job is {}, with exit code {}", job.state, job.exit_code)};
}

std::string lost_nodes_by_srun(const std::vector<std::string>& lines) {
    constexpr std::string_view kWords = "Node failure on ";
    std::string names;
    for (const std::string& line : lines) {
        const auto at = line.find(kWords);
        if (at == std::string::npos || line.find("srun") > at) continue;
        const std::string rest = line.substr(at + kWords.size());
        const std::string name = rest.substr(0, rest.find_first_of(" ,;"));
        if (!name.empty() && !names_hold(names, name)) names += (names.empty() ? "" : ", ") + name;
    }
    return names;
}

EngineStatus status_with_lost_nodes(const SlurmJob& job, const std::string& log) {
    EngineStatus status = status_of(job);
    if (status.phase != EngineStatus::Phase::ended || status.code == 0) return status;
    constexpr std::size_t kLines = 1000;
    std::string names = lost_nodes_by_srun(last_lines(log, kLines));
    if (names.empty()) names = lost_nodes_by_sinfo(job.nodes);
    if (names.empty()) return status;
    status.text = status.lost_node ? fmt::format("{} ({})", status.text, names)
                                   : fmt::format("Slurm lost one of the job's nodes ({}); {}", names, status.text);
    status.lost_node = true;
    return status;
}

SlurmJob ask_slurm(const std::string& number) {
    const Answer answer = ask({"scontrol", "-o", "show", "job", number}, 30s);
    const SlurmJob job = read_slurm_job(answer.text);
    if (!job.state.empty() || answer.text.find("Invalid job id") != std::string::npos) return job;
    throw RunError(fmt::format("Slurm does not answer: {}", trimmed(answer.text)));
}

std::unique_ptr<Engine> make_engine(Via via, std::vector<std::string> start_words, const std::string& log) {
    if (via == Via::slurm) return std::make_unique<SlurmEngine>(std::move(start_words), log);
    return std::make_unique<ProcessEngine>(std::move(start_words), log);
}

}  // namespace mgplan::jobs
