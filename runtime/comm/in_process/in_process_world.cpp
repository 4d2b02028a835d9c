#include "runtime/comm/in_process/in_process_world.hpp"

#include <condition_variable>
#include <thread>

#include <fmt/format.h>

#include "plan/text/error_reason.hpp"
#include "runtime/comm/in_process/group.hpp"
#include "runtime/comm/in_process/in_process_communicator.hpp"
#include "runtime/comm/in_process/wait_board.hpp"

namespace mgplan::runtime {

InProcessWorld::InProcessWorld(int ranks, InProcessOptions options) : size_(ranks) {
    MGPLAN_ASSERT(ranks >= 1, "a world has ranks");
    board_ = std::make_shared<WaitBoard>(ranks, options.deadline);
    for (int rank = 0; rank < ranks; ++rank) traffic_.push_back(std::make_shared<model::CollectiveCounter>());
    asked_.resize(static_cast<std::size_t>(ranks));
}

InProcessWorld::~InProcessWorld() = default;

std::unique_ptr<model::Communicator> InProcessWorld::join(int rank, const std::string& group, std::span<const std::int32_t> ranks) {
    const int member = model::place_in_group(ranks, rank, size_);
    std::vector<std::int32_t> list(ranks.begin(), ranks.end());
    std::shared_ptr<Group> shared;
    {
        const std::scoped_lock lock(mutex_);
        const int before = asked_[static_cast<std::size_t>(rank)][{group, list}]++;
        auto& place = groups_[Key{group, list, before}];
        if (place == nullptr) place = std::make_shared<Group>(group, std::move(list), board_);
        shared = place;
    }
    return std::make_unique<InProcessCommunicator>(std::move(shared), member, traffic_[static_cast<std::size_t>(rank)]);
}

model::World InProcessWorld::view(int rank) {
    MGPLAN_ASSERT(rank >= 0 && rank < size_, "the rank is inside the world");
    return {rank, size_, [this, rank](const std::string& group, std::span<const std::int32_t> ranks) { return join(rank, group, ranks); }};
}

void InProcessWorld::abort(const std::string& reason) noexcept {
    board_->abort(reason);
}

bool InProcessWorld::aborted() const {
    return board_->aborted();
}

model::CollectiveCounter& InProcessWorld::traffic(int rank) {
    return *traffic_.at(static_cast<std::size_t>(rank));
}

void InProcessWorld::enter(int rank) {
    board_->enter(rank);
}

void InProcessWorld::leave(int rank) {
    board_->leave(rank);
}

std::string InProcessWorld::whereabouts(int rank) const {
    return board_->whereabouts(rank);
}

namespace {

/// Failures and ends of the threads of run_ranks, shared by all of them.
class Failures {
public:
    explicit Failures(int ranks) : running_(static_cast<std::size_t>(ranks), true), left_(ranks) {}

    /// Called inside a catch block; `where`: the rank's last action. Returns the reason to abort the others with.
    std::string add(int rank, const std::string& where) {
        bool comes_from_others = false;
        std::string what;
        try {
            throw;
        } catch (const model::CommunicationError& error) {
            comes_from_others = true;
            what = error.what();
        } catch (const std::exception& error) {
            what = fmt::format("rank {} failed: {}; {}", rank, reason_of(error), where);
        } catch (...) {
            what = fmt::format("rank {} failed with something that is no std::exception; {}", rank, where);
        }
        const std::scoped_lock lock(mutex_);
        if (first_ == nullptr || (first_comes_from_others_ && !comes_from_others)) {
            first_ = std::current_exception();
            first_comes_from_others_ = comes_from_others;
            rank_ = rank;
            what_ = what;
        }
        return what;
    }

    void ended(int rank) {
        const std::scoped_lock lock(mutex_);
        running_[static_cast<std::size_t>(rank)] = false;
        --left_;
        changed_.notify_all();
    }

    /// Waits for all; after a failure only for options.patience, then calls `stuck` with a text that names the ranks still running.
    template <class Stuck>
    void wait_for_all(const InProcessWorld& world, const RunRanksOptions& options, const Stuck& stuck) {
        std::unique_lock lock(mutex_);
        std::optional<std::chrono::steady_clock::time_point> until;
        while (left_ > 0) {
            changed_.wait_for(lock, std::chrono::milliseconds{100});
            if (!until && world.aborted()) until = std::chrono::steady_clock::now() + options.patience;
            if (until && left_ > 0 && std::chrono::steady_clock::now() >= *until) {
                std::vector<int> still;
                for (std::size_t rank = 0; rank < running_.size(); ++rank) {
                    if (running_[rank]) still.push_back(static_cast<int>(rank));
                }
                const std::string text = fmt::format("rank{} {} did not stop within {} ms after: {}", still.size() == 1 ? "" : "s",
                                                     fmt::join(still, ", "), options.patience.count(), what_);
                lock.unlock();
                stuck(text);
                return;
            }
        }
    }

    void throw_if_any() const {
        if (first_ == nullptr) return;
        try {
            std::rethrow_exception(first_);
        } catch (const ConfigError&) {
            throw;
        } catch (...) {
            throw RankFailure(rank_, what_, first_);
        }
    }

private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<bool> running_;
    int left_;
    std::exception_ptr first_;
    bool first_comes_from_others_ = false;
    int rank_ = 0;
    std::string what_;
};

}  // namespace

void run_ranks(InProcessWorld& world, const std::function<void(int rank)>& body, const RunRanksOptions& options) {
    Failures failures(world.size());
    const auto run = [&](int rank) {
        try {
            body(rank);
        } catch (...) {
            world.abort(failures.add(rank, world.whereabouts(rank)));
        }
        world.leave(rank);
        failures.ended(rank);
    };
    {
        std::vector<std::jthread> threads;
        threads.reserve(static_cast<std::size_t>(world.size()));
        for (int rank = 0; rank < world.size(); ++rank) world.enter(rank);
        try {
            for (int rank = 0; rank < world.size(); ++rank) threads.emplace_back(run, rank);
        } catch (const std::system_error& error) {  // the system gives no more threads
            world.abort(fmt::format("cannot start a thread for rank {} of {}: {}", threads.size(), world.size(), error.what()));
            threads.clear();
            throw RunError(fmt::format("cannot start {} ranks as threads of one process: {}", world.size(), error.what()));
        }
        if (options.on_stuck) failures.wait_for_all(world, options, options.on_stuck);
    }
    failures.throw_if_any();
}

}  // namespace mgplan::runtime
