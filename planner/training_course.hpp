#pragma once
// Time of a training whose batch size grows: every stage of its schedule on one layout.

#include "plan/layout/layout.hpp"
#include "plan/training/batch_schedule.hpp"
#include "plan/workload.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::planner {

/// Number of batch sizes timed by the exact timeline; between them times are interpolated over their microbatches.
inline constexpr std::size_t kTimedBatches = 8;

/// The stages of `batch_stages()` with the seconds of their steps, by the exact timeline, each batch divided over the layout's ranks and
/// micro-batches. `model`: of the workload, whose batch is the one after the schedule. Throws ConfigError with the stages that the layout
/// cannot run: Megatron-LM stops at a batch that does not divide, or that the interleaved schedule does not accept. If a checkpoint is
/// loaded and such stages come first, they and those before them count as already run.
[[nodiscard]] TrainingCourse training_course(const Workload& workload, const Layout& layout, const BatchSchedule& schedule,
                                             simulator::CostModel& model);

}  // namespace mgplan::planner
