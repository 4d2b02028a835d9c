#include "runtime/comm/socket/connect_ranks.hpp"

#include <netinet/in.h>
#include <poll.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <list>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "plan/errors.hpp"
#include "runtime/launch/node_name.hpp"
#include "runtime/rendezvous/stranger_log.hpp"

namespace mgplan::runtime {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

/// Beside the ranks, so many connections may be unknown at one time; one more, and the oldest of them goes.
constexpr std::size_t kStrangers = 64;
/// What a rank answers when it has let another one in.
constexpr char kLetIn = '!';

std::string data_protocol(int size) {
    return fmt::format("mgplan data 2, world of {}, {}-endian", size, std::endian::native == std::endian::little ? "little" : "big");
}

/// Where this rank listens, port 0.
Address own_address(const RendezvousOptions& meeting) {
    Address address;
    if (!meeting.interface.empty()) {
        address = addresses_of_interface(meeting.interface).front();
    } else {
        // A datagram socket learns its address from the way there, and sends nothing.
        int why = 0;
        for (const Address& there : resolve(meeting.host, meeting.port)) {
            const Socket socket(::socket(there.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
            if (socket.open() && ::connect(socket.file(), reinterpret_cast<const sockaddr*>(&there.storage), there.length) == 0) {
                address = meeting.rank == 0 ? there : local_address(socket);
                break;
            }
            why = errno;
        }
        if (address.length == 0) {
            throw RunError(fmt::format("rank {}: no way leads to MASTER_ADDR = {} ({})", meeting.rank, meeting.host, std::strerror(why)));
        }
    }
    address.set_port(0);
    return address;
}

bool of_one_machine(const Address& address) {
    if (address.storage.ss_family == AF_INET6) {
        const auto& number = reinterpret_cast<const sockaddr_in6*>(&address.storage)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(&number) != 0;
    }
    return (ntohl(reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr.s_addr) >> 24U) == IN_LOOPBACKNET;
}

/// As the rendezvous carries it: the address's bytes and the machine's name.
std::string told(const Address& address) {
    return std::string(reinterpret_cast<const char*>(&address.storage), address.length) + "\n" + node_name(process_environment());
}

struct Told {
    Address address;
    std::string node;
};

std::optional<Told> read_told(const std::string& text) {
    Told told;
    for (const std::size_t length : {sizeof(sockaddr_in), sizeof(sockaddr_in6)}) {
        if (text.size() <= length || text[length] != '\n') continue;
        std::memcpy(&told.address.storage, text.data(), length);
        if (told.address.storage.ss_family != (length == sizeof(sockaddr_in) ? AF_INET : AF_INET6)) continue;
        told.address.length = static_cast<socklen_t>(length);
        told.node = text.substr(length + 1);
        return told;
    }
    return std::nullopt;
}

std::string key_of(int rank) {
    return fmt::format("data of rank {}", rank);
}

class Meeting {
public:
    Meeting(Rendezvous& rendezvous, const RendezvousOptions& meeting)
        : rendezvous_(rendezvous),
          meeting_(meeting),
          until_(Clock::now() + meeting.join_deadline),
          connections_(static_cast<std::size_t>(meeting.size)) {}

    std::vector<Socket> connect() {
        const Address own = own_address(meeting_);
        const Socket listener = listen_at(own);
        if (!listener.open()) {
            throw RunError(
                fmt::format("rank {} cannot listen at {} for the other ranks ({}); set MGPLAN_INTERFACE to an interface where it "
                            "can",
                            meeting_.rank, own.text(), std::strerror(errno)));
        }
        rendezvous_.set(key_of(meeting_.rank), told(local_address(listener)));
        // Nobody waits for an answer before all who come are let in, so there is no circle.
        for (int rank = 0; rank < meeting_.rank; ++rank) begin(find(rank));
        let_in(listener);
        for (const Other& other : others_) wait_for_answer(other);
        return std::move(connections_);
    }

private:
    struct Other {
        int rank = 0;
        Address address;
    };

    /// Where a rank listens.
    const Other& find(int rank) {
        const auto other = read_told(rendezvous_.get(key_of(rank)));
        if (!other) throw RunError(fmt::format("rank {}: rank {} told an address that is none", meeting_.rank, rank));
        const std::string here = node_name(process_environment());
        if (of_one_machine(other->address) && other->node != here) {
            throw ConfigError(fmt::format(
                "rank {} on {} cannot reach rank {} at {} of {}; set MGPLAN_INTERFACE on all ranks to the interface that connects the "
                "machines, or MASTER_ADDR to a number that they reach",
                meeting_.rank, here, rank, other->address.text(), other->node));
        }
        return others_.emplace_back(Other{rank, other->address});
    }

    /// Connects to it and greets it.
    void begin(const Other& other) {
        Address from;
        if (!meeting_.interface.empty()) from = addresses_of_interface(meeting_.interface).front();
        if (from.storage.ss_family != other.address.storage.ss_family) from = {};
        Socket socket = connect_to(other.address, from, until_);
        std::string hello =
            socket.open() ? to_wire({MessageKind::hello, meeting_.rank, data_protocol(meeting_.size), meeting_.secret}) : "";
        while (!hello.empty() && write_some(socket, hello) != Transfer::ended && Clock::now() < until_) {
            if (!hello.empty()) std::this_thread::sleep_for(1ms);
        }
        if (!socket.open() || !hello.empty()) throw unreachable(other, std::strerror(errno));
        connections_[static_cast<std::size_t>(other.rank)] = std::move(socket);
    }

    /// Comes again where it was taken for one stranger too many.
    void wait_for_answer(const Other& other) {
        Socket& socket = connections_[static_cast<std::size_t>(other.rank)];
        for (;;) {
            check_job("waiting to be let in");
            pollfd polled{socket.file(), POLLIN, 0};
            static_cast<void>(::poll(&polled, 1, 50));
            char answer = 0;
            const auto got = ::recv(socket.file(), &answer, 1, 0);
            if (got == 1 && answer == kLetIn) return;
            if (got == 1) throw unreachable(other, "something else answers there");
            if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) {
                if (Clock::now() > until_) throw unreachable(other, "it does not answer");
                continue;
            }
            if (Clock::now() > until_) throw unreachable(other, "it closes connections");
            std::this_thread::sleep_for(50ms);
            begin(other);
        }
    }

    [[nodiscard]] RunError unreachable(const Other& other, const std::string& why) const {
        return RunError(fmt::format("rank {} cannot reach rank {} at {} ({}); is there a firewall between the machines?", meeting_.rank,
                                    other.rank, other.address.text(), why));
    }

    void check_job(std::string_view what) const {
        if (const std::string reason = rendezvous_.reason(); !reason.empty())
            throw RunError(fmt::format("rank {}, {}: {}", meeting_.rank, what, reason));
    }

    struct Stranger {
        Socket socket;
        Address from;
        std::string bytes;  ///< of its hello, and not one more: what comes behind is data
        Clock::time_point since;
    };

    using Strangers = std::list<Stranger>;

    void let_in(const Socket& listener) {
        Strangers strangers;
        for (int missing = meeting_.size - 1 - meeting_.rank; missing > 0;) {
            check_job("meeting the others");
            if (Clock::now() > until_) {
                std::vector<int> absent;
                for (int rank = meeting_.rank + 1; rank < meeting_.size; ++rank) {
                    if (!connections_[static_cast<std::size_t>(rank)].open()) absent.push_back(rank);
                }
                throw RunError(fmt::format(
                    "rank {}: ranks {} did not connect to it within {} s{}; is there a firewall between the machines?", meeting_.rank,
                    fmt::join(absent, ", "), std::chrono::duration<double>(meeting_.join_deadline).count(), log_.text()));
            }
            std::vector<pollfd> polled{{listener.file(), POLLIN, 0}};
            for (const Stranger& each : strangers) polled.push_back({each.socket.file(), POLLIN, 0});
            static_cast<void>(::poll(polled.data(), polled.size(), 50));
            for (auto each = strangers.begin(); each != strangers.end();) {
                const bool late = Clock::now() - each->since > meeting_.hello_deadline;
                each = settle(strangers, each, late, missing);
            }
            accept_strangers(listener, strangers, missing);
        }
    }

    void accept_strangers(const Socket& listener, Strangers& strangers, int& missing) {
        constexpr int kMostAtOnce = 256;
        for (int i = 0; i < kMostAtOnce; ++i) {
            Socket socket = accept_from(listener);
            if (!socket.open()) {
                const int why = errno;
                if (why != EMFILE && why != ENFILE) return;
                if (strangers.empty())
                    throw RunError(fmt::format("rank {} can open no more connections ({}); raise the limit (ulimit -n)", meeting_.rank,
                                               std::strerror(why)));
                settle(strangers, strangers.begin(), true, missing);
                continue;
            }
            const Address from = peer_address(socket);
            strangers.push_back({std::move(socket), from, {}, Clock::now()});
            // A greeting that is there counts before room is made.
            settle(strangers, std::prev(strangers.end()), false, missing);
            if (strangers.size() > kStrangers + static_cast<std::size_t>(meeting_.size))
                settle(strangers, strangers.begin(), true, missing);
        }
    }

    /// Lets it in where its greeting is there, and drops it where that is none, or `late`; the next one.
    Strangers::iterator settle(Strangers& strangers, Strangers::iterator stranger, bool late, int& missing) {
        const std::optional<bool> known = hear(*stranger);
        if (!known && !late) return std::next(stranger);
        if (known == true)
            --missing;
        else
            log_.note(known ? StrangerLog::Kind::no_greeting : StrangerLog::Kind::silent, stranger->from);
        return strangers.erase(stranger);
    }

    /// Whether it is a rank that is let in; nothing while it has not said all.
    std::optional<bool> hear(Stranger& stranger) {
        constexpr std::size_t kLength = 4;
        for (;;) {
            std::size_t all = kLength;
            if (stranger.bytes.size() >= kLength) {
                std::size_t rest = 0;
                for (std::size_t i = 0; i < kLength; ++i) rest |= std::size_t{static_cast<unsigned char>(stranger.bytes[i])} << (8 * i);
                if (rest > kMostHelloBytes) return false;
                all += rest;
            }
            if (stranger.bytes.size() == all && all > kLength) return welcome(stranger);
            std::array<char, kMostHelloBytes + kLength> bytes;  // NOLINT(cppcoreguidelines-pro-type-member-init): written by recv
            const auto got = ::recv(stranger.socket.file(), bytes.data(), all - stranger.bytes.size(), 0);
            if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return std::nullopt;
            if (got <= 0) return false;
            stranger.bytes.append(bytes.data(), static_cast<std::size_t>(got));
        }
    }

    bool welcome(Stranger& stranger) {
        try {
            MessageReader reader;
            reader.feed(stranger.bytes);
            const auto hello = reader.next();
            if (!hello || hello->kind != MessageKind::hello || hello->key != data_protocol(meeting_.size) ||
                !equal_secrets(hello->value, meeting_.secret))
                return false;
            if (hello->number <= meeting_.rank || hello->number >= meeting_.size) return false;
            Socket& place = connections_[static_cast<std::size_t>(hello->number)];
            if (place.open()) return false;
            std::string answer(1, kLetIn);
            if (write_some(stranger.socket, answer) != Transfer::moved) return false;
            place = std::move(stranger.socket);
            return true;
        } catch (const MessageError&) {
            return false;
        }
    }

    Rendezvous& rendezvous_;
    const RendezvousOptions& meeting_;
    Clock::time_point until_;
    std::vector<Socket> connections_;
    std::list<Other> others_;  ///< those that this rank connects to
    StrangerLog log_;
};

}  // namespace

std::vector<Socket> connect_ranks(Rendezvous& rendezvous, const RendezvousOptions& meeting) {
    return Meeting(rendezvous, meeting).connect();
}

}  // namespace mgplan::runtime
