#include "runtime/comm/in_process/in_process_communicator.hpp"

#include <exception>

#include <fmt/core.h>

#include "model/device/device.hpp"
#include "runtime/comm/reduce.hpp"
#include "runtime/comm/row_bytes.hpp"

namespace mgplan::runtime {
namespace {

using model::CollectiveKind;
using model::Pending;
using model::Tensor;

std::byte* memory(const Tensor& tensor) {
    if (tensor.elements() == 0) return nullptr;
    MGPLAN_ASSERT(tensor.device().kind() == model::DeviceKind::cpu || tensor.device().memory_operations() != nullptr,
                  "ranks as threads exchange host memory, or that of a device that moves it for them");
    return static_cast<std::byte*>(tensor.data());
}

/// Returns the copy operations of the tensor's device; nullptr on the host. Waits for the device's stream, because other ranks will
/// read that memory.
model::MemoryOperations* use(const Tensor& tensor) {
    model::Device& device = tensor.device();
    model::MemoryOperations* const operations = device.memory_operations();
    if (operations != nullptr) device.synchronize();
    return operations;
}

class Done final : public Pending {
public:
    void wait() override {}
};

/// Base of all pending operations: waits at most once, in the destructor at the latest.
class InProcessPending : public Pending {
public:
    InProcessPending(std::shared_ptr<Group> group, int rank, CollectiveKind kind) : group_(std::move(group)), rank_(rank), kind_(kind) {}

    void wait() final {
        if (finished_) return;
        finished_ = true;  // also when it throws
        finish();
    }

protected:
    // Called by the destructors below. The rank's partners may have stopped for good when an error unwinds past this.
    void finish_quietly() noexcept {
        if (finished_) return;
        try {
            if (std::uncaught_exceptions() > exceptions_) {
                board().abort(fmt::format("rank {} failed while {} in group {} was running", rank_, to_string(kind_), group_->text()));
            }
            wait();
        } catch (...) {  // whoever calls next hears of it
        }
    }

    [[nodiscard]] WaitBoard& board() const { return group_->board(); }
    [[nodiscard]] int rank() const { return rank_; }
    [[nodiscard]] CollectiveKind kind() const { return kind_; }
    [[nodiscard]] const Group& group() const { return *group_; }
    [[nodiscard]] model::CommunicationError error() const { return board().error(rank_, kind_, group_->text()); }

private:
    virtual void finish() = 0;

    std::shared_ptr<Group> group_;
    int rank_;
    CollectiveKind kind_;
    int exceptions_ = std::uncaught_exceptions();
    bool finished_ = false;
};

class PendingOperation final : public InProcessPending {
public:
    PendingOperation(std::shared_ptr<Group> group, int rank, int member, CollectiveKind kind, std::shared_ptr<Operation> operation)
        : InProcessPending(std::move(group), rank, kind), member_(member), operation_(std::move(operation)) {}
    ~PendingOperation() override { finish_quietly(); }

private:
    void finish() override {
        bool done = !board().aborted() && board().wait(rank(), *operation_, kind(), [this] { return operation_->ready(); });
        if (done) {
            operation_->work(member_);
            done = board().wait(rank(), *operation_, kind(), [this] { return operation_->done(); });
        }
        if (!done) {
            operation_->close();  // nobody may touch this rank's memory from here on
            throw error();
        }
    }

    int member_;
    std::shared_ptr<Operation> operation_;
};

class PendingReceive final : public InProcessPending {
public:
    PendingReceive(std::shared_ptr<Group> group, int rank, std::shared_ptr<Channel> channel, const Tensor& tensor)
        : InProcessPending(std::move(group), rank, CollectiveKind::receive),
          channel_(std::move(channel)),
          ticket_(channel_->next_ticket()),
          tensor_(tensor) {}
    ~PendingReceive() override { finish_quietly(); }

private:
    void finish() override {
        channel_->expect(ticket_);
        if (board().aborted() || !board().wait(rank(), *channel_, kind(), [this] { return channel_->has(ticket_); })) throw error();
        const TensorMessage message = channel_->take(ticket_);
        if (message.dtype != tensor_.dtype() || std::ssize(message.bytes) != tensor_.bytes()) {
            board().abort(fmt::format("rank {} expects {} bytes of {} and was sent {} bytes of {} in group {}", rank(), tensor_.bytes(),
                                      to_string(tensor_.dtype()), message.bytes.size(), to_string(message.dtype), group().text()));
            throw error();
        }
        if (!message.bytes.empty()) tensor_.device().write(tensor_, message.bytes.data());
    }

    std::shared_ptr<Channel> channel_;
    std::int64_t ticket_;
    Tensor tensor_;
};

}  // namespace

InProcessCommunicator::InProcessCommunicator(std::shared_ptr<Group> group, int member, std::shared_ptr<model::CollectiveCounter> traffic)
    : Communicator(group->name(), static_cast<int>(group->ranks().size()), member),
      shared_(std::move(group)),
      traffic_(std::move(traffic)) {}

void InProcessCommunicator::abort(const std::string& reason) noexcept {
    shared_->board().abort(reason);
}

void InProcessCommunicator::count(CollectiveKind kind, std::int64_t payload_bytes) {
    if (size() > 1) traffic_->add(group(), kind, payload_bytes);
}

std::unique_ptr<Pending> InProcessCommunicator::issue(Contribution contribution, std::int64_t payload_bytes) {
    WaitBoard& board = shared_->board();
    const CollectiveKind kind = contribution.kind;
    board.check(global_rank(), kind, shared_->text());
    board.note(global_rank(), kind, shared_->text());
    count(kind, payload_bytes);
    auto operation = shared_->operation(issued_++);
    // From arrive() on, others use this rank's memory: the pending object, which waits for them, must exist before.
    auto pending = std::make_unique<PendingOperation>(shared_, global_rank(), rank(), kind, operation);
    if (const auto complaint = operation->arrive(rank(), std::move(contribution))) {
        board.abort(*complaint);
        pending->wait();  // throws
    }
    return pending;
}

std::unique_ptr<Pending> InProcessCommunicator::do_all_reduce(const Tensor& tensor, model::Reduction reduction) {
    MGPLAN_ASSERT(reducible(tensor.dtype(), reduction), "numbers of this type can be reduced");
    return issue(
        {CollectiveKind::all_reduce, tensor.dtype(), reduction, 0, memory(tensor), memory(tensor), tensor.bytes(), {}, {}, use(tensor)},
        tensor.bytes());
}

std::unique_ptr<Pending> InProcessCommunicator::do_all_gather(const Tensor& part, const Tensor& whole) {
    return issue({CollectiveKind::all_gather, part.dtype(), {}, 0, memory(part), memory(whole), part.bytes(), {}, {}, use(part)},
                 part.bytes() * size());
}

std::unique_ptr<Pending> InProcessCommunicator::do_reduce_scatter(const Tensor& whole, const Tensor& part, model::Reduction reduction) {
    MGPLAN_ASSERT(reducible(whole.dtype(), reduction), "numbers of this type can be reduced");
    return issue(
        {CollectiveKind::reduce_scatter, whole.dtype(), reduction, 0, memory(whole), memory(part), whole.bytes(), {}, {}, use(whole)},
        whole.bytes());
}

std::unique_ptr<Pending> InProcessCommunicator::do_all_gather_rows(const Tensor& part, const Tensor& whole,
                                                                   std::span<const std::int64_t> rows) {
    Contribution contribution{
        CollectiveKind::all_gather, part.dtype(), {}, 0, memory(part), memory(whole), part.bytes(), {}, {}, use(part)};
    for (const auto each : rows) contribution.receive_bytes.push_back(each * row_bytes(whole));
    return issue(std::move(contribution), whole.bytes());
}

std::unique_ptr<Pending> InProcessCommunicator::do_reduce_scatter_rows(const Tensor& whole, const Tensor& part,
                                                                       std::span<const std::int64_t> rows, model::Reduction reduction) {
    MGPLAN_ASSERT(reducible(whole.dtype(), reduction), "numbers of this type can be reduced");
    Contribution contribution{
        CollectiveKind::reduce_scatter, whole.dtype(), reduction, 0, memory(whole), memory(part), whole.bytes(), {}, {}, use(whole)};
    for (const auto each : rows) contribution.send_bytes.push_back(each * row_bytes(whole));
    return issue(std::move(contribution), whole.bytes());
}

std::unique_ptr<Pending> InProcessCommunicator::do_all_to_all(const Tensor& from, const Tensor& to, std::span<const std::int64_t> send_rows,
                                                              std::span<const std::int64_t> receive_rows) {
    Contribution contribution{CollectiveKind::all_to_all, from.dtype(), {}, 0, memory(from), memory(to), 0, {}, {}, use(from)};
    for (const auto rows : send_rows) contribution.send_bytes.push_back(rows * row_bytes(from));
    for (const auto rows : receive_rows) contribution.receive_bytes.push_back(rows * row_bytes(to));
    for (const auto bytes : contribution.send_bytes) contribution.bytes += bytes;
    const std::int64_t payload_bytes = contribution.bytes;
    return issue(std::move(contribution), payload_bytes);
}

std::unique_ptr<Pending> InProcessCommunicator::do_broadcast(const Tensor& tensor, int root) {
    return issue({CollectiveKind::broadcast, tensor.dtype(), {}, root, memory(tensor), memory(tensor), tensor.bytes(), {}, {}, use(tensor)},
                 tensor.bytes());
}

void InProcessCommunicator::do_barrier() {
    issue({CollectiveKind::barrier, {}, {}, 0, nullptr, nullptr, 0, {}, {}, nullptr}, 0)->wait();
}

std::unique_ptr<Pending> InProcessCommunicator::do_send(const Tensor& tensor, int peer) {
    shared_->board().check(global_rank(), CollectiveKind::send, shared_->text());
    shared_->board().note(global_rank(), CollectiveKind::send, shared_->text());
    static_cast<void>(memory(tensor));
    std::vector<std::byte> bytes(static_cast<std::size_t>(tensor.bytes()));
    tensor.device().read(tensor, bytes.data());
    count(CollectiveKind::send, tensor.bytes());
    shared_->channel(rank(), peer)->put({tensor.dtype(), std::move(bytes)});
    return std::make_unique<Done>();
}

std::unique_ptr<Pending> InProcessCommunicator::do_receive(const Tensor& tensor, int peer) {
    shared_->board().check(global_rank(), CollectiveKind::receive, shared_->text());
    shared_->board().note(global_rank(), CollectiveKind::receive, shared_->text());
    static_cast<void>(memory(tensor));  // checked now, not when the message comes
    count(CollectiveKind::receive, tensor.bytes());
    return std::make_unique<PendingReceive>(shared_, global_rank(), shared_->channel(peer, rank()), tensor);
}

}  // namespace mgplan::runtime
