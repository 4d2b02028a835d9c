#pragma once
// What the communicators of one rank share: its connections, what is to be sent, what has come, and what is waited for.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/communicator.hpp"
#include "plan/numeric_types.hpp"
#include "runtime/comm/abort_reason.hpp"
#include "runtime/comm/socket/socket_world.hpp"

namespace mgplan::runtime {

/// What a piece of data belongs to. Collectives of more than one round use a stage for each.
enum class SocketStage : std::uint8_t { first, second, message, joining };

/// Goes before each piece of data, as it lies in memory.
struct SocketFrame {
    std::uint64_t group = 0;  ///< SocketGroup::number; 0 while it is joined
    model::CollectiveKind kind{};
    Dtype dtype{};
    model::Reduction reduction{};
    SocketStage stage{};
    std::int32_t root = 0;
    std::int64_t sequence = 0;     ///< of the group's collectives, or of the messages or joins between two
    std::int64_t whole_bytes = 0;  ///< of the operation, where it is alike for all members
    std::int64_t bytes = 0;        ///< that follow
};
static_assert(sizeof(SocketFrame) == 40, "a frame has no holes, whose bytes would be of chance");

struct SocketGroup {
    std::uint64_t number = 0;  ///< of the world: the first member counts its groups
    std::string name;
    std::string text;  ///< "tp (ranks 0, 1)"
    std::vector<std::int32_t> ranks;
    int place = 0;  ///< of this rank
    std::int64_t issued = 0;
    std::vector<std::int64_t> sent, received;  ///< messages to and from each member
};

/// One collective of this rank. Its memory must stay until it is done and sent, or until it is dropped.
struct SocketExchange : std::enable_shared_from_this<SocketExchange> {
    std::shared_ptr<SocketGroup> group;
    SocketFrame frame;                              ///< what every member must come with, but for bytes
    std::vector<std::int64_t> expected;             ///< bytes from each member, in this stage
    std::vector<std::vector<std::byte>> parts;      ///< of this stage, by member
    std::vector<bool> came;                         ///< whether a member's part is here; its own always
    int missing = 0;                                ///< parts of this stage that have not come
    std::shared_ptr<int> unsent;                    ///< pieces that are not gone yet
    std::function<void(SocketExchange&)> complete;  ///< all parts are there: uses them, and begins the next stage or sets `done`
    bool done = false;
};

/// Used by the rank's thread alone, but for abort().
class SocketState {
public:
    SocketState(int rank, std::vector<Socket> connections, SocketOptions options);

    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] int size() const { return static_cast<int>(peers_.size()); }
    [[nodiscard]] model::CollectiveCounter& traffic() { return traffic_; }
    /// Of a group whose first member this rank is.
    [[nodiscard]] std::uint64_t next_group() { return (static_cast<std::uint64_t>(rank_) << 32U) + ++groups_; }
    /// How many groups this rank and that one have joined together before.
    [[nodiscard]] std::int64_t next_join(int with) { return peers_[static_cast<std::size_t>(with)].joins++; }

    /// Puts it in the queue to a rank. `data` stays until *unsent has been counted down; without `unsent` it is copied.
    void send(int to, SocketFrame frame, std::span<const std::byte> data, const std::shared_ptr<int>& unsent);
    /// Takes the parts of the exchange's stage that have come, and those to come.
    void begin_stage(const std::shared_ptr<SocketExchange>& exchange);
    /// Sends and receives what goes without waiting.
    void move() { progress(0); }
    /// Waits until the exchange is done and its pieces are gone.
    void wait(const SocketExchange& exchange);
    /// Waits for a single piece of data: a message, or a member's word when it joins.
    [[nodiscard]] std::vector<std::byte> wait_for(const SocketGroup& group, int member, SocketStage stage, std::int64_t sequence,
                                                  model::CollectiveKind kind, SocketFrame* frame = nullptr);
    /// Waits until all that was sent is gone, within limits. Never throws.
    void flush() noexcept;

    /// Throws where the world was ended.
    void check(const std::string& what);
    /// Ends the world: this rank's by the reason, the others' by the end of their connections. Any thread.
    void abort(const std::string& reason) noexcept;
    /// Forgets what is to be sent, whose memory is about to go; only behind an abort.
    void drop() noexcept;

private:
    using Clock = std::chrono::steady_clock;
    /// Group, sequence, stage, and the sender's rank in the world.
    using Key = std::tuple<std::uint64_t, std::int64_t, SocketStage, int>;

    struct Piece {
        SocketFrame frame;
        std::span<const std::byte> data;
        std::vector<std::byte> own;  ///< where it was copied
        std::shared_ptr<int> unsent;
        std::size_t gone = 0;  ///< bytes of frame and data
    };
    struct Peer {
        Socket socket;
        std::deque<Piece> out;
        SocketFrame frame;            ///< under way
        std::size_t got = 0;          ///< bytes of frame and data
        std::vector<std::byte> data;  ///< of the frame
        std::int64_t joins = 0;
        bool ended = false;
        Clock::time_point ended_at;
    };
    struct Part {
        SocketFrame frame;
        std::vector<std::byte> data;
    };

    void progress(int milliseconds);
    void write(Peer& peer);
    void read(int from, Peer& peer);
    void arrived(int from, const SocketFrame& frame, std::vector<std::byte> data);
    void take(SocketExchange& exchange, int member, const SocketFrame& frame, std::vector<std::byte> data);
    /// `needs`: ranks without which the condition cannot come true.
    void wait_until(const std::function<bool()>& condition, const std::function<std::vector<int>()>& needs, const std::string& what);
    [[noreturn]] void fail(const std::string& reason);

    int rank_;
    SocketOptions options_;
    std::vector<Peer> peers_;
    std::uint64_t groups_ = 0;
    std::map<std::pair<std::uint64_t, std::int64_t>, std::shared_ptr<SocketExchange>> open_;
    std::map<Key, Part> early_;
    model::CollectiveCounter traffic_;
    AbortReason abort_reason_;
};

}  // namespace mgplan::runtime
