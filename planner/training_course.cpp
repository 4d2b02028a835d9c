#include "planner/training_course.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "planner/constraints.hpp"

namespace mgplan::planner {
namespace {

/// The layout with the microbatches of another batch; rounded down if the batch does not divide.
Layout with_batch(const Layout& layout, std::int64_t batch) {
    Layout changed = layout;
    changed.num_microbatches = std::max<std::int64_t>(1, batch / (layout.dp() * layout.micro_batch));
    return changed;
}

/// Throws for stages at which Megatron-LM stops. Returns the number of stages already run.
std::size_t refuse_stages(const Workload& workload, const Layout& layout, const std::vector<BatchStage>& stages, bool resumed) {
    constexpr std::size_t kShown = 3;
    Problems problems;
    std::size_t more = 0, behind_the_last = 0;
    Workload work = workload;
    for (std::size_t i = 0; i < stages.size(); ++i) {
        const BatchStage& stage = stages[i];
        work.batch.global_batch = stage.batch;
        const auto broken = broken_messages(work, with_batch(layout, stage.batch), Level::microbatch);
        if (broken.empty()) continue;
        behind_the_last = i + 1;
        if (problems.list().size() < kShown)
            problems.add("the batch of {} from sample {} on: {}", with_thousands(stage.batch), with_thousands(stage.from_samples),
                         broken.front());
        else
            ++more;
    }
    if (more > 0) problems.add("the same of {} more of the schedule's batches", with_thousands(static_cast<std::int64_t>(more)));
    if (!resumed || behind_the_last == stages.size()) problems.throw_if_any();
    return behind_the_last;
}

/// Seconds of an iteration by its number of microbatches, linear once the pipeline is full.
class IterationSeconds {
public:
    IterationSeconds(const Workload& workload, const Layout& layout, simulator::CostModel& model)
        : workload_(workload), layout_(layout), model_(model) {}

    /// `batches`: ascending, each once.
    void time(const std::vector<std::int64_t>& batches) {
        const std::size_t points = std::min(batches.size(), kTimedBatches);
        for (std::size_t i = 0; i < points; ++i) {
            const std::int64_t batch = batches[points == 1 ? 0 : i * (batches.size() - 1) / (points - 1)];
            seconds_[batch] = seconds_of(batch);
        }
    }

    [[nodiscard]] double at(std::int64_t batch) const {
        const auto above = seconds_.lower_bound(batch);
        if (above == seconds_.end()) return seconds_.rbegin()->second;
        if (above->first == batch || above == seconds_.begin()) return above->second;
        const auto below = std::prev(above);
        return std::lerp(below->second, above->second,
                         static_cast<double>(batch - below->first) / static_cast<double>(above->first - below->first));
    }

private:
    double seconds_of(std::int64_t batch) {
        const Layout layout = with_batch(layout_, batch);
        if (batch == workload_.batch.global_batch || workload_.batch.lengths.empty()) return model_.exact_seconds(layout);
        Workload other = workload_;  // the busiest rank's documents depend on the batch
        other.batch.global_batch = batch;
        simulator::CostModel model(other);
        return model.exact_seconds(layout);
    }

    const Workload& workload_;
    const Layout& layout_;
    simulator::CostModel& model_;
    std::map<std::int64_t, double> seconds_;  ///< by batch
};

}  // namespace

TrainingCourse training_course(const Workload& workload, const Layout& layout, const BatchSchedule& schedule, simulator::CostModel& model) {
    TrainingCourse course{.stages = {}, .sequence = workload.batch.sequence};
    const std::vector<BatchStage> stages = batch_stages(schedule, workload.batch, layout.dp() * layout.micro_batch);
    const std::size_t before = refuse_stages(workload, layout, stages, schedule.resumed);
    std::vector<std::int64_t> batches;
    for (std::size_t i = before; i < stages.size(); ++i) batches.push_back(stages[i].batch);
    std::sort(batches.begin(), batches.end());
    batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
    IterationSeconds seconds(workload, layout, model);
    seconds.time(batches);
    for (std::size_t i = 0; i < stages.size(); ++i) {
        TimedStage timed{.stage = stages[i]};
        if (i >= before) {
            timed.num_microbatches = with_batch(layout, stages[i].batch).num_microbatches;
            timed.iteration_seconds = seconds.at(stages[i].batch);
        }
        course.stages.push_back(timed);
    }
    return course;
}

}  // namespace mgplan::planner
