#pragma once
// Rank 0's side of a rendezvous: a thread that all ranks, rank 0 among them, are connected to.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "runtime/rendezvous/message.hpp"
#include "runtime/rendezvous/rendezvous_options.hpp"
#include "runtime/rendezvous/socket.hpp"
#include "runtime/rendezvous/stranger_log.hpp"

namespace mgplan::runtime {

/// Exit codes of an abort: for wrong input, and for a run that failed (docs/errors.md).
inline constexpr int kAbortBadInput = 2, kAbortFailed = 4;

/// Other processes cannot keep ranks out: every connection is accepted at once, its whole hello must come within hello_deadline, and
/// if too many connections are unknown the oldest of them is closed (ranks send their hello at once, and connect again if they were
/// closed). A connection without the secret, or with invalid messages, is dropped; if ranks are missing at the end, these are named.
/// Invalid behaviour of ranks ends the job, with a sentence that names them: two of one number, another size of the world, silence, an end
/// without leaving. Each rank can hold a bounded number of bytes here, so one that does not read is assumed dead.
class RendezvousServer {
public:
    /// Listens. Throws ConfigError with the reason if it cannot.
    explicit RendezvousServer(RendezvousOptions options);
    /// Waits for a moment until the last messages are sent.
    ~RendezvousServer();
    RendezvousServer(const RendezvousServer&) = delete;
    RendezvousServer& operator=(const RendezvousServer&) = delete;

    [[nodiscard]] const Address& address() const { return address_; }

private:
    using Clock = std::chrono::steady_clock;

    struct Peer {
        Socket socket;
        Address address;
        std::string from;  ///< the same as text
        MessageReader reader;
        std::string out;
        std::optional<int> rank;  ///< once it is known
        bool left = false;
        bool closing = false;  ///< nothing is read any more; it ends when `out` is written
        std::string where;
        std::set<std::string> asked;
        Clock::time_point since;  ///< when it connected
        Clock::time_point heard;
    };

    void serve();
    void wait_for_events();
    void accept_strangers(Clock::time_point now);
    /// Ends the connection that has been unknown for longest; false where there is none.
    bool make_room();
    void drop_stranger(Peer& peer);
    void read(Peer& peer, Clock::time_point now);
    void gone(Peer& peer);
    void handle(Peer& peer, RendezvousMessage message);
    void welcome(Peer& peer, const RendezvousMessage& hello);
    void answer_gets(const std::string& key);
    void check_times(Clock::time_point now);
    /// The sentence goes to all ranks; the first one counts.
    void abort(const std::string& reason, int code);
    void send(Peer& peer, const RendezvousMessage& message);
    void send_all(const RendezvousMessage& message);
    [[nodiscard]] std::string missing() const;
    [[nodiscard]] bool all_written() const;

    RendezvousOptions options_;
    std::string protocol_;
    Socket listener_;
    Address address_;
    Waker waker_;
    std::list<Peer> peers_;
    std::map<std::string, std::string> store_;
    std::size_t store_bytes_ = 0;
    int joined_ = 0;
    int left_ = 0;
    bool complete_ = false;
    bool aborted_ = false;
    std::string reason_;  ///< of the abort, for those who come later, and its code
    int code_ = kAbortFailed;
    StrangerLog strangers_;
    Clock::time_point began_, beat_;
    std::atomic<bool> stop_ = false;
    std::thread thread_;
};

}  // namespace mgplan::runtime
