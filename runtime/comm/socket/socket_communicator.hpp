#pragma once
// A member's side of a group of processes that TCP connects.

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/comm/socket/socket_state.hpp"

namespace mgplan::runtime {

/// Made by SocketWorld. Host memory alone. A reduction that reduce.hpp cannot is a bug (assertion).
class SocketCommunicator final : public model::Communicator {
public:
    SocketCommunicator(std::shared_ptr<SocketState> state, std::shared_ptr<SocketGroup> group);

    void abort(const std::string& reason) noexcept override;

private:
    using Tensor = model::Tensor;
    using Pending = model::Pending;
    using Pieces = std::vector<std::span<const std::byte>>;

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

    /// Bytes of each member's piece.
    std::unique_ptr<Pending> gather(const Tensor& part, const Tensor& whole, std::vector<std::int64_t> bytes);
    std::unique_ptr<Pending> scatter(const Tensor& whole, const Tensor& part, std::vector<std::int64_t> bytes, model::Reduction reduction);
    /// `pieces`: what goes to each member; `expected`: bytes that come from each.
    std::unique_ptr<Pending> issue(SocketFrame frame, std::int64_t payload_bytes, const Pieces& pieces, std::vector<std::int64_t> expected,
                                   std::function<void(SocketExchange&)> complete);
    void send_all(const SocketExchange& exchange, const Pieces& pieces);

    std::shared_ptr<SocketState> state_;
    std::shared_ptr<SocketGroup> shared_;
};

}  // namespace mgplan::runtime
