#pragma once
// The seam of CUDA graphs: a device records its own work, a recorder is called for memory and messages meanwhile, and the
// transport watches messages that were recorded with it.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/device/tensor.hpp"

namespace mgplan::model {

class Communicator;
class Pending;
class Storage;
struct CollectiveRecord;

/// Kernels, copies and fills of one device, recorded with their addresses and all values that the host gave them.
class CapturedWork {
public:
    virtual ~CapturedWork() = default;
    /// Does all of it again, after all that was issued before.
    virtual void launch() = 0;
    /// Kernels, copies and fills.
    [[nodiscard]] virtual std::int64_t nodes() const = 0;
};

/// Records what one device does. Used by the device's thread; begin() and end() do not nest.
class WorkCapture {
public:
    virtual ~WorkCapture() = default;
    virtual void begin() = 0;
    /// Returns the work issued since begin(), nullptr if there was none. It is done, or issued, by then.
    [[nodiscard]] virtual std::unique_ptr<CapturedWork> end() = 0;
    /// To be called in place of end() when an exception ended the work.
    virtual void abandon() noexcept = 0;
    /// Work has run when its call returns, so that memory may be watched from call to call; otherwise it runs later, and
    /// memory that a stretch of work takes must be handed out as it is.
    [[nodiscard]] virtual bool runs_at_once() const = 0;
};

/// The graphs of one rank that hold collectives, as its transport sees them: their operations are neither issued nor waited for
/// one by one, so the transport watches each launch instead. Used by the rank's thread.
class GraphLaunches {
public:
    virtual ~GraphLaunches() = default;
    /// Operations that went into a capture since the last call, each once, in the order of their first times:
    /// "all_gather in group tp (ranks 0, 1) (2 times), …".
    [[nodiscard]] virtual std::string take_recorded() = 0;
    /// A graph is about to be launched again: operations that are held back go first, as on the other ranks. `graph`: its name and its
    /// operations. Throws CommunicationError, naming it, once the world was aborted.
    virtual void before_launch(const std::string& graph) = 0;
    /// It has been launched: watched as one operation until all of it is done.
    virtual void launched(const std::string& graph) = 0;
};

/// Is called for events on a device between the captures of its work.
class GraphRecorder {
public:
    virtual ~GraphRecorder() = default;
    virtual void on_take(const Storage& storage, std::string_view name) = 0;
    virtual void on_give_back(const Storage& storage) noexcept = 0;
    /// An op begins; errors name it if its work cannot be recorded.
    virtual void on_op(std::string_view name) = 0;
    /// Values pass between host and device, which no graph can repeat. Throws RunError naming the op.
    [[noreturn]] virtual void on_host_access() = 0;
    /// A collective is started with these tensors: `start` starts it with theirs, now and in each replay.
    using Start = std::function<std::unique_ptr<Pending>(std::span<const Tensor>)>;
    [[nodiscard]] virtual std::unique_ptr<Pending> on_exchange(std::span<const Tensor> tensors, Start start) = 0;
    /// A collective is about to go into the capture, with the rest of the work: of a communicator that has graph_launches(),
    /// in place of on_exchange().
    virtual void on_recorded(Communicator& communicator, const CollectiveRecord& record) = 0;
};

}  // namespace mgplan::model
