#pragma once
// Marks in a device's queue of work, by which single ops are timed if their calls return before they have run.

#include <vector>

namespace mgplan::model {

/// Marks of one device, set and read by its thread. Setting one does not wait for the device. Not while the device's work is
/// captured for a CUDA graph. Must not outlive the device.
class DeviceMarks {
public:
    virtual ~DeviceMarks() = default;
    /// Sets a mark after all that was issued so far.
    virtual void mark() = 0;
    /// Waits for the last mark, forgets all of them, and returns the seconds on the device from each to the next: one value fewer
    /// than marks.
    [[nodiscard]] virtual std::vector<double> take() = 0;
};

}  // namespace mgplan::model
