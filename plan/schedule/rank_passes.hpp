#pragma once
// Writes one rank's list: each kind of pass takes the microbatches of its chunk in order.

#include <array>
#include <vector>

#include "plan/schedule/pipeline_order.hpp"

namespace mgplan {

class RankPasses {
public:
    RankPasses(std::vector<PipelineOp>& ops, std::int64_t microbatches) : ops_(ops), microbatches_(microbatches) {
        ops_.reserve(static_cast<std::size_t>(6 * microbatches));
    }
    /// The next microbatch of `pass` on `chunk`. A microbatch that the iteration does not have is left out: what is left of an
    /// order that does not deadlock does not deadlock either.
    void run(Pass pass, int chunk = 0) {
        const std::int64_t microbatch = done(pass, chunk)++;
        if (microbatch < microbatches_) ops_.push_back({pass, static_cast<std::int16_t>(chunk), static_cast<std::int32_t>(microbatch)});
    }
    /// Appends the gradient of the input and, right after it, that of the weights.
    void run_backward(int chunk) {
        run(Pass::input_gradient, chunk);
        run(Pass::weight_gradient, chunk);
    }
    [[nodiscard]] std::int64_t count(Pass pass, int chunk = 0) const {
        return done_[static_cast<std::size_t>(pass)][static_cast<std::size_t>(chunk)];
    }

private:
    std::int64_t& done(Pass pass, int chunk) { return done_[static_cast<std::size_t>(pass)][static_cast<std::size_t>(chunk)]; }

    std::vector<PipelineOp>& ops_;
    std::int64_t microbatches_;
    std::array<std::array<std::int64_t, 2>, kPasses> done_{};
};

}  // namespace mgplan
