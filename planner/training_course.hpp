#pragma once
// What a training takes whose batch grows on the way: every stage of its schedule on one layout.

#include "plan/layout/layout.hpp"
#include "plan/training/batch_schedule.hpp"
#include "plan/workload.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::planner {

/// Batches that are timed by the exact timeline; of more, those between are interpolated over their microbatches.
inline constexpr std::size_t kTimedBatches = 8;

/// The stages of `batch_stages()` with the seconds of their steps, by the exact timeline, each batch divided over the layout's ranks and
/// micro-batches. `model` is of the workload, whose batch is that behind the schedule. Throws ConfigError with the stages that the layout
/// cannot run: Megatron-LM stops when it comes to a batch that does not divide, or that the interleaved schedule does not take. Where a
/// checkpoint is loaded and such stages come first, they and those before them count as run before.
[[nodiscard]] TrainingCourse training_course(const Workload& workload, const Layout& layout, const BatchSchedule& schedule,
                                             simulator::CostModel& model);

}  // namespace mgplan::planner
