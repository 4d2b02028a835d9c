#pragma once
// A member's side of a group of threads.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "model/communicator/collective_counter.hpp"
#include "model/communicator/communicator.hpp"
#include "runtime/comm/in_process/group.hpp"

namespace mgplan::runtime {

/// Made by InProcessWorld. Host memory alone. A reduction that reduce.hpp does not support is a bug
/// (assertion).
class InProcessCommunicator final : public model::Communicator {
public:
    InProcessCommunicator(std::shared_ptr<Group> group, int member, std::shared_ptr<model::CollectiveCounter> traffic);

    void abort(const std::string& reason) noexcept override;

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

    [[nodiscard]] std::unique_ptr<Pending> issue(Contribution contribution, std::int64_t payload_bytes);
    [[nodiscard]] int global_rank() const { return shared_->ranks()[static_cast<std::size_t>(rank())]; }
    void count(model::CollectiveKind kind, std::int64_t payload_bytes);

    std::shared_ptr<Group> shared_;
    std::shared_ptr<model::CollectiveCounter> traffic_;
    std::int64_t issued_ = 0;
};

}  // namespace mgplan::runtime
