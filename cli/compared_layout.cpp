#include "cli/compared_layout.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>
#include <utility>

#include <fmt/format.h>

#include "cli/plan_file.hpp"
#include "formats/model_source.hpp"
#include "plan/layout/layout_schedule.hpp"
#include "plan/layout/layout_switches.hpp"
#include "plan/layout/layout_words.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "plan/text/text_file.hpp"
#include "planner/constraints.hpp"
#include "planner/search_axes.hpp"
#include "reports/layout_cells.hpp"
#include "reports/plan_difference.hpp"

namespace mgplan::cli {
namespace {

constexpr std::string_view kOption = "--compare";

/// Prints the fields of the file that differ from the job's, because only the layout is used.
void note_other_job(const std::string& given, const std::vector<std::string>& differing, Console& console) {
    if (differing.empty()) return;
    console.err << fmt::format("mgplan: --compare {}: its {} {} not that of this search; its layout alone is compared\n", given,
                               fmt::join(differing, ", "), differing.size() == 1 ? "is" : "are");
}

/// Switches that a search of the workload would have set to get the plan's model and training; null for none. A saved plan has the
/// switches of a search as fields of its model and its training.
std::shared_ptr<const LayoutSwitches> switches_between(const Workload& workload, const Plan& plan) {
    LayoutSwitches switches;
    const TrainingSpec& training = plan.training;
    if (training.megatron.fully_sharded.kind != FullyShardedKind::torch_fsdp2) switches.sharding = data_sharding_choice(training);
    if (workload.model.moe && plan.model.moe) switches.dispatcher = plan.model.moe->dispatcher;
    switches.overlap_tp = training.overlap_tp;
    switches.overlap_moe = training.overlap_moe;
    switches.bf16_gradients = training.grad_dtype == Dtype::bf16;
    switches.bf16_moments = training.exp_avg_dtype == Dtype::bf16 && training.exp_avg_sq_dtype == Dtype::bf16;
    return switches_beyond(switches, workload.model, workload.training);
}

LayoutRequest request_of_plan(const std::string& given, const Workload& workload, Engine engine, Console& console) {
    const Plan plan = read_plan(given, std::string(kOption));
    LayoutRequest request = mgplan::request_of(plan.layout);
    Workload switched = workload;
    if (engine == Engine::megatron) request.switches = switches_between(workload, plan);
    if (request.switches) apply_switches(*request.switches, switched.model, switched.training);
    std::vector<std::string> differing;
    // By the first word of each field, once.
    for (const auto& field : reports::differing_fields(plan_of(switched, plan.layout), plan)) {
        const std::string part = field.field.substr(0, field.field.find('.'));
        if (std::find(differing.begin(), differing.end(), part) == differing.end()) differing.push_back(part);
    }
    note_other_job(given, differing, console);
    return request;
}

LayoutRequest request_of_arguments(const std::string& given, const Workload& workload, Console& console) {
    const formats::Job job = formats::load_megatron_arguments(given);
    if (!job.layout)
        throw ConfigError(fmt::format("{} holds no layout; give a plan, Megatron-LM arguments, or words such as 'tp2 pp4 mbs1'", given));
    std::vector<std::string> differing;
    if (job.model.layers != workload.model.layers || job.model.hidden != workload.model.hidden) differing.emplace_back("model");
    if (job.batch && (job.batch->sequence != workload.batch.sequence || job.batch->global_batch != workload.batch.global_batch))
        differing.emplace_back("batch");
    note_other_job(given, differing, console);
    return *job.layout;
}

bool holds_json(const std::string& path) {
    const std::string text = read_text_file(path, kOption);
    const auto first = text.find_first_not_of(" \t\r\n");
    return first != std::string::npos && text[first] == '{';
}

/// The scopes that a word in the table's column "on" means (reports/layout_fields.hpp, switches_cell()); nothing for other words.
std::optional<EnumSet<CudaGraphScope>> scopes_of_cell(std::string_view word, const Workload& workload,
                                                      EnumSet<CudaGraphScope> cuda_graphs) {
    using Scope = CudaGraphScope;
    if (word == "graphs:all") return EnumSet<Scope>{Scope::full_iteration};
    if (word == "graphs:router") return EnumSet<Scope>{Scope::moe_router, Scope::moe_preprocess};
    if (word != "graphs") return std::nullopt;
    if (!cuda_graphs.empty()) return cuda_graphs;
    const auto sets = planner::graph_sets(workload, Engine::megatron);
    return sets.empty() ? std::nullopt : std::optional(sets.front());
}

/// Fills in fields that the words leave open and that are equal in all rows of the search.
void take_from_space(LayoutInWords& words, const planner::SearchSpace& space) {
    if (!words.says_sequence_parallel && space.sequence_parallel) words.sequence_parallel = *space.sequence_parallel;
    if (words.recompute == Recompute::full && !words.says_block && space.recompute_method == RecomputeMethod::uniform)
        words.recompute_num_layers = space.recompute_num_layers;
    words.mhc_recompute_layers = space.mhc_recompute_layers;
    words.group_size = space.group_size;
    if (space.pipeline_layout) words.split.emplace().pipeline_layout = space.pipeline_layout;
}

LayoutInWords layout_in_words(const std::string& given, const Workload& workload, const planner::SearchSpace& space) {
    try {
        std::string words;
        bool without = false;
        for (std::size_t begin = 0; begin < given.size();) {
            const std::size_t end = std::min(given.find_first_of(" \t\r\n,", begin), given.size());
            const std::string_view word = std::string_view(given).substr(begin, end - begin);
            without = without || word == "graphs=none";
            if (const auto scopes = scopes_of_cell(word, workload, space.cuda_graphs))
                words += fmt::format("graphs={}", fmt::join(names_in(*scopes), "+"));
            else
                words += word;
            if (end < given.size()) words += given[end];
            begin = end + 1;
        }
        LayoutInWords request = parse_layout_words(words);
        if (request.cuda_graphs.empty() && !without) request.cuda_graphs = space.cuda_graphs;
        if (workload.model.moe && !request.etp) request.etp = 1;  // tables leave out a size that is 1 in all rows
        if (request.switches && request.switches->dispatcher && !workload.model.moe)
            throw ConfigError(fmt::format("'{}' dispatches the tokens of experts, and {} has none; leave it out",
                                          dispatcher_word(*request.switches->dispatcher), workload.model.name));
        if (request.switches) request.switches = switches_beyond(*request.switches, workload.model, workload.training);
        take_from_space(request, space);
        return request;
    } catch (const ConfigError& error) {
        Problems problems;
        problems.add("'{}' is neither a file that is there (a plan, or Megatron-LM arguments) nor a layout in words:", given.substr(0, 80));
        problems.absorb(error);
        throw ConfigError(problems.list());
    }
}

/// Throws ConfigError if words contradict the layout in fields that follow from its sizes.
void check_what_follows(const LayoutInWords& words, const Layout& layout) {
    Problems problems;
    if (words.dp && *words.dp != layout.dp())
        problems.add("dp = {} is not what tp·cp·pp = {}·{}·{} of {} GPUs leave, which is {}; leave it out, or mend the sizes", *words.dp,
                     layout.sizes.tp, layout.sizes.cp, layout.sizes.pp, layout.sizes.world, layout.dp());
    if (words.runs && to_string(*words.runs) != schedule_name(layout))
        problems.add("{} is not the schedule of pp = {} and vpp = {}, which is {}; leave it out, or mend the sizes", to_string(*words.runs),
                     layout.sizes.pp, layout.vpp, schedule_name(layout));
    problems.throw_if_any();
}

/// Returns the layout in the first of the search's orders that has the words' name in a table, or in the very first if they name none.
Layout layout_of_words(LayoutInWords words, const Workload& workload, const planner::SearchSpace& space) {
    const bool moe = workload.model.moe.has_value();
    std::vector<AxisOrder> orders = space.orders;
    if (words.order_cell.empty()) orders.resize(1);
    std::vector<std::string> cells;
    std::optional<ConfigError> refused;
    for (const AxisOrder& order : orders) {
        words.order = order;
        try {
            Layout layout = planner::make_layout(words, workload);
            const std::string cell = reports::order_cell(layout.sizes, moe);
            if (std::ranges::find(cells, cell) == cells.end()) cells.push_back(cell);
            if (!words.order_cell.empty() && cell != words.order_cell && order.text() != words.order_cell) continue;
            check_what_follows(words, layout);
            return layout;
        } catch (const ConfigError& error) {
            if (!refused) refused = error;
        }
    }
    if (refused) throw ConfigError(refused->problems());
    if (words.order_cell.find('-') == std::string::npos)
        throw ConfigError(fmt::format("'{}' is a size without its number, or an order of the axes, of which these sizes have {}; write {}2",
                                      words.order_cell, any_of_text(cells), words.order_cell));
    throw ConfigError(fmt::format("{} is none of the orders of these sizes that are searched; use {}, or name it with --order",
                                  words.order_cell, any_of_text(cells)));
}

}  // namespace

Layout read_compared_layout(const std::string& given, const Workload& workload, const planner::SearchSpace& space, Console& console) {
    std::error_code missing;
    try {
        Workload any_tp = workload;
        any_tp.confine_tp = any_tp.confine_ep = false;
        if (!std::filesystem::exists(given, missing)) {
            LayoutInWords words = layout_in_words(given, workload, space);
            words.engine = space.engine;
            return layout_of_words(std::move(words), any_tp, space);
        }
        LayoutRequest request =
            holds_json(given) ? request_of_plan(given, workload, space.engine, console) : request_of_arguments(given, workload, console);
        request.engine = space.engine;
        return planner::make_layout(request, any_tp);
    } catch (const ConfigError& error) {
        Problems problems;
        problems.absorb(error, "--compare: ");
        throw ConfigError(problems.list());
    }
}

}  // namespace mgplan::cli
