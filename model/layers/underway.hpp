#pragma once
// What a collective brings, begun and waited for later, so that work runs beside it.

#include <memory>
#include <utility>

#include "model/communicator/communicator.hpp"
#include "model/device/tensor.hpp"

namespace mgplan::model {

/// The result of a collective that may still run; it holds what is sent and what is received until then. One that is left behind, by an
/// error, is waited for or given up as Pending says. Only what was waited for, or never begun, may be assigned to.
class Underway {
public:
    Underway() = default;
    /// What is there already.
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
    std::unique_ptr<Pending> pending_;  // behind the tensors: it ends before they go
};

}  // namespace mgplan::model
