#include <algorithm>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/headroom.hpp"
#include "cli/options.hpp"
#include "cli/plan_options.hpp"
#include "cli/plan_search.hpp"
#include "cli/plan_space.hpp"
#include "cli/rl_roles.hpp"
#include "cli/workload_options.hpp"
#include "plan/text/text.hpp"
#include "planner/rl/plan_rl.hpp"
#include "reports/rl_report.hpp"

namespace mgplan::cli {
namespace {

using planner::RlRole;

/// One call of `rl`. Its members hold the results of its steps, in the order of the steps.
class RlRun {
public:
    explicit RlRun(Console& console)
        : console_(console),
          options_(
              "rl --world N --model CFG --prompts N --response TOKENS [--role ROLE=MODEL,KEY=VALUE...] [options]",
              "Plans a step of reinforcement learning (GRPO, PPO): rollout, log-probabilities, training and weight sync with seconds and "
              "peak bytes of each, on GPUs that trainer and rollout share or split.") {
        options_.group("Job");
        options_.integer("world", world_, 1, kMostRanks, "number of GPUs of all roles");
        options_.text("model", model_, "CFG",
                      "the actor: a preset (mgplan models), a Hugging Face config.json or its folder, or mgplan's JSON");
        options_.text("cluster", cluster_, "NAME[,KEY=VALUE...]|FILE", "a preset (mgplan clusters), with changed values, or a file");
        options_.integer("prompts", prompts_, 1, kMostSequences, "prompts of a step");
        options_.integer("samples", samples_, 1, kMostSequences, "responses to each prompt (default: 1)");
        options_.count("prompt", prompt_, 1, kLongestSequence, "tokens of a prompt, 1k is 1,024 (default: 1k)");
        options_.count("response", response_, 1, kLongestSequence, "tokens of the longest response");
        options_.count("mean-response", mean_, 1, kLongestSequence, "mean tokens of a response (default: --response)");
        options_.integer("mini-batch", mini_batch_, 1, kMostSequences, "responses of one update of the weights (default: all)");
        options_.group("Roles");
        options_.texts(
            "role", given_, "ROLE=MODEL[,KEY=VALUE...]",
            "actor, reference, critic, reward or rollout, repeatable. Keys: gpus (of its own; default: shared with the trainer), "
            "shared, precision, offload (auto, none, optimizer, all), tp, cp, ep, etp, pp, vpp, micro_batch, recompute; of rollout engine "
            "(vllm, sglang), tp, dp, ep, utilization, kv_bytes, kv_precision, sleep (1, 2), graphs (counted, uncounted, none), "
            "sampler (selects, sorts), async_scheduling (yes, no), batched_tokens, sequences. reference=none: no reference (default: "
            "actor, its reference, rollout)");
        options_.flag("async", async_, "the rollout generates the next step's responses while the trainer works, on GPUs of its own");
        options_.real("rollout-tokens-per-second", rate_, 0, 1e9,
                      "tokens that a GPU of the rollout generates a second, as measured (default: 0, a roofline)");
        declare_precision(options_, precision_);
        options_.checked("headroom", headroom_, "SIZE|SHARE", check_headroom, "memory of each GPU that stays free: 4GiB, 5% (default: 5%)");
        options_.use_texts(console);
    }

    /// Returns the exit code. Throws ConfigError for wrong options, and if no layout is legal.
    int run(const std::vector<std::string>& args) {
        if (!options_.parse(args, console_.out)) return kDone;
        read();
        settle();
        report_.plan = planner::plan_rl(job_);
        write();
        return report_.plan.fits() ? kDone : kNothingFits;
    }

private:
    void read();
    void settle();
    void write();
    [[nodiscard]] const RoleOption& option(RlRole role) const;
    [[nodiscard]] bool given(RlRole role) const { return std::ranges::find(roles_, role, &RoleOption::role) != roles_.end(); }
    /// The job of a role that trains, or of one that only reads, with its search space.
    planner::TrainedRole trained(const RoleOption& role, const std::string& prefix);

    Console& console_;
    Options options_;
    std::optional<std::int64_t> world_, prompts_, prompt_, response_, mean_, mini_batch_;
    std::int64_t samples_ = 1;
    std::optional<std::string> model_, precision_, headroom_;
    std::string cluster_ = "dgx-h100";
    std::vector<std::string> given_;
    bool async_ = false;
    double rate_ = 0;
    std::vector<RoleOption> roles_;
    planner::RlJob job_;
    reports::RlReport report_;
};

void RlRun::read() {
    Problems problems;
    roles_ = read_roles(given_, problems);
    const bool names_actor = given(RlRole::actor) && option(RlRole::actor).model;
    if (!world_) problems.add("--world is missing; write --world N, the GPUs of all roles together");
    if (!model_ && !names_actor) problems.add("--model is missing; write --model CFG, the actor's model");
    if (model_ && names_actor) problems.add("--model and --role actor both name the actor's model; drop one of them");
    if (!prompts_) problems.add("--prompts is missing; write --prompts N, the prompts of a step");
    if (!response_) problems.add("--response is missing; write --response TOKENS, the longest response, such as 8k");
    if (mean_ && response_ && *mean_ > *response_)
        problems.add("--mean-response = {} is more than --response = {}, the longest; use at most that", *mean_, *response_);
    if (prompts_ && *prompts_ > kMostSequences / samples_)
        problems.add("--prompts = {} x --samples = {} are more than {} responses; use fewer", *prompts_, samples_, kMostSequences);
    else if (prompts_ && mini_batch_ && *mini_batch_ > *prompts_ * samples_)
        problems.add("--mini-batch = {} is more than the {} responses of a step; use at most that", *mini_batch_, *prompts_ * samples_);
    problems.throw_if_any();
    planner::RlBatch& batch = job_.batch;
    batch.prompts = *prompts_;
    batch.samples = samples_;
    batch.prompt = prompt_.value_or(1024);
    batch.response = *response_;
    batch.mean_response = static_cast<double>(mean_.value_or(*response_));
    batch.mini_batch = mini_batch_.value_or(0);
    job_.world = *world_;
    job_.overlapped = async_;
}

const RoleOption& RlRun::option(RlRole role) const {
    static const RoleOption kNone;
    const auto found = std::ranges::find(roles_, role, &RoleOption::role);
    return found == roles_.end() ? kNone : *found;
}

planner::TrainedRole RlRun::trained(const RoleOption& role, const std::string& prefix) {
    // Sequences that many sizes of tp and cp divide.
    constexpr std::int64_t kMultiple = 128;
    WorkloadOptions job;
    job.world = world_;
    job.model = role.model ? role.model : model_;
    job.cluster = cluster_;
    job.names_cluster = options_.given("cluster");
    job.precision = role.precision ? role.precision : precision_;
    job.sequence = (job_.batch.prompt + job_.batch.response + kMultiple - 1) / kMultiple * kMultiple;
    job.global_batch = job_.batch.sequences();
    PlanOptions values;
    for (const auto& [given, axis] : {std::pair{role.tp, &values.space.tp},
                                      {role.cp, &values.space.cp},
                                      {role.ep, &values.space.ep},
                                      {role.etp, &values.space.etp},
                                      {role.pp, &values.space.pp},
                                      {role.vpp, &values.space.vpp},
                                      {role.micro_batch, &values.space.micro_batch}}) {
        if (given) *axis = {*given};
    }
    values.headroom = headroom_;
    Problems problems;
    planner::TrainedRole made;
    try {
        read_search_options(job, values, problems);
        PlanSearch search(options_, job, values, console_);
        search.settle_job();
        search.settle_space(console_);
        search.settle_ranking(false);
        made.workload = search.resolved().workload;
        made.space = values.space;
        // Packs of responses differ in their lengths, and a graph replays one.
        made.space.cuda_graphs = {};
        made.space.more_cuda_graphs.clear();
        if (role.recompute) {
            made.space.recompute = {*role.recompute};
            made.space.recompute_blocks = false;
        }
        made.ranking = search.ranking();
        made.ranking.progress = {};
        made.ranking.replaying = {};
        if (role.role == RlRole::actor) {
            job_.headroom_bytes = search.headroom(made.workload);
            report_.assumed = without_what_is_searched(search.resolved().assumed, made.workload, made.space);
        }
    } catch (const ConfigError& error) {
        problems.absorb(error, prefix);
    }
    problems.throw_if_any();
    made.gpus = role.gpus.value_or(0);
    made.offload = role.offload;
    return made;
}

void RlRun::settle() {
    RoleOption actor = option(RlRole::actor);
    actor.role = RlRole::actor;
    job_.actor = trained(actor, "");
    report_.workload = job_.actor.workload;
    if (given(RlRole::critic)) job_.critic = trained(option(RlRole::critic), "--role critic: ");
    if (!option(RlRole::reference).absent) {
        const RoleOption& reference = option(RlRole::reference);
        planner::FrozenRole& role = job_.frozen.emplace_back();
        role.role = RlRole::reference;
        if (reference.model) role.workload = trained(reference, "--role reference: ").workload;
        role.gpus = reference.gpus.value_or(0);
        role.tp = reference.tp;
        role.offload = reference.offload;
    }
    if (given(RlRole::reward)) {
        const RoleOption& reward = option(RlRole::reward);
        planner::FrozenRole& role = job_.frozen.emplace_back();
        role.role = RlRole::reward;
        role.workload = trained(reward, "--role reward: ").workload;
        role.gpus = reward.gpus.value_or(0);
        role.tp = reward.tp;
        role.offload = reward.offload;
    }
    const RoleOption& rollout = option(RlRole::rollout);
    simulator::EngineSettings& engine = job_.rollout.engine;
    engine.engine = rollout.engine;
    engine.graphs = rollout.graphs;
    engine.sampler = rollout.sampler;
    engine.schedules_ahead = rollout.schedules_ahead;
    engine.layout = {rollout.tp.value_or(1), rollout.dp.value_or(1), rollout.ep.value_or(1) > 1};
    engine.utilisation = rollout.utilization;
    engine.cache_bytes = rollout.cache_bytes;
    engine.fp8_weights = rollout.precision == "fp8";
    engine.fp8_cache = rollout.fp8_cache;
    engine.batched_tokens = rollout.batched_tokens;
    engine.sequences = rollout.sequences;
    job_.rollout.tp_given = rollout.tp.has_value();
    job_.rollout.gpus = rollout.gpus.value_or(0);
    job_.rollout.keeps_weights = rollout.keeps_weights;
    if (rate_ > 0) job_.rollout.tokens_per_second = rate_;
    if (!prompt_) report_.assumed.insert(report_.assumed.begin(), "prompts of 1,024 tokens");
    if (!mean_) report_.assumed.insert(report_.assumed.begin(), "all responses as long as the longest");
}

void RlRun::write() {
    switch (options_.format()) {
        case Format::json:
            options_.write(console_, reports::rl_json(report_));
            break;
        case Format::csv:
            options_.write(console_, reports::rl_csv(report_));
            break;
        case Format::table:
            options_.write(console_, reports::rl_text(report_));
            break;
    }
}

}  // namespace

int run_rl(const std::vector<std::string>& args, Console& console) {
    return RlRun(console).run(args);
}

}  // namespace mgplan::cli
