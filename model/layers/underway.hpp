#pragma once
// The result of a collective that is started and waited for later, so that it overlaps other work.

#include <memory>
#include <utility>

#include "model/communicator/communicator.hpp"
#include "model/device/tensor.hpp"

namespace mgplan::model {

/// The result of a collective that may still run; it holds the sent and received tensors until then. If an error destroys it, it is
/// waited for or given up as Pending says. Only one that was waited for, or never begun, may be assigned to.
class Underway {
public:
    Underway() = default;
    /// A result that is complete already.
    explicit Underway(Tensor result) : result_(std::move(result)) {}
    Underway(Tensor from, Tensor result, std::unique_ptr<Pending> pending)
        : from_(std::move(from)), result_(std::move(result)), pending_(std::move(pending)) {}

    /// The result; called once. Throws CommunicationError as Pending::wait() does.
    [[nodiscard]] Tensor wait() {
        if (pending_ != nullptr) pending_->wait();
        pending_.reset();
        from_ = {};
        return std::move(result_);
    }

private:
    Tensor from_, result_;
    std::unique_ptr<Pending> pending_;  // declared after the tensors: it ends before they are freed
};

}  // namespace mgplan::model
