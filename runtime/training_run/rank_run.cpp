#include "runtime/training_run/rank_run.hpp"

#include <algorithm>
#include <limits>
#include <memory>

#include <fmt/core.h>

#include "plan/text/errors.hpp"
#include "runtime/measurement/op_timer.hpp"
#include "runtime/measurement/rank_use.hpp"
#include "runtime/memory/arena_allocator.hpp"
#include "runtime/training_run/rank_arena.hpp"
#include "runtime/training_run/rank_checkpoints.hpp"
#include "runtime/training_run/rank_prediction.hpp"

namespace mgplan::runtime {
namespace {

/// What a rank reports goes to its timer while it is on, and to the observer where there is one.
class Ears final : public model::OpListener, public model::CollectiveListener {
public:
    explicit Ears(RankObserver* observer) : observer_(observer) {}
    /// nullptr: nothing is timed.
    void use(OpTimer* timer) { timer_ = timer; }
    void on_op(const model::OpRecord& record) override {
        if (timer_ != nullptr) timer_->on_op(record);
        if (observer_ != nullptr) observer_->on_op(record);
    }
    void on_collective(const model::CollectiveRecord& record) override {
        if (timer_ != nullptr) timer_->on_collective(record);
        if (observer_ != nullptr) observer_->on_collective(record);
    }

private:
    OpTimer* timer_ = nullptr;
    RankObserver* observer_;
};

}  // namespace

std::string most_telling(std::span<const Problem> problems) {
    MGPLAN_ASSERT(!problems.empty(), "a run that stopped has a problem");
    const auto seen = std::find_if(problems.begin(), problems.end(), [](const Problem& problem) { return problem.saw_it; });
    return (seen == problems.end() ? problems.front() : *seen).text +
           "; lower --lr, look at the data, or leave such steps out with --no-check-for-nan-in-loss-and-grad";
}

RankOutcome run_rank(const TrainingRunOptions& options, const RankDevices& devices, const model::World& world,
                     const model::CollectiveCounter& traffic, LastStep& last_step) {
    return run_rank(
        options, devices, world.rank,
        [&](RankDevice& /*device*/) {
            return Connection{world, &traffic, nullptr};
        },
        last_step);
}

RankOutcome run_rank(const TrainingRunOptions& options, const RankDevices& devices, int rank, const Connect& connect, LastStep& last_step,
                     const std::function<void(const std::exception&)>& failed) {
    using Clock = std::chrono::steady_clock;
    RankOutcome outcome;
    outcome.values.rank = rank;
    // Ranks that throw would each speak; here they stop together and the caller chooses what is said.
    model::TrainingTask task = options.task;
    task.gradients.on_non_finite = model::OnNonFinite::skip;
    const bool has_auxiliary_loss = task.model.moe && task.model.moe->auxiliary_loss != 0;
    model::RoutingLog routing;  // of one step
    const bool has_arena = options.memory == MemoryMode::arena;
    if (!has_arena && !task.layout.cuda_graphs.empty())
        throw ConfigError("CUDA graphs repeat addresses, which only an arena fixes; use --memory arena, or --cuda-graphs none");
    ArenaScript script;
    if (has_arena) script = arena_script(task, rank, devices.traits(), options.check_memory);
    outcome.values.arena = {script.bytes, script.lower_bound};
    RankPrediction prediction(task, rank, devices.traits(), &routing, has_arena ? &script : nullptr);
    const auto train = [&](RankDevice& made, const Connection& connection) {
        model::Device& device = made.device();
        SteppedMemory* const arena = made.arena();
        const auto observer = options.observe ? options.observe(rank) : nullptr;
        // Where ops only begin when they are called, marks on the device tell their times; there are none inside of graphs.
        const auto marks = task.layout.cuda_graphs.empty() ? made.make_marks() : nullptr;
        OpTimer timer(marks.get());
        bool times_ops = false;  // in this step
        Ears ears(observer.get());
        device.set_listener(&ears);
        model::RankTrainer trainer(task, device, connection.world, &routing);
        trainer.set_listener(&ears);
        if (observer) observer->on_ready(device, connection.world);
        const auto source = [&](std::int64_t index, std::span<std::int32_t> tokens) {
            if (times_ops) timer.begin("data");
            options.data->read(index, tokens);
            timer.end();
        };
        const bool speaks = rank == options.speaker;
        RankCheckpoints checkpoints(options, rank, trainer);
        const std::int64_t done_before = checkpoints.resume();
        if (checkpoints.resumed()) prediction.go_on_from(trainer.position());
        for (std::int64_t step = done_before + 1; last_step.includes(rank, step) && outcome.problem.text.empty(); ++step) {
            StepValues values;
            values.learning_rate = learning_rate(options.learning_rate, trainer.updates());
            // Marks cost the host some time, so every second step goes without.
            times_ops = devices.runs_at_once() || (marks != nullptr && (step - done_before) % 2 == 0);
            values.ops_timed = times_ops;
            ears.use(times_ops ? &timer : nullptr);
            const auto begin = Clock::now();
            if (arena != nullptr) arena->begin_step();
            const model::StepReport report = trainer.step(source, values.learning_rate);
            if (arena != nullptr) arena->end_step();
            timer.end();
            device.synchronize();
            values.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
            timer.settle();
            values.loss = report.loss;
            // Without a loss nobody asks for the norm.
            values.grad_norm =
                report.end == model::StepEnd::loss_not_finite ? std::numeric_limits<double>::quiet_NaN() : report.result.grad_norm;
            if (has_auxiliary_loss) values.auxiliary_loss = report.auxiliary_loss;
            values.mtp_losses = report.mtp_losses;
            values.skipped = !report.result.updated;
            if (speaks) outcome.steps.push_back(values);
            if (values.skipped && !options.skip_non_finite) {
                outcome.problem.text = fmt::format("step {}, rank {}: {}", step, rank, report.result.problem);
                outcome.problem.saw_it = report.result.saw_it;
            } else if (speaks && options.on_step) {
                options.on_step(step, values);
            }
            prediction.step(report.end);
            routing.clear();
            if (outcome.problem.text.empty() && checkpoints.is_due(step) && checkpoints.save()) prediction.save();
        }
        if (outcome.problem.text.empty() && checkpoints.save()) prediction.save();
        if (outcome.problem.text.empty() && checkpoints.export_weights()) prediction.save();
        device.set_listener(nullptr);
        outcome.values.measured = rank_use(made.memory(), made.reserved_bytes(), device.host_peak(), *connection.traffic);
        if (arena != nullptr) {
            outcome.values.measured.memory.arena_bytes = arena->touched_bytes();
            outcome.values.measured.memory.fallback_bytes = arena->fallback_bytes();
        }
        if (const auto totals = trainer.graph_totals()) {
            outcome.values.measured.graphs = graph_values(*totals);
            outcome.values.graph_pieces = totals->stretches;
            outcome.values.graph_nodes = totals->nodes;
        }
        outcome.values.ops = timer.times();
    };
    {
        const std::unique_ptr<RankDevice> made = devices.make(rank, has_arena ? &script : nullptr);
        Connection connection;
        try {
            connection = connect(*made);
            train(*made, connection);
        } catch (const std::exception& error) {
            made->device().set_listener(nullptr);
            if (failed) failed(error);
            throw;
        }
    }
    outcome.values.predicted = prediction.use();
    return outcome;
}

}  // namespace mgplan::runtime
