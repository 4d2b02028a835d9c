#include "model/communicator/communicator.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/core.h>

#include "model/device/device.hpp"
#include "model/device/graph_capture.hpp"

namespace mgplan::model {
namespace {

class Done final : public Pending {
public:
    void wait() override {}
};

std::unique_ptr<Pending> done() {
    return std::make_unique<Done>();
}

void wait(std::unique_ptr<Pending> pending) {
    pending->wait();
}

std::int64_t sum(std::span<const std::int64_t> counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

/// Returns the recorder of the graph that is being captured; nullptr if there is none.
GraphRecorder* recorder_of(const Tensor& tensor) {
    return tensor.defined() ? tensor.device().recorder() : nullptr;
}

/// Bytes per index of the first dimension.
std::int64_t row_bytes(const Tensor& tensor) {
    std::int64_t bytes = bytes_of(tensor.dtype());
    for (int i = 1; i < tensor.shape().rank(); ++i) bytes *= tensor.shape()[i];
    return bytes;
}

void expect_rows(const Tensor& part, const Tensor& whole, std::span<const std::int64_t> rows, int size, int rank) {
    MGPLAN_ASSERT(part.dtype() == whole.dtype() && part.shape().rank() >= 1 && whole.shape().rank() >= 1, "rows of one type travel");
    MGPLAN_ASSERT(row_bytes(part) == row_bytes(whole), "rows of one width travel");
    MGPLAN_ASSERT(std::ssize(rows) == size && std::ranges::all_of(rows, [](auto each) { return each >= 0; }), "one count for every rank");
    MGPLAN_ASSERT(part.shape()[0] == rows[static_cast<std::size_t>(rank)] && whole.shape()[0] == sum(rows),
                  "the rows are all of the tensors");
}

}  // namespace

std::string_view to_string(CollectiveKind kind) {
    switch (kind) {
        case CollectiveKind::all_reduce:
            return "all_reduce";
        case CollectiveKind::all_gather:
            return "all_gather";
        case CollectiveKind::reduce_scatter:
            return "reduce_scatter";
        case CollectiveKind::all_to_all:
            return "all_to_all";
        case CollectiveKind::broadcast:
            return "broadcast";
        case CollectiveKind::send:
            return "send";
        case CollectiveKind::receive:
            return "receive";
        case CollectiveKind::barrier:
            return "barrier";
    }
    return "";
}

Communicator::Communicator(std::string group, int size, int rank) : group_(std::move(group)), size_(size), rank_(rank) {
    MGPLAN_ASSERT(size >= 1 && rank >= 0 && rank < size, "the rank is a member of the group");
}

/// Returns the recorder that starts this collective instead, also in each replay; nullptr if no graph is captured, or the graph holds it.
GraphRecorder* Communicator::cut_at(const Tensor& tensor) {
    GraphRecorder* const recorder = recorder_of(tensor);
    return recorder != nullptr && graph_launches() == nullptr ? recorder : nullptr;
}

void Communicator::report(GraphRecorder* recorder, CollectiveKind kind, std::int64_t payload_bytes, std::int64_t peer,
                          std::int64_t received_bytes) {
    const CollectiveRecord record{group_, kind, size_, payload_bytes, peer, received_bytes};
    if (listener_ != nullptr) listener_->on_collective(record);
    if (recorder != nullptr) recorder->on_recorded(*this, record);
}

void Communicator::repeated(const CollectiveRecord& record) {
    if (listener_ != nullptr) listener_->on_collective(record);
    do_count(record.kind, record.payload_bytes);
}

std::unique_ptr<Pending> Communicator::heard(CollectiveKind kind, std::unique_ptr<Pending> pending) {
    class Heard final : public Pending {
    public:
        Heard(const Communicator& communicator, CollectiveKind kind, std::unique_ptr<Pending> pending)
            : communicator_(communicator), kind_(kind), pending_(std::move(pending)) {}
        void wait() override {
            if (communicator_.listener_ != nullptr) communicator_.listener_->on_waiting(kind_);
            pending_->wait();
        }

    private:
        const Communicator& communicator_;
        CollectiveKind kind_;
        std::unique_ptr<Pending> pending_;
    };
    if (listener_ == nullptr || size_ == 1) return pending;
    return std::make_unique<Heard>(*this, kind, std::move(pending));
}

std::unique_ptr<Pending> Communicator::start_all_reduce(const Tensor& tensor, Reduction reduction) {
    if (size_ == 1 || tensor.elements() == 0) return done();
    if (GraphRecorder* const recorder = cut_at(tensor)) {
        const Tensor tensors[]{tensor};
        return recorder->on_exchange(tensors, [this, reduction](auto again) { return start_all_reduce(again[0], reduction); });
    }
    report(recorder_of(tensor), CollectiveKind::all_reduce, tensor.bytes());
    return heard(CollectiveKind::all_reduce, do_all_reduce(tensor, reduction));
}

std::unique_ptr<Pending> Communicator::start_all_gather(const Tensor& part, const Tensor& whole) {
    MGPLAN_ASSERT(part.dtype() == whole.dtype() && part.elements() * size_ == whole.elements(), "the whole has one part for every rank");
    if (whole.elements() == 0) return done();
    if (GraphRecorder* const recorder = cut_at(part)) {
        const Tensor tensors[]{part, whole};
        return recorder->on_exchange(tensors, [this](auto again) { return start_all_gather(again[0], again[1]); });
    }
    if (size_ > 1) report(recorder_of(part), CollectiveKind::all_gather, whole.bytes());
    return heard(CollectiveKind::all_gather, do_all_gather(part, whole));
}

std::unique_ptr<Pending> Communicator::start_reduce_scatter(const Tensor& whole, const Tensor& part, Reduction reduction) {
    MGPLAN_ASSERT(part.dtype() == whole.dtype() && part.elements() * size_ == whole.elements(), "the whole has one part for every rank");
    if (whole.elements() == 0) return done();
    if (GraphRecorder* const recorder = cut_at(whole)) {
        const Tensor tensors[]{whole, part};
        return recorder->on_exchange(tensors,
                                     [this, reduction](auto again) { return start_reduce_scatter(again[0], again[1], reduction); });
    }
    if (size_ > 1) report(recorder_of(whole), CollectiveKind::reduce_scatter, whole.bytes());
    return heard(CollectiveKind::reduce_scatter, do_reduce_scatter(whole, part, reduction));
}

std::unique_ptr<Pending> Communicator::start_send(const Tensor& tensor, int peer) {
    MGPLAN_ASSERT(peer >= 0 && peer < size_ && peer != rank_, "the peer is another member");
    if (GraphRecorder* const recorder = cut_at(tensor)) {
        const Tensor tensors[]{tensor};
        return recorder->on_exchange(tensors, [this, peer](auto again) { return start_send(again[0], peer); });
    }
    report(recorder_of(tensor), CollectiveKind::send, tensor.bytes(), peer);
    return heard(CollectiveKind::send, do_send(tensor, peer));
}

std::unique_ptr<Pending> Communicator::start_receive(const Tensor& tensor, int peer) {
    MGPLAN_ASSERT(peer >= 0 && peer < size_ && peer != rank_, "the peer is another member");
    if (GraphRecorder* const recorder = cut_at(tensor)) {
        const Tensor tensors[]{tensor};
        return recorder->on_exchange(tensors, [this, peer](auto again) { return start_receive(again[0], peer); });
    }
    report(recorder_of(tensor), CollectiveKind::receive, tensor.bytes(), peer);
    return heard(CollectiveKind::receive, do_receive(tensor, peer));
}

void Communicator::all_reduce(const Tensor& tensor, Reduction reduction) {
    wait(start_all_reduce(tensor, reduction));
}

void Communicator::all_gather(const Tensor& part, const Tensor& whole) {
    wait(start_all_gather(part, whole));
}

void Communicator::reduce_scatter(const Tensor& whole, const Tensor& part, Reduction reduction) {
    wait(start_reduce_scatter(whole, part, reduction));
}

void Communicator::all_gather_rows(const Tensor& part, const Tensor& whole, std::span<const std::int64_t> rows) {
    expect_rows(part, whole, rows, size_, rank_);
    if (whole.elements() == 0) return;
    if (GraphRecorder* const recorder = cut_at(whole)) {
        const Tensor tensors[]{part, whole};
        return wait(recorder->on_exchange(tensors, [this, counts = std::vector(rows.begin(), rows.end())](auto again) {
            all_gather_rows(again[0], again[1], counts);
            return done();
        }));
    }
    if (size_ > 1) report(recorder_of(whole), CollectiveKind::all_gather, whole.bytes());
    wait(do_all_gather_rows(part, whole, rows));
}

void Communicator::reduce_scatter_rows(const Tensor& whole, const Tensor& part, std::span<const std::int64_t> rows, Reduction reduction) {
    expect_rows(part, whole, rows, size_, rank_);
    if (whole.elements() == 0) return;
    if (GraphRecorder* const recorder = cut_at(whole)) {
        const Tensor tensors[]{whole, part};
        return wait(recorder->on_exchange(tensors, [this, counts = std::vector(rows.begin(), rows.end()), reduction](auto again) {
            reduce_scatter_rows(again[0], again[1], counts, reduction);
            return done();
        }));
    }
    if (size_ > 1) report(recorder_of(whole), CollectiveKind::reduce_scatter, whole.bytes());
    wait(do_reduce_scatter_rows(whole, part, rows, reduction));
}

void Communicator::all_to_all(const Tensor& from, const Tensor& to, std::span<const std::int64_t> send_rows,
                              std::span<const std::int64_t> receive_rows) {
    MGPLAN_ASSERT(from.dtype() == to.dtype() && from.shape().rank() >= 1 && to.shape().rank() >= 1, "rows of one type travel");
    MGPLAN_ASSERT(std::ssize(send_rows) == size_ && std::ssize(receive_rows) == size_, "one count for every rank");
    MGPLAN_ASSERT(sum(send_rows) <= from.shape()[0] && sum(receive_rows) <= to.shape()[0], "the rows fit the tensors");
    if (GraphRecorder* const recorder = cut_at(from)) {
        const Tensor tensors[]{from, to};
        const std::vector<std::int64_t> sent(send_rows.begin(), send_rows.end()), received(receive_rows.begin(), receive_rows.end());
        return wait(recorder->on_exchange(tensors, [this, sent, received](auto again) {
            all_to_all(again[0], again[1], sent, received);
            return done();
        }));
    }
    if (size_ > 1)
        report(recorder_of(from), CollectiveKind::all_to_all, sum(send_rows) * row_bytes(from), -1, sum(receive_rows) * row_bytes(to));
    wait(do_all_to_all(from, to, send_rows, receive_rows));
}

void Communicator::broadcast(const Tensor& tensor, int root) {
    MGPLAN_ASSERT(root >= 0 && root < size_, "the root is a member");
    if (size_ == 1 || tensor.elements() == 0) return;
    tensor.device().expect_host_access();  // not part of any layer
    report(nullptr, CollectiveKind::broadcast, tensor.bytes());
    wait(do_broadcast(tensor, root));
}

void Communicator::send(const Tensor& tensor, int peer) {
    wait(start_send(tensor, peer));
}

void Communicator::receive(const Tensor& tensor, int peer) {
    wait(start_receive(tensor, peer));
}

void Communicator::barrier() {
    if (size_ == 1) return;
    report(nullptr, CollectiveKind::barrier, 0);
    do_barrier();
}

}  // namespace mgplan::model
