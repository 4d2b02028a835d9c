#pragma once
// A member's side of a group of processes. For this folder alone: it includes mpi.h.

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "runtime/comm/mpi/mpi_state.hpp"

namespace mgplan::runtime {

/// Made by MpiWorld::join. Host memory alone.
class MpiCommunicator final : public model::Communicator {
public:
    /// `text` (the group with its ranks) lives as long as the state.
    MpiCommunicator(std::shared_ptr<MpiWorld::State> state, MPI_Comm communicator, std::string group, const std::string& text, int size,
                    int member);

    void abort(const std::string& reason) noexcept override { state_->abort(reason); }

private:
    using Tensor = model::Tensor;
    using Pending = model::Pending;

    std::unique_ptr<Pending> do_all_reduce(const Tensor& tensor, model::Reduction reduction) override;
    std::unique_ptr<Pending> do_all_gather(const Tensor& part, const Tensor& whole) override;
    std::unique_ptr<Pending> do_reduce_scatter(const Tensor& whole, const Tensor& part, model::Reduction reduction) override;
    std::unique_ptr<Pending> do_all_gather_rows(const Tensor& part, const Tensor& whole, std::span<const std::int64_t> rows) override;
    std::unique_ptr<Pending> do_reduce_scatter_rows(const Tensor& whole, const Tensor& part, std::span<const std::int64_t> rows,
                                                    model::Reduction reduction) override;
    std::unique_ptr<Pending> do_all_to_all(const Tensor& from, const Tensor& to, std::span<const std::int64_t> send_rows,
                                           std::span<const std::int64_t> receive_rows) override;
    std::unique_ptr<Pending> do_broadcast(const Tensor& tensor, int root) override;
    std::unique_ptr<Pending> do_send(const Tensor& tensor, int peer) override;
    std::unique_ptr<Pending> do_receive(const Tensor& tensor, int peer) override;
    void do_barrier() override;

    [[nodiscard]] int call_count(std::int64_t count, model::CollectiveKind kind) const;
    void count(model::CollectiveKind kind, std::int64_t payload_bytes);

    std::shared_ptr<MpiWorld::State> state_;
    MPI_Comm communicator_;
    const std::string& text_;
};

}  // namespace mgplan::runtime
