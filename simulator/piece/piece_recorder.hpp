#pragma once
// Listens to a model that runs on shapes, and records its steps in order.

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "simulator/piece/piece_step.hpp"

namespace mgplan::simulator {

/// A Range of the code that ran, and the steps within it.
struct RecordedRange : model::RangeRecord {
    std::size_t first_step = 0, end_step = 0;
};

/// Must be set as listener of the device and of the rank's communicators, all of them recording ones ("tp", "cp", "expert:ep", "expert:tp",
/// "tp-cp"; asserts on others). Both must outlive it.
class PieceRecorder final : public model::OpListener, public model::CollectiveListener, public model::WaitListener {
public:
    /// `keep_steps` false: records only ranges. `keep_zeros`: also records "zero", with which mgplan's layers initialise sums, unlike other
    /// engines.
    PieceRecorder(const model::MetaDevice& device, bool keep_steps, bool keep_zeros)
        : device_(device), keep_steps_(keep_steps), keep_zeros_(keep_zeros) {
        if (keep_steps) steps_.reserve(256);
    }

    void on_op(const model::OpRecord& record) override;
    void on_range_begin(std::string_view name, std::int64_t number) override;
    void on_range_end() override;
    void on_collective(const model::CollectiveRecord& record) override;
    void on_wait(std::string_view group, std::int64_t number) override;

    [[nodiscard]] const PieceSteps& steps() const { return steps_; }
    [[nodiscard]] const std::vector<RecordedRange>& ranges() const { return ranges_; }

private:
    [[nodiscard]] PieceStep step(StepKind kind) const;

    const model::MetaDevice& device_;
    bool keep_steps_, keep_zeros_;
    PieceSteps steps_;
    std::vector<RecordedRange> ranges_;
    std::vector<std::size_t> open_;
    int recomputes_ = 0, routers_ = 0, gates_ = 0, unquantised_ = 0, backwards_ = 0;  ///< number of open ranges of these names
    std::array<std::vector<std::size_t>, kLayerGroups> starts_;                       ///< by group: the step of each operation
    int collectives_ = 0;
};

}  // namespace mgplan::simulator
