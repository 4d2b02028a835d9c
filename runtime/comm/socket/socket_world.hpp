#pragma once
// Ranks as processes that TCP connects, without MPI: each pair of ranks has a connection.

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/world.hpp"
#include "runtime/rendezvous/socket.hpp"

namespace mgplan::runtime {

class SocketState;

struct SocketOptions {
    /// A rank that waits longer for the others ends its world. Longer than the slowest computation between two collectives.
    std::chrono::milliseconds deadline{std::chrono::minutes{10}};
    /// Asked often while something is waited for: why the job must end, or nothing.
    std::function<std::string()> ended{};
};

/// One rank, used by one thread. What its communicators promise:
/// - Sums are made in rank order, as threads of one process make them: the same bits (reduce.hpp).
/// - Data moves while any operation of this rank is issued or waited for; there is no thread behind it.
/// - Members that come with different operations or sizes as the same operation of a group end the world, with both in the message.
/// - send() copies the message and never waits.
/// - A partner whose connection ended, a passed deadline, abort() and SocketOptions::ended make every present and future call of this
///   rank throw CommunicationError. abort() ends the connections, so that partners notice.
/// Ranks have the same order of bytes; data travels in the clear.
class SocketWorld {
public:
    /// `connections`: one to each rank, open and not blocking; this rank's own place is not open (connect_ranks.hpp).
    SocketWorld(int rank, std::vector<Socket> connections, SocketOptions options = {});
    /// Waits until what was sent is gone, unless an error is under way.
    ~SocketWorld();
    SocketWorld(const SocketWorld&) = delete;
    SocketWorld& operator=(const SocketWorld&) = delete;

    /// As model::World says; must not outlive this object. Joining waits for the members of the group; those that come with
    /// different names or lists get a CommunicationError.
    [[nodiscard]] model::World view();
    /// What this rank's communicators moved, counted where it is moved.
    [[nodiscard]] model::CollectiveCounter& traffic();

private:
    std::shared_ptr<SocketState> state_;
    int exceptions_;
};

}  // namespace mgplan::runtime
