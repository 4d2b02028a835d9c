#include "planner/rl/plan_rl.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "plan/parameters/model_adapter.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "planner/batch_sizes.hpp"
#include "planner/constraints.hpp"
#include "planner/least_world.hpp"
#include "planner/rl/forward_passes.hpp"
#include "planner/rl/weight_sync.hpp"
#include "simulator/cluster_parameters.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/rollout/engine_layout.hpp"
#include "simulator/rollout/engine_memory.hpp"
#include "simulator/rollout/generation.hpp"

namespace mgplan::planner {
namespace {

using simulator::EngineMemory;
using simulator::EngineSettings;
using simulator::Generation;

/// A trained role on its GPUs.
struct Trained {
    PlannedLayout plan;
    double update_seconds = 0;   ///< of all updates of a step
    double forward_seconds = 0;  ///< of the forward passes of all sequences
    std::int64_t weights = 0, gradients = 0, optimizer = 0, residue = 0;
    [[nodiscard]] std::int64_t peak() const { return plan.prediction.memory.deciding_bytes(); }
    /// At most what forward passes alone need next to the optimizer: they keep nothing for a backward.
    [[nodiscard]] std::int64_t forward_peak() const { return peak() - gradients - optimizer; }
};

/// A role that only reads, on its GPUs.
struct Frozen {
    std::optional<Layout> layout;
    double seconds = 0;
    std::int64_t weights = 0, residue = 0, activations = 0;
};

/// The rollout engine on its GPUs, and what the actor holds there meanwhile.
struct Rollout {
    EngineSettings engine;
    EngineMemory memory;
    Generation generation;
    RlOffload offload = RlOffload::none;
    std::int64_t groups = 0, running = 0;
    std::int64_t resident = 0;  ///< of the actor
    double transfer_seconds = 0;
    std::int64_t transfer_bytes = 0;
    [[nodiscard]] double seconds() const { return generation.seconds + transfer_seconds; }
};

class RlPlanner {
public:
    explicit RlPlanner(const RlJob& job)
        : job_(job),
          cluster_(job.actor.workload.cluster),
          calibration_(simulator::calibration_of(cluster_)),
          model_(typed_model(job.actor.workload.model)) {}

    RlPlan plan();

private:
    void check();
    [[nodiscard]] std::int64_t pool() const;
    [[nodiscard]] std::optional<Trained> train(const TrainedRole& role, std::int64_t gpus, std::int64_t reserved) const;
    [[nodiscard]] Frozen read(const FrozenRole& role, std::int64_t gpus, const Trained& actor) const;
    [[nodiscard]] std::optional<Rollout> roll_out(std::int64_t gpus, const Trained* actor) const;
    [[nodiscard]] std::optional<Rollout> roll_out(std::int64_t gpus, const EngineSettings& engine, const Trained* actor,
                                                  RlOffload offload) const;
    [[nodiscard]] std::vector<EngineSettings> engines_for(std::int64_t gpus) const;
    [[nodiscard]] std::int64_t most_asleep(std::int64_t gpus) const;
    [[nodiscard]] double sync_seconds(const Trained& actor, const Rollout& rollout, std::int64_t gpus, bool shared) const;
    [[nodiscard]] std::optional<RlSplit> best_split(const Trained& actor, double forward) const;
    [[nodiscard]] double host_seconds(std::int64_t bytes) const {
        return static_cast<double>(bytes) / (cluster_.host_bandwidth() * calibration_.pcie_efficiency);
    }
    void add_phase(RlPlan& plan, std::string name, double seconds, std::int64_t peak, bool beside = false) const;

    const RlJob& job_;
    const ClusterSpec& cluster_;
    simulator::Calibration calibration_;
    Model model_;
};

/// GPUs of trainer and rollout together, without those that other roles have of their own.
std::int64_t RlPlanner::pool() const {
    std::int64_t own = job_.critic ? job_.critic->gpus : 0;
    for (const FrozenRole& role : job_.frozen) own += role.gpus;
    return job_.world - own;
}

void RlPlanner::check() {
    Problems problems;
    const std::int64_t left = pool() - job_.rollout.gpus;
    const std::int64_t others = job_.world - left;
    if (left < 1)
        problems.add(
            "the roles with GPUs of their own take {} of --world {}, and the actor needs at least 1; give them fewer, or share them",
            others, job_.world);
    if (job_.actor.gpus > 0 && job_.actor.gpus != left)
        problems.add("--role actor: gpus = {}, and the other roles leave {} of --world {}; use gpus={}, or leave it out", job_.actor.gpus,
                     left, job_.world, std::max<std::int64_t>(left, 1));
    if (job_.overlapped && job_.rollout.gpus == 0)
        problems.add("--async overlaps rollout and training, which then cannot share GPUs; add --role rollout=gpus=N");
    const auto unknown = simulator::unknown_caches(model_);
    if (!unknown.empty())
        problems.add(
            "the rollout engine's cache of {} is not predicted; use a model of attention or multi-latent attention, or plan the "
            "trainer alone with --max-memory",
            fmt::join(unknown, ", "));
    const std::int64_t gpus = job_.rollout.gpus > 0 ? job_.rollout.gpus : left, engine = job_.rollout.engine.layout.gpus();
    if (unknown.empty() && job_.rollout.tp_given) {
        for (const std::string& obstacle : simulator::obstacles(model_, job_.rollout.engine.layout))
            problems.add("--role rollout: {}", obstacle);
    }
    if (left >= 1 && gpus % engine != 0)
        problems.add("--role rollout: an engine of tp x dp = {} GPUs does not divide its {} GPUs; use {}", engine, gpus,
                     divisors_text(gpus, gpus));
    problems.throw_if_any();
}

std::optional<Trained> RlPlanner::train(const TrainedRole& role, std::int64_t gpus, std::int64_t reserved) const {
    const RlBatch& batch = job_.batch;
    Workload work = role.workload;
    work.world = gpus;
    work.memory_limit = std::min(work.memory_limit, cluster_.memory_bytes) - reserved;
    if (work.memory_limit - job_.headroom_bytes <= 0) return {};
    // Responses are packed into sequences of the longest one's length.
    const double responses = static_cast<double>(batch.sequences()) / static_cast<double>(batch.updates());
    const double mean = static_cast<double>(batch.prompt) + batch.mean_response;
    const double packed = responses * mean / static_cast<double>(work.batch.sequence);
    const auto whole = std::max<std::int64_t>(1, std::llround(std::ceil(packed)));
    work.batch.global_batch = suiting_batch(whole, gpus).value_or(whole);
    // Packs that a pinned layout does not divide are rounded up, as trainers add empty ones.
    const auto pinned = [](const std::vector<std::int64_t>& axis) { return axis.size() == 1 ? axis.front() : 0; };
    const std::int64_t ranks = pinned(role.space.tp) * pinned(role.space.cp) * pinned(role.space.pp);
    if (ranks > 0 && gpus % ranks == 0) {
        const std::int64_t multiple = gpus / ranks * std::max<std::int64_t>(pinned(role.space.micro_batch), 1);
        work.batch.global_batch = (work.batch.global_batch + multiple - 1) / multiple * multiple;
    }
    if (batch.mean_response < static_cast<double>(batch.response)) work.batch.lengths = {{std::llround(mean)}, {1.0}};
    RankingOptions ranking = role.ranking;
    ranking.headroom_bytes = job_.headroom_bytes;
    auto plan = fast_layout(work, role.space, ranking);
    if (!plan) return {};
    Trained trained;
    const auto& worst = plan->prediction.memory.worst;
    trained.weights = worst.breakdown.parameters;
    trained.gradients = worst.breakdown.gradients;
    trained.optimizer = worst.breakdown.optimizer;
    trained.residue = worst.breakdown.context + worst.breakdown.workspace;
    trained.update_seconds = plan->prediction.time.iteration_seconds * packed / static_cast<double>(work.batch.global_batch) *
                             static_cast<double>(batch.updates());
    trained.forward_seconds = forward_seconds(work, plan->layout, packed * static_cast<double>(batch.updates()));
    trained.plan = std::move(*plan);
    return trained;
}

Frozen RlPlanner::read(const FrozenRole& role, std::int64_t gpus, const Trained& actor) const {
    if (!role.workload && role.gpus == 0)
        return {actor.plan.layout, actor.forward_seconds, actor.weights, 0, actor.forward_peak() - actor.weights - actor.residue};
    Workload work = role.workload.value_or(job_.actor.workload);
    work.world = gpus;
    work.memory_limit = cluster_.memory_bytes;
    const RlBatch& batch = job_.batch;
    const double packed = batch.tokens() / static_cast<double>(work.batch.sequence);
    constexpr std::int64_t kBf16 = 2;
    const std::string name(words_of(RlRole{})[static_cast<std::size_t>(role.role)]);
    const Model model = typed_model(work.model);
    std::int64_t tp = role.tp.value_or(0);
    if (tp == 0) {
        // The smallest tp that leaves half of the card to activations and to the roles that share it.
        const std::int64_t bytes = kBf16 * total_parameters(work.model);
        for (const std::int64_t one : simulator::possible_tp(model, std::min<std::int64_t>(gpus, cluster_.gpus_per_node), true)) {
            if (gpus % one != 0) continue;
            tp = one;
            if (bytes / one <= cluster_.memory_bytes / 2) break;
        }
    }
    LayoutRequest request;
    request.engine = Engine::megatron;
    request.tp = tp;
    request.sequence_parallel = tp > 1;
    request.recompute = Recompute::full;  // forward passes keep nothing for a backward
    work.batch.global_batch = std::max<std::int64_t>(1, gpus / std::max<std::int64_t>(tp, 1));
    Frozen frozen;
    try {
        frozen.layout = make_layout(request, work);
    } catch (const ConfigError& error) {
        Problems problems;
        problems.absorb(error, fmt::format("--role {}: ", name));
        problems.throw_if_any();
    }
    simulator::CostModel costs(work);
    const auto memory = costs.memory(*frozen.layout).worst.breakdown;
    frozen.weights = memory.parameters;
    frozen.residue = memory.context + memory.workspace;
    frozen.activations = memory.activations;
    frozen.seconds = forward_seconds(work, *frozen.layout, packed);
    return frozen;
}

/// The engine's layouts to try on a number of GPUs: the one given, or every tp inside a node, of large models also of several nodes.
std::vector<EngineSettings> RlPlanner::engines_for(std::int64_t gpus) const {
    const EngineSettings& given = job_.rollout.engine;
    if (job_.rollout.tp_given) return {given};
    std::vector<EngineSettings> engines;
    const std::int64_t node = std::min<std::int64_t>(cluster_.fast_domain(), gpus);
    for (const std::int64_t tp : simulator::possible_tp(model_, gpus, given.layout.expert_parallel)) {
        if (gpus % (tp * given.layout.dp) != 0 || (tp > node && tp % node != 0) || (tp <= node && node % tp != 0)) continue;
        EngineSettings one = given;
        one.layout.tp = tp;
        const bool starts = engine_memory(model_, one, cluster_, calibration_, cluster_.memory_bytes).cache > 0;
        if (tp > node && !engines.empty()) break;
        if (starts) engines.push_back(one);
    }
    return engines;
}

std::int64_t RlPlanner::most_asleep(std::int64_t gpus) const {
    std::int64_t most = 0;
    for (const EngineSettings& engine : engines_for(gpus))
        most = std::max(most, engine_memory(model_, engine, cluster_, calibration_, cluster_.memory_bytes).asleep());
    return most;
}

/// Nothing if the cache does not hold a single sequence, or the engine does not divide the GPUs.
std::optional<Rollout> RlPlanner::roll_out(std::int64_t gpus, const EngineSettings& engine, const Trained* actor, RlOffload offload) const {
    if (gpus % engine.layout.gpus() != 0) return {};
    const RlBatch& batch = job_.batch;
    Rollout rollout;
    rollout.engine = engine;
    rollout.offload = offload;
    std::int64_t others = 0;
    if (actor != nullptr) {
        const std::int64_t moved = offload == RlOffload::all         ? actor->optimizer + actor->weights
                                   : offload == RlOffload::optimizer ? actor->optimizer
                                                                     : 0;
        rollout.resident = actor->optimizer + actor->weights - moved;  // gradients are freed
        rollout.transfer_bytes = 2 * moved;
        rollout.transfer_seconds = host_seconds(rollout.transfer_bytes);
        others = actor->residue + rollout.resident;
    }
    const std::int64_t free = cluster_.memory_bytes - others - (actor != nullptr ? job_.headroom_bytes : 0);
    rollout.memory = engine_memory(model_, engine, cluster_, calibration_, free);
    const auto tokens = simulator::batched_tokens_of(engine, cluster_);
    const auto size = simulator::cache_size(model_, engine, tokens);
    rollout.groups = gpus / engine.layout.tp;
    const auto share = [&](std::int64_t count) { return (count + rollout.groups - 1) / rollout.groups; };
    const simulator::GenerationLoad load{share(batch.sequences()), share(batch.prompts), batch.prompt, batch.response, batch.mean_response};
    const std::int64_t most = simulator::sequences_of(engine, cluster_);
    rollout.running = simulator::concurrency(size, rollout.memory, load, most);
    if (rollout.running < 1) return {};
    if (rollout.memory.peak() + others > cluster_.memory_bytes) return {};
    if (job_.rollout.tokens_per_second) {
        const double tokens_of_step = static_cast<double>(batch.sequences()) * batch.mean_response;
        rollout.generation.decode_tokens_per_second = *job_.rollout.tokens_per_second;
        rollout.generation.seconds = tokens_of_step / (*job_.rollout.tokens_per_second * static_cast<double>(gpus));
        rollout.generation.running = std::min(rollout.running, load.sequences);
    } else {
        rollout.generation =
            generation_time(model_, engine, cluster_, calibration_, load, simulator::started_together(size, rollout.memory, load, most));
    }
    return rollout;
}

/// The fastest of the engine's layouts and of what the actor moves to host memory meanwhile; `actor`: null on GPUs of the engine's own.
std::optional<Rollout> RlPlanner::roll_out(std::int64_t gpus, const Trained* actor) const {
    std::vector<RlOffload> choices{RlOffload::none};
    if (actor != nullptr) {
        if (job_.actor.offload != RlOffload::automatic) {
            choices = {job_.actor.offload};
        } else if (job_.critic && job_.critic->gpus == 0) {
            choices = {RlOffload::optimizer, RlOffload::all};  // the critic needs the memory after the rollout
        } else {
            choices = {RlOffload::none, RlOffload::optimizer, RlOffload::all};
        }
    }
    std::optional<Rollout> best;
    for (const EngineSettings& engine : engines_for(gpus)) {
        for (const RlOffload offload : choices) {
            auto one = roll_out(gpus, engine, actor, offload);
            if (one && (!best || one->seconds() < best->seconds())) best = one;
        }
    }
    return best;
}

double RlPlanner::sync_seconds(const Trained& actor, const Rollout& rollout, std::int64_t gpus, bool shared) const {
    constexpr double kBf16 = 2;
    const SyncedWeights weights{kBf16 * static_cast<double>(total_parameters(job_.actor.workload.model)),
                                static_cast<double>(rollout.memory.weights), actor.plan.layout.sizes.world, gpus,
                                published_tensors(model_)};
    return shared ? shared_sync_seconds(weights, actor.plan.layout, cluster_, calibration_)
                  : separate_sync_seconds(weights, actor.plan.layout, cluster_, calibration_);
}

/// Best division of the pool in whole nodes (inside a node in GPUs), with the rollout one step late. Training is scaled from the plan
/// of the job, then planned for the best division.
std::optional<RlSplit> RlPlanner::best_split(const Trained& actor, double forward) const {
    const std::int64_t all = pool(), node = cluster_.gpus_per_node, step = all > node ? node : 1;
    const double work = (actor.update_seconds + forward) * static_cast<double>(actor.plan.layout.sizes.world);
    std::vector<RlSplit> splits;
    for (std::int64_t gpus = step; gpus < all; gpus += step) {
        const auto rollout = roll_out(gpus, nullptr);
        if (!rollout) continue;
        const double sync = sync_seconds(actor, *rollout, gpus, false);
        splits.push_back({all - gpus, gpus, std::max(rollout->seconds(), work / static_cast<double>(all - gpus)) + sync});
    }
    std::ranges::sort(splits, {}, &RlSplit::seconds);
    constexpr std::size_t kPlanned = 3;  // divisions at most that are planned until one suits
    for (std::size_t i = 0; i < std::min(kPlanned, splits.size()); ++i) {
        RlSplit split = splits[i];
        try {
            const auto trained = train(job_.actor, split.trainer, 0);
            if (!trained) continue;
            const auto rollout = roll_out(split.rollout, nullptr);
            const double forwards = trained->forward_seconds * forward / actor.forward_seconds;
            split.seconds =
                std::max(rollout->seconds(), trained->update_seconds + forwards) + sync_seconds(*trained, *rollout, split.rollout, false);
            return split;
        } catch (const ConfigError&) {  // no layout is legal on that number of GPUs
        }
    }
    return {};
}

void RlPlanner::add_phase(RlPlan& plan, std::string name, double seconds, std::int64_t peak, bool beside) const {
    if (peak > cluster_.memory_bytes)
        plan.why_not.push_back(fmt::format("{} needs {} of a GPU's {}", name, human_bytes(peak), human_bytes(cluster_.memory_bytes)));
    plan.phases.push_back({std::move(name), seconds, peak, beside});
}

RlPlan RlPlanner::plan() {
    check();
    const bool shared = job_.rollout.gpus == 0;
    const std::int64_t trainer = pool() - job_.rollout.gpus, rollout_gpus = shared ? trainer : job_.rollout.gpus;
    RlPlan plan;
    plan.batch = job_.batch;
    plan.world = job_.world;
    plan.colocated = shared;
    plan.overlapped = job_.overlapped;
    plan.host_limit_bytes = cluster_.host_memory_bytes;
    plan.measured_rate = job_.rollout.tokens_per_second.has_value();
    plan.engine = job_.rollout.engine;

    const std::int64_t asleep = shared ? most_asleep(rollout_gpus) : 0;
    const auto actor = train(job_.actor, trainer, asleep);
    if (!actor) {
        plan.why_not.push_back(fmt::format("no layout of the actor fits {}{}", counted(trainer, "GPU"),
                                           asleep > 0 ? fmt::format(" next to {} of a sleeping engine", human_bytes(asleep)) : ""));
        return plan;
    }
    plan.actor = actor->plan;
    const auto rollout = roll_out(rollout_gpus, shared ? &*actor : nullptr);
    if (!rollout) {
        plan.why_not.push_back(fmt::format("the cache holds no sequence of {} tokens under any layout of the rollout engine that is tried",
                                           with_thousands(job_.batch.prompt + job_.batch.response)));
        return plan;
    }
    plan.engine = rollout->engine;
    plan.engine_memory = rollout->memory;
    plan.generation = rollout->generation;
    plan.engines = rollout->groups;
    plan.concurrency = rollout->running * rollout->groups;
    plan.offload_bytes = rollout->transfer_bytes;
    plan.offload_seconds = rollout->transfer_seconds;
    if (shared && job_.rollout.keeps_weights) {  // to the host and back
        plan.offload_bytes += 2 * rollout->memory.weights;
        plan.offload_seconds += host_seconds(2 * rollout->memory.weights);
    }
    const std::int64_t sleeping = shared ? rollout->memory.asleep() : 0;
    const std::int64_t moved_by_actor = rollout->transfer_bytes / 2;

    RlRolePlan acting{RlRole::actor,
                      job_.actor.workload.model.name,
                      trainer,
                      shared,
                      actor->plan.layout,
                      actor->weights,
                      actor->gradients,
                      actor->optimizer,
                      actor->residue,
                      rollout->offload,
                      moved_by_actor};
    plan.roles.push_back(acting);

    // Generation, on the trainer's GPUs next to what the actor leaves there.
    add_phase(plan, "rollout", rollout->generation.seconds, rollout->memory.peak() + (shared ? actor->residue + rollout->resident : 0));

    // Forward passes.
    const std::int64_t kept = rollout->offload == RlOffload::none && shared ? actor->optimizer : 0;
    std::int64_t waiting = 0;  // weights of other roles that stay on the trainer's GPUs
    double forward = actor->forward_seconds, beside = 0;
    std::vector<std::pair<const FrozenRole*, Frozen>> readers;
    for (const FrozenRole& role : job_.frozen) {
        const std::int64_t gpus = role.gpus > 0 ? role.gpus : trainer;
        Frozen frozen = read(role, gpus, *actor);
        if (role.gpus == 0 && role.offload == RlOffload::none) waiting += frozen.weights;
        readers.emplace_back(&role, std::move(frozen));
    }
    const std::int64_t beneath = sleeping + kept + waiting;
    add_phase(plan, "log-probabilities", actor->forward_seconds, actor->forward_peak() + beneath);
    for (const auto& [role, frozen] : readers) {
        const bool own = role->gpus > 0, moves = !own && role->offload != RlOffload::none;
        const double transfer = moves ? host_seconds(frozen.weights) : 0;
        const std::string name = role->role == RlRole::reference ? "reference" : "rewards";
        const std::int64_t alone = frozen.weights + frozen.residue + frozen.activations;
        add_phase(plan, name, frozen.seconds,
                  own ? alone : alone - (moves ? 0 : frozen.weights) + actor->weights + actor->residue + beneath, own);
        if (own) {
            beside = std::max(beside, frozen.seconds);
        } else {
            forward += frozen.seconds;
            plan.offload_seconds += transfer;
            plan.offload_bytes += moves ? frozen.weights : 0;
        }
        plan.roles.push_back({role->role, role->workload ? role->workload->model.name : job_.actor.workload.model.name,
                              own ? role->gpus : trainer, !own, frozen.layout, frozen.weights, 0, 0, frozen.residue,
                              moves ? RlOffload::all : RlOffload::none, moves ? frozen.weights : 0});
    }

    // The critic: values, then its training.
    std::optional<Trained> critic;
    std::int64_t host_of_critic = 0;
    double critic_training = 0, critic_beside = 0;
    std::int64_t critic_waits = 0;  // bytes of the critic on the trainer's GPUs while others work
    if (job_.critic) {
        const bool own = job_.critic->gpus > 0;
        const RlOffload offload = own                                            ? RlOffload::none
                                  : job_.critic->offload == RlOffload::automatic ? RlOffload::all
                                                                                 : job_.critic->offload;
        critic = train(*job_.critic, own ? job_.critic->gpus : trainer, own ? 0 : beneath + actor->residue + actor->weights);
        if (!critic) {
            plan.why_not.push_back(fmt::format("no layout of the critic fits {}{}", counted(own ? job_.critic->gpus : trainer, "GPU"),
                                               own ? "" : " next to the actor's weights; give it GPUs of its own"));
            return plan;
        }
        const std::int64_t around = own ? 0 : beneath + actor->residue + actor->weights;
        add_phase(plan, "values", critic->forward_seconds, critic->forward_peak() + around, own);
        if (own) {
            beside = std::max(beside, critic->forward_seconds);
            critic_beside = critic->update_seconds;
        } else {
            forward += critic->forward_seconds;
            critic_training = critic->update_seconds;
            const std::int64_t weights = offload == RlOffload::all ? critic->weights : 0;
            const std::int64_t optimizer = offload != RlOffload::none ? critic->optimizer : 0;
            plan.offload_bytes += 4 * weights + 2 * optimizer;  // weights for the values and again for the training
            plan.offload_seconds += host_seconds(4 * weights + 2 * optimizer);
            host_of_critic = weights + optimizer;
            critic_waits = critic->residue + critic->weights - weights + critic->optimizer - optimizer;
        }
        plan.roles.push_back({RlRole::critic, job_.critic->workload.model.name, own ? job_.critic->gpus : trainer, !own,
                              critic->plan.layout, critic->weights, critic->gradients, critic->optimizer, critic->residue, offload,
                              host_of_critic});
        add_phase(plan, "critic training", critic->update_seconds, critic->peak() + around, own);
    }
    add_phase(plan, "training", actor->update_seconds, actor->peak() + sleeping + waiting + critic_waits);

    plan.weight_sync_seconds = sync_seconds(*actor, *rollout, rollout_gpus, shared);
    // The trainer's weights, the engine's, and a buffer of gathered ones (its size: verl's update_weights_bucket, 2 GiB).
    constexpr std::int64_t kBucket = std::int64_t{2} << 30;
    const std::int64_t engine_awake = rollout->memory.asleep() + rollout->memory.weights;
    add_phase(plan, "weight sync", plan.weight_sync_seconds,
              (shared ? engine_awake : 0) + actor->weights + actor->residue + kept + waiting + critic_waits + kBucket);
    if (plan.offload_seconds > 0) add_phase(plan, "offload and reload", plan.offload_seconds, 0);

    plan.roles.push_back({RlRole::rollout,
                          job_.actor.workload.model.name,
                          rollout_gpus,
                          shared,
                          {},
                          rollout->memory.weights,
                          0,
                          0,
                          rollout->memory.asleep(),
                          RlOffload::none,
                          shared && job_.rollout.keeps_weights ? rollout->memory.weights : 0});
    for (const RlRolePlan& role : plan.roles) {
        if (role.shared || role.role == RlRole::actor)
            plan.host_bytes_per_node += role.host_bytes * std::min<std::int64_t>(cluster_.gpus_per_node, trainer);
    }
    if (plan.host_limit_bytes > 0 && plan.host_bytes_per_node > plan.host_limit_bytes)
        plan.why_not.push_back(fmt::format("{} of host memory per node are needed, and a node has {}",
                                           human_bytes(plan.host_bytes_per_node), human_bytes(plan.host_limit_bytes)));
    const double chain =
        std::max(forward, beside) + std::max(actor->update_seconds + critic_training, critic_beside) + plan.offload_seconds;
    plan.step_seconds =
        plan.weight_sync_seconds + (job_.overlapped ? std::max(rollout->generation.seconds, chain) : rollout->generation.seconds + chain);
    if (pool() > 1) plan.best_split = best_split(*actor, forward);
    return plan;
}

}  // namespace

RlPlan plan_rl(const RlJob& job) {
    return RlPlanner(job).plan();
}

}  // namespace mgplan::planner
