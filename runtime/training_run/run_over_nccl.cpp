#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include <fmt/core.h>

#include "plan/errors.hpp"
#include "runtime/launch/node_name.hpp"
#include "runtime/launch/placement.hpp"
#include "runtime/measurement/rank_use.hpp"
#include "runtime/rendezvous/rendezvous.hpp"
#include "runtime/training_run/gather_values.hpp"
#include "runtime/training_run/issue_order.hpp"
#include "runtime/training_run/rank_devices.hpp"
#include "runtime/training_run/rank_prediction.hpp"
#include "runtime/training_run/rank_run.hpp"
#include "runtime/training_run/training_run.hpp"

namespace mgplan::runtime {
namespace {

/// Ends the process where a rank's thread stays in a call that never returns: a kernel that hangs, a driver that does not answer.
class LastResort {
public:
    LastResort(std::chrono::milliseconds patience, std::function<void(const std::string&)> on_stuck)
        : patience_(patience), on_stuck_(std::move(on_stuck)) {}
    ~LastResort() {
        {
            const std::scoped_lock lock(mutex_);
            stopped_ = true;
        }
        changed_.notify_all();
        if (thread_.joinable()) thread_.join();
    }
    LastResort(const LastResort&) = delete;
    LastResort& operator=(const LastResort&) = delete;

    /// From here on the time runs; `text` is what is said in the end. The first call counts.
    void begin(const std::string& text) {
        const std::scoped_lock lock(mutex_);
        if (thread_.joinable() || stopped_) return;
        thread_ = std::thread([this, text] {
            std::unique_lock waiting(mutex_);
            if (!changed_.wait_for(waiting, patience_, [this] { return stopped_; }) && on_stuck_) on_stuck_(text);
        });
    }

private:
    std::chrono::milliseconds patience_;
    std::function<void(const std::string&)> on_stuck_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool stopped_ = false;
    std::thread thread_;
};

/// Tells the others where this rank is, and passes on what it hears.
class Whereabouts final : public RankObserver {
public:
    Whereabouts(Rendezvous& rendezvous, std::unique_ptr<RankObserver> next) : rendezvous_(rendezvous), next_(std::move(next)) {}
    void on_ready(model::Device& device, const model::World& world) override {
        if (next_) next_->on_ready(device, world);
    }
    void on_op(const model::OpRecord& record) override {
        rendezvous_.at(record.name, "");
        if (next_) next_->on_op(record);
    }
    void on_collective(const model::CollectiveRecord& record) override {
        rendezvous_.at(to_string(record.kind), record.group);
        if (next_) next_->on_collective(record);
    }

private:
    Rendezvous& rendezvous_;
    std::unique_ptr<RankObserver> next_;
};

/// Through rank 0's store.
GatherTexts gather_by(Rendezvous& rendezvous) {
    return [&rendezvous, turn = 0](const std::string& mine) mutable {
        const auto key = [&](int rank, std::size_t piece) { return fmt::format("text {} of rank {}, piece {}", turn, rank, piece); };
        // As many pieces as there are, and an empty one behind.
        std::vector<std::string> texts;
        for (std::size_t piece = 0; piece * kMostValueBytes < mine.size() + kMostValueBytes; ++piece) {
            rendezvous.set(key(rendezvous.rank(), piece),
                           piece * kMostValueBytes < mine.size() ? mine.substr(piece * kMostValueBytes, kMostValueBytes) : std::string());
        }
        for (int rank = 0; rendezvous.rank() == 0 && rank < rendezvous.size(); ++rank) {
            texts.emplace_back();
            for (std::size_t piece = 0;; ++piece) {
                const std::string more = rendezvous.get(key(rank, piece));
                if (more.empty()) break;
                texts.back() += more;
            }
        }
        ++turn;
        return texts;
    };
}

}  // namespace

std::optional<RunValues> run_over_nccl(const TrainingRunOptions& asked, const RendezvousOptions& meeting) {
    TrainingRunOptions options = asked;
    MGPLAN_ASSERT(options.devices != nullptr, "NCCL needs GPUs");
    const RankDevices& devices = *options.devices;
    const int rank = meeting.rank, size = meeting.size;
    LastResort last_resort(meeting.patience, options.on_stuck);
    std::atomic<Rendezvous*> there = nullptr;
    // Declared behind what its thread uses, so that it goes first.
    Rendezvous rendezvous(meeting, [&](const std::string& reason) {
        const Rendezvous* const complete = there;
        const std::string where = complete != nullptr ? complete->where() : "before its first operation";
        last_resort.begin(fmt::format("rank {}, {}: ended, because {}; it does not stop by itself", rank, where, reason));
    });
    there = &rendezvous;
    options.observe = [&, next = asked.observe](int of) { return std::make_unique<Whereabouts>(rendezvous, next ? next(of) : nullptr); };
    std::string said;
    const auto tell = [&](const std::exception& error) {
        if (!said.empty()) return;
        const std::string reason = rendezvous.reason();
        said = reason.empty() ? fmt::format("rank {} failed: {}; {}", rank, error.what(), rendezvous.where())
                              : fmt::format("rank {}, {}: ended, because {}", rank, rendezvous.where(), reason);
        last_resort.begin(said + "; it does not stop by itself");
        if (reason.empty()) rendezvous.abort(said, dynamic_cast<const ConfigError*>(&error) != nullptr ? kAbortBadInput : kAbortFailed);
    };
    try {
        check_one_rank(options, devices, rank);
        const GatherTexts gather = gather_by(rendezvous);
        if (options.ranks_per_node) {
            const std::vector<std::string> nodes = gather(node_name(process_environment()));
            // Rank 0 alone knows; the others wait for it to make the world.
            const std::string problem = rank == 0 ? placement_problem(nodes, *options.ranks_per_node) : "";
            if (!problem.empty()) throw ConfigError(problem);
        }
        if (rank == 0) check_issue_order(options.task);
        LastStep last_step(options.steps, nullptr);
        RankOutcome outcome = run_rank(
            options, devices, rank,
            [&](RankDevice& device) {
                // The world hears of an end by asking, so that it can be given up while it is made.
                const NcclOptions how{options.deadline, [&] { return rendezvous.reason(); }};
                const std::shared_ptr<NcclWorldInterface> world = devices.connect(
                    device, rank, size, [&](const std::vector<std::byte>& mine) { return rendezvous.from_rank_0(mine); }, how);
                return Connection{world->view(), &world->traffic(), world};
            },
            last_step, tell);
        rendezvous.at("the report", "");
        std::vector<Problem> problems;  // where there is one, all ranks have it
        if (!outcome.problem.text.empty()) problems = gather_problems(gather, outcome.problem);
        std::vector<RankValues> ranks = gather_values(gather, outcome.values);
        rendezvous.leave();
        if (rank != 0) return std::nullopt;
        RunValues result;
        result.device = devices.text();
        result.memory = options.memory;
        result.transport = "processes over NCCL";
        if (!problems.empty()) result.problem = most_telling(problems);
        result.steps = std::move(outcome.steps);
        result.ranks = std::move(ranks);
        compare(result);
        return result;
    } catch (const ConfigError& error) {
        tell(error);
        throw;
    } catch (const std::exception& error) {
        tell(error);
        if (rendezvous.code() == kAbortBadInput) throw ConfigError(said);  // of another rank
        throw RunError(said);
    }
}

}  // namespace mgplan::runtime
