#pragma once
// Measures the time of each kind of op on one rank.

#include <chrono>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/communicator/communicator.hpp"
#include "model/device/device.hpp"
#include "model/device/device_marks.hpp"
#include "runtime/measurement/run_values.hpp"

namespace mgplan::runtime {

/// Charges the time from the begin of an op or collective, or from the begin of a wait for it, to that op, until the next such event: a
/// wait for partners counts for the collective, which may have begun before other ops; the little work between two ops counts for the
/// earlier. Uses the host's clock, for devices that finish an op before the next begins; with marks the device's own, where an op also has
/// the time that the device waits for the next one to be issued. One thread.
class OpTimer final : public model::OpListener, public model::CollectiveListener {
public:
    /// `marks` outlive it; nullptr: the host's clock.
    explicit OpTimer(model::DeviceMarks* marks = nullptr) : marks_(marks) {}

    void on_op(const model::OpRecord& record) override { begin(record.name); }
    void on_collective(const model::CollectiveRecord& record) override { begin(to_string(record.kind)); }
    void on_waiting(model::CollectiveKind kind) override { go_on(to_string(kind)); }
    /// Something begins; `name` is a literal.
    void begin(std::string_view name);
    /// Charges the time from now on to an op that began earlier; does nothing for one that never began.
    void go_on(std::string_view name);
    /// Ends the running op; no other begins.
    void end();
    /// Reads the marks, for which it waits for the device. Once a step was reported, and before times().
    void settle();

    /// Most seconds first.
    [[nodiscard]] std::vector<OpSeconds> times() const;

private:
    using Clock = std::chrono::steady_clock;
    struct Time {
        std::int64_t count = 0;
        double seconds = 0;
    };

    void run(Time& time);

    model::DeviceMarks* marks_;
    std::map<std::string_view, Time> times_;
    Time* running_ = nullptr;
    Clock::time_point since_;
    std::vector<Time*> marked_;  ///< the op that began at each mark; nullptr: none
};

}  // namespace mgplan::runtime
