#include "jobs/supervisor.hpp"

#include <chrono>
#include <cstdio>
#include <fstream>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/core.h>

#include "jobs/engine.hpp"
#include "jobs/rank_process.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::jobs {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;
using Phase = EngineStatus::Phase;

constexpr auto kGrace = 2s;         // from a rank's failure to the request to the engine to end
constexpr auto kKillPatience = 3s;  // from the request to killing
constexpr auto kTurn = 30ms;
constexpr int kBadInput = 2, kFailed = 4;  // exit codes (docs/errors.md)

/// Returns the text about a lost node, followed by the first failure that it caused.
std::string with_failure(const std::string& lost, const std::optional<RankFailure>& failure) {
    return failure ? fmt::format("{}; first seen as: {}", lost, text_of(*failure)) : lost;
}

/// Reads the new text of a file that grows.
class Follower {
public:
    explicit Follower(std::string path) : path_(std::move(path)) {}
    [[nodiscard]] std::string more() {
        if (!file_.is_open()) file_.open(path_, std::ios::binary);
        if (!file_.is_open()) return "";
        std::string text(64 * 1024, '\0');
        file_.clear();
        file_.read(text.data(), static_cast<std::streamsize>(text.size()));
        text.resize(static_cast<std::size_t>(file_.gcount()));
        return text;
    }

private:
    std::string path_;
    std::ifstream file_;
};

/// One attempt, from its start to its end.
class Attempt {
public:
    Attempt(const Job& job, Record& record, std::vector<std::string> words, const Watch& watch)
        : record_(record),
          watch_(watch),
          logs_(logs_folder(job.folder, record.attempt)),
          engine_(make_engine(job.via, std::move(words), logs_ + "/job.log")),
          rank_0_(rank_log(logs_, 0)) {}

    void run() {
        enter(State::starting, "");
        engine_->start();
        record_.engine_job = engine_->number();
        if (watch_.taken) watch_.taken();
        if (!record_.engine_job.empty()) watch_.say(fmt::format("Slurm took it as job {}", record_.engine_job));
        for (;;) {
            status_ = engine_->look(failed_at_.has_value() || asked_at_.has_value());
            pass_on();
            if (status_.phase == Phase::ended) break;
            if (status_.phase == Phase::running) {
                enter(State::running, "");
            } else if (record_.state != State::waiting || record_.reason != status_.text) {
                enter(State::waiting, status_.text);
                watch_.say(status_.text.empty() ? "waits for its nodes" : fmt::format("waits for its nodes ({})", status_.text));
            }
            hear_of_failures();
            end_where_needed();
            std::this_thread::sleep_for(kTurn);
        }
        engine_.reset();  // ends its remaining processes
        pass_on();
        hear_of_failures();
        conclude();
    }

private:
    void enter(State state, const std::string& reason) {
        if (state == record_.state && reason == record_.reason && state != State::starting) return;
        record_.state = state;
        record_.reason = reason;
        write_record(record_);
    }

    void pass_on() {
        for (std::string text = rank_0_.more(); !text.empty(); text = rank_0_.more()) watch_.rank_0(text);
    }

    void hear_of_failures() {
        if (record_.failure || stopped_) return;
        record_.failure = first_failure(logs_);
        if (!record_.failure) return;
        failed_at_ = Clock::now();
        write_record(record_);
        watch_.say(text_of(*record_.failure));
        // Rank 0's output was already passed on.
        if (record_.failure->rank == 0 || record_.failure->log.empty()) return;
        constexpr std::size_t kLines = 5;
        for (const auto& line : last_lines(record_.failure->log, kLines)) watch_.say(fmt::format("  {}", line));
    }

    void end_where_needed() {
        const auto now = Clock::now();
        if (!stopped_ && watch_.stopped && watch_.stopped()) {
            stopped_ = true;
            watch_.say("asked to stop: ends the job");
            ask_to_end(now);
        }
        if (failed_at_ && now - *failed_at_ > kGrace && !asked_at_) ask_to_end(now);
        if (asked_at_ && now - *asked_at_ > kKillPatience && !killed_) {
            killed_ = true;
            engine_->end(true);
        }
    }
    void ask_to_end(Clock::time_point now) {
        asked_at_ = now;
        engine_->end(false);
    }

    void conclude() {
        record_.exit_code = 0;
        if (stopped_ || (status_.cancelled && !asked_at_)) {
            record_.state = State::cancelled;
            record_.exit_code = kFailed;
            record_.reason = stopped_ ? "it was asked to stop" : status_.text;
        } else if (status_.lost_node && !(record_.failure && record_.failure->code == kBadInput)) {
            record_.state = State::failed;
            record_.exit_code = kFailed;
            record_.reason = with_failure(status_.text, record_.failure);
        } else if (record_.failure) {
            record_.state = State::failed;
            record_.exit_code = record_.failure->code == kBadInput ? kBadInput : kFailed;
            record_.reason = text_of(*record_.failure);
        } else if (status_.code != 0) {
            record_.state = State::failed;
            record_.exit_code = kFailed;
            record_.reason = status_.text.empty() ? fmt::format("the engine ended with exit code {}", status_.code) : status_.text;
            // No rank reported a failure: only the engine's own output is left.
            constexpr std::size_t kLines = 8;
            for (const auto& line : last_lines(logs_ + "/job.log", kLines)) watch_.say(fmt::format("  {}", line));
        } else {
            record_.state = State::finished;
            record_.reason.clear();
        }
    }

    Record& record_;
    const Watch& watch_;
    std::string logs_;
    std::unique_ptr<Engine> engine_;
    Follower rank_0_;
    EngineStatus status_;
    std::optional<Clock::time_point> failed_at_, asked_at_;
    bool stopped_ = false;
    bool killed_ = false;
};

}  // namespace

void supervise(const Job& job, Record& record, const std::function<std::vector<std::string>(int attempt)>& start_words,
               const Watch& watch) {
    for (record.attempt = 1;; ++record.attempt) {
        record.failure.reset();
        record.engine_job.clear();
        make_folder(logs_folder(job.folder, record.attempt));
        std::remove(report_file(job).c_str());
        try {
            Attempt(job, record, start_words(record.attempt), watch).run();
        } catch (const RunError& error) {
            record.state = State::failed;
            record.exit_code = kFailed;
            record.reason = error.what();
            record.ended = utc_now();
            write_record(record);
            throw;
        }
        const bool again = record.state == State::failed && record.exit_code != kBadInput && record.attempt <= record.max_restarts &&
                           !(watch.stopped && watch.stopped());
        if (!again) break;
        watch.say(fmt::format("restart {} of {}: {}", record.attempt, record.max_restarts, record.reason));
    }
    record.ended = utc_now();
    write_record(record);
}

Record seen_now(Record record) {
    if (is_over(record.state)) return record;
    const auto watched = alive(record.launcher);
    if (!watched) {
        record.reason = fmt::format("watched on {}; as it was when that last wrote", record.launcher.host);
        return record;
    }
    if (*watched) return record;
    const auto conclude = [&](State state, int code, std::string reason) {
        record.state = state;
        record.exit_code = code;
        record.reason = std::move(reason);
    };
    const std::string logs = logs_folder(record.folder, record.attempt);
    record.failure = first_failure(logs);
    if (record.via == to_string(Via::slurm) && !record.engine_job.empty()) {
        if (const auto lines = last_lines(logs + "/exit_code", 1); !lines.empty() && parse_integer(lines.front())) {
            const auto code = static_cast<int>(*parse_integer(lines.front()));
            if (code == 0)
                conclude(State::finished, 0, "");
            else
                conclude(State::failed, kFailed, record.failure ? text_of(*record.failure) : fmt::format("ended with exit code {}", code));
            return record;
        }
        try {
            const SlurmJob job = ask_slurm(record.engine_job);
            const EngineStatus status = status_with_lost_nodes(job, logs + "/job.log");
            if (job.state.empty())
                conclude(State::lost, kFailed, "its launcher is gone, and Slurm does not know the job any more");
            else if (status.phase == Phase::ended)
                conclude(status.cancelled ? State::cancelled : State::failed, kFailed,
                         status.lost_node ? with_failure(status.text, record.failure)
                         : record.failure ? text_of(*record.failure)
                                          : status.text);
            else
                conclude(status.phase == Phase::waiting ? State::waiting : State::running, 0,
                         "its launcher is gone: Slurm goes on with it, and nobody would restart it");
        } catch (const RunError& error) {
            conclude(State::lost, kFailed, fmt::format("its launcher is gone; {}", error.what()));
        }
        return record;
    }
    if (record.failure)
        conclude(State::failed, kFailed, text_of(*record.failure));
    else
        conclude(State::lost, kFailed, "its launcher is gone without a word (killed, or the machine began anew), and its ranks with it");
    return record;
}

}  // namespace mgplan::jobs
