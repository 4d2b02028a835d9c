#pragma once
// How long each kind of op takes on one rank.

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "model/communicator/communicator.hpp"
#include "model/device/device.hpp"
#include "runtime/measurement/run_values.hpp"

namespace mgplan::runtime {

/// Hears when an op or a collective begins, and gives it the time until the next one begins: waiting for partners counts
/// for the collective that waits, the little host work between two ops for the earlier. For devices that finish an op
/// before the next begins. One thread.
class OpTimer final : public model::OpListener, public model::CollectiveListener {
public:
    void on_op(const model::OpRecord& record) override { begin(record.name); }
    void on_collective(const model::CollectiveRecord& record) override { begin(to_string(record.kind)); }
    /// Something begins; `name` is a literal.
    void begin(std::string_view name);
    /// What ran is over, and nothing begins.
    void end();

    /// Most seconds first.
    [[nodiscard]] std::vector<OpSeconds> times() const;

private:
    using Clock = std::chrono::steady_clock;
    struct Time {
        std::int64_t count = 0;
        Clock::duration spent{};
    };

    std::map<std::string_view, Time> times_;
    Time* running_ = nullptr;
    Clock::time_point since_;
};

}  // namespace mgplan::runtime
