#pragma once
// Connects ranks that a launcher started as processes: over TCP, at rank 0, with a secret of the job. Then they
// share values by name (NCCL's id), a heartbeat, and an abort.
//
// The secret keeps other jobs and strangers out. It and everything else travel in the clear, as NCCL's own traffic does, so
// the network between the machines must be one that others do not listen to.

#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/rendezvous/message.hpp"
#include "runtime/rendezvous/rendezvous_options.hpp"
#include "runtime/rendezvous/server.hpp"
#include "runtime/rendezvous/socket.hpp"

namespace mgplan::runtime {

/// Returns the text that must be equal on all ranks of one world.
[[nodiscard]] std::string rendezvous_protocol(int size);

/// This process's rank of the rendezvous; rank 0 holds the server as well. Any thread may call it.
class Rendezvous {
public:
    /// Called once, on a thread of this object's, when the job must end: somebody aborted it, died, went silent, or rank 0
    /// is gone. Not for this rank's own abort().
    using OnAbort = std::function<void(const std::string& reason)>;

    /// Waits until all ranks have come. Throws ConfigError for what the user must change (the port is taken, another secret,
    /// another world, two ranks of one number), RunError naming the ranks that did not come in time.
    explicit Rendezvous(RendezvousOptions options, OnAbort on_abort = {});
    /// Without leave() the others take this rank for dead.
    ~Rendezvous();
    Rendezvous(const Rendezvous&) = delete;
    Rendezvous& operator=(const Rendezvous&) = delete;

    [[nodiscard]] int rank() const { return options_.rank; }
    [[nodiscard]] int size() const { return options_.size; }

    /// At most kMostKeyBytes and kMostValueBytes.
    void set(const std::string& key, const std::string& value);
    /// Waits for somebody to set it. Throws RunError when the job is aborted, or at the deadline.
    [[nodiscard]] std::string get(const std::string& key);
    /// Rank 0's bytes on every rank. All ranks call it equally often.
    [[nodiscard]] std::vector<std::byte> from_rank_0(const std::vector<std::byte>& mine);

    /// Sets where this rank is, for the others' message if it dies: "in all_reduce in group tp". Cheap.
    void at(std::string_view what, std::string_view group);
    [[nodiscard]] std::string where() const;

    /// Ends the job for all, with a sentence and exit code 2 or 4. Returns when the message is sent, after 2 s at the latest.
    void abort(const std::string& reason, int code = kAbortFailed) noexcept;
    /// Reason why the job ends; empty while it does not.
    [[nodiscard]] std::string reason() const;
    /// Exit code with which the job ends.
    [[nodiscard]] int code() const;

    /// Waits for all ranks to be done. Throws as get() does.
    void leave();

private:
    using Clock = std::chrono::steady_clock;

    /// Connects, or throws at join_until_.
    void connect();
    /// Tries each address once; the reason of a failure is in why_.
    [[nodiscard]] bool try_to_connect(std::chrono::milliseconds longest);
    [[nodiscard]] RendezvousMessage hello() const;
    [[nodiscard]] std::string unanswered() const;  // with mutex_ held
    void talk();
    void handle(RendezvousMessage message);
    void send(const RendezvousMessage& message);
    void end(const std::string& reason, int code, bool tell);
    void throw_if_ended(const std::string& what) const;  // with mutex_ held
    /// Waits for a state of the members below; throws when the job ends first or nothing comes until then.
    template <class Condition>
    void wait(std::unique_lock<std::mutex>& lock, Clock::time_point until, const std::string& what, Condition condition);

    RendezvousOptions options_;
    OnAbort on_abort_;
    std::unique_ptr<RendezvousServer> server_;
    Waker waker_;
    std::vector<Address> addresses_;  ///< of rank 0
    Address from_;
    Clock::time_point join_until_;
    Socket socket_;         // the thread's, once it runs
    MessageReader reader_;  // the thread's
    std::string server_text_;

    mutable std::mutex mutex_;  // of all below
    std::condition_variable changed_;
    std::string out_;
    std::string what_, group_;
    std::map<std::string, std::string> values_;
    bool answered_ = false;  ///< something came from rank 0
    bool welcome_ = false;
    std::string why_;    ///< reason why the last connection, or attempt at one, failed
    bool over_ = false;  ///< all ranks have left
    bool stop_ = false;
    bool ended_ = false;
    std::string reason_;
    int code_ = kAbortFailed;
    int turn_ = 0;
    std::thread thread_;
};

}  // namespace mgplan::runtime
