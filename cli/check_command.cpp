#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/job_source.hpp"
#include "cli/judged_recipe.hpp"
#include "cli/options.hpp"
#include "cli/plan_file.hpp"
#include "cli/workload_options.hpp"
#include "formats/megatron/bridge_config.hpp"
#include "formats/megatron/bridge_launch.hpp"
#include "formats/megatron/bridge_recipes.hpp"
#include "formats/megatron/megatron_flags.hpp"
#include "formats/megatron/megatron_words.hpp"
#include "plan/parameters/adapters_of_model.hpp"
#include "plan/plan.hpp"
#include "plan/text/shell_quoting.hpp"
#include "plan/text/text.hpp"
#include "plan/text/text_file.hpp"
#include "planner/constraints.hpp"
#include "planner/dynamic_context.hpp"
#include "planner/exact_ranking.hpp"
#include "planner/plan_families.hpp"
#include "planner/simulator_cost.hpp"
#include "planner/training_course.hpp"
#include "reports/megatron_check.hpp"
#include "reports/table.hpp"
#include "simulator/cost_model.hpp"

namespace mgplan::cli {
namespace {

struct ListedFlag {
    std::string name;
    std::string_view effect, asks_for, leaves_open;
};

std::string_view open_text(formats::Decides decides) {
    switch (decides) {
        case formats::Decides::nothing:
            return "time alone";
        case formats::Decides::fit:
            return "fits";
        case formats::Decides::legal:
            return "legal";
        case formats::Decides::model:
            return "model, legal and fits";
        case formats::Decides::fit_and_legal:
            break;
    }
    return "legal and fits";
}

std::vector<ListedFlag> listed_flags() {
    std::vector<ListedFlag> list;
    for (const std::string& name : formats::flag_names()) {
        const formats::Flag flag = *formats::find_flag(name);
        ListedFlag listed{name, "used", "", ""};
        if (flag.effect == formats::FlagEffect::without) listed.effect = "without effect";
        if (flag.effect == formats::FlagEffect::not_computed) {
            listed.effect = "not computed";
            listed.asks_for = flag.feature;
            listed.leaves_open = open_text(flag.decides);
        }
        list.push_back(std::move(listed));
    }
    std::sort(list.begin(), list.end(), [](const ListedFlag& a, const ListedFlag& b) { return a.name < b.name; });
    return list;
}

/// A row for each flag of the table (formats/megatron/megatron_flags.hpp), by name: flag, what it is to a prediction ("used", "not
/// computed", "without effect"), and for those not computed, their meaning and what stays open ("time alone", "fits", "legal and fits").
reports::Table flag_list() {
    using reports::Align;
    reports::Table table({{"flag", Align::left}, {"effect", Align::left}, {"asks for", Align::left}, {"leaves open", Align::left}});
    for (const ListedFlag& flag : listed_flags())
        table.add_row({flag.name, std::string(flag.effect), std::string(flag.asks_for), std::string(flag.leaves_open)});
    return table;
}

/// The table as text, and how many flags of each kind there are.
std::string flag_list_text() {
    std::map<std::string_view, std::int64_t> counts;
    for (const ListedFlag& flag : listed_flags()) ++counts[flag.effect];
    return flag_list().to_text() +
           fmt::format("\n{} of Megatron-LM, its older releases and known forks: {} used, {} without effect, {} not computed\n",
                       counted(std::ssize(listed_flags()), "flag"), counts["used"], counts["without effect"], counts["not computed"]);
}

/// [{"flag", "effect", "asks_for", "leaves_open"}]: the same; texts that do not apply are null.
std::string flag_list_json() {
    using Json = nlohmann::ordered_json;
    const auto text = [](std::string_view words) { return words.empty() ? Json() : Json(words); };
    Json json = Json::array();
    for (const ListedFlag& flag : listed_flags())
        json.push_back(
            {{"flag", flag.name}, {"effect", flag.effect}, {"asks_for", text(flag.asks_for)}, {"leaves_open", text(flag.leaves_open)}});
    return json.dump(1) + "\n";
}

/// A gain below this is within the error of a predicted difference (docs/accuracy.md, regret).
constexpr double kWorthSaying = 0.01;
/// Additional layouts of the search: they replace those that do not fit once their allocators are replayed, and members of one family.
constexpr std::size_t kSpare = 200;
/// Members of a family that are replayed: the next is used if the allocator of the first does not fit.
constexpr std::size_t kOfAFamily = 2;

/// Drops all but the first members of each family.
void keep_first_of_families(std::vector<planner::RankedLayout>& best) {
    std::vector<planner::RankedLayout> kept;
    for (planner::RankedLayout& ranked : best) {
        const auto relatives = std::count_if(kept.begin(), kept.end(), [&ranked](const planner::RankedLayout& other) {
            return planner::same_family(other.layout, ranked.layout);
        });
        if (relatives < static_cast<std::ptrdiff_t>(kOfAFamily)) kept.push_back(std::move(ranked));
    }
    best = std::move(kept);
}

/// The flags of a layout; `etp_follows`: a command that leaves etp out has no flag for it as long as it is tp.
formats::MegatronJob job_of(const Workload& workload, const Layout& layout, bool etp_follows) {
    formats::MegatronJob job = formats::megatron_job(plan_of(workload, layout), std::nullopt);
    if (!etp_follows || layout.sizes.etp != layout.sizes.tp) return job;
    for (auto& part : job.parts) {
        std::erase_if(part.flags, [](const formats::MegatronFlag& flag) { return flag.name == "--expert-tensor-parallel-size"; });
    }
    return job;
}

/// The best layouts of the same model, batch and training on the same GPUs, each with what has to be changed for it.
void look_for_better(reports::MegatronCheck& check, const ResolvedWorkload& resolved, simulator::CostModel& model, std::size_t most,
                     int threads, const Console& console) {
    planner::SearchSpace space;
    space.engine = resolved.engine;
    const LayoutRequest& command = *resolved.job.layout;
    space.cuda_graphs = command.cuda_graphs;
    space.orders = {command.order};
    if (command.recompute == Recompute::selective) {
        space.recompute_modules = command.recompute_modules;
        space.mhc_recompute_layers = command.mhc_recompute_layers;
    }
    if (command.recompute == Recompute::full) {
        space.recompute_method = command.recompute_method;
        space.recompute_num_layers = command.recompute_num_layers;
    }
    planner::SearchOptions options;
    options.keep = most + kSpare;
    options.threads = threads;
    options.progress = [&console](std::size_t, std::size_t) {
        if (console.waiting) console.waiting();
    };
    Workload work = check.workload;
    work.confine_tp = work.confine_ep = true;
    planner::SearchResult found = planner::search(work, space, planner::simulator_cost_model(), options);
    keep_first_of_families(found.best);
    planner::ReplayedMemories memories(model);
    planner::keep_fitting_when_replayed(
        found, memories, [most](std::span<const planner::RankedLayout> kept) { return planner::plan_families(kept, most).size() >= most; });
    check.searched = true;
    check.evaluated = found.evaluated;
    const bool asked_fits = check.asked && check.asked->prediction.memory.fits();
    for (const auto& family : planner::plan_families(found.best, most)) {  // members differ by less than the prediction's error
        const planner::RankedLayout& ranked = found.best[family.fastest];
        reports::BetterLayout better{{ranked.layout, model.predict_exactly(ranked.layout)}, {}};
        if (asked_fits && reports::gain(check, better).value_or(0) < kWorthSaying) continue;
        if (check.asked) {
            const bool etp_follows = !resolved.job.layout->etp;
            better.changes = reports::flag_changes(job_of(check.workload, check.asked->layout, etp_follows),
                                                   job_of(check.workload, ranked.layout, etp_follows));
        }
        check.better.push_back(std::move(better));
    }
    std::stable_sort(check.better.begin(), check.better.end(), [](const reports::BetterLayout& a, const reports::BetterLayout& b) {
        return a.plan.prediction.time.iteration_seconds < b.plan.prediction.time.iteration_seconds;
    });
}

/// Better layouts of another tp or etp keep the number of parts that weights are held in, not the flag's number.
void say_kept_shards(const reports::MegatronCheck& check, ResolvedWorkload& resolved, const Console& console) {
    const LayoutRequest& said = *resolved.job.layout;
    const std::int64_t etp = said.etp.value_or(said.tp);
    const auto differs = [&check](auto size, std::int64_t of_command) {
        return std::any_of(check.better.begin(), check.better.end(),
                           [&](const reports::BetterLayout& better) { return better.plan.layout.sizes.*size != of_command; });
    };
    const std::size_t before = resolved.warnings.size();
    warn_of_kept_shards(resolved, differs(&ParallelSizes::tp, said.tp) ? std::nullopt : std::optional(said.tp),
                        differs(&ParallelSizes::etp, etp) ? std::nullopt : std::optional(etp));
    for (std::size_t i = before; i < resolved.warnings.size(); ++i) console.err << "mgplan: " << resolved.warnings[i] << "\n";
}

int gate_exit_code(reports::GateVerdict verdict) {
    switch (verdict) {
        case reports::GateVerdict::runs:
            return kDone;
        case reports::GateVerdict::illegal:
            return kBadInput;
        case reports::GateVerdict::does_not_fit:
            return kNothingFits;
        case reports::GateVerdict::cannot_say:
            break;
    }
    return kCannotSay;
}

/// Judges documents that run over as many ranks as each needs likewise.
void judge_documents(reports::MegatronCheck& check, std::int64_t most, const Layout& layout, simulator::CostModel& model) {
    try {
        check.asked = {layout, planner::predict_dynamic_context(check.workload, layout, most)};
        check.assumed.emplace_back("each document over the ranks that it needs; the search and how long training takes left out");
    } catch (const MissingFactError& error) {
        leave_documents_open(check.flags, error.problems().front());
        check.asked = {layout, model.predict_exactly(layout)};
    }
}

/// Adds the prediction of the command's layout, or the rules that it breaks, in the words of what was read.
void judge(reports::MegatronCheck& check, const ResolvedWorkload& resolved, const WorkloadOptions& values, simulator::CostModel& model) {
    try {
        LayoutRequest request = *resolved.job.layout;
        request.engine = resolved.engine;
        const Layout layout = planner::make_layout(request, check.workload);
        if (resolved.job.most_of_a_document) return judge_documents(check, *resolved.job.most_of_a_document, layout, model);
        if (resolved.batches.stated()) check.training = planner::training_course(check.workload, layout, resolved.batches, model);
        check.asked = {layout, model.predict_exactly(layout)};
    } catch (const ConfigError& error) {
        check.broken = error.problems();
        if (values.bridge_config) return;  // its fields are no flags
        for (std::string& rule : check.broken) rule = formats::in_megatron_words(rule);
    }
}

/// Returns true if the command can be read once more: a pipe can not.
bool reads_twice(const Options& options, const WorkloadOptions& values) {
    const auto twice = [&](const char* option, const std::optional<std::string>& path) {
        std::error_code unreadable;
        return !path || options.contents(option) != nullptr || std::filesystem::is_regular_file(*path, unreadable);
    };
    return twice("megatron-args", values.megatron_args) && twice("trace", values.trace) && twice("bridge-config", values.bridge_config);
}

/// Throws MissingFactError where adapters are not predicted: the trainer itself may take the job.
void leave_adapters_open(const ResolvedWorkload& resolved) {
    const Workload& work = resolved.workload;
    if (!work.model.adapters) return;
    const Adapters& adapters = *work.model.adapters;
    const LayoutRequest& layout = *resolved.job.layout;
    std::vector<std::string> obstacles = adapter_obstacles(work.model, work.training, resolved.engine == Engine::mgplan);
    if (adapters.experts && work.model.moe && layout.etp.value_or(layout.tp) > 1) obstacles.emplace_back("divided experts (use etp 1)");
    // Trainers with an adapter for each expert keep one of the two matrices whole.
    if (!adapters.shared_by_experts && adapters.rank % layout.tp != 0)
        obstacles.push_back(fmt::format("a rank of {} over tp {} (use a rank that tp divides)", adapters.rank, layout.tp));
    Problems problems;
    for (const std::string& obstacle : obstacles)
        problems.add_missing_fact("adapters (LoRA) are not predicted with {}; leave that or the adapters out", obstacle);
    problems.throw_if_any();
}

/// Reads the command, and decreases its batch as its layout requires.
ResolvedWorkload resolve_command(const Options& options, const WorkloadOptions& values) {
    ResolvedWorkload resolved = resolve_workload(options, values);
    decrease_batch(resolved, *resolved.job.layout);
    leave_adapters_open(resolved);
    return resolved;
}

/// Returns a check without any prediction.
reports::MegatronCheck unjudged(const ResolvedWorkload& resolved) {
    reports::MegatronCheck check;
    check.workload = resolved.workload;
    check.workload.confine_tp = false;
    check.assumed = resolved.assumed;
    check.batch_source = resolved.batch_source;
    check.flags = resolved.job.flags;
    return check;
}

/// Adds problems that a missing vocabulary hides, and sizes that do not divide the world, which problems of the model hide: each of them
/// would otherwise appear only once the earlier ones are fixed.
void add_problems_behind(const Options& options, const WorkloadOptions& values, Problems& problems) {
    if (!reads_twice(options, values)) return;
    WorkloadOptions known = values;
    known.looks_behind = true;
    try {
        const ResolvedWorkload resolved = resolve_command(options, known);
        reports::MegatronCheck check = unjudged(resolved);
        simulator::CostModel model(check.workload);
        judge(check, resolved, known, model);
        for (const auto& rule : check.broken) problems.add("{}", rule);
    } catch (const ConfigError& error) {
        problems.absorb(error);
    }
}

/// Resolves the command; returns nothing if a gate lacks a fact. A gate prints its line then, and before it throws.
std::optional<ResolvedWorkload> resolve_or_say(const Options& options, const WorkloadOptions& values, Console& console, bool gate) {
    try {
        return resolve_command(options, values);
    } catch (const ConfigError& error) {
        Problems problems;
        problems.absorb(error);
        add_problems_behind(options, values, problems);
        try {
            problems.throw_if_any();
        } catch (const ConfigError& all) {
            const bool open = dynamic_cast<const MissingFactError*>(&all) != nullptr;
            if (!gate) throw;
            options.write(console, reports::refusal_line(open ? "cannot say" : "illegal", all.problems()));
            if (!open) throw;
        }
        return std::nullopt;
    }
}

/// --strict: throws if the check left something open; a gate prints its line first.
void refuse_what_is_open(const Options& options, const formats::FlagAccount& flags, Console& console, bool gate) {
    try {
        refuse_partial_answer(flags);
    } catch (const ConfigError& error) {
        if (gate) options.write(console, reports::refusal_line("illegal", error.problems()));
        throw;
    }
}

std::string report_text(const reports::MegatronCheck& check, Format format, bool gate) {
    switch (format) {
        case Format::json:
            return reports::megatron_check_json(check);
        case Format::csv:
            return reports::megatron_check_csv(check);
        case Format::table:
            break;
    }
    return gate ? reports::gate_line(check) : reports::megatron_check_text(check);
}

/// Options of check that are not of its workload.
struct CheckOptions {
    std::int64_t top = 3, threads = 0;
    std::optional<std::string> plan_path;
    bool gate = false, list_flags = false;
    std::vector<std::string> files;  ///< at most one
    std::optional<std::string> recipe;
};

void declare(Options& options, CheckOptions& values, WorkloadOptions& workload) {
    options.positional(
        "FILE", values.files, 1,
        "a launch script, a command, YAML of arguments, a record of mgplan record or a configuration of Megatron-Bridge; its "
        "contents tell which");
    declare_workload_options(options, workload, true);
    workload.places_documents = true;
    options.group("Other sources");
    options.text("trace", workload.trace, "RECORD", "a launch recorded by mgplan record; it also gives the number of GPUs");
    options.integer("launch", workload.launch, 1, 4096, "number of the launch in that record, if several train");
    options.text("bridge-config", workload.bridge_config, "FILE",
                 "the YAML of Megatron-Bridge's ConfigContainer (ConfigContainer.to_yaml, run_config.yaml)");
    options.text("recipe", values.recipe, "NAME",
                 "a recipe of Megatron-Bridge (mgplan recipes); FILE or --bridge-config may hold overrides of it, and words after -- are "
                 "section.field=value");
    options.group("Answer");
    options.integer("top", values.top, 0, 100, "better layouts to list; 0: no search");
    options.flag("gate", values.gate, "one line for scripts and no search; exit code 0 runs, 2 illegal, 3 does not fit, 6 cannot say");
    options.flag("list-flags", values.list_flags, "list the known flags of Megatron-LM and how each enters a prediction, then stop");
    options.output_file("save-plan", values.plan_path, "write the command as a plan, for simulate, run and export");
    options.integer("threads", values.threads, 0, 1024,
                    "threads of the search; 0: the processors that the process may use, by affinity and control groups");
}

/// Makes the recipe, with the changes of a file and then of the launch's own overrides, the configuration to judge, for the GPUs that it is
/// made for where neither the launch nor an option says otherwise. Returns the words of the answer for it. Throws ConfigError.
std::string take_recipe(const formats::BridgeLaunch& launch, const std::optional<std::string>& overrides, Options& options,
                        WorkloadOptions& workload, Console& console) {
    const formats::BridgeRecipe& recipe = named_recipe(launch.recipe);
    std::string text;
    if (const GivenText* given = options.contents("bridge-config"))
        text = given->text;
    else if (overrides)
        text = read_text_file(*overrides, "--recipe");
    const std::string where = fmt::format("recipe {}", recipe.name);
    console.texts["bridge-config"] = {
        where, formats::changed_bridge_config(recipe_config(recipe), text, overrides.value_or(where), launch.overrides)};
    options.use_texts(console);
    workload.bridge_config = where;
    if (!workload.world) workload.world = launch.world ? launch.world : recipe.gpus;
    if (const std::string cluster = cluster_of(recipe); !options.given("cluster") && !cluster.empty()) workload.cluster = cluster;
    const std::size_t changes = launch.overrides.size();
    return fmt::format("recipe {} of {}{}{}", recipe.name, formats::bridge_recipes().release,
                       overrides ? fmt::format(", changed by {}", *overrides) : "",
                       changes > 0 ? fmt::format(", {}", counted(static_cast<std::int64_t>(changes), "override")) : "");
}

/// Takes the recipe of --recipe, of the launch in the command's words, or of the one that the script FILE starts. Returns the words of the
/// answer for it; nothing where no recipe is named. Throws ConfigError, MissingFactError for a script's recipe that this release lacks.
std::optional<std::string> recipe_source(std::optional<formats::BridgeLaunch> launch, const std::vector<std::string>& command,
                                         Options& options, const CheckOptions& values, WorkloadOptions& workload, Console& console) {
    const std::optional<std::string> file = values.files.empty() ? std::nullopt : std::optional(values.files.front());
    if (values.recipe) {
        launch = formats::read_bridge_launch(command, "the command")
                     .value_or(formats::BridgeLaunch{.recipe = "", .overrides = command, .world = {}, .notes = {}});
        launch->recipe = *values.recipe;
    }
    if (launch) {
        if (workload.megatron_args || workload.trace || (workload.bridge_config && file))
            throw ConfigError("--recipe goes with one file of overrides; give that as FILE or --bridge-config, and no other command");
        return take_recipe(*launch, file ? file : workload.bridge_config, options, workload, console);
    }
    if (!file || is_command(workload)) return std::nullopt;
    launch = bridge_launch_in(*file, workload);
    if (!launch) return std::nullopt;
    for (const auto& note : launch->notes) console.err << "mgplan: " << note << "\n";
    workload.set.clear();  // they were for this script
    workload.script_args.reset();
    try {
        (void)named_recipe(launch->recipe);
    } catch (const ConfigError& error) {
        throw MissingFactError(error.problems());  // another release may have it
    }
    return fmt::format("{}, as {} starts it", take_recipe(*launch, std::nullopt, options, workload, console), *file);
}

}  // namespace

int run_check(const std::vector<std::string>& args, Console& given_console) {
    // The words after "--" are a command, as if a file held them.
    const auto words = std::find(args.begin(), args.end(), "--");
    Console console = given_console;
    const std::vector<std::string> command(words == args.end() ? words : words + 1, args.end());
    const bool names_recipe = std::any_of(args.begin(), words, [](const std::string& word) { return word.starts_with("--recipe"); });
    std::optional<formats::BridgeLaunch> launch;
    if (!names_recipe) launch = formats::read_bridge_launch(command, "the command");
    if (words != args.end() && !names_recipe && !launch) console.texts["megatron-args"] = {"the command", shell_words(command)};
    Options options(
        "check FILE --world N [options]\n"
        "check --world N [options] -- COMMAND\n"
        "check --megatron-args FILE --world N [options]\n"
        "check --trace RECORD [options]\n"
        "check --bridge-config FILE --world N [options]\n"
        "check --recipe NAME [FILE] [options] [-- section.field=value…]",
        "Judges a Megatron-LM command, the launch that mgplan record wrote down, or a resolved configuration of Megatron-Bridge: is it "
        "legal, does it fit, how fast is it, and which layouts of the same model and batch are "
        "faster? Exit code 2 when it is not legal, 3 when it does not fit; where a flag that decides it is not computed, 0, "
        "and 2 with --strict. With --gate the answer is one line, without a search.");
    WorkloadOptions workload_options;
    CheckOptions values;
    declare(options, values, workload_options);
    options.use_texts(console);
    if (!options.parse({args.begin(), words}, console.out)) return kDone;
    if (values.list_flags) {
        options.write(console, options.format() == Format::json  ? flag_list_json()
                               : options.format() == Format::csv ? flag_list().to_csv()
                                                                 : flag_list_text());
        return kDone;
    }
    std::optional<std::string> recipe;
    try {
        recipe = recipe_source(std::move(launch), command, options, values, workload_options, console);
    } catch (const MissingFactError& error) {
        if (!values.gate) throw;
        options.write(console, reports::refusal_line("cannot say", error.problems()));
        return kCannotSay;
    }
    std::string read_as = recipe.value_or("");
    if (!recipe && !values.files.empty()) {
        if (is_command(workload_options))
            throw ConfigError(fmt::format("check: {} and an option both name a command; give one of them", values.files[0].substr(0, 100)));
        read_as = settle_source(values.files[0], workload_options);
    }
    if (!is_command(workload_options))
        throw ConfigError(
            "--megatron-args is missing; give the file that holds the command (mgplan check train.sh), or its words after -- (mgplan plan "
            "judges a --model)");

    std::optional<ResolvedWorkload> found = resolve_or_say(options, workload_options, console, values.gate);
    if (!found) return kCannotSay;
    ResolvedWorkload& resolved = *found;
    for (const auto& warning : resolved.warnings) console.err << "mgplan: " << warning << "\n";
    note_idle_workload_options(options, workload_options, resolved.workload.model, console);
    reports::MegatronCheck check = unjudged(resolved);
    simulator::CostModel model(check.workload);
    judge(check, resolved, workload_options, model);
    if (workload_options.strict) refuse_what_is_open(options, check.flags, console, values.gate);
    const bool places_documents = resolved.job.most_of_a_document.has_value();
    if (places_documents) check.why_not_searched = "each document over the ranks that it needs";
    if (values.top > 0 && !values.gate && !places_documents)
        look_for_better(check, resolved, model, static_cast<std::size_t>(values.top), static_cast<int>(values.threads), console);
    say_kept_shards(check, resolved, console);
    if (values.plan_path) {
        if (places_documents)
            console.err << fmt::format(
                "mgplan: no plan holds documents over as many ranks as each needs, so --save-plan {} is not written\n", *values.plan_path);
        else if (check.asked)
            save_plan(*values.plan_path, plan_of(check.workload, check.asked->layout, resolved.batches));
        else
            console.err << fmt::format("mgplan: the command is not legal, so --save-plan {} is not written\n", *values.plan_path);
    }
    if (check.asked && !places_documents) hand_over_plan(console, check.workload, check.asked->layout, resolved.batches);
    for (const auto& better : check.better) hand_over_plan(console, check.workload, better.plan.layout, resolved.batches);
    const bool says_source = !read_as.empty() && !values.gate && options.format() == Format::table;
    options.write(console, (says_source ? fmt::format("read as {}{}\n", read_as, recipe ? "" : ": " + values.files[0]) : "") +
                               report_text(check, options.format(), values.gate));
    if (values.gate) return gate_exit_code(reports::gate_verdict(check));
    if (!check.asked) return kBadInput;
    return reports::fits(check).value_or(true) ? kDone : kNothingFits;  // an unknown fit stops no script
}

}  // namespace mgplan::cli
