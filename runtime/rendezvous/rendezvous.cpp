#include "runtime/rendezvous/rendezvous.hpp"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/core.h>

#include "plan/text/errors.hpp"

namespace mgplan::runtime {
namespace {

using namespace std::chrono_literals;

/// Most bytes that may wait to be sent: many times more than a rank ever sends.
constexpr std::size_t kMostSending = 4U << 20U;

}  // namespace

std::string rendezvous_protocol(int size) {
    return fmt::format("mgplan rendezvous 1, world of {}", size);
}

Rendezvous::Rendezvous(RendezvousOptions options, OnAbort on_abort) : options_(std::move(options)), on_abort_(std::move(on_abort)) {
    MGPLAN_ASSERT(options_.size >= 1 && options_.rank >= 0 && options_.rank < options_.size, "the rank is inside the world");
    join_until_ = Clock::now() + options_.join_deadline;
    if (options_.rank == 0) server_ = std::make_unique<RendezvousServer>(options_);
    connect();
    send(hello());
    // Rank 0 can name the missing ranks, so its deadline is to pass first; it may have begun to wait just before this rank connected.
    join_until_ = Clock::now() + options_.join_deadline + 5s;
    thread_ = std::thread([this] { talk(); });
    try {
        std::unique_lock lock(mutex_);
        changed_.wait_until(lock, join_until_, [this] { return ended_ || answered_; });
        if (!ended_ && !answered_) throw RunError(unanswered());
        wait(lock, join_until_, "waiting for all ranks to come", [this] { return welcome_; });
    } catch (...) {
        {
            const std::scoped_lock lock(mutex_);
            stop_ = true;
        }
        waker_.wake();
        thread_.join();
        throw;
    }
}

Rendezvous::~Rendezvous() {
    {
        const std::scoped_lock lock(mutex_);
        stop_ = true;
    }
    waker_.wake();
    thread_.join();
}

RendezvousMessage Rendezvous::hello() const {
    return {MessageKind::hello, options_.rank, rendezvous_protocol(options_.size), options_.secret};
}

bool Rendezvous::try_to_connect(std::chrono::milliseconds longest) {
    for (const Address& address : addresses_) {
        if (from_.length != 0 && from_.storage.ss_family != address.storage.ss_family) continue;
        socket_ = connect_to(address, from_, std::min(join_until_, Clock::now() + longest));
        const int why = errno;
        const std::scoped_lock lock(mutex_);
        server_text_ = address.text();
        if (socket_.open()) return true;
        why_ = std::strerror(why);
    }
    return false;
}

void Rendezvous::connect() {
    if (server_) {
        addresses_.push_back(server_->address());
    } else {
        addresses_ = resolve(options_.host, options_.port);
        if (!options_.interface.empty()) from_ = addresses_of_interface(options_.interface).front();
    }
    for (;;) {
        if (try_to_connect(10s)) return;
        if (Clock::now() + 50ms > join_until_) break;
        std::this_thread::sleep_for(50ms);
    }
    throw RunError(unanswered());
}

std::string Rendezvous::unanswered() const {
    return fmt::format(
        "rank {}: rank 0 did not answer at {} (MASTER_ADDR = {}) within {} s ({}); see that it runs, and that MASTER_ADDR, MASTER_PORT and "
        "MGPLAN_INTERFACE are those of its machine",
        options_.rank, server_text_, options_.host, std::chrono::duration<double>(options_.join_deadline).count(),
        why_.empty() ? "what listens there takes connections and says nothing" : why_);
}

template <class Condition>
void Rendezvous::wait(std::unique_lock<std::mutex>& lock, Clock::time_point until, const std::string& what, Condition condition) {
    const bool came = changed_.wait_until(lock, until, [&] { return ended_ || condition(); });
    throw_if_ended(what);
    if (!came) throw RunError(fmt::format("rank {}: {} took too long; another rank is slow or hangs", options_.rank, what));
}

void Rendezvous::throw_if_ended(const std::string& what) const {
    if (!ended_) return;
    const std::string text = fmt::format("rank {}, {}: {}", options_.rank, what, reason_);
    if (code_ == kAbortBadInput) throw ConfigError(text);
    throw RunError(text);
}

void Rendezvous::send(const RendezvousMessage& message) {
    {
        const std::scoped_lock lock(mutex_);
        if (ended_) return;
        if (out_.size() > kMostSending) return;  // rank 0 does not read: its silence is noticed
        out_ += to_wire(message);
    }
    waker_.wake();
}

void Rendezvous::set(const std::string& key, const std::string& value) {
    MGPLAN_ASSERT(key.size() <= kMostKeyBytes && value.size() <= kMostValueBytes, "keys and values are within their bounds");
    {
        const std::scoped_lock lock(mutex_);
        throw_if_ended("setting " + key);
    }
    send({MessageKind::set, 0, key, value});
}

std::string Rendezvous::get(const std::string& key) {
    send({MessageKind::get, 0, key, ""});
    std::unique_lock lock(mutex_);
    wait(lock, Clock::now() + options_.deadline, "waiting for " + key, [&] { return values_.contains(key); });
    return values_.extract(key).mapped();
}

std::vector<std::byte> Rendezvous::from_rank_0(const std::vector<std::byte>& mine) {
    const std::string key = fmt::format("bytes of rank 0, number {}", turn_++);
    if (options_.rank == 0) {
        set(key, {reinterpret_cast<const char*>(mine.data()), mine.size()});
        return mine;
    }
    const std::string value = get(key);
    const auto* const bytes = reinterpret_cast<const std::byte*>(value.data());
    return {bytes, bytes + value.size()};
}

void Rendezvous::at(std::string_view what, std::string_view group) {
    const std::scoped_lock lock(mutex_);
    what_ = what;
    group_ = group;
}

std::string Rendezvous::where() const {
    const std::scoped_lock lock(mutex_);
    if (what_.empty()) return "before its first operation";
    return group_.empty() ? fmt::format("in {}", what_) : fmt::format("in {} in group {}", what_, group_);
}

std::string Rendezvous::reason() const {
    const std::scoped_lock lock(mutex_);
    return reason_;
}

int Rendezvous::code() const {
    const std::scoped_lock lock(mutex_);
    return code_;
}

void Rendezvous::abort(const std::string& reason, int code) noexcept {
    try {
        send({MessageKind::abort, code, "", reason.substr(0, kMostValueBytes)});
        std::unique_lock lock(mutex_);
        if (ended_) return;
        // Rank 0 sends it back to all: then it has arrived.
        on_abort_ = nullptr;
        changed_.wait_for(lock, 2s, [this] { return ended_; });
    } catch (...) {  // the others will miss this rank's heartbeat
    }
}

void Rendezvous::leave() {
    send({MessageKind::leave, 0, "", ""});
    std::unique_lock lock(mutex_);
    wait(lock, Clock::now() + options_.deadline, "waiting for the others to be done", [this] { return over_; });
}

void Rendezvous::end(const std::string& reason, int code, bool tell) {
    OnAbort call;
    {
        const std::scoped_lock lock(mutex_);
        if (ended_ || over_) return;
        ended_ = true;
        reason_ = reason;
        code_ = code;
        // Before all have come the constructor throws.
        if (tell && welcome_ && !stop_) call = std::exchange(on_abort_, nullptr);
    }
    changed_.notify_all();
    if (call) call(reason);
}

void Rendezvous::handle(RendezvousMessage message) {
    switch (message.kind) {
        case MessageKind::heartbeat:
            return;
        case MessageKind::welcome:
        case MessageKind::leave:
        case MessageKind::value: {
            const std::scoped_lock lock(mutex_);
            if (message.kind == MessageKind::welcome) welcome_ = true;
            if (message.kind == MessageKind::leave) over_ = true;
            if (message.kind == MessageKind::value) values_[message.key] = std::move(message.value);
            changed_.notify_all();
            return;
        }
        case MessageKind::refusal:
            return end(fmt::format("rank 0 at {} refuses it: {}", server_text_, message.value), message.number, false);
        case MessageKind::abort:
            return end(message.value, message.number, true);
        default:
            throw MessageError(fmt::format("a message of kind {}, which rank 0 never sends", static_cast<int>(message.kind)));
    }
}

void Rendezvous::talk() {
    auto heard = Clock::now(), beat = heard, last = heard;
    bool answered = false;
    std::optional<Clock::time_point> stopping;
    std::string bytes;
    for (;;) {
        bool writes = false;
        {
            const std::scoped_lock lock(mutex_);
            // The remaining messages are sent first, if the peer still reads.
            if (stop_ && !stopping) stopping = Clock::now() + 1s;
            if (ended_ || (stopping && (out_.empty() || Clock::now() > *stopping))) return;
            writes = !out_.empty();
        }
        std::array<pollfd, 2> polled{pollfd{waker_.file(), POLLIN, 0},
                                     pollfd{socket_.file(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), 0}};
        static_cast<void>(::poll(polled.data(), polled.size(), 50));
        waker_.clear();
        const auto now = Clock::now();
        // When this process itself did not run, rank 0 was not silent.
        if (now - last > options_.silence / 2) heard += now - last;
        last = now;
        if (now - beat >= options_.heartbeat) {
            beat = now;
            const std::string place = where();
            const std::scoped_lock lock(mutex_);
            if (welcome_ || out_.empty()) out_ += to_wire({MessageKind::heartbeat, 0, "", place.substr(0, kMostKeyBytes)});
        }
        bool lost = false;
        {
            const std::scoped_lock lock(mutex_);
            if (!out_.empty()) lost = write_some(socket_, out_) == Transfer::ended;
        }
        try {
            bytes.clear();
            const Transfer transfer = read_some(socket_, bytes);
            if (transfer == Transfer::moved) {
                heard = now;
                if (!answered) {
                    answered = true;
                    const std::scoped_lock lock(mutex_);
                    answered_ = true;
                    changed_.notify_all();
                }
                reader_.feed(bytes);
                while (auto message = reader_.next()) handle(std::move(*message));
            }
            lost = lost || transfer == Transfer::ended;
        } catch (const MessageError& error) {
            end(fmt::format("what answers at {} is no rank 0 of mgplan: it sent {}; set MASTER_PORT, or MGPLAN_PORT, to a free port",
                            server_text_, error.what()),
                kAbortBadInput, true);
        }
        if (lost && !answered) {
            // Rank 0 may have closed this connection as a stranger's, one too many: connects once more, until the constructor's deadline.
            std::this_thread::sleep_for(50ms);
            reader_ = {};
            const bool again = try_to_connect(1s);
            const std::scoped_lock lock(mutex_);
            if (again) why_ = "it closes connections without a word: rank 0 has just ended, or it is no rank 0 of mgplan";
            out_ = again ? to_wire(hello()) : std::string();
            last = heard = Clock::now();
            continue;
        }
        if (lost) {
            end(fmt::format("rank 0 ({}) ended without a word", server_text_), kAbortFailed, true);
            return;  // all have left, if it was not too early
        }
        // Before its first message rank 0 may be waiting for something else; the constructor has a deadline.
        if (answered && now - heard > options_.silence + 2 * options_.heartbeat) {
            end(fmt::format("rank 0 ({}) has been silent for {} ms: it hangs, is stopped, or its machine is gone", server_text_,
                            std::chrono::duration_cast<std::chrono::milliseconds>(now - heard).count()),
                kAbortFailed, true);
        }
    }
}

}  // namespace mgplan::runtime
