#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/core.h>

#include "model/pipeline/send_depth.hpp"
#include "plan/text/errors.hpp"
#include "runtime/cuda_loader/hardware_queues.hpp"
#include "runtime/launch/node_name.hpp"
#include "runtime/launch/placement.hpp"
#include "runtime/measurement/rank_use.hpp"
#include "runtime/training_run/agreement.hpp"
#include "runtime/training_run/gather_values.hpp"
#include "runtime/training_run/issue_order.hpp"
#include "runtime/training_run/rank_devices.hpp"
#include "runtime/training_run/rank_prediction.hpp"
#include "runtime/training_run/rank_run.hpp"
#include "runtime/training_run/rendezvous_job.hpp"
#include "runtime/training_run/training_run.hpp"

namespace mgplan::runtime {
namespace {

/// Reports this rank's place in the run to the others, and passes each call on to the next observer.
class ReportsToRendezvous final : public RankObserver {
public:
    ReportsToRendezvous(Rendezvous& rendezvous, std::unique_ptr<RankObserver> next) : rendezvous_(rendezvous), next_(std::move(next)) {}
    void on_ready(model::Device& device, const model::World& world) override {
        if (next_) next_->on_ready(device, world);
    }
    void on_op(const model::OpRecord& record) override {
        rendezvous_.at(record.name, "");
        if (next_) next_->on_op(record);
    }
    void on_collective(const model::CollectiveRecord& record) override {
        rendezvous_.at(to_string(record.kind), record.group);
        if (next_) next_->on_collective(record);
    }

private:
    Rendezvous& rendezvous_;
    std::unique_ptr<RankObserver> next_;
};

/// With one hardware queue the streams of a card have one order: a send after an open one holds up all that is issued
/// after it, including the receives that its receiver waits for.
void check_hardware_queues(const Layout& layout) {
    if (process_environment()(kQueuesVariable) != "1" || layout.sizes.pp == 1) return;
    const LayoutSchedule schedule(layout);
    std::int64_t open = 1;
    for (int rank = 0; rank < schedule.pp(); ++rank) {
        const model::SendDepth depth = model::send_depth(schedule, rank);
        open = std::max({open, depth.forward, depth.backward});
    }
    if (open == 1) return;
    throw ConfigError(
        fmt::format("{} = 1: pipeline ranks of this plan leave up to {} sends open, and with one queue of the card "
                    "they would wait for each other for ever; unset it, or set it to 32",
                    kQueuesVariable, open));
}

}  // namespace

std::optional<RunValues> run_over_nccl(const TrainingRunOptions& asked, const RendezvousOptions& meeting) {
    MGPLAN_ASSERT(asked.devices != nullptr, "NCCL needs GPUs");
    const RankDevices& devices = *asked.devices;
    TrainingRunOptions options = asked;
    const int rank = meeting.rank;
    RendezvousJob job(meeting, options.on_stuck);
    Rendezvous& rendezvous = job.rendezvous();
    options.observe = [&, next = asked.observe](int of) {
        return std::make_unique<ReportsToRendezvous>(rendezvous, next ? next(of) : nullptr);
    };
    const auto connect = [&](RankDevice& device) {
        const std::shared_ptr<NcclWorldInterface> world = job.connect(devices, device, options.deadline);
        return Connection{world->view(), &world->traffic(), world};
    };
    std::optional<RunValues> result;
    job.run([&] {
        check_hardware_queues(options.task.layout);
        check_one_rank(options, devices, rank, 1);
        const GatherTexts gather = job.gather();
        if (const std::string problem = disagreement(gather(options.alike)); !problem.empty()) throw ConfigError(problem);
        if (options.ranks_per_node) {
            const std::vector<std::string> nodes = gather(node_name(process_environment()));
            // Only rank 0 has all names; the others wait for it to make the world.
            const std::string problem = rank == 0 ? placement_problem(nodes, *options.ranks_per_node) : "";
            if (!problem.empty()) throw ConfigError(problem);
        }
        if (rank == 0) check_issue_order(options.task);
        LastStep last_step(options.steps, nullptr);
        RankOutcome outcome = run_rank(options, devices, rank, connect, last_step, [&](const std::exception& error) { job.failed(error); });
        rendezvous.at("the report", "");
        std::vector<Problem> problems;  // where there is one, all ranks have it
        if (!outcome.problem.text.empty()) problems = gather_problems(gather, outcome.problem);
        std::vector<RankValues> ranks = gather_values(gather, outcome.values);
        rendezvous.leave();
        if (rank != 0) return;
        result = RunValues{};
        result->device = devices.text();
        result->memory = options.memory;
        result->transport = "processes over NCCL";
        if (!problems.empty()) result->problem = most_telling(problems);
        result->steps = std::move(outcome.steps);
        result->ranks = std::move(ranks);
        compare(*result);
    });
    return result;
}

}  // namespace mgplan::runtime
