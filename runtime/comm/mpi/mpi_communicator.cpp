#include "runtime/comm/mpi/mpi_communicator.hpp"

#include <cstring>
#include <exception>
#include <functional>
#include <limits>

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
using State = MpiWorld::State;

std::byte* memory(const Tensor& tensor) {
    if (tensor.elements() == 0) return nullptr;
    MGPLAN_ASSERT(tensor.device().kind() == model::DeviceKind::cpu, "MPI ranks exchange host memory");
    return static_cast<std::byte*>(tensor.data());
}

/// A request, what it needs until it is done, and what is left to do then.
class PendingRequest final : public Pending {
public:
    PendingRequest(std::shared_ptr<State> state, CollectiveKind kind, const std::string& text)
        : state_(std::move(state)), what_(to_string(kind).data()), text_(text) {}
    ~PendingRequest() override {
        // An error unwinds past a running operation: the partners may never come, and only abort() is left. Until that ends
        // the process nothing here is used again.
        if (std::uncaught_exceptions() > exceptions_) return;
        try {
            wait();
        } catch (const std::exception& error) {
            state_->abort(error.what());
        }
    }

    void wait() override {
        if (finished_) return;
        finished_ = true;
        MPI_Status status;
        state_->wait(request, what_, text_, &status);
        if (after) after(status);
    }

    void check(int code, const char* call) {
        if (code != MPI_SUCCESS) finished_ = true;
        state_->check(code, call, what_, text_);
    }

    MPI_Request request = MPI_REQUEST_NULL;
    std::vector<std::byte> staged_in;
    std::vector<std::byte> staged_out;
    std::vector<int> numbers;  ///< counts and places of an all-to-all
    std::function<void(const MPI_Status&)> after;

private:
    std::shared_ptr<State> state_;
    const char* what_;  // the data of a string_view of a literal, so it ends with a zero
    const std::string& text_;
    int exceptions_ = std::uncaught_exceptions();
    bool finished_ = false;
};

class Done final : public Pending {
public:
    void wait() override {}
};

/// MPI's type to add up numbers of a type: bf16 travels as fp32, so that it is rounded once.
struct Arithmetic {
    MPI_Datatype type;
    std::int64_t element_bytes;
    bool widened;
};

Arithmetic arithmetic_of(Dtype dtype, Reduction reduction) {
    MGPLAN_ASSERT(reducible(dtype, reduction), "numbers of this type can be reduced");
    switch (dtype) {
        case Dtype::fp64:
            return {MPI_DOUBLE, 8, false};
        case Dtype::int32:
            return {MPI_INT32_T, 4, false};
        case Dtype::bf16:
            return {MPI_FLOAT, 4, true};
        default:
            return {MPI_FLOAT, 4, false};
    }
}

template <class Number>
void divide(void* numbers, std::int64_t count, int ranks) {
    auto* first = static_cast<Number*>(numbers);
    for (std::int64_t i = 0; i < count; ++i) first[i] /= static_cast<Number>(ranks);
}

/// Finishes the result in MPI's buffer, with the division of an average and the rounding of bf16, and writes it to the tensor.
void finish_reduction(const Arithmetic& arithmetic, Reduction reduction, int ranks, std::byte* reduced, std::byte* to, std::int64_t count) {
    if (reduction == Reduction::average) {
        if (arithmetic.type == MPI_DOUBLE) {
            divide<double>(reduced, count, ranks);
        } else {
            divide<float>(reduced, count, ranks);
        }
    }
    if (arithmetic.widened) {
        narrow_to_bf16(reinterpret_cast<const float*>(reduced), reinterpret_cast<std::uint16_t*>(to), count);
    } else if (reduced != to) {
        std::memcpy(to, reduced, static_cast<std::size_t>(count * arithmetic.element_bytes));
    }
}

bool overlap(const std::byte* a, std::int64_t a_bytes, const std::byte* b, std::int64_t b_bytes) {
    const std::less<> before;
    return before(a, b + b_bytes) && before(b, a + a_bytes);
}

}  // namespace

MpiCommunicator::MpiCommunicator(std::shared_ptr<MpiWorld::State> state, MPI_Comm communicator, std::string group, const std::string& text,
                                 int size, int member)
    : Communicator(std::move(group), size, member), state_(std::move(state)), communicator_(communicator), text_(text) {}

int MpiCommunicator::call_count(std::int64_t count, CollectiveKind kind) const {
    if (count > std::numeric_limits<int>::max()) {
        throw model::CommunicationError(fmt::format(
            "rank {}, {} in group {}: {} elements or bytes in one call, and MPI counts to 2147483647; make the bucket or tensor smaller",
            state_->rank, to_string(kind), text_, count));
    }
    return static_cast<int>(count);
}

void MpiCommunicator::count(CollectiveKind kind, std::int64_t payload_bytes) {
    if (size() > 1) state_->traffic.add(group(), kind, payload_bytes);
}

std::unique_ptr<Pending> MpiCommunicator::do_all_reduce(const Tensor& tensor, Reduction reduction) {
    const Arithmetic arithmetic = arithmetic_of(tensor.dtype(), reduction);
    const std::int64_t elements = tensor.elements();
    const int calls = call_count(elements, CollectiveKind::all_reduce);
    count(CollectiveKind::all_reduce, tensor.bytes());
    auto pending = std::make_unique<PendingRequest>(state_, CollectiveKind::all_reduce, text_);
    std::byte* const numbers = memory(tensor);
    std::byte* reduced = numbers;
    if (arithmetic.widened) {
        pending->staged_in.resize(static_cast<std::size_t>(elements * arithmetic.element_bytes));
        reduced = pending->staged_in.data();
        widen_bf16(tensor.as<std::uint16_t>(), reinterpret_cast<float*>(reduced), elements);
    }
    const MPI_Op op = reduction != Reduction::maximum ? MPI_SUM : tensor.dtype() == Dtype::int32 ? MPI_MAX : state_->maximum;
    pending->check(MPI_Iallreduce(MPI_IN_PLACE, reduced, calls, arithmetic.type, op, communicator_, &pending->request), "MPI_Iallreduce");
    pending->after = [=, ranks = size()](const MPI_Status&) { finish_reduction(arithmetic, reduction, ranks, reduced, numbers, elements); };
    return pending;
}

std::unique_ptr<Pending> MpiCommunicator::do_reduce_scatter(const Tensor& whole, const Tensor& part, Reduction reduction) {
    const Arithmetic arithmetic = arithmetic_of(whole.dtype(), reduction);
    const std::int64_t elements = part.elements();
    const int calls = call_count(elements, CollectiveKind::reduce_scatter);
    count(CollectiveKind::reduce_scatter, whole.bytes());
    auto pending = std::make_unique<PendingRequest>(state_, CollectiveKind::reduce_scatter, text_);
    std::byte* const to = memory(part);
    const std::byte* from = memory(whole);
    std::byte* reduced = to;
    if (arithmetic.widened) {
        pending->staged_in.resize(static_cast<std::size_t>(whole.elements() * arithmetic.element_bytes));
        widen_bf16(whole.as<std::uint16_t>(), reinterpret_cast<float*>(pending->staged_in.data()), whole.elements());
        from = pending->staged_in.data();
    }
    if (arithmetic.widened || overlap(from, whole.bytes(), to, part.bytes())) {  // MPI wants them apart
        pending->staged_out.resize(static_cast<std::size_t>(elements * arithmetic.element_bytes));
        reduced = pending->staged_out.data();
    }
    const MPI_Op op = reduction != Reduction::maximum ? MPI_SUM : whole.dtype() == Dtype::int32 ? MPI_MAX : state_->maximum;
    pending->check(MPI_Ireduce_scatter_block(from, reduced, calls, arithmetic.type, op, communicator_, &pending->request),
                   "MPI_Ireduce_scatter_block");
    pending->after = [=, ranks = size()](const MPI_Status&) { finish_reduction(arithmetic, reduction, ranks, reduced, to, elements); };
    return pending;
}

std::unique_ptr<Pending> MpiCommunicator::do_all_gather(const Tensor& part, const Tensor& whole) {
    const int bytes = call_count(part.bytes(), CollectiveKind::all_gather);
    count(CollectiveKind::all_gather, part.bytes() * size());
    auto pending = std::make_unique<PendingRequest>(state_, CollectiveKind::all_gather, text_);
    const bool in_place = memory(part) == memory(whole) + part.bytes() * rank();
    pending->check(MPI_Iallgather(in_place ? MPI_IN_PLACE : memory(part), bytes, MPI_BYTE, memory(whole), bytes, MPI_BYTE, communicator_,
                                  &pending->request),
                   "MPI_Iallgather");
    return pending;
}

std::unique_ptr<Pending> MpiCommunicator::do_all_gather_rows(const Tensor& part, const Tensor& whole, std::span<const std::int64_t> rows) {
    auto pending = std::make_unique<PendingRequest>(state_, CollectiveKind::all_gather, text_);
    for (const auto each : rows) pending->numbers.push_back(call_count(each * row_bytes(whole), CollectiveKind::all_gather));
    std::int64_t at = 0;
    for (const auto each : rows) {
        pending->numbers.push_back(call_count(at, CollectiveKind::all_gather));
        at += each * row_bytes(whole);
    }
    count(CollectiveKind::all_gather, whole.bytes());
    const int* const numbers = pending->numbers.data();
    pending->check(MPI_Iallgatherv(memory(part), static_cast<int>(part.bytes()), MPI_BYTE, memory(whole), numbers, numbers + size(),
                                   MPI_BYTE, communicator_, &pending->request),
                   "MPI_Iallgatherv");
    return pending;
}

std::unique_ptr<Pending> MpiCommunicator::do_reduce_scatter_rows(const Tensor& whole, const Tensor& part,
                                                                 std::span<const std::int64_t> rows, Reduction reduction) {
    const Arithmetic arithmetic = arithmetic_of(whole.dtype(), reduction);
    const std::int64_t elements = part.elements();
    auto pending = std::make_unique<PendingRequest>(state_, CollectiveKind::reduce_scatter, text_);
    for (const auto each : rows) {
        pending->numbers.push_back(call_count(each * row_bytes(whole) / bytes_of(whole.dtype()), CollectiveKind::reduce_scatter));
    }
    count(CollectiveKind::reduce_scatter, whole.bytes());
    const std::byte* from = memory(whole);
    std::byte* const to = memory(part);
    std::byte* reduced = to;
    if (arithmetic.widened) {
        pending->staged_in.resize(static_cast<std::size_t>(whole.elements() * arithmetic.element_bytes));
        widen_bf16(whole.as<std::uint16_t>(), reinterpret_cast<float*>(pending->staged_in.data()), whole.elements());
        from = pending->staged_in.data();
        pending->staged_out.resize(static_cast<std::size_t>(elements * arithmetic.element_bytes));
        reduced = pending->staged_out.data();
    }
    const MPI_Op op = reduction != Reduction::maximum ? MPI_SUM : whole.dtype() == Dtype::int32 ? MPI_MAX : state_->maximum;
    pending->check(MPI_Ireduce_scatter(from, reduced, pending->numbers.data(), arithmetic.type, op, communicator_, &pending->request),
                   "MPI_Ireduce_scatter");
    pending->after = [=, ranks = size()](const MPI_Status&) { finish_reduction(arithmetic, reduction, ranks, reduced, to, elements); };
    return pending;
}

std::unique_ptr<Pending> MpiCommunicator::do_all_to_all(const Tensor& from, const Tensor& to, std::span<const std::int64_t> send_rows,
                                                        std::span<const std::int64_t> receive_rows) {
    auto pending = std::make_unique<PendingRequest>(state_, CollectiveKind::all_to_all, text_);
    std::int64_t sent = 0;
    const auto add = [&](std::span<const std::int64_t> rows, std::int64_t bytes_of_row) {
        std::int64_t at = 0;
        for (const auto each : rows) {
            pending->numbers.push_back(call_count(each * bytes_of_row, CollectiveKind::all_to_all));
            at += each * bytes_of_row;
        }
        const std::int64_t total = at;
        at = 0;
        for (const auto each : rows) {
            pending->numbers.push_back(call_count(at, CollectiveKind::all_to_all));
            at += each * bytes_of_row;
        }
        return total;
    };
    sent = add(send_rows, row_bytes(from));
    add(receive_rows, row_bytes(to));
    count(CollectiveKind::all_to_all, sent);
    const int* const numbers = pending->numbers.data();
    pending->check(MPI_Ialltoallv(memory(from), numbers, numbers + size(), MPI_BYTE, memory(to), numbers + 2 * size(), numbers + 3 * size(),
                                  MPI_BYTE, communicator_, &pending->request),
                   "MPI_Ialltoallv");
    return pending;
}

std::unique_ptr<Pending> MpiCommunicator::do_broadcast(const Tensor& tensor, int root) {
    const int bytes = call_count(tensor.bytes(), CollectiveKind::broadcast);
    count(CollectiveKind::broadcast, tensor.bytes());
    auto pending = std::make_unique<PendingRequest>(state_, CollectiveKind::broadcast, text_);
    pending->check(MPI_Ibcast(memory(tensor), bytes, MPI_BYTE, root, communicator_, &pending->request), "MPI_Ibcast");
    return pending;
}

std::unique_ptr<Pending> MpiCommunicator::do_send(const Tensor& tensor, int peer) {
    const int bytes = call_count(tensor.bytes(), CollectiveKind::send);
    count(CollectiveKind::send, tensor.bytes());
    state_->send_copy(memory(tensor), bytes, peer, communicator_, text_);
    return std::make_unique<Done>();
}

std::unique_ptr<Pending> MpiCommunicator::do_receive(const Tensor& tensor, int peer) {
    const int bytes = call_count(tensor.bytes(), CollectiveKind::receive);
    count(CollectiveKind::receive, tensor.bytes());
    auto pending = std::make_unique<PendingRequest>(state_, CollectiveKind::receive, text_);
    pending->check(MPI_Irecv(memory(tensor), bytes, MPI_BYTE, peer, 0, communicator_, &pending->request), "MPI_Irecv");
    pending->after = [bytes, rank = state_->rank, &text = text_](const MPI_Status& status) {
        int received = 0;
        MPI_Get_count(&status, MPI_BYTE, &received);
        if (received != bytes) {
            throw model::CommunicationError(
                fmt::format("rank {}, receive in group {}: expects {} bytes and was sent {}", rank, text, bytes, received));
        }
    };
    return pending;
}

void MpiCommunicator::do_barrier() {
    count(CollectiveKind::barrier, 0);
    PendingRequest pending(state_, CollectiveKind::barrier, text_);
    pending.check(MPI_Ibarrier(communicator_, &pending.request), "MPI_Ibarrier");
    pending.wait();
}

}  // namespace mgplan::runtime
