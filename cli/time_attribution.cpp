#include "cli/time_attribution.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "model/communicator/recording_communicator.hpp"
#include "model/meta/meta_device.hpp"
#include "model/training/rank_trainer.hpp"
#include "plan/allowed_processors.hpp"
#include "plan/layout/stage_ranks.hpp"
#include "simulator/cluster_parameters.hpp"
#include "simulator/price/op_price.hpp"
#include "simulator/price/training_rates.hpp"

namespace mgplan::cli {
namespace {

double median(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    const std::size_t half = values.size() / 2;
    return values.size() % 2 == 1 ? values[half] : 0.5 * (values[half - 1] + values[half]);
}

bool has_timed_ops(const runtime::RunValues& run) {
    return std::any_of(run.ranks.begin(), run.ranks.end(), [](const auto& rank) { return !rank.ops.empty(); });
}

/// All ops of one name.
struct PricedOp {
    double count = 0, seconds = 0, launches = 0;
};
using PricedOps = std::map<std::string, PricedOp>;

/// Sums of a trace's ops by name.
class OpSums final : public model::OpListener {
public:
    explicit OpSums(const simulator::TrainingRates& rates) : rates_(rates.ops()) {}
    void on_op(const model::OpRecord& record) override {
        PricedOp& sum = sums[std::string(record.name)];
        sum.count += 1;
        sum.seconds += simulator::op_seconds(record, rates_);
        sum.launches += static_cast<double>(record.launches);
    }
    PricedOps sums;

private:
    simulator::OpRates rates_;
};

/// Returns the ops of a step, as the average of these ranks. MoE layers are balanced.
PricedOps priced_ops(const RunOutcome& outcome, const ClusterSpec& cluster, const std::vector<int>& ranks) {
    const simulator::Calibration calibration = simulator::calibration_of(cluster, outcome.plan.training.software);
    const simulator::TrainingRates rates(cluster, calibration, outcome.plan.training);
    model::TrainingTask task = outcome.task;
    task.balanced_routing = true;
    task.gradients.on_non_finite = model::OnNonFinite::skip;
    OpSums ops(rates);
    for (const int rank : ranks) {
        model::MetaDevice device({.keep_allocations = false, .keep_ops = false, .stands_for = outcome.traits});
        model::RankTrainer trainer(task, device, model::recording_world(rank, static_cast<int>(task.layout.sizes.world)));
        // The first step is eager, and its first products write what later graphs of layers add; with a graph of the iteration all are
        // alike.
        if (!task.layout.cuda_graphs.empty()) static_cast<void>(trainer.step({}, 0));
        device.set_listener(&ops);
        static_cast<void>(trainer.step({}, 0));
        device.set_listener(nullptr);
    }
    for (auto& [name, sum] : ops.sums) {
        for (double* each : {&sum.count, &sum.seconds, &sum.launches}) *each /= static_cast<double>(ranks.size());
    }
    return std::move(ops.sums);
}

/// One rank of each pipeline stage.
std::vector<int> rank_of_each_stage(const ParallelSizes& sizes) {
    std::vector<int> ranks;
    for (std::int64_t stage = 0; stage < sizes.pp; ++stage) ranks.push_back(static_cast<int>(first_rank_of_stage(sizes, stage)));
    return ranks;
}

bool is_communication(const std::string& op) {
    for (int kind = 0; kind <= static_cast<int>(model::CollectiveKind::barrier); ++kind) {
        if (op == to_string(static_cast<model::CollectiveKind>(kind))) return true;
    }
    return false;
}

/// Returns the part of an iteration that a kernel belongs to.
const char* part_of(const std::string& op) {
    if (op == "matmul" || op == "grouped_matmul") return "GEMMs";
    if (op == "attention" || op == "attention_backward") return "attention";
    if (op == "adam_step" || op == "momentum_step" || op == "sum_of_squares" || op == "add_in_order" || op == "clip_factor")
        return "optimizer";
    return "other kernels";
}

/// Ops by name, predicted and measured; measured ones per step, scaled from the steps that were timed to `step_seconds`.
std::map<std::string, reports::OpComparison> compared_ops(const runtime::RunValues& run, const PricedOps& priced, double step_seconds) {
    double timed_seconds = 0, timed_steps = 0;
    for (const auto& step : run.steps) {
        timed_seconds += step.ops_timed ? step.seconds : 0;
        timed_steps += step.ops_timed ? 1 : 0;
    }
    const auto ranks = static_cast<double>(run.ranks.size());
    const double share = step_seconds / timed_seconds / ranks;
    std::map<std::string, reports::OpComparison> ops;
    for (const auto& [name, sum] : priced) {
        ops[name].predicted_count = sum.count;
        ops[name].predicted = sum.seconds;
    }
    for (const auto& rank : run.ranks) {
        for (const auto& each : rank.ops) {
            if (each.op == "data") continue;  // host work: between kernels
            auto& op = ops[each.op];
            op.count += static_cast<double>(each.count) / (ranks * timed_steps);
            op.measured += each.seconds * share;
        }
    }
    for (auto& [name, op] : ops) {
        op.op = name;
        op.communication = is_communication(name);
    }
    return ops;
}

/// Fills in ops and parts, the last of which is the rest on both sides. `communication`: predicted seconds of that part;
/// nothing: there is no such part.
void fill_in(const std::map<std::string, reports::OpComparison>& ops, std::optional<double> communication, reports::TimeComparison& time) {
    std::vector<reports::TimePart> parts{{"GEMMs", 0, 0}, {"attention", 0, 0}, {"optimizer", 0, 0}, {"other kernels", 0, 0}};
    if (communication) parts.push_back({"communication, and waiting for partners", *communication, 0});
    for (const auto& [name, op] : ops) {
        time.ops.push_back(op);
        if (op.communication && !communication) continue;
        const std::string part = op.communication ? parts.back().name : part_of(name);
        const auto at = std::find_if(parts.begin(), parts.end(), [&](const auto& each) { return each.name == part; });
        if (!op.communication) at->predicted += op.predicted;
        *at->measured += op.measured;
    }
    std::stable_sort(time.ops.begin(), time.ops.end(), [](const auto& a, const auto& b) { return a.measured > b.measured; });
    double predicted_rest = time.predicted, measured_rest = time.measured;
    for (const auto& part : parts) {
        predicted_rest -= part.predicted;
        measured_rest -= *part.measured;
    }
    if (std::abs(predicted_rest) < 1e-9 * time.predicted) predicted_rest = 0;  // rounding
    parts.push_back({"between kernels: host, data, launches", predicted_rest, measured_rest});
    time.parts = std::move(parts);
}

}  // namespace

double median_step(const runtime::RunValues& run) {
    std::vector<double> seconds, untimed;
    for (std::size_t i = run.steps.size() > 1 ? 1 : 0; i < run.steps.size(); ++i) {
        seconds.push_back(run.steps[i].seconds);
        if (!run.steps[i].ops_timed) untimed.push_back(run.steps[i].seconds);
    }
    return median(untimed.empty() ? seconds : untimed);
}

std::string why_not_judged(const RunOutcome& outcome, const ClusterSpec& cluster, const std::string& hardware) {
    const bool cuda = outcome.traits.kind == model::DeviceKind::cuda;
    const std::string device = cuda ? "cuda" : "cpu";
    if (!cluster.calibration || cluster.calibration->device.empty())
        return fmt::format("{} was not calibrated on a machine; mgplan calibrate --device {} writes a cluster file for this one",
                           cluster.name, device);
    const ClusterCalibration& calibration = *cluster.calibration;
    if (calibration.device != device || calibration.hardware != hardware)
        return fmt::format("{} was calibrated on {} ({}), and this ran on {} ({})", cluster.name, calibration.device, calibration.hardware,
                           device, hardware);
    const auto ranks = outcome.values.ranks.size();
    if (outcome.in_process && cuda && ranks > 1) return fmt::format("the {} ranks shared one GPU", ranks);
    const int processors = allowed_processors();
    if (outcome.in_process && !cuda && std::cmp_greater(ranks, processors))
        return fmt::format("the {} ranks shared {} processor{}", ranks, processors, processors == 1 ? "" : "s");
    if (outcome.values.emulated_partners && !has_timed_ops(outcome.values))
        return "inside of CUDA graphs the copies that stand for communication cannot be told from the rest; add --cuda-graphs none";
    if (outcome.values.steps.size() < 2) return "the only step holds the start; use --steps 2 or more";
    return "";
}

void attribute(const RunOutcome& outcome, const ClusterSpec& cluster, const simulator::TimePrediction& predicted,
               reports::TimeComparison& time) {
    if (!has_timed_ops(outcome.values)) {
        time.parts = {{"compute of the slowest stage", predicted.compute_seconds, {}},
                      {"pipeline bubble", predicted.bubble_seconds, {}},
                      {"exposed communication", predicted.exposed.total(), {}},
                      {"optimizer", predicted.optimizer_seconds, {}}};
        double rest = predicted.iteration_seconds;
        for (const auto& part : time.parts) rest -= part.predicted;
        time.parts.push_back({"between kernels: host, data, launches", rest, {}});
        return;
    }
    fill_in(compared_ops(outcome.values, priced_ops(outcome, cluster, rank_of_each_stage(outcome.task.layout.sizes)), time.measured),
            predicted.exposed.total() + predicted.bubble_seconds, time);
}

void attribute_alone(const RunOutcome& outcome, const ClusterSpec& cluster, reports::TimeComparison& time) {
    time.measured = median_step(outcome.values);
    const PricedOps priced = priced_ops(outcome, cluster, {outcome.values.ranks.front().rank});
    double kernels = 0, launches = 0;
    for (const auto& [name, sum] : priced) {
        kernels += sum.seconds;
        launches += sum.launches;
    }
    std::map<std::string, reports::OpComparison> ops;
    if (has_timed_ops(outcome.values)) {
        ops = compared_ops(outcome.values, priced, time.measured);
        for (const auto& [name, op] : ops) {
            if (op.communication) time.measured -= op.measured;
        }
    }
    // A CPU's ops have run when their calls return: they hold what issuing them takes.
    const bool issues_ahead = outcome.traits.kind == model::DeviceKind::cuda && cluster.calibration;
    const double issue = issues_ahead ? launches * cluster.calibration->launch.seconds : 0;
    time.predicted = std::max(kernels, issue);
    if (!ops.empty()) {
        fill_in(ops, std::nullopt, time);
    } else {
        time.parts = {{"kernels", kernels, {}}, {"between kernels: host, data, launches", time.predicted - kernels, {}}};
    }
}

}  // namespace mgplan::cli
