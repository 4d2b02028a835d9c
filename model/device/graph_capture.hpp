#pragma once
// The seam of CUDA graphs: how a device records its own work, and who hears of memory and messages while it does.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "model/tensor/tensor.hpp"

namespace mgplan::model {

class Pending;
class Storage;

/// Kernels, copies and fills of one device, recorded with their addresses and all values that the host gave them.
class CapturedWork {
public:
    virtual ~CapturedWork() = default;
    /// Does all of it again, behind whatever was issued before.
    virtual void launch() = 0;
    /// Kernels, copies and fills.
    [[nodiscard]] virtual std::int64_t nodes() const = 0;
};

/// Records what one device does. Used by the device's thread; begin() and end() do not nest.
class WorkCapture {
public:
    virtual ~WorkCapture() = default;
    virtual void begin() = 0;
    /// Returns what was issued since begin(), nullptr where that was nothing. It is done, or issued, by then.
    [[nodiscard]] virtual std::unique_ptr<CapturedWork> end() = 0;
    /// In place of end(), when an exception ended the work.
    virtual void abandon() noexcept = 0;
    /// Work has run when its call returns, so that memory may be watched from call to call; otherwise it runs later, and
    /// memory that a stretch of work takes must be handed out as it is.
    [[nodiscard]] virtual bool runs_at_once() const = 0;
};

/// Hears what happens on a device between the captures of its work.
class GraphRecorder {
public:
    virtual ~GraphRecorder() = default;
    virtual void on_take(const Storage& storage, std::string_view name) = 0;
    virtual void on_give_back(const Storage& storage) noexcept = 0;
    /// An op begins: whom to name when its work cannot be recorded.
    virtual void on_op(std::string_view name) = 0;
    /// Values pass between host and device, which no graph can repeat. Throws RunError naming the op.
    [[noreturn]] virtual void on_host_access() = 0;
    /// A collective is started with these tensors: `start` starts it with theirs, now and in each replay.
    using Start = std::function<std::unique_ptr<Pending>(std::span<const Tensor>)>;
    [[nodiscard]] virtual std::unique_ptr<Pending> on_exchange(std::span<const Tensor> tensors, Start start) = 0;
};

}  // namespace mgplan::model
