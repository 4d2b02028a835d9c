#pragma once
// Ranks as threads of one process: the reference for every other transport. Results are the same bits on every run.

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/communicator.hpp"
#include "model/communicator/world.hpp"

namespace mgplan::runtime {

class Group;
class WaitBoard;

struct InProcessOptions {
    /// A rank that waits longer than this for another one aborts the world. Longer than the slowest computation between
    /// two collectives. Without it only the certain case is noticed (within about 0.1 s): every rank waits or has left.
    std::optional<std::chrono::milliseconds> deadline;
};

/// A world of threads. Its communicators promise:
/// - Sums are made in rank order. Types: fp64, fp32, bf16 (added in fp32, rounded once), int32 (reduce.hpp).
/// - Collectives copy nothing when they start; the work is done by whoever waits, for everybody. Ranks may wait in any
///   order, across groups too, as long as the members of a group issue its operations in the same order. Members that
///   issue different operations abort the world, naming both.
/// - send() copies the message and never waits; messages from one member to another arrive in order. So no pattern of
///   sends and receives deadlocks in which every receive has its send; memory grows by the messages under way.
/// - An abort, from any thread, wakes every rank within milliseconds: each running and each later call throws
///   CommunicationError naming rank, operation, group and the reason. When it has thrown (or when its Pending is
///   destroyed) the tensors are no longer touched by others.
/// - A Pending destroyed by an exception aborts the world instead of waiting for partners that may never come.
/// The communicators may outlive the world object. One thread per rank.
class InProcessWorld {
public:
    explicit InProcessWorld(int ranks, InProcessOptions options = {});
    ~InProcessWorld();
    InProcessWorld(const InProcessWorld&) = delete;
    InProcessWorld& operator=(const InProcessWorld&) = delete;

    [[nodiscard]] int size() const { return size_; }

    /// As model::JoinGroup says; the members do not wait for each other, so they may join in any order. Called by that rank's thread.
    [[nodiscard]] std::unique_ptr<model::Communicator> join(int rank, const std::string& group, std::span<const std::int32_t> ranks);
    /// A rank's view; it must not outlive this object.
    [[nodiscard]] model::World view(int rank);

    void abort(const std::string& reason) noexcept;
    [[nodiscard]] bool aborted() const;

    /// Traffic of this rank's communicators, counted at each operation. To be read by its thread, or after it ended.
    [[nodiscard]] model::CollectiveCounter& traffic(int rank);

    /// The rank takes part (again), or makes no more calls: then those that wait for it need not wait for a deadline.
    void enter(int rank);
    void leave(int rank);

    /// The last operation that the rank began: "after all_reduce in group tp (ranks 0, 1)", or "before its first operation".
    [[nodiscard]] std::string whereabouts(int rank) const;

private:
    // name, ranks, number of earlier joins of that group
    using Key = std::tuple<std::string, std::vector<std::int32_t>, int>;

    int size_;
    std::shared_ptr<WaitBoard> board_;
    std::vector<std::shared_ptr<model::CollectiveCounter>> traffic_;
    std::mutex mutex_;
    std::map<Key, std::shared_ptr<Group>> groups_;
    std::vector<std::map<std::pair<std::string, std::vector<std::int32_t>>, int>> asked_;  // by rank
};

/// A rank's function threw.
class RankFailure : public RunError {
public:
    RankFailure(int rank, const std::string& what, std::exception_ptr cause) : RunError(what), rank_(rank), cause_(std::move(cause)) {}
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] const std::exception_ptr& cause() const { return cause_; }

private:
    int rank_;
    std::exception_ptr cause_;
};

struct RunRanksOptions {
    /// Called, when set, with a message naming the ranks that have not returned this long after the abort: threads cannot
    /// be ended from outside, so a program that must not hang ends here. Without it, run_ranks waits for them.
    std::function<void(const std::string&)> on_stuck;
    std::chrono::milliseconds patience{2000};
};

/// Runs body(rank) on a thread for each rank and waits for all. When one throws, the world is aborted, and once all have
/// ended the first failure is thrown: a ConfigError as it is, anything else as RankFailure "rank 3 failed: <what>; after
/// all_reduce in group tp (ranks 2, 3)". An error that ranks threw only because of the abort is not the first failure,
/// whichever came first.
void run_ranks(InProcessWorld& world, const std::function<void(int rank)>& body, const RunRanksOptions& options = {});

}  // namespace mgplan::runtime
