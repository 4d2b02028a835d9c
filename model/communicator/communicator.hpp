#pragma once
// The second seam: the exchange of tensors between ranks. One object per rank and rank group; it handles tensors and ranks, never layers.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/device/memory_operations.hpp"
#include "model/device/tensor.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {

enum class CollectiveKind : std::uint8_t { all_reduce, all_gather, reduce_scatter, all_to_all, broadcast, send, receive, barrier };
[[nodiscard]] std::string_view to_string(CollectiveKind kind);

class GraphLaunches;
class GraphRecorder;

/// A collective that may still be running. Must be waited for; the destructor of an unfinished one waits.
class Pending {
public:
    virtual ~Pending() = default;
    /// Returns when the result may be used; throws CommunicationError when the group was aborted.
    virtual void wait() = 0;
};

/// A partner died, threw, or went silent: names rank, op and group.
class CommunicationError : public RunError {
public:
    using RunError::RunError;
};

/// One issued operation, for whoever listens (the simulator's trace, the measurement).
struct CollectiveRecord {
    std::string_view group;  ///< "tp", "dp-cp", "expert:ep", …
    CollectiveKind kind;
    std::int64_t ranks;
    /// As nccl-tests counts: for all-reduce and broadcast the tensor, for all-gather and reduce-scatter the whole array, for
    /// all-to-all the data that this rank sends, for send and receive the message; barrier 0.
    std::int64_t payload_bytes;
    std::int64_t peer = -1;            ///< of send and receive: rank in the group
    std::int64_t received_bytes = -1;  ///< of all-to-all: what this rank receives
};

class CollectiveListener {
public:
    virtual ~CollectiveListener() = default;
    virtual void on_collective(const CollectiveRecord& record) = 0;
    /// Called when the rank begins to wait for an operation that it started earlier.
    virtual void on_waiting(CollectiveKind /*kind*/) {}
};

/// Public functions check dtypes, sizes and devices once, call the listener, and call a private do_*. Groups of one rank
/// are not reported; their gathers, scatters and all-to-alls still copy. All members call the same functions in the same
/// order. Not thread-safe.
class Communicator {
public:
    virtual ~Communicator() = default;
    Communicator(const Communicator&) = delete;
    Communicator& operator=(const Communicator&) = delete;

    [[nodiscard]] const std::string& group() const { return group_; }
    [[nodiscard]] int size() const { return size_; }
    /// This rank's place in the group, from 0.
    [[nodiscard]] int rank() const { return rank_; }

    /// In place. Sums are made in rank order by the in-process communicator.
    void all_reduce(const Tensor& tensor, Reduction reduction);
    /// `whole` has size() times the elements of `part`; rank r's part is its r-th piece.
    void all_gather(const Tensor& part, const Tensor& whole);
    void reduce_scatter(const Tensor& whole, const Tensor& part, Reduction reduction);
    /// The same with parts of different sizes: `rows` counts each rank's rows of the first dimension, alike on all ranks.
    void all_gather_rows(const Tensor& part, const Tensor& whole, std::span<const std::int64_t> rows);
    void reduce_scatter_rows(const Tensor& whole, const Tensor& part, std::span<const std::int64_t> rows, Reduction reduction);
    /// Sends rows [sum of earlier counts, …) of `from` to each rank; counts are rows of the first dimension.
    void all_to_all(const Tensor& from, const Tensor& to, std::span<const std::int64_t> send_rows,
                    std::span<const std::int64_t> receive_rows);
    void broadcast(const Tensor& tensor, int root);
    void send(const Tensor& tensor, int peer);
    void receive(const Tensor& tensor, int peer);
    void barrier();

    /// Asynchronous forms; the tensors, and the communicator, must live until wait().
    [[nodiscard]] std::unique_ptr<Pending> start_all_reduce(const Tensor& tensor, Reduction reduction);
    [[nodiscard]] std::unique_ptr<Pending> start_all_gather(const Tensor& part, const Tensor& whole);
    [[nodiscard]] std::unique_ptr<Pending> start_reduce_scatter(const Tensor& whole, const Tensor& part, Reduction reduction);
    [[nodiscard]] std::unique_ptr<Pending> start_send(const Tensor& tensor, int peer);
    [[nodiscard]] std::unique_ptr<Pending> start_receive(const Tensor& tensor, int peer);

    /// Makes every member's present and future call throw CommunicationError with this reason. Any thread may call it.
    virtual void abort(const std::string& reason) noexcept = 0;

    void set_listener(CollectiveListener* listener) { listener_ = listener; }

    /// If a stream capture of the device can record its collectives, to be repeated with the rest of the graph, returns the
    /// object that watches such graphs, one for all groups of a rank. nullptr: collectives cut a graph into pieces and
    /// run between them.
    [[nodiscard]] virtual GraphLaunches* graph_launches() { return nullptr; }
    /// To be called when a graph that holds this collective of this communicator is launched again: it is reported to the listener and
    /// counted by the transport like a direct call.
    void repeated(const CollectiveRecord& record);

protected:
    Communicator(std::string group, int size, int rank);

private:
    // Called with checked arguments; the gathers, the scatters and do_all_to_all also for groups of one (a copy).
    virtual std::unique_ptr<Pending> do_all_reduce(const Tensor& tensor, Reduction reduction) = 0;
    virtual std::unique_ptr<Pending> do_all_gather(const Tensor& part, const Tensor& whole) = 0;
    virtual std::unique_ptr<Pending> do_reduce_scatter(const Tensor& whole, const Tensor& part, Reduction reduction) = 0;
    virtual std::unique_ptr<Pending> do_all_gather_rows(const Tensor& part, const Tensor& whole, std::span<const std::int64_t> rows) = 0;
    virtual std::unique_ptr<Pending> do_reduce_scatter_rows(const Tensor& whole, const Tensor& part, std::span<const std::int64_t> rows,
                                                            Reduction reduction) = 0;
    virtual std::unique_ptr<Pending> do_all_to_all(const Tensor& from, const Tensor& to, std::span<const std::int64_t> send_rows,
                                                   std::span<const std::int64_t> receive_rows) = 0;
    virtual std::unique_ptr<Pending> do_broadcast(const Tensor& tensor, int root) = 0;
    virtual std::unique_ptr<Pending> do_send(const Tensor& tensor, int peer) = 0;
    virtual std::unique_ptr<Pending> do_receive(const Tensor& tensor, int peer) = 0;
    virtual void do_barrier() = 0;

    /// Counts a collective that a graph repeats, as do_*() counts those that it issues; for communicators with graph_launches().
    virtual void do_count(CollectiveKind /*kind*/, std::int64_t /*payload_bytes*/) {}

    [[nodiscard]] GraphRecorder* cut_at(const Tensor& tensor);
    /// Wraps `pending` so that the listener is called when it is waited for.
    [[nodiscard]] std::unique_ptr<Pending> heard(CollectiveKind kind, std::unique_ptr<Pending> pending);
    /// `recorder`: of the capture that the collective goes into, nullptr where there is none.
    void report(GraphRecorder* recorder, CollectiveKind kind, std::int64_t payload_bytes, std::int64_t peer = -1,
                std::int64_t received_bytes = -1);

    std::string group_;
    int size_;
    int rank_;
    CollectiveListener* listener_ = nullptr;
};

}  // namespace mgplan::model
