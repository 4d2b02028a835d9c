#include <memory>
#include <utility>

#include "plan/errors.hpp"
#include "plan/text.hpp"
#include "runtime/comm/socket/connect_ranks.hpp"
#include "runtime/comm/socket/socket_world.hpp"
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

/// Tells the others where this rank is, and passes on what it hears.
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

using ConnectRank = std::function<Connection(RendezvousJob& job, RankDevice& device)>;

/// `here`: ranks that share this machine's, or the GPU's, memory.
std::optional<RunValues> run_over_rendezvous(const TrainingRunOptions& asked, const RankDevices& devices, const RendezvousOptions& meeting,
                                             std::int64_t here, const std::string& transport, const ConnectRank& connect) {
    TrainingRunOptions options = asked;
    const int rank = meeting.rank;
    RendezvousJob job(meeting, options.on_stuck);
    Rendezvous& rendezvous = job.rendezvous();
    options.observe = [&, next = asked.observe](int of) {
        return std::make_unique<ReportsToRendezvous>(rendezvous, next ? next(of) : nullptr);
    };
    std::optional<RunValues> result;
    job.run([&] {
        check_one_rank(options, devices, rank, here);
        const GatherTexts gather = job.gather();
        if (const std::string problem = disagreement(gather(options.alike)); !problem.empty()) throw ConfigError(problem);
        if (options.ranks_per_node) {
            const std::vector<std::string> nodes = gather(node_name(process_environment()));
            // Rank 0 alone knows; the others wait for it to make the world.
            const std::string problem = rank == 0 ? placement_problem(nodes, *options.ranks_per_node) : "";
            if (!problem.empty()) throw ConfigError(problem);
        }
        if (rank == 0) check_issue_order(options.task);
        LastStep last_step(options.steps, nullptr);
        RankOutcome outcome = run_rank(
            options, devices, rank, [&](RankDevice& device) { return connect(job, device); }, last_step,
            [&](const std::exception& error) { job.failed(error); });
        rendezvous.at("the report", "");
        std::vector<Problem> problems;  // where there is one, all ranks have it
        if (!outcome.problem.text.empty()) problems = gather_problems(gather, outcome.problem);
        std::vector<RankValues> ranks = gather_values(gather, outcome.values);
        rendezvous.leave();
        if (rank != 0) return;
        result = RunValues{};
        result->device = devices.text();
        result->memory = options.memory;
        result->transport = transport;
        if (!problems.empty()) result->problem = most_telling(problems);
        result->steps = std::move(outcome.steps);
        result->ranks = std::move(ranks);
        compare(*result);
    });
    return result;
}

}  // namespace

std::optional<RunValues> run_over_nccl(const TrainingRunOptions& options, const RendezvousOptions& meeting) {
    MGPLAN_ASSERT(options.devices != nullptr, "NCCL needs GPUs");
    const RankDevices& devices = *options.devices;
    return run_over_rendezvous(options, devices, meeting, 1, "processes over NCCL", [&](RendezvousJob& job, RankDevice& device) {
        const std::shared_ptr<NcclWorldInterface> world = job.connect(devices, device, options.deadline);
        return Connection{world->view(), &world->traffic(), world};
    });
}

std::optional<RunValues> run_over_sockets(const TrainingRunOptions& options, const RendezvousOptions& meeting) {
    // torchrun says how many of its processes are on this machine.
    const auto text = process_environment()("LOCAL_WORLD_SIZE");
    const auto number = text ? parse_integer(*text) : std::nullopt;
    const std::int64_t here = number && *number >= 1 && *number <= meeting.size ? *number : 1;
    return run_over_rendezvous(options, cpu_devices(), meeting, here, "processes over TCP", [&](RendezvousJob& job, RankDevice&) {
        Rendezvous& rendezvous = job.rendezvous();
        const SocketOptions how{options.deadline, [&rendezvous] { return rendezvous.reason(); }};
        const auto world = std::make_shared<SocketWorld>(meeting.rank, connect_ranks(rendezvous, meeting), how);
        return Connection{world->view(), &world->traffic(), world};
    });
}

}  // namespace mgplan::runtime
