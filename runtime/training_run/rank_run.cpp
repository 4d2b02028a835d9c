#include "runtime/training_run/rank_run.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

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

/// Passes a rank's reports to its timer, if one is in use, and to the observer, if there is one.
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
    void on_waiting(model::CollectiveKind kind) override {
        if (timer_ != nullptr) timer_->on_waiting(kind);
        if (observer_ != nullptr) observer_->on_waiting(kind);
    }

private:
    OpTimer* timer_ = nullptr;
    RankObserver* observer_;
};

/// The steps of one rank on its device, measured as they run.
class MeasuredTraining {
public:
    MeasuredTraining(const TrainingRunOptions& options, const RankDevices& devices, const model::TrainingTask& task, int rank,
                     RankDevice& made, const Connection& connection, model::RoutingLog& routing)
        : options_(options),
          devices_(devices),
          task_(task),
          made_(made),
          device_(made.device()),
          arena_(made.arena()),
          observer_(options.observe ? options.observe(rank) : nullptr),
          // If ops only begin when they are called, marks on the device measure their times; there are none inside of graphs.
          marks_(task.layout.cuda_graphs.empty() ? made.make_marks() : nullptr),
          timer_(marks_.get()),
          ears_(observer_.get()) {
        device_.set_listener(&ears_);
        trainer_.emplace(task, device_, connection.world, &routing);
        trainer_->set_listener(&ears_);
        for (auto& watch : watches_) watch = device_.make_stopwatch();
        if (observer_) observer_->on_ready(device_, connection.world);
    }
    ~MeasuredTraining() { device_.set_listener(nullptr); }
    MeasuredTraining(const MeasuredTraining&) = delete;
    MeasuredTraining& operator=(const MeasuredTraining&) = delete;

    [[nodiscard]] model::RankTrainer& trainer() { return *trainer_; }
    struct Step {
        std::int64_t number = 0;
        StepValues values;
        model::StepReport report;
    };
    /// Does step `number`, the `made`-th of this process, or only issues it if the device runs asynchronously. Returns the last step
    /// that is done: this one, or the one before it, if any.
    [[nodiscard]] std::optional<Step> step(std::int64_t number, std::int64_t made);
    /// Waits for the step that was issued but not returned yet, if any, and returns it.
    [[nodiscard]] std::optional<Step> finish();
    /// Writes the memory, traffic and graph sizes so far to `values`.
    void measure(const model::CollectiveCounter& traffic, RankValues& values);

private:
    /// A step whose end the host has not read.
    struct Issued {
        Step step;
        model::Stopwatch* watch;
    };
    /// Waits for the step's report. Its times are read by timed().
    void read(Issued& issued);
    [[nodiscard]] Step timed(Issued issued);

    const TrainingRunOptions& options_;
    const RankDevices& devices_;
    const model::TrainingTask& task_;
    RankDevice& made_;
    model::Device& device_;
    SteppedMemory* arena_;
    std::unique_ptr<RankObserver> observer_;
    std::unique_ptr<model::DeviceMarks> marks_;
    OpTimer timer_;
    Ears ears_;
    std::optional<model::RankTrainer> trainer_;
    std::array<std::unique_ptr<model::Stopwatch>, 2> watches_;  ///< one step begins before the times of the other are read
    std::optional<Issued> issued_;
};

std::optional<MeasuredTraining::Step> MeasuredTraining::step(std::int64_t number, std::int64_t made) {
    Issued now{{.number = number, .values = {}, .report = {}}, watches_.at(static_cast<std::size_t>(made % 2)).get()};
    // Marks cost the host some time, so every second step has none: the times of one are read during the next.
    const bool times_ops = devices_.runs_at_once() || (marks_ != nullptr && made % 2 == 0);
    now.step.values.ops_timed = times_ops;
    ears_.use(times_ops ? &timer_ : nullptr);
    const auto source = [&](std::int64_t index, std::span<std::int32_t> tokens) {
        if (times_ops) timer_.begin("data");
        options_.data->read(index, tokens);
        timer_.end();
    };
    now.watch->start();
    if (arena_ != nullptr) arena_->begin_step();
    trainer_->begin_step(source);
    // The device has passes to run while the host waits for the step in front, on which learning rate and update depend.
    std::optional<Issued> before = std::exchange(issued_, std::nullopt);
    if (before) read(*before);
    now.step.values.learning_rate = learning_rate(options_.learning_rate, trainer_->updates());
    trainer_->end_step(now.step.values.learning_rate);
    if (arena_ != nullptr) arena_->end_step();
    timer_.end();
    now.watch->stop();
    issued_ = std::move(now);
    if (devices_.runs_at_once()) return finish();
    if (!before) return std::nullopt;
    return timed(std::move(*before));
}

std::optional<MeasuredTraining::Step> MeasuredTraining::finish() {
    if (!issued_) return std::nullopt;
    read(*issued_);
    return timed(*std::exchange(issued_, std::nullopt));
}

void MeasuredTraining::read(Issued& issued) {
    issued.step.report = trainer_->report();
    StepValues& values = issued.step.values;
    const model::StepReport& report = issued.step.report;
    values.loss = report.loss;
    // Without a finite loss the norm is not computed.
    values.grad_norm = report.end == model::StepEnd::loss_not_finite ? std::numeric_limits<double>::quiet_NaN() : report.result.grad_norm;
    if (task_.model.moe && task_.model.moe->auxiliary_loss != 0) values.auxiliary_loss = report.auxiliary_loss;
    values.mtp_losses = report.mtp_losses;
    values.skipped = !report.result.updated;
}

MeasuredTraining::Step MeasuredTraining::timed(Issued issued) {
    issued.step.values.seconds = issued.watch->seconds();
    if (issued.step.values.ops_timed) timer_.settle();
    return std::move(issued.step);
}

void MeasuredTraining::measure(const model::CollectiveCounter& traffic, RankValues& values) {
    device_.synchronize();
    values.measured = rank_use(made_.memory(), made_.reserved_bytes(), device_.host_peak(), traffic);
    if (arena_ != nullptr) {
        values.measured.memory.arena_bytes = arena_->touched_bytes();
        values.measured.memory.fallback_bytes = arena_->fallback_bytes();
    }
    if (const auto totals = trainer_->graph_totals()) {
        values.measured.graphs = graph_values(*totals);
        values.graph_pieces = totals->stretches;
        values.graph_nodes = totals->nodes;
    }
    values.ops = timer_.times();
}

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
    RankOutcome outcome;
    outcome.values.rank = rank;
    // Ranks that throw would each report; here they stop together and the caller chooses the report.
    model::TrainingTask task = options.task;
    task.gradients.on_non_finite = model::OnNonFinite::skip;
    model::RoutingLog routing;  // of the steps that were not predicted yet, two at most
    const bool has_arena = options.memory == MemoryMode::arena;
    if (!has_arena && !task.layout.cuda_graphs.empty())
        throw ConfigError("CUDA graphs repeat addresses, which only an arena fixes; use --memory arena, or --cuda-graphs none");
    ArenaScript script;
    if (has_arena) script = arena_script(task, rank, devices.traits(), options.check_memory);
    outcome.values.arena = {script.bytes, script.lower_bound};
    RankPrediction prediction(task, rank, devices.traits(), &routing, has_arena ? &script : nullptr);
    const auto train = [&](RankDevice& made, const Connection& connection) {
        MeasuredTraining training(options, devices, task, rank, made, connection, routing);
        RankCheckpoints checkpoints(options, rank, training.trainer());
        const std::int64_t done_before = checkpoints.resume();
        if (checkpoints.resumed()) prediction.go_on_from(training.trainer().position());
        // Steps come back in order. A step that was issued before the problem of an earlier one was seen is measured and predicted as
        // the others are, but not reported.
        const auto take = [&](const std::optional<MeasuredTraining::Step>& done) {
            if (!done) return;
            const auto& [step, values, report] = *done;
            if (outcome.problem.text.empty()) {
                if (rank == options.speaker) outcome.steps.push_back(values);
                if (values.skipped && !options.skip_non_finite) {
                    outcome.problem.text = fmt::format("step {}, rank {}: {}", step, rank, report.result.problem);
                    outcome.problem.saw_it = report.result.saw_it;
                } else if (rank == options.speaker && options.on_step) {
                    options.on_step(step, values);
                }
            }
            prediction.step(report.end);
            routing.forget_until(step);
        };
        for (std::int64_t step = done_before + 1; last_step.includes(rank, step) && outcome.problem.text.empty(); ++step) {
            take(training.step(step, step - done_before));
            if (!checkpoints.is_due(step)) continue;
            take(training.finish());  // the step to be saved must be complete
            if (outcome.problem.text.empty() && checkpoints.save()) prediction.save();
        }
        take(training.finish());
        if (outcome.problem.text.empty() && checkpoints.save()) prediction.save();
        if (outcome.problem.text.empty() && checkpoints.export_weights()) prediction.save();
        training.measure(*connection.traffic, outcome.values);
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
