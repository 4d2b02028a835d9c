#pragma once
// Interface of the data-parallel traffic of one model chunk for its trainer, however its parameters and gradients are divided.

#include <cstdint>

#include "model/layers/weight_events.hpp"

namespace mgplan::model {

class ChunkTraffic : public WeightEvents {
public:
    /// Before the passes of a step in which each unit runs this many backwards.
    virtual void begin_step(std::int64_t microbatches) = 0;
    /// To be called after all backwards: starts the reductions not started yet and waits for all. Then each rank's shard (each gradient,
    /// where gradients and optimizer state are whole) holds the sum over ranks.
    virtual void finish_reductions() = 0;
    /// Once parameters are updated: starts the gathers of those that every rank holds whole, those of the first units first; waits
    /// unless they overlap.
    virtual void start_gathers() = 0;
    /// To be called before other code than the layers reads these parameters.
    virtual void finish_gathers() = 0;
};

}  // namespace mgplan::model
