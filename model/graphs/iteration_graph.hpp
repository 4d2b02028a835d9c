#pragma once
// One graph of all forwards and backwards of a rank's step.

#include <cstdint>
#include <functional>
#include <vector>

#include "model/graphs/captured_pass.hpp"
#include "model/graphs/graph_totals.hpp"

namespace mgplan::model {

/// The first run is eager, so that libraries choose their algorithms and partners connect; the second is captured, and
/// replayed from there on. The same class on every device: on shapes it counts.
class IterationGraph {
public:
    explicit IterationGraph(Device& device) : device_(device) {}

    /// Runs, captures or replays `passes`. `inputs`: one tensor of each storage of the step that the passes read and do not take
    /// themselves; at the same addresses in each step. All results of the passes are in memory that outlives them, as is `loss`
    /// (undefined: another stage's). Throws RunError for work that no graph can hold.
    void run(const std::vector<Tensor>& inputs, const Tensor& loss, const std::function<void()>& passes);

    [[nodiscard]] GraphTotals totals() const;

private:
    Device& device_;
    CapturedPass pass_;
    std::int64_t runs_ = 0;
    std::int64_t input_bytes_ = 0, loss_bytes_ = 0;
    bool seen_ = false;
};

}  // namespace mgplan::model
