#include "runtime/comm/socket/socket_state.hpp"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/core.h>

namespace mgplan::runtime {

using model::CommunicationError;

namespace {

using namespace std::chrono_literals;

/// How long the end of a connection is no reason yet: SocketOptions::ended tells a better one soon.
constexpr auto kGrace = 1s;
/// How long an end waits until what was sent is gone.
constexpr auto kFarewell = 10s;
/// Data of a frame, more than any tensor has.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 42;
/// What is read from one rank before the others have their turn.
constexpr std::size_t kTurn = std::size_t{4} << 20;

std::string text(const SocketFrame& frame) {
    return fmt::format("{} of {} bytes of {}", to_string(frame.kind), frame.whole_bytes, mgplan::to_string(frame.dtype));
}

bool alike(const SocketFrame& a, const SocketFrame& b) {
    return a.kind == b.kind && a.dtype == b.dtype && a.reduction == b.reduction && a.root == b.root && a.whole_bytes == b.whole_bytes;
}

bool passing(int error) {
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

}  // namespace

SocketState::SocketState(int rank, std::vector<Socket> connections, SocketOptions options)
    : rank_(rank), options_(std::move(options)), peers_(connections.size()) {
    for (std::size_t i = 0; i < connections.size(); ++i) {
        MGPLAN_ASSERT(connections[i].open() != (static_cast<int>(i) == rank), "there is a connection to each other rank");
        peers_[i].socket = std::move(connections[i]);
    }
}

void SocketState::send(int to, SocketFrame frame, std::span<const std::byte> data, const std::shared_ptr<int>& unsent) {
    Peer& peer = peers_[static_cast<std::size_t>(to)];
    frame.bytes = std::ssize(data);
    Piece piece{frame, data, {}, unsent};
    if (unsent == nullptr) {
        piece.own.assign(data.begin(), data.end());
        piece.data = piece.own;
    } else {
        ++*unsent;
    }
    peer.out.push_back(std::move(piece));
}

void SocketState::begin_stage(const std::shared_ptr<SocketExchange>& exchange) {
    const SocketGroup& group = *exchange->group;
    exchange->missing = static_cast<int>(group.ranks.size()) - 1;
    exchange->parts.assign(group.ranks.size(), {});
    exchange->came.assign(group.ranks.size(), false);
    exchange->came[static_cast<std::size_t>(group.place)] = true;
    if (exchange->missing == 0) return exchange->complete(*exchange);
    const SocketStage stage = exchange->frame.stage;
    open_[{group.number, exchange->frame.sequence}] = exchange;
    for (std::size_t member = 0; member < group.ranks.size() && !exchange->done && exchange->frame.stage == stage; ++member) {
        const auto found = early_.find({group.number, exchange->frame.sequence, stage, group.ranks[member]});
        if (found == early_.end()) continue;
        Part part = std::move(found->second);
        early_.erase(found);
        take(*exchange, static_cast<int>(member), part.frame, std::move(part.data));
    }
}

void SocketState::take(SocketExchange& exchange, int member, const SocketFrame& frame, std::vector<std::byte> data) {
    const SocketGroup& group = *exchange.group;
    const auto index = static_cast<std::size_t>(member);
    if (!alike(frame, exchange.frame)) {
        fail(fmt::format("rank {} came with {}, rank {} with {} as the same operation of group {}", rank_, text(exchange.frame),
                         group.ranks[index], text(frame), group.text));
    }
    if (frame.bytes != exchange.expected[index]) {
        fail(fmt::format("rank {} sends {} bytes to rank {}, which expects {}, in {} of group {}", group.ranks[index], frame.bytes, rank_,
                         exchange.expected[index], to_string(frame.kind), group.text));
    }
    exchange.parts[index] = std::move(data);
    exchange.came[index] = true;
    if (--exchange.missing > 0) return;
    const auto key = std::pair{group.number, exchange.frame.sequence};
    const auto self = open_.at(key);  // stays while it completes
    exchange.complete(exchange);
    if (exchange.done) open_.erase(key);
}

void SocketState::arrived(int from, const SocketFrame& frame, std::vector<std::byte> data) {
    const auto found = open_.find({frame.group, frame.sequence});
    if (frame.stage <= SocketStage::second && found != open_.end() && found->second->frame.stage == frame.stage) {
        const auto exchange = found->second;
        const auto& ranks = exchange->group->ranks;
        const auto member = std::find(ranks.begin(), ranks.end(), from) - ranks.begin();
        if (member == std::ssize(ranks))
            fail(fmt::format("rank {}, which is not in group {}, sent {} there", from, exchange->group->text, text(frame)));
        take(*exchange, static_cast<int>(member), frame, std::move(data));
        return;
    }
    if (!early_.try_emplace({frame.group, frame.sequence, frame.stage, from}, Part{frame, std::move(data)}).second)
        fail(fmt::format("rank {} sent {} twice", from, text(frame)));
}

void SocketState::write(Peer& peer) {
    while (!peer.out.empty()) {
        Piece& piece = peer.out.front();
        const std::size_t head = sizeof(SocketFrame), all = head + piece.data.size();
        std::array<iovec, 2> parts{};
        int count = 0;
        if (piece.gone < head) parts[count++] = {reinterpret_cast<char*>(&piece.frame) + piece.gone, head - piece.gone};
        const std::size_t done = piece.gone < head ? 0 : piece.gone - head;
        if (done < piece.data.size())
            parts[count++] = {const_cast<std::byte*>(piece.data.data()) + done, piece.data.size() - done};  // sendmsg() reads it
        msghdr message{};
        message.msg_iov = parts.data();
        message.msg_iovlen = static_cast<std::size_t>(count);
        const auto sent = ::sendmsg(peer.socket.file(), &message, MSG_NOSIGNAL);
        if (sent < 0) return;  // there is no room; or the partner is gone, which reading tells, behind what it sent before
        piece.gone += static_cast<std::size_t>(sent);
        if (piece.gone < all) return;
        if (piece.unsent != nullptr) --*piece.unsent;
        peer.out.pop_front();
    }
}

void SocketState::read(int from, Peer& peer) {
    constexpr std::size_t kHead = sizeof(SocketFrame);
    for (std::size_t taken = 0; taken < kTurn;) {
        const bool in_head = peer.got < kHead;
        std::byte* const to = in_head ? reinterpret_cast<std::byte*>(&peer.frame) + peer.got : peer.data.data() + (peer.got - kHead);
        const std::size_t room = in_head ? kHead - peer.got : kHead + peer.data.size() - peer.got;
        if (room > 0) {
            const auto got = ::recv(peer.socket.file(), to, room, 0);
            if (got < 0 && passing(errno)) return;
            if (got <= 0) {
                peer.ended = true;
                peer.ended_at = Clock::now();
                return;
            }
            peer.got += static_cast<std::size_t>(got);
            taken += static_cast<std::size_t>(got);
        }
        if (in_head && peer.got == kHead) {
            if (peer.frame.bytes < 0 || peer.frame.bytes > kMostBytes || peer.frame.stage > SocketStage::joining)
                fail(fmt::format("rank {} sent what is no data of mgplan", from));
            peer.data.resize(static_cast<std::size_t>(peer.frame.bytes));
        }
        if (peer.got >= kHead && peer.got == kHead + peer.data.size()) {
            peer.got = 0;
            arrived(from, peer.frame, std::exchange(peer.data, {}));
        }
    }
}

void SocketState::progress(int milliseconds) {
    std::vector<pollfd> polled;
    std::vector<int> ranks;
    for (int rank = 0; rank < size(); ++rank) {
        Peer& peer = peers_[static_cast<std::size_t>(rank)];
        if (rank == rank_ || peer.ended) continue;
        write(peer);
        polled.push_back({peer.socket.file(), static_cast<short>(POLLIN | (peer.out.empty() ? 0 : POLLOUT)), 0});
        ranks.push_back(rank);
    }
    if (::poll(polled.data(), polled.size(), milliseconds) <= 0) return;
    for (std::size_t i = 0; i < polled.size(); ++i) {
        Peer& peer = peers_[static_cast<std::size_t>(ranks[i])];
        if ((polled[i].revents & POLLOUT) != 0) write(peer);
        if ((polled[i].revents & ~POLLOUT) != 0 && !peer.ended) read(ranks[i], peer);
    }
}

void SocketState::wait_until(const std::function<bool()>& condition, const std::function<std::vector<int>()>& needs,
                             const std::string& what) {
    const auto until = Clock::now() + options_.deadline;
    check(what);
    progress(0);
    while (!condition()) {
        check(what);
        if (options_.ended) {
            if (const std::string why = options_.ended(); !why.empty()) fail(fmt::format("rank {}: {} ended: {}", rank_, what, why));
        }
        const auto now = Clock::now();
        for (const int rank : needs()) {
            const Peer& peer = peers_[static_cast<std::size_t>(rank)];
            if (peer.ended && now - peer.ended_at > kGrace)
                fail(fmt::format("rank {}: {} waits for rank {}, whose connection ended", rank_, what, rank));
        }
        if (now > until)
            fail(fmt::format("rank {}: {} was not done after {} ms; a partner is dead or hangs", rank_, what, options_.deadline.count()));
        progress(20);
    }
}

void SocketState::wait(const SocketExchange& exchange) {
    const SocketGroup& group = *exchange.group;
    wait_until([&] { return exchange.done && *exchange.unsent == 0; },
               [&] {
                   std::vector<int> ranks;
                   for (std::size_t member = 0; member < group.ranks.size(); ++member) {
                       const int rank = group.ranks[member];
                       const bool comes = !exchange.done && !exchange.came[member];
                       if (rank != rank_ && (comes || !peers_[static_cast<std::size_t>(rank)].out.empty())) ranks.push_back(rank);
                   }
                   return ranks;
               },
               fmt::format("{} in group {}", to_string(exchange.frame.kind), group.text));
}

std::vector<std::byte> SocketState::wait_for(const SocketGroup& group, int member, SocketStage stage, std::int64_t sequence,
                                             model::CollectiveKind kind, SocketFrame* frame) {
    const int from = group.ranks[static_cast<std::size_t>(member)];
    const Key key{stage == SocketStage::joining ? 0 : group.number, sequence, stage, from};
    wait_until([&] { return early_.contains(key); }, [&] { return std::vector{from}; },
               fmt::format("{} in group {}", stage == SocketStage::joining ? "joining" : to_string(kind), group.text));
    Part part = std::move(early_.extract(key).mapped());
    if (frame != nullptr) *frame = part.frame;
    return std::move(part.data);
}

void SocketState::flush() noexcept {
    try {
        const auto until = Clock::now() + kFarewell;
        const auto busy = [this] {
            return std::any_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.ended && !peer.out.empty(); });
        };
        while (!abort_reason_.given() && busy() && Clock::now() < until) progress(20);
    } catch (const std::exception&) {  // whoever waits for it hears of the end
    }
}

void SocketState::check(const std::string& what) {
    abort_reason_.check(rank_, what);
}

void SocketState::fail(const std::string& reason) {
    // What is queued goes out first: in it the others see the same fault, where they would see an end without a reason.
    for (Peer& peer : peers_) {
        if (peer.socket.open() && !peer.ended) write(peer);
    }
    abort(reason);
    throw CommunicationError(abort_reason_.text());
}

void SocketState::abort(const std::string& reason) noexcept {
    if (!abort_reason_.set(reason)) return;
    // Sockets stay open, so that another thread may do so while this rank's waits.
    for (const Peer& peer : peers_) {
        if (peer.socket.open()) ::shutdown(peer.socket.file(), SHUT_RDWR);
    }
}

void SocketState::drop() noexcept {
    for (Peer& peer : peers_) peer.out.clear();
}

}  // namespace mgplan::runtime
