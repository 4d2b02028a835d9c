#include "runtime/training_run/rank_run.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "plan/errors.hpp"
#include "runtime/cpu/cpu_device.hpp"
#include "runtime/measurement/op_timer.hpp"
#include "runtime/measurement/rank_use.hpp"
#include "runtime/training_run/rank_prediction.hpp"

namespace mgplan::runtime {
namespace {

/// What a rank reports goes to its timer, and to the observer where there is one.
class Ears final : public model::OpListener, public model::CollectiveListener {
public:
    Ears(OpTimer& timer, RankObserver* observer) : timer_(timer), observer_(observer) {}
    void on_op(const model::OpRecord& record) override {
        timer_.on_op(record);
        if (observer_ != nullptr) observer_->on_op(record);
    }
    void on_collective(const model::CollectiveRecord& record) override {
        timer_.on_collective(record);
        if (observer_ != nullptr) observer_->on_collective(record);
    }

private:
    OpTimer& timer_;
    RankObserver* observer_;
};

}  // namespace

std::string most_telling(std::span<const Problem> problems) {
    MGPLAN_ASSERT(!problems.empty(), "a run that stopped has a problem");
    const auto seen = std::find_if(problems.begin(), problems.end(), [](const Problem& problem) { return problem.saw_it; });
    return (seen == problems.end() ? problems.front() : *seen).text +
           "; lower --lr, look at the data, or leave such steps out with --no-check-for-nan-in-loss-and-grad";
}

RankOutcome run_rank(const TrainingRunOptions& options, const model::World& world, const model::CollectiveCounter& traffic,
                     LastStep& last_step) {
    using Clock = std::chrono::steady_clock;
    RankOutcome outcome;
    outcome.values.rank = world.rank;
    // Ranks that throw would each speak; here they stop together and the caller chooses what is said.
    model::TrainingTask task = options.task;
    task.gradients.on_non_finite = model::OnNonFinite::skip;
    const bool has_auxiliary_loss = task.model.moe && task.model.moe->auxiliary_loss != 0;
    model::RoutingLog routing;  // of one step
    RankPrediction prediction(task, world.rank, CpuDevice::kernel_traits(), &routing);
    {
        CpuDevice device;
        const auto observer = options.observe ? options.observe(world.rank) : nullptr;
        OpTimer timer;
        Ears ears(timer, observer.get());
        device.set_listener(&ears);
        model::RankTrainer trainer(task, device, world, &routing);
        trainer.set_listener(&ears);
        timer = {};  // of the steps alone
        if (observer) observer->on_ready(device, world);
        const auto source = [&](std::int64_t index, std::span<std::int32_t> tokens) {
            timer.begin("data");
            options.data->read(index, tokens);
            timer.end();
        };
        for (std::int64_t step = 1; last_step.includes(world.rank, step) && outcome.problem.text.empty(); ++step) {
            StepValues values;
            values.learning_rate = learning_rate(options.learning_rate, trainer.updates());
            const auto begin = Clock::now();
            const model::StepReport report = trainer.step(source, values.learning_rate);
            timer.end();
            values.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
            values.loss = report.loss;
            // Without a loss nobody asks for the norm.
            values.grad_norm =
                report.end == model::StepEnd::loss_not_finite ? std::numeric_limits<double>::quiet_NaN() : report.result.grad_norm;
            if (has_auxiliary_loss) values.auxiliary_loss = report.auxiliary_loss;
            values.mtp_losses = report.mtp_losses;
            values.skipped = !report.result.updated;
            if (world.rank == 0) outcome.steps.push_back(values);
            if (values.skipped && !options.skip_non_finite) {
                outcome.problem.text = fmt::format("step {}, rank {}: {}", step, world.rank, report.result.problem);
                outcome.problem.saw_it = report.result.saw_it;
            } else if (world.rank == 0 && options.on_step) {
                options.on_step(step, values);
            }
            prediction.step(report.end);
            routing.clear();
        }
        device.set_listener(nullptr);
        outcome.values.measured = rank_use(device.memory(), device.pool().reserved_bytes(), traffic);
        outcome.values.ops = timer.times();
    }
    outcome.values.predicted = prediction.use();
    return outcome;
}

}  // namespace mgplan::runtime
