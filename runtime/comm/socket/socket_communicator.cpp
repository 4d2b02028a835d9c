#include "runtime/comm/socket/socket_communicator.hpp"

#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "model/device/device.hpp"
#include "runtime/comm/reduce.hpp"
#include "runtime/comm/row_bytes.hpp"

namespace mgplan::runtime {
namespace {

using model::CollectiveKind;
using model::Pending;
using model::Reduction;
using model::Tensor;

std::span<std::byte> memory(const Tensor& tensor) {
    if (tensor.elements() == 0) return {};
    MGPLAN_ASSERT(tensor.device().kind() == model::DeviceKind::cpu, "processes over TCP exchange host memory");
    return {static_cast<std::byte*>(tensor.data()), static_cast<std::size_t>(tensor.bytes())};
}

std::vector<std::int64_t> bytes_of_rows(const Tensor& tensor, std::span<const std::int64_t> rows) {
    std::vector<std::int64_t> bytes;
    for (const auto each : rows) bytes.push_back(each * row_bytes(tensor));
    return bytes;
}

/// One piece behind the other.
template <class Byte>
std::vector<std::span<Byte>> cut(std::span<Byte> whole, const std::vector<std::int64_t>& bytes) {
    std::vector<std::span<Byte>> pieces;
    std::size_t at = 0;
    for (const auto each : bytes) {
        pieces.push_back(whole.subspan(at, static_cast<std::size_t>(each)));
        at += static_cast<std::size_t>(each);
    }
    return pieces;
}

void copy(std::span<std::byte> to, std::span<const std::byte> from) {
    if (to.data() != from.data() && !from.empty()) std::memcpy(to.data(), from.data(), from.size());
}

/// Of the members' parts and this member's own piece, into `output`, in the order of the members.
void reduce(const SocketExchange& exchange, std::span<const std::byte> own, std::span<std::byte> output) {
    if (output.empty()) return;
    std::vector<const std::byte*> inputs;
    for (const auto& part : exchange.parts) inputs.push_back(part.data());
    inputs[static_cast<std::size_t>(exchange.group->place)] = own.data();
    std::byte* const to = output.data();
    reduce_in_order(exchange.frame.dtype, exchange.frame.reduction, inputs, std::span(&to, 1), 0,
                    std::ssize(output) / bytes_of(exchange.frame.dtype));
}

class Done final : public Pending {
public:
    void wait() override {}
};

/// Waited for at most once, by the destructor at the latest.
class SocketPending : public Pending {
public:
    explicit SocketPending(std::shared_ptr<SocketState> state) : state_(std::move(state)) {}
    void wait() final {
        if (finished_) return;
        finished_ = true;  // also when it throws
        try {
            finish();
        } catch (...) {
            state_->drop();  // the memory is about to go
            throw;
        }
    }

protected:
    void finish_quietly(const std::string& what) noexcept {
        if (finished_) return;
        try {
            if (std::uncaught_exceptions() > exceptions_) {
                state_->abort(fmt::format("rank {} failed while {} was running", state_->rank(), what));
                state_->drop();
                return;
            }
            wait();
        } catch (...) {  // whoever calls next hears of it
        }
    }
    [[nodiscard]] SocketState& state() const { return *state_; }

private:
    virtual void finish() = 0;

    std::shared_ptr<SocketState> state_;
    int exceptions_ = std::uncaught_exceptions();
    bool finished_ = false;
};

class PendingExchange final : public SocketPending {
public:
    PendingExchange(std::shared_ptr<SocketState> state, std::shared_ptr<SocketExchange> exchange)
        : SocketPending(std::move(state)), exchange_(std::move(exchange)) {}
    ~PendingExchange() override { finish_quietly(fmt::format("{} in group {}", to_string(exchange_->frame.kind), exchange_->group->text)); }

private:
    void finish() override { state().wait(*exchange_); }

    std::shared_ptr<SocketExchange> exchange_;
};

class PendingReceive final : public SocketPending {
public:
    PendingReceive(std::shared_ptr<SocketState> state, std::shared_ptr<SocketGroup> group, int member, const Tensor& tensor)
        : SocketPending(std::move(state)),
          group_(std::move(group)),
          member_(member),
          ticket_(group_->received[static_cast<std::size_t>(member)]++),
          tensor_(tensor) {}
    ~PendingReceive() override { finish_quietly("receive in group " + group_->text); }

private:
    void finish() override {
        SocketFrame frame;
        const auto bytes = state().wait_for(*group_, member_, SocketStage::message, ticket_, CollectiveKind::receive, &frame);
        if (frame.dtype != tensor_.dtype() || std::ssize(bytes) != tensor_.bytes()) {
            const std::string reason =
                fmt::format("rank {} expects {} bytes of {} and was sent {} bytes of {} in group {}", state().rank(), tensor_.bytes(),
                            to_string(tensor_.dtype()), bytes.size(), to_string(frame.dtype), group_->text);
            state().abort(reason);
            throw model::CommunicationError(reason);
        }
        copy(memory(tensor_), bytes);
    }

    std::shared_ptr<SocketGroup> group_;
    int member_;
    std::int64_t ticket_;
    Tensor tensor_;
};

}  // namespace

SocketCommunicator::SocketCommunicator(std::shared_ptr<SocketState> state, std::shared_ptr<SocketGroup> group)
    : Communicator(group->name, static_cast<int>(group->ranks.size()), group->place), state_(std::move(state)), shared_(std::move(group)) {}

void SocketCommunicator::abort(const std::string& reason) noexcept {
    state_->abort(reason);
}

void SocketCommunicator::send_all(const SocketExchange& exchange, const Pieces& pieces) {
    for (int member = 0; member < size(); ++member) {
        if (member != rank())
            state_->send(shared_->ranks[static_cast<std::size_t>(member)], exchange.frame, pieces[static_cast<std::size_t>(member)],
                         exchange.unsent);
    }
}

std::unique_ptr<Pending> SocketCommunicator::issue(SocketFrame frame, std::int64_t payload_bytes, const Pieces& pieces,
                                                   std::vector<std::int64_t> expected, std::function<void(SocketExchange&)> complete) {
    state_->check(fmt::format("{} in group {}", to_string(frame.kind), shared_->text));
    if (size() > 1) state_->traffic().add(group(), frame.kind, payload_bytes);
    auto exchange = std::make_shared<SocketExchange>();
    exchange->group = shared_;
    exchange->frame = frame;
    exchange->frame.group = shared_->number;
    exchange->frame.sequence = shared_->issued++;
    exchange->expected = std::move(expected);
    exchange->unsent = std::make_shared<int>(0);
    exchange->complete = std::move(complete);
    // From here on the tensors' memory is used: the pending object stands guard before.
    auto pending = std::make_unique<PendingExchange>(state_, exchange);
    send_all(*exchange, pieces);
    state_->begin_stage(exchange);
    state_->move();
    return pending;
}

std::unique_ptr<Pending> SocketCommunicator::do_all_reduce(const Tensor& tensor, Reduction reduction) {
    MGPLAN_ASSERT(reducible(tensor.dtype(), reduction), "numbers of this type can be reduced");
    // Each member adds up a piece of the elements and hands the sums to all.
    const std::int64_t element = bytes_of(tensor.dtype()), elements = tensor.elements(), n = size();
    std::vector<std::int64_t> bytes;
    for (std::int64_t i = 0; i < n; ++i) bytes.push_back(element * (elements * (i + 1) / n - elements * i / n));
    const auto pieces = cut(memory(tensor), bytes);
    const auto own = pieces[static_cast<std::size_t>(rank())];
    const auto complete = [this, pieces, own, bytes](SocketExchange& exchange) {
        if (exchange.frame.stage == SocketStage::first) {
            reduce(exchange, own, own);
            exchange.frame.stage = SocketStage::second;
            exchange.expected = bytes;
            send_all(exchange, Pieces(pieces.size(), own));
            state_->begin_stage(exchange.shared_from_this());
            return;
        }
        for (std::size_t member = 0; member < pieces.size(); ++member) {
            if (static_cast<int>(member) != exchange.group->place) copy(pieces[member], exchange.parts[member]);
        }
        exchange.done = true;
    };
    return issue({.kind = CollectiveKind::all_reduce, .dtype = tensor.dtype(), .reduction = reduction, .whole_bytes = tensor.bytes()},
                 tensor.bytes(), Pieces(pieces.begin(), pieces.end()), std::vector(pieces.size(), std::ssize(own)), complete);
}

std::unique_ptr<Pending> SocketCommunicator::gather(const Tensor& part, const Tensor& whole, std::vector<std::int64_t> bytes) {
    const auto places = cut(memory(whole), bytes);
    const std::span<const std::byte> own = memory(part);
    return issue({.kind = CollectiveKind::all_gather, .dtype = part.dtype(), .whole_bytes = whole.bytes()}, whole.bytes(),
                 Pieces(places.size(), own), std::move(bytes), [places, own](SocketExchange& exchange) {
                     for (std::size_t member = 0; member < places.size(); ++member) {
                         const bool mine = static_cast<int>(member) == exchange.group->place;
                         copy(places[member], mine ? own : std::span<const std::byte>(exchange.parts[member]));
                     }
                     exchange.done = true;
                 });
}

std::unique_ptr<Pending> SocketCommunicator::do_all_gather(const Tensor& part, const Tensor& whole) {
    return gather(part, whole, std::vector(static_cast<std::size_t>(size()), part.bytes()));
}

std::unique_ptr<Pending> SocketCommunicator::do_all_gather_rows(const Tensor& part, const Tensor& whole,
                                                                std::span<const std::int64_t> rows) {
    return gather(part, whole, bytes_of_rows(whole, rows));
}

std::unique_ptr<Pending> SocketCommunicator::scatter(const Tensor& whole, const Tensor& part, std::vector<std::int64_t> bytes,
                                                     Reduction reduction) {
    MGPLAN_ASSERT(reducible(whole.dtype(), reduction), "numbers of this type can be reduced");
    const auto pieces = cut(memory(whole), bytes);
    const std::span<const std::byte> own = pieces[static_cast<std::size_t>(rank())];
    const std::span<std::byte> output = memory(part);
    return issue({.kind = CollectiveKind::reduce_scatter, .dtype = whole.dtype(), .reduction = reduction, .whole_bytes = whole.bytes()},
                 whole.bytes(), Pieces(pieces.begin(), pieces.end()), std::vector(pieces.size(), std::ssize(own)),
                 [own, output](SocketExchange& exchange) {
                     reduce(exchange, own, output);
                     exchange.done = true;
                 });
}

std::unique_ptr<Pending> SocketCommunicator::do_reduce_scatter(const Tensor& whole, const Tensor& part, Reduction reduction) {
    return scatter(whole, part, std::vector(static_cast<std::size_t>(size()), part.bytes()), reduction);
}

std::unique_ptr<Pending> SocketCommunicator::do_reduce_scatter_rows(const Tensor& whole, const Tensor& part,
                                                                    std::span<const std::int64_t> rows, Reduction reduction) {
    return scatter(whole, part, bytes_of_rows(whole, rows), reduction);
}

std::unique_ptr<Pending> SocketCommunicator::do_all_to_all(const Tensor& from, const Tensor& to, std::span<const std::int64_t> send_rows,
                                                           std::span<const std::int64_t> receive_rows) {
    const auto sent = bytes_of_rows(from, send_rows);
    auto received = bytes_of_rows(to, receive_rows);
    const auto pieces = cut(memory(from), sent), places = cut(memory(to), received);
    const std::span<const std::byte> own = pieces[static_cast<std::size_t>(rank())];
    return issue({.kind = CollectiveKind::all_to_all, .dtype = from.dtype()}, std::accumulate(sent.begin(), sent.end(), std::int64_t{0}),
                 Pieces(pieces.begin(), pieces.end()), std::move(received), [places, own](SocketExchange& exchange) {
                     for (std::size_t member = 0; member < places.size(); ++member) {
                         const bool mine = static_cast<int>(member) == exchange.group->place;
                         copy(places[member], mine ? own : std::span<const std::byte>(exchange.parts[member]));
                     }
                     exchange.done = true;
                 });
}

std::unique_ptr<Pending> SocketCommunicator::do_broadcast(const Tensor& tensor, int root) {
    const auto members = static_cast<std::size_t>(size());
    const std::span<std::byte> to = memory(tensor);
    // The others' words are empty, so that all agree on what they do.
    std::vector<std::int64_t> expected(members, 0);
    if (rank() != root) expected[static_cast<std::size_t>(root)] = tensor.bytes();
    const Pieces pieces(members, rank() == root ? std::span<const std::byte>(to) : std::span<const std::byte>());
    return issue({.kind = CollectiveKind::broadcast, .dtype = tensor.dtype(), .root = root, .whole_bytes = tensor.bytes()}, tensor.bytes(),
                 pieces, std::move(expected), [to, root](SocketExchange& exchange) {
                     if (exchange.group->place != root) copy(to, exchange.parts[static_cast<std::size_t>(root)]);
                     exchange.done = true;
                 });
}

void SocketCommunicator::do_barrier() {
    const auto members = static_cast<std::size_t>(size());
    issue({.kind = CollectiveKind::barrier}, 0, Pieces(members), std::vector<std::int64_t>(members, 0), [](SocketExchange& exchange) {
        exchange.done = true;
    })->wait();
}

std::unique_ptr<Pending> SocketCommunicator::do_send(const Tensor& tensor, int peer) {
    state_->check("send in group " + shared_->text);
    state_->traffic().add(group(), CollectiveKind::send, tensor.bytes());
    SocketFrame frame{.group = shared_->number, .kind = CollectiveKind::send, .dtype = tensor.dtype(), .stage = SocketStage::message};
    frame.sequence = shared_->sent[static_cast<std::size_t>(peer)]++;
    state_->send(shared_->ranks[static_cast<std::size_t>(peer)], frame, memory(tensor), nullptr);
    state_->move();
    return std::make_unique<Done>();
}

std::unique_ptr<Pending> SocketCommunicator::do_receive(const Tensor& tensor, int peer) {
    state_->check("receive in group " + shared_->text);
    static_cast<void>(memory(tensor));  // checked now, not when the message comes
    state_->traffic().add(group(), CollectiveKind::receive, tensor.bytes());
    return std::make_unique<PendingReceive>(state_, shared_, peer, tensor);
}

}  // namespace mgplan::runtime
