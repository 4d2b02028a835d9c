#include "runtime/comm/nccl/nccl_communicator.hpp"

#include <exception>
#include <numeric>

#include "model/device/device.hpp"
#include "runtime/comm/nccl/message_channels.hpp"
#include "runtime/comm/nccl/nccl_library.hpp"
#include "runtime/comm/nccl/nccl_state.hpp"

namespace mgplan::runtime::cuda {
namespace {

using model::CollectiveKind;
using model::Pending;
using model::Reduction;
using model::Tensor;

ncclDataType_t data_type(Dtype dtype) {
    switch (dtype) {
        case Dtype::fp64:
            return ncclFloat64;
        case Dtype::fp32:
            return ncclFloat32;
        case Dtype::bf16:
            return ncclBfloat16;
        case Dtype::fp16:
            return ncclFloat16;
        case Dtype::int32:
            return ncclInt32;
        case Dtype::fp8:
        case Dtype::e5m2:
            return ncclUint8;  // moved, never added
    }
    return ncclUint8;
}

ncclRedOp_t operation(Dtype dtype, Reduction reduction) {
    MGPLAN_ASSERT(bytes_of(dtype) > 1 && (dtype != Dtype::int32 || reduction != Reduction::average), "numbers of this type can be reduced");
    switch (reduction) {
        case Reduction::sum:
            return ncclSum;
        case Reduction::average:
            return ncclAvg;
        case Reduction::maximum:
            return ncclMax;
    }
    return ncclSum;
}

/// Elements per index of the first dimension.
std::int64_t row_elements(const Tensor& tensor) {
    std::int64_t elements = 1;
    for (int i = 1; i < tensor.shape().rank(); ++i) elements *= tensor.shape()[i];
    return elements;
}

std::size_t elements_of(const Tensor& tensor) {
    return static_cast<std::size_t>(tensor.elements());
}

class Done final : public Pending {
public:
    void wait() override {}
};

/// The tensors must live until wait(), so nothing is kept alive here.
class PendingNccl final : public Pending {
public:
    PendingNccl(std::shared_ptr<NcclState> state, std::shared_ptr<NcclTicket> ticket)
        : state_(std::move(state)), ticket_(std::move(ticket)), exceptions_(std::uncaught_exceptions()) {}
    ~PendingNccl() override {
        if (waited_) return;
        // Left by an error: the partner may never come, and the tensors are about to go.
        if (std::uncaught_exceptions() > exceptions_) {
            state_->abort("an error ended rank " + std::to_string(state_->rank()) + " while operations were open");
            return;
        }
        try {
            wait();
        } catch (...) {  // whoever calls next hears of it
        }
    }
    void wait() override {
        if (waited_) return;
        waited_ = true;
        state_->wait(*ticket_);
    }

private:
    std::shared_ptr<NcclState> state_;
    std::shared_ptr<NcclTicket> ticket_;
    int exceptions_;
    bool waited_ = false;
};

class NcclCommunicator final : public model::Communicator {
public:
    NcclCommunicator(std::shared_ptr<NcclState> state, std::vector<std::shared_ptr<NcclGroup>> channels, const std::string& name, int size,
                     int rank)
        : Communicator(name, size, rank), state_(std::move(state)), channels_(std::move(channels)) {}

    void abort(const std::string& reason) noexcept override { state_->abort(reason); }
    model::GraphLaunches* graph_launches() override { return state_.get(); }

private:
    template <class Call>
    std::unique_ptr<Pending> issue(CollectiveKind kind, Call call) {
        return std::make_unique<PendingNccl>(state_, state_->issue(*channels_.front(), kind, call));
    }
    void count(CollectiveKind kind, std::int64_t payload_bytes) { state_->traffic().add(group(), kind, payload_bytes); }
    [[nodiscard]] ncclComm_t communicator() const { return channels_.front()->live(); }
    [[nodiscard]] cudaStream_t stream() const { return state_->stream_of(*channels_.front()); }

    /// call(communicator, stream), at once or held back.
    template <class Call>
    std::unique_ptr<Pending> message(CollectiveKind kind, int sender, Call call) {
        if (channels_.size() > 1) {
            NcclGroup& channel = *channels_[static_cast<std::size_t>(channel_of(sender, size()))];
            return std::make_unique<PendingNccl>(
                state_, state_->issue(channel, kind, [&] { return call(channel.live(), state_->stream_of(channel)); }));
        }
        const auto& only = channels_.front();
        return std::make_unique<PendingNccl>(
            state_, state_->hold(only, kind, [this, call, only] { return call(only->live(), state_->stream_of(*only)); }));
    }

    void do_count(CollectiveKind kind, std::int64_t payload_bytes) override { count(kind, payload_bytes); }

    std::unique_ptr<Pending> copied(const Tensor& from, const Tensor& to) {
        state_->device().copy_on_device(to.data(), from.data(), from.bytes());
        return std::make_unique<Done>();
    }

    std::unique_ptr<Pending> do_all_reduce(const Tensor& tensor, Reduction reduction) override {
        if (size() == 1) return std::make_unique<Done>();
        count(CollectiveKind::all_reduce, tensor.bytes());
        return issue(CollectiveKind::all_reduce, [&] {
            return nccl().ncclAllReduce(tensor.data(), tensor.data(), elements_of(tensor), data_type(tensor.dtype()),
                                        operation(tensor.dtype(), reduction), communicator(), stream());
        });
    }
    std::unique_ptr<Pending> do_all_gather(const Tensor& part, const Tensor& whole) override {
        if (size() == 1) return copied(part, whole);
        count(CollectiveKind::all_gather, whole.bytes());
        return issue(CollectiveKind::all_gather, [&] {
            return nccl().ncclAllGather(part.data(), whole.data(), elements_of(part), data_type(part.dtype()), communicator(), stream());
        });
    }
    std::unique_ptr<Pending> do_reduce_scatter(const Tensor& whole, const Tensor& part, Reduction reduction) override {
        if (size() == 1) return copied(whole, part);
        count(CollectiveKind::reduce_scatter, whole.bytes());
        return issue(CollectiveKind::reduce_scatter, [&] {
            return nccl().ncclReduceScatter(whole.data(), part.data(), elements_of(part), data_type(part.dtype()),
                                            operation(part.dtype(), reduction), communicator(), stream());
        });
    }
    /// Calls call(member, its rows of `whole`, how many elements they are) for every member that has rows, as one operation
    /// of NCCL: it has no collective of uneven parts.
    template <class Call>
    std::unique_ptr<Pending> issue_pieces(CollectiveKind kind, const Tensor& whole, std::span<const std::int64_t> rows, Call call) {
        return issue(kind, [&] {
            auto* piece = static_cast<std::byte*>(whole.data());
            ncclResult_t result = nccl().ncclGroupStart();
            for (int member = 0; member < size() && is_taken(result); ++member) {
                const std::int64_t elements = rows[static_cast<std::size_t>(member)] * row_elements(whole);
                if (elements > 0) result = call(member, piece, static_cast<std::size_t>(elements));
                piece += elements * bytes_of(whole.dtype());
            }
            const ncclResult_t ended = nccl().ncclGroupEnd();
            return is_taken(result) ? ended : result;
        });
    }
    std::unique_ptr<Pending> do_all_gather_rows(const Tensor& part, const Tensor& whole, std::span<const std::int64_t> rows) override {
        if (size() == 1) return copied(part, whole);
        count(CollectiveKind::all_gather, whole.bytes());
        return issue_pieces(CollectiveKind::all_gather, whole, rows, [&](int member, void* piece, std::size_t elements) {
            return nccl().ncclBroadcast(part.data(), piece, elements, data_type(part.dtype()), member, communicator(), stream());
        });
    }
    std::unique_ptr<Pending> do_reduce_scatter_rows(const Tensor& whole, const Tensor& part, std::span<const std::int64_t> rows,
                                                    Reduction reduction) override {
        if (size() == 1) return copied(whole, part);
        count(CollectiveKind::reduce_scatter, whole.bytes());
        return issue_pieces(CollectiveKind::reduce_scatter, whole, rows, [&](int member, void* piece, std::size_t elements) {
            return nccl().ncclReduce(piece, part.data(), elements, data_type(part.dtype()), operation(part.dtype(), reduction), member,
                                     communicator(), stream());
        });
    }
    std::unique_ptr<Pending> do_all_to_all(const Tensor& from, const Tensor& to, std::span<const std::int64_t> send_rows,
                                           std::span<const std::int64_t> receive_rows) override {
        if (size() == 1) return copied(from, to);
        const std::int64_t send_row = row_elements(from), receive_row = row_elements(to), bytes = bytes_of(from.dtype());
        count(CollectiveKind::all_to_all, std::accumulate(send_rows.begin(), send_rows.end(), std::int64_t{0}) * send_row * bytes);
        return issue(CollectiveKind::all_to_all, [&] {
            const auto* source = static_cast<const std::byte*>(from.data());
            auto* target = static_cast<std::byte*>(to.data());
            ncclResult_t result = nccl().ncclGroupStart();
            for (int peer = 0; peer < size() && is_taken(result); ++peer) {
                const std::int64_t sent = send_rows[static_cast<std::size_t>(peer)] * send_row;
                const std::int64_t received = receive_rows[static_cast<std::size_t>(peer)] * receive_row;
                if (sent > 0) {
                    result =
                        nccl().ncclSend(source, static_cast<std::size_t>(sent), data_type(from.dtype()), peer, communicator(), stream());
                }
                if (received > 0 && is_taken(result)) {
                    result =
                        nccl().ncclRecv(target, static_cast<std::size_t>(received), data_type(to.dtype()), peer, communicator(), stream());
                }
                source += sent * bytes;
                target += received * bytes;
            }
            const ncclResult_t ended = nccl().ncclGroupEnd();
            return is_taken(result) ? ended : result;
        });
    }
    std::unique_ptr<Pending> do_broadcast(const Tensor& tensor, int root) override {
        if (size() == 1) return std::make_unique<Done>();
        count(CollectiveKind::broadcast, tensor.bytes());
        return issue(CollectiveKind::broadcast, [&] {
            return nccl().ncclBroadcast(tensor.data(), tensor.data(), elements_of(tensor), data_type(tensor.dtype()), root, communicator(),
                                        stream());
        });
    }
    std::unique_ptr<Pending> do_send(const Tensor& tensor, int peer) override {
        count(CollectiveKind::send, tensor.bytes());
        return message(CollectiveKind::send, rank(),
                       [memory = tensor.data(), elements = elements_of(tensor), type = data_type(tensor.dtype()), peer](
                           ncclComm_t over, cudaStream_t on) { return nccl().ncclSend(memory, elements, type, peer, over, on); });
    }
    std::unique_ptr<Pending> do_receive(const Tensor& tensor, int peer) override {
        count(CollectiveKind::receive, tensor.bytes());
        return message(CollectiveKind::receive, peer,
                       [memory = tensor.data(), elements = elements_of(tensor), type = data_type(tensor.dtype()), peer](
                           ncclComm_t over, cudaStream_t on) { return nccl().ncclRecv(memory, elements, type, peer, over, on); });
    }
    void do_barrier() override {
        if (size() == 1) return;
        // NCCL has no barrier; a sum over all members is complete only after all have joined.
        void* const flag = state_->flag();
        count(CollectiveKind::barrier, 0);
        issue(CollectiveKind::barrier, [&] {
            return nccl().ncclAllReduce(flag, flag, 1, ncclFloat32, ncclSum, communicator(), stream());
        })->wait();
        state_->device().synchronize();
    }

    std::shared_ptr<NcclState> state_;
    std::vector<std::shared_ptr<NcclGroup>> channels_;
};

}  // namespace

std::unique_ptr<model::Communicator> make_nccl_communicator(std::shared_ptr<NcclState> state,
                                                            std::vector<std::shared_ptr<NcclGroup>> channels, const std::string& name,
                                                            int size, int rank) {
    return std::make_unique<NcclCommunicator>(std::move(state), std::move(channels), name, size, rank);
}

}  // namespace mgplan::runtime::cuda
