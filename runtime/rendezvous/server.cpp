#include "runtime/rendezvous/server.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "runtime/rendezvous/rendezvous.hpp"

namespace mgplan::runtime {
namespace {

using namespace std::chrono_literals;

/// Most unknown connections at one time besides the ranks; with one more, the oldest of them is closed.
constexpr std::size_t kStrangers = 64;
/// Most bytes that may wait for one rank to read them, most bytes that all ranks together may keep here, and most open requests of a rank.
constexpr std::size_t kMostQueued = 4U << 20U, kMostStored = 64U << 20U, kMostAsked = 1024;
constexpr auto kFarewell = 2s;

Socket listen(const RendezvousOptions& options) {
    std::vector<Address> addresses =
        options.interface.empty() ? resolve(options.host, options.port) : addresses_of_interface(options.interface);
    int why = 0;
    for (Address& address : addresses) {
        address.set_port(options.port);
        Socket socket = listen_at(address);
        if (socket.open()) return socket;
        why = errno;
    }
    const std::string place = addresses.front().text();
    switch (why) {
        case EADDRINUSE:
            throw ConfigError(fmt::format(
                "port {} of {} is taken, by another job or another rank 0; set MASTER_PORT, or MGPLAN_PORT, to a free one on all ranks",
                options.port, place));
        case EADDRNOTAVAIL:
            throw ConfigError(
                fmt::format("MASTER_ADDR = {} ({}) is no address of this machine, where rank 0 is; set it to one on all ranks, or "
                            "MGPLAN_INTERFACE to the interface to listen at",
                            options.host, place));
        case EACCES:
            throw ConfigError(
                fmt::format("port {} may not be opened by this user; set MASTER_PORT, or MGPLAN_PORT, to one above 1023", options.port));
        default:
            throw ConfigError(
                fmt::format("rank 0 cannot listen at {} ({}); set MASTER_ADDR and MASTER_PORT to where it can", place, std::strerror(why)));
    }
}

std::string last_seen(const std::string& where) {
    return where.empty() ? std::string() : "; last seen " + where;
}

}  // namespace

RendezvousServer::RendezvousServer(RendezvousOptions options)
    : options_(std::move(options)),
      protocol_(rendezvous_protocol(options_.size)),
      listener_(listen(options_)),
      address_(local_address(listener_)),
      began_(Clock::now()),
      beat_(began_) {
    thread_ = std::thread([this] { serve(); });
}

RendezvousServer::~RendezvousServer() {
    stop_ = true;
    waker_.wake();
    thread_.join();
}

bool RendezvousServer::all_written() const {
    return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.out.empty(); });
}

void RendezvousServer::serve() {
    auto last = Clock::now();
    std::optional<Clock::time_point> stopping;
    for (;;) {
        wait_for_events();
        const auto now = Clock::now();
        // When this process itself did not run (stopped from outside, a laptop asleep), the ranks were not silent.
        if (const auto gap = now - last; gap > options_.silence / 2) {
            for (Peer& peer : peers_) {
                peer.heard += gap;
                peer.since += gap;
            }
            began_ += gap;
        }
        last = now;
        accept_strangers(now);
        for (Peer& peer : peers_) read(peer, now);
        check_times(now);
        // Rank 0 last: it may end its process as soon as it hears of an abort.
        for (const bool own : {false, true}) {
            for (Peer& peer : peers_) {
                if (own == (peer.rank == 0) && !peer.out.empty() && write_some(peer.socket, peer.out) == Transfer::ended) gone(peer);
            }
        }
        std::erase_if(peers_, [](const Peer& peer) { return !peer.socket.open() || (peer.closing && peer.out.empty()); });
        if (stop_ && !stopping) stopping = now + kFarewell;
        if (stopping && (all_written() || now > *stopping)) return;
    }
}

void RendezvousServer::wait_for_events() {
    std::vector<pollfd> polled{{waker_.file(), POLLIN, 0}, {listener_.file(), POLLIN, 0}};
    for (const Peer& peer : peers_)
        polled.push_back({peer.socket.file(), static_cast<short>((peer.closing ? 0 : POLLIN) | (peer.out.empty() ? 0 : POLLOUT)), 0});
    static_cast<void>(::poll(polled.data(), polled.size(), 50));
    waker_.clear();
}

void RendezvousServer::accept_strangers(Clock::time_point now) {
    // Most connections accepted in one turn, so that messages of known ranks are read in between.
    constexpr int kMostAtOnce = 256;
    auto unknown = static_cast<std::size_t>(
        std::count_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.rank && peer.socket.open(); }));
    for (int i = 0; i < kMostAtOnce; ++i) {
        Socket socket = accept_from(listener_);
        if (!socket.open()) {
            if (errno != EMFILE && errno != ENFILE) return;
            if (make_room()) {
                --unknown;
                continue;
            }
            return abort(fmt::format("rank 0 can open no more connections than {} (ulimit -n); raise the limit", peers_.size()),
                         kAbortFailed);
        }
        Peer& peer = peers_.emplace_back();
        peer.address = peer_address(socket);
        peer.socket = std::move(socket);
        peer.from = peer.address.text();
        peer.reader.limit(kMostHelloBytes);
        peer.since = peer.heard = now;
        read(peer, now);  // a greeting that is there counts before room is made
        if (peer.rank || !peer.socket.open()) continue;
        if (++unknown > kStrangers + static_cast<std::size_t>(options_.size) && make_room()) --unknown;
    }
}

bool RendezvousServer::make_room() {
    // peers_ is in the order of arrival.
    const auto oldest = std::find_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return !peer.rank && peer.socket.open(); });
    if (oldest == peers_.end()) return false;
    drop_stranger(*oldest);
    return true;
}

void RendezvousServer::drop_stranger(Peer& peer) {
    if (!peer.closing) strangers_.note(StrangerLog::Kind::silent, peer.address);
    peer.socket.close();
    peer.out.clear();
}

void RendezvousServer::read(Peer& peer, Clock::time_point now) {
    if (peer.closing || !peer.socket.open()) return;
    try {
        std::string bytes;
        const Transfer transfer = read_some(peer.socket, bytes);
        if (transfer == Transfer::ended) return gone(peer);
        if (transfer == Transfer::would_block) return;
        peer.heard = now;
        peer.reader.feed(bytes);
        while (!peer.closing && peer.socket.open()) {
            auto message = peer.reader.next();
            if (!message) return;
            handle(peer, std::move(*message));
        }
    } catch (const MessageError& error) {
        peer.closing = true;
        if (peer.rank) {
            abort(fmt::format("rank {} ({}) sent rank 0 {}; start the same mgplan everywhere", *peer.rank, peer.from, error.what()),
                  kAbortFailed);
        } else {
            strangers_.note(StrangerLog::Kind::no_greeting, peer.address);
        }
    }
}

void RendezvousServer::gone(Peer& peer) {
    if (!peer.rank) return drop_stranger(peer);
    peer.socket.close();
    peer.out.clear();
    if (!peer.left) {
        abort(fmt::format("rank {} ({}) ended without a word{}", *peer.rank, peer.from, last_seen(peer.where)), kAbortFailed);
    }
}

void RendezvousServer::handle(Peer& peer, RendezvousMessage message) {
    if (!peer.rank) {
        if (message.kind != MessageKind::hello) throw MessageError("something else than a hello first");
        return welcome(peer, message);
    }
    switch (message.kind) {
        case MessageKind::heartbeat:
            peer.where = std::move(message.value);
            return;
        case MessageKind::set: {
            store_bytes_ += message.key.size() + message.value.size();
            if (store_bytes_ > kMostStored)
                return abort(fmt::format("rank {} sets more than the {} bytes that ranks may keep at rank 0", *peer.rank, kMostStored),
                             kAbortFailed);
            store_[message.key] = std::move(message.value);
            return answer_gets(message.key);
        }
        case MessageKind::get:
            if (peer.asked.size() >= kMostAsked)
                return abort(fmt::format("rank {} asks for more than {} values at once", *peer.rank, kMostAsked), kAbortFailed);
            peer.asked.insert(message.key);
            return answer_gets(message.key);
        case MessageKind::abort:
            return abort(message.value, message.number == kAbortBadInput ? kAbortBadInput : kAbortFailed);
        case MessageKind::leave:
            if (!peer.left) ++left_;
            peer.left = true;
            if (left_ == options_.size) send_all({MessageKind::leave, 0, "", ""});
            return;
        default:
            throw MessageError(fmt::format("a message of kind {}, which only rank 0 sends", static_cast<int>(message.kind)));
    }
}

void RendezvousServer::welcome(Peer& peer, const RendezvousMessage& hello) {
    const auto refuse = [&](const std::string& why, int code = kAbortBadInput) {
        send(peer, {MessageKind::refusal, code, "", why});
        peer.closing = true;
    };
    if (!equal_secrets(hello.value, options_.secret)) {
        strangers_.note(StrangerLog::Kind::wrong_secret, peer.address);
        return refuse("its MGPLAN_SECRET is not rank 0's; set the same on all ranks of a job, or another MASTER_PORT for each job");
    }
    std::string problem;
    if (hello.key != protocol_) {
        problem = fmt::format("rank {} ({}) says '{}' and rank 0 '{}'; start the same mgplan with the same WORLD_SIZE everywhere",
                              hello.number, peer.from, hello.key.substr(0, 60), protocol_);
    } else if (hello.number < 0 || hello.number >= options_.size) {
        problem = fmt::format("{} says it is rank {} of a world of {}; ranks count from 0", peer.from, hello.number, options_.size);
    } else {
        for (const Peer& other : peers_) {
            if (other.rank == hello.number) {
                problem = fmt::format("two processes say they are rank {}: {} and {}; give each its own RANK", hello.number, other.from,
                                      peer.from);
            }
        }
    }
    if (!problem.empty()) {
        refuse(problem);
        return abort(problem, kAbortBadInput);
    }
    if (aborted_) return refuse(reason_, code_);
    peer.rank = hello.number;
    peer.reader.limit(kMostMessageBytes);
    if (++joined_ == options_.size) {
        complete_ = true;
        send_all({MessageKind::welcome, 0, "", ""});
    }
}

void RendezvousServer::answer_gets(const std::string& key) {
    const auto found = store_.find(key);
    if (found == store_.end()) return;
    for (Peer& peer : peers_) {
        if (peer.asked.erase(key) != 0) send(peer, {MessageKind::value, 0, key, found->second});
    }
}

void RendezvousServer::check_times(Clock::time_point now) {
    const bool beats = now - beat_ >= options_.heartbeat;
    if (beats) beat_ = now;
    for (Peer& peer : peers_) {
        if (!peer.socket.open()) continue;
        const auto quiet = now - peer.heard;
        if (!peer.rank) {
            if (now - peer.since > options_.hello_deadline) drop_stranger(peer);
            continue;
        }
        if (peer.closing) {
            if (quiet > options_.hello_deadline) peer.socket.close();
            continue;
        }
        if (beats) send(peer, {MessageKind::heartbeat, 0, "", ""});
        const auto millis = std::chrono::duration_cast<std::chrono::milliseconds>(quiet).count();
        if (quiet > options_.silence && !peer.left) {
            abort(fmt::format("rank {} ({}) has been silent for {} ms: it hangs, is stopped, or its machine is gone{}", *peer.rank,
                              peer.from, millis, last_seen(peer.where)),
                  kAbortFailed);
        }
    }
    if (!complete_ && !aborted_ && now - began_ > options_.join_deadline) {
        abort(fmt::format("{} not come to {} within {} s{}; look for {} on the other machines", missing(), address_.text(),
                          std::chrono::duration<double>(options_.join_deadline).count(), strangers_.text(),
                          options_.size - joined_ == 1 ? "its message" : "their messages"),
              kAbortFailed);
    }
}

std::string RendezvousServer::missing() const {
    constexpr std::size_t kMostListed = 16;
    std::set<int> there;
    for (const Peer& peer : peers_) {
        if (peer.rank) there.insert(*peer.rank);
    }
    std::vector<int> absent;
    for (int rank = 0; rank < options_.size; ++rank) {
        if (!there.contains(rank)) absent.push_back(rank);
    }
    const std::size_t count = absent.size();
    absent.resize(std::min(count, kMostListed));
    return fmt::format("rank{} {}{} of {} {}", count == 1 ? "" : "s", fmt::join(absent, ", "),
                       count > kMostListed ? fmt::format(" … ({} in all)", count) : "", options_.size, count == 1 ? "has" : "have");
}

void RendezvousServer::abort(const std::string& reason, int code) {
    if (aborted_) return;
    aborted_ = true;
    reason_ = reason.substr(0, kMostValueBytes);
    code_ = code;
    send_all({MessageKind::abort, code_, "", reason_});
}

void RendezvousServer::send(Peer& peer, const RendezvousMessage& message) {
    if (!peer.socket.open() || peer.closing) return;
    if (peer.out.size() > kMostQueued) {
        peer.closing = true;
        peer.out.clear();
        if (peer.rank)
            abort(fmt::format("rank {} ({}) does not read what it is sent{}", *peer.rank, peer.from, last_seen(peer.where)), kAbortFailed);
        return;
    }
    peer.out += to_wire(message);
}

void RendezvousServer::send_all(const RendezvousMessage& message) {
    for (Peer& peer : peers_) {
        if (peer.rank) send(peer, message);
    }
}

}  // namespace mgplan::runtime
