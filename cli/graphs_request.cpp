#include "cli/graphs_request.hpp"

#include <array>
#include <numeric>

#include "cli/assumed_architecture.hpp"
#include "cli/plan_file.hpp"

#include <fmt/format.h>

#include "cli/workload_options.hpp"
#include "formats/model_source.hpp"
#include "plan/graphs/graph_scopes.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/plan.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"
#include "planner/constraints.hpp"

namespace mgplan::cli {
namespace {

constexpr std::int64_t kMostRequested = 65'536;

std::vector<std::int64_t> read_layers(const std::string& text, Problems& problems) {
    std::vector<std::int64_t> layers;
    for (const std::string& word : split(text, ',')) {
        const std::size_t before = problems.list().size();
        layers.push_back(read_integer(problems, "--layers-per-chunk", word, 0, kMostRequested));
        if (problems.list().size() > before) break;
    }
    if (layers.empty()) problems.add("--layers-per-chunk is empty; give a number for each of the vpp chunks, such as 4 or 4,4,3");
    return layers;
}

/// Options of a layout that a plan states too.
constexpr std::array kOfLayout{"tp", "cp", "ep", "etp", "micro-batch", "seq", "precision", "sequence-parallel"};

void take_plan(const Options& options, const GraphsOptions& given, GraphsRequest& request) {
    std::vector<const char*> held{"model", "assume", "layers-per-chunk", "pp", "vpp", "microbatches", "group-size"};
    held.insert(held.end(), kOfLayout.begin(), kOfLayout.end());
    const Plan plan = load_asked_plan(options, given.plan.front(), held);
    refuse_counted_only(plan.model, given.plan.front() + ": model");
    request.workload = workload_of(plan);
    request.layout = plan.layout;
    if (!given.policy && plan.layout.engine == Engine::megatron) request.policy = GraphPolicy::megatron;  // as simulate counts them
    request.schedule.pp = static_cast<int>(plan.layout.sizes.pp);
    request.schedule.vpp = plan.layout.vpp;
    request.schedule.microbatches = plan.layout.num_microbatches;
    if (plan.layout.vpp > 1) request.schedule.group_size = plan.layout.group_size;
    if (!given.scopes) request.scopes = plan.layout.cuda_graphs;
}

/// The smallest world in which both rank grids exist, or a problem.
std::int64_t smallest_world(const LayoutRequest& layout, bool experts, Problems& problems) {
    const double ranks = static_cast<double>(layout.tp) * static_cast<double>(layout.cp) * static_cast<double>(layout.pp) *
                         (experts ? static_cast<double>(layout.ep) * static_cast<double>(layout.etp.value_or(layout.tp)) : 1.0);
    if (ranks > static_cast<double>(kMostRanks)) {
        problems.add("tp, cp, ep, etp and pp make more than {} ranks; use smaller sizes", with_thousands(kMostRanks));
        return 1;
    }
    const std::int64_t dense = layout.tp * layout.cp;
    return (experts ? std::lcm(dense, layout.ep * layout.etp.value_or(layout.tp)) : dense) * layout.pp;
}

void take_model(const GraphsOptions& given, GraphsRequest& request, Problems& problems, Console& console) {
    const formats::Job job = load_noted_model(*given.model, given.assume, console);
    refuse_counted_only(job.model, "--model: " + *given.model);
    if (!job.model.assumed_architecture.empty())
        request.assumed.push_back(fmt::format("model_type {} read as {}", job.model.type, job.model.assumed_architecture));
    const ScheduleRequest& schedule = request.schedule;
    Workload work;
    work.model = job.model;
    if (job.training) work.training = *job.training;
    if (given.precision) {
        const PrecisionChoice choice = *parse_precision_choice(*given.precision);
        work.training.precision = choice.precision;
        work.training.megatron.fp8_recipe = choice.recipe;
    }
    work.cluster = load_cluster("dgx-h100");  // no byte depends on it
    work.confine_tp = false;
    work.memory_limit = work.cluster.memory_bytes;
    work.batch.sequence = given.sequence.value_or(job.batch ? job.batch->sequence : 0);
    if (work.batch.sequence == 0) {
        const std::int64_t longest = work.model.max_positions > 0 ? work.model.max_positions : 4096;
        work.batch.sequence = work.model.default_sequence.value_or(std::min<std::int64_t>(longest, 4096));
        request.assumed.push_back(fmt::format("sequence of {}", counted(work.batch.sequence, "token")));
    }
    if (work.model.position == PositionEmbedding::learned && work.model.max_positions > 0 && work.batch.sequence > work.model.max_positions)
        problems.add("--seq = {} is longer than the {} learned positions of {}; use at most that", work.batch.sequence,
                     work.model.max_positions, work.model.name);
    if (!given.precision && !job.training) request.assumed.emplace_back("bf16");

    LayoutRequest layout;
    layout.tp = given.tp.value_or(1);
    layout.cp = given.cp.value_or(1);
    layout.ep = given.ep.value_or(1);
    layout.etp = given.etp;
    layout.pp = schedule.pp;
    layout.vpp = schedule.vpp;
    layout.group_size = schedule.group_size;
    layout.micro_batch = given.micro_batch.value_or(1);
    layout.sequence_parallel = given.sequence_parallel.value_or("auto") != "off";
    for (const auto& [name, present] : {std::pair{"tp", given.tp.has_value()},
                                        {"cp", given.cp.has_value()},
                                        {"ep", given.ep.has_value() || !work.model.moe},
                                        {"micro-batch", given.micro_batch.has_value()}}) {
        if (!present) request.assumed.push_back(fmt::format("{} 1", name));
    }
    // The world follows from ep, so this is no problem of the world.
    if (work.model.moe && work.model.moe->experts % layout.ep != 0)
        problems.add("ep = {} does not divide experts = {}; use {}", layout.ep, work.model.moe->experts,
                     divisors_text(work.model.moe->experts, work.model.moe->experts));
    // Said here for schedules without a layout's words.
    if (!automatic_stage_split(work.model.layers, work.model.mtp_layers, schedule.pp, schedule.vpp))
        problems.add("pp·vpp = {}·{} makes more chunks than {} has layers = {}; use pp·vpp of at most {}", schedule.pp, schedule.vpp,
                     work.model.name, work.model.layers, work.model.layers);
    work.world = smallest_world(layout, work.model.moe.has_value(), problems);
    problems.throw_if_any();
    const std::int64_t dp = work.world / (layout.tp * layout.cp * layout.pp);
    constexpr double kMostSequences = 0x1p40;
    if (static_cast<double>(schedule.microbatches) * static_cast<double>(layout.micro_batch * dp) > kMostSequences)
        throw ConfigError(fmt::format("--microbatches = {} of {} sequences on {} ranks are more than 64 bits can count bytes of; use fewer",
                                      schedule.microbatches, layout.micro_batch, dp));
    work.batch.global_batch = schedule.microbatches * layout.micro_batch * dp;
    request.workload = std::move(work);
    request.layout = planner::make_layout(layout, *request.workload);
}

void take_sizes(const Options& options, const GraphsOptions& given, GraphsRequest& request, Problems& problems, Console& console) {
    if (given.model && given.layers_per_chunk) problems.add("--model and --layers-per-chunk exclude each other; give one of them");
    if (!given.model && !given.layers_per_chunk)
        problems.add(
            "a PLAN, --model or --layers-per-chunk is missing; give the captured layers of each chunk, or the model that has them");
    if (!given.microbatches) problems.add("--microbatches is missing; give the number of microbatches of one iteration");
    if (!given.model && given.layers_per_chunk) {
        std::vector<const char*> of_tensors(kOfLayout.begin(), kOfLayout.end());
        of_tensors.push_back("capacity-factor");
        for (const char* name : of_tensors) {
            if (options.given(name))
                problems.add("--{} says how large tensors are, but only a model has any; add --model or drop --{}", name, name);
        }
    }
    request.schedule.pp = static_cast<int>(given.pp.value_or(1));
    request.schedule.vpp = static_cast<int>(given.vpp.value_or(1));
    request.schedule.microbatches = given.microbatches.value_or(1);
    request.schedule.group_size = given.group_size;
    if (given.layers_per_chunk) {
        const auto layers = read_layers(*given.layers_per_chunk, problems);
        const auto chunks = static_cast<std::size_t>(request.schedule.vpp);
        if (layers.size() == 1) {
            request.layers = {{0, layers.front()}};
        } else if (layers.size() == chunks) {
            for (const std::int64_t count : layers) request.per_chunk.push_back({{0, count}});
        } else if (!layers.empty()) {
            problems.add("--layers-per-chunk lists {} chunks, but vpp = {}; give {}, or one for all chunks", layers.size(), chunks,
                         counted(static_cast<std::int64_t>(chunks), "number"));
        }
    }
    problems.throw_if_any();
    if (given.model) take_model(given, request, problems, console);
}

/// Capacity factors of padded experts to compare with a capture that leaves experts out.
void take_capacity(const GraphsOptions& given, GraphsRequest& request, Problems& problems) {
    const ModelSpec& model = request.workload->model;
    if (given.capacity_factor) {
        const auto factor = parse_real(*given.capacity_factor);
        if (!model.moe) {
            problems.add("--capacity-factor pads experts, but {} has none; drop it", model.name);
            return;
        }
        // With room for all tokens in one expert nothing is dropped; more is of no use.
        const double most = static_cast<double>(model.moe->experts) / static_cast<double>(model.moe->top_k);
        if (!factor || *factor <= 0 || *factor > most)
            problems.add("--capacity-factor = '{}' is no number above 0 and up to experts/top_k = {}; write one, such as 1",
                         given.capacity_factor->substr(0, 60), most);
        else
            request.capacity_factors.push_back(*factor);
        return;
    }
    if (!model.moe) return;
    if (model.moe->capacity_factor > 0) {
        request.capacity_factors.push_back(model.moe->capacity_factor);
        return;
    }
    // The mean, which drops what exceeds it, and room for everything, which drops nothing.
    request.capacity_factors = {1.0, static_cast<double>(model.moe->experts) / static_cast<double>(model.moe->top_k)};
}

}  // namespace

void declare_graphs_options(Options& options, GraphsOptions& given) {
    options.positional("PLAN", given.plan, 1, "a plan written by --save-plan");
    options.group("Pipeline");
    options.integer("pp", given.pp, 1, kMostRequested, "pipeline parallel size (default: 1)");
    options.integer("vpp", given.vpp, 1, 32'767, "model chunks per pipeline rank (default: 1)");
    options.integer("microbatches", given.microbatches, 1, kMaxRankOps, "microbatches of one iteration");
    options.integer("group-size", given.group_size, 1, kMaxRankOps, "microbatch group of the interleaved schedule (default: pp)");
    options.group("Layers");
    options.text("layers-per-chunk", given.layers_per_chunk, "LIST", "captured layers of each chunk, or one number for all: counts only");
    declare_assume_option(options, given.assume);
    options.text("model", given.model, "CFG",
                 "in place of the list, with bytes: preset name, Hugging Face config.json or its folder, Megatron-LM arguments, or "
                 "mgplan's JSON");
    options.integer("tp", given.tp, 1, kMostRanks, "tensor parallel size (default: 1)");
    options.integer("cp", given.cp, 1, kMostRanks, "context parallel size (default: 1)");
    options.integer("ep", given.ep, 1, kMostRanks, "expert parallel size (default: 1)");
    options.integer("etp", given.etp, 1, kMostRanks, "expert tensor parallel size (default: tp)");
    options.integer("micro-batch", given.micro_batch, 1, kMostRequested, "sequences per microbatch (default: 1)");
    options.count("seq", given.sequence, 1, std::int64_t{1} << 27,
                  "tokens per sequence, 8k is 8,192 (default: the preset's, or min(model's maximum, 4096))");
    declare_precision(options, given.precision);
    options.choice("sequence-parallel", given.sequence_parallel, {"auto", "on", "off"},
                   "sequence parallelism; auto: on where tp > 1 (default: auto)");
    options.group("Capture");
    options.text(
        "cuda-graphs", given.scopes, "none|SCOPE[,SCOPE...]",
        "captured scopes: attn, mlp, moe, moe_router, moe_preprocess, mamba, layer, full_iteration (default: the plan's, else layer; "
        "with dropless experts attn, moe_router, moe_preprocess, and mlp of dense layers)");
    options.choice(
        "policy", given.policy, {"slots", "megatron"},
        "slots: mgplan's own, graphs for each chunk and slot; megatron: Megatron-LM's, graphs for each microbatch (default: that of "
        "the plan's engine, else slots)");
    options.text("capacity-factor", given.capacity_factor, "X",
                 "capacity of padded experts to compare whole-layer capture with (default: the model's, else 1 and experts/top_k)");
}

GraphsRequest read_graphs_request(const Options& options, const GraphsOptions& given, Console& console) {
    GraphsRequest request;
    Problems problems;
    request.policy = given.policy == "megatron" ? GraphPolicy::megatron : GraphPolicy::slots;
    const bool scopes_given = given.scopes.has_value();
    if (scopes_given) request.scopes = read_graph_scopes(*given.scopes, problems);
    if (given.plan.empty())
        take_sizes(options, given, request, problems, console);
    else
        take_plan(options, given, request);
    if (!scopes_given && request.scopes.empty()) {
        request.scopes = request.workload ? usual_graph_scopes(request.workload->model) : EnumSet{CudaGraphScope::layer};
        if (request.workload) {
            request.assumed.push_back(fmt::format("cuda graphs {}", fmt::join(names_in(request.scopes), ",")));
            Layout& layout = request.layout;
            if (graph_recompute_problem(request.scopes, layout.recompute, layout.recompute_modules, request.workload->model)) {
                // These scopes are defaults: the plan's recompute is dropped rather than the request refused.
                request.assumed.emplace_back("no recompute, which such graphs cannot hold");
                layout.recompute = Recompute::none;
                layout.recompute_modules = {};
                layout.recompute_method.reset();
                layout.recompute_num_layers = 0;
            }
        }
    }
    if (!request.workload) {
        check_graph_scopes(request.scopes, problems);
        problems.throw_if_any();
        return request;
    }
    check_graph_scopes(request.scopes, request.workload->model, problems);
    take_capacity(given, request, problems);
    problems.throw_if_any();
    request.layout.cuda_graphs = request.scopes;
    request.layout.engine = request.policy == GraphPolicy::megatron ? Engine::megatron : Engine::mgplan;
    if (auto broken = planner::broken_messages(*request.workload, request.layout); !broken.empty()) throw ConfigError(std::move(broken));
    return request;
}

}  // namespace mgplan::cli
