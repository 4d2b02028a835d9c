#pragma once
// Bytes of parameters, gradients and optimizer state that one rank holds all the time.

#include "plan/layout.hpp"
#include "plan/parameters.hpp"
#include "plan/training_spec.hpp"

namespace mgplan::simulator {

struct ModelStateBytes {
    std::int64_t parameters = 0;
    std::int64_t gradients = 0;
    std::int64_t optimizer = 0;
    std::int64_t update = 0;  ///< further bytes during the optimizer step alone: fp32 copies of narrower gradients
};

/// DESIGN.md, "Bytes per parameter": 18 without and 6+12/d with the distributed optimizer for 16-bit parameters and fp32
/// gradients, 20 and 4+16/d for 16-bit gradients (of these, 4 and 4/d are the update's), 16 and 8+8/d in fp32; d = dp·cp for dense
/// parameters and edp for experts, per optimizer instance. With the distributed optimizer each buffer is padded to a multiple of lcm(d,
/// 128) elements; the holes between parameters inside a buffer are not counted here.
[[nodiscard]] ModelStateBytes model_state_bytes(const ParameterCount& count, const Layout& layout, const TrainingSpec& training);

}  // namespace mgplan::simulator
