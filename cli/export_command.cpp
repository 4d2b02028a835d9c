#include <algorithm>
#include <optional>
#include <ostream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/assumed_architecture.hpp"
#include "cli/command.hpp"
#include "cli/megatron_round_trip.hpp"
#include "cli/options.hpp"
#include "cli/plan_file.hpp"
#include "formats/megatron/bridge_overrides.hpp"
#include "formats/megatron/megatron_job.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::cli {
namespace {

using Json = nlohmann::ordered_json;

Json job_to_json(const formats::MegatronJob& job, const std::vector<std::string>& lost) {
    Json environment = Json::object();
    for (const auto& [name, value] : job.environment) environment[name] = value;
    return {{"megatron", name_of(*job.version).name}, {"environment", environment}, {"arguments", job.words()}, {"lost", lost}};
}

std::vector<std::string> version_names() {
    std::vector<std::string> names;
    for (const formats::MegatronVersionName& one : formats::megatron_versions()) names.emplace_back(one.name);
    return names;
}

formats::MegatronVersion version_named(const std::string& name) {
    const auto all = formats::megatron_versions();
    return std::find_if(all.begin(), all.end(), [&](const formats::MegatronVersionName& one) { return one.name == name; })->version;
}

}  // namespace

int run_export(const std::vector<std::string>& args, Console& console) {
    Options options("export PLAN --to megatron-args|megatron-yaml|bridge-overrides|mgplan",
                    "Writes a plan in the words of the program that is to train it. What Megatron-LM has no flag for is listed on stderr.");
    std::vector<std::string> plan_files;
    std::optional<std::string> to;
    std::string megatron(formats::name_of(formats::kNewestMegatron).name);
    options.positional("PLAN", plan_files, 1, "a plan written by --save-plan");
    options.choice("to", to, {"megatron-args", "megatron-yaml", "bridge-overrides", "mgplan"},
                   "megatron-args: a shell file with the flags of pretrain_gpt.py as an array; megatron-yaml: ENV_VARS and MODEL_ARGS; "
                   "bridge-overrides: "
                   "layout, batch and overlaps as overrides of a Megatron-Bridge recipe; mgplan: "
                   "mgplan's own JSON, read and rewritten");
    options.choice("megatron", megatron, version_names(),
                   "the version of Megatron-LM that megatron-args and megatron-yaml are for: 0.19 (megatron-core 0.19.2), 0.20 (main at "
                   "d98e8a64) or its branch dev; what it does not have is refused, with the version that does");
    options.use_texts(console);
    if (!options.parse(args, console.out)) return kDone;
    Problems problems;
    if (plan_files.empty()) problems.add("export needs a PLAN; mgplan --world 16 --model llama3-8b --save-plan plan.json writes one");
    if (!to) problems.add("--to is missing; use megatron-args, megatron-yaml, bridge-overrides or mgplan");
    problems.throw_if_any();

    const Plan plan = load_asked_plan(options, plan_files.front());
    refuse_counted_only(plan.model, plan_files.front() + ": model");
    note_assumed_architecture(plan.model, console);
    if (*to == "mgplan") {
        options.write(console, plan_to_json(plan).dump(1) + "\n");
        return kDone;
    }
    refuse_assumed_architecture(plan.model, "exported");
    formats::refuse_incomplete_job(plan);
    if (*to == "bridge-overrides") {
        const formats::MegatronJob job = formats::megatron_job(plan, std::nullopt);
        options.write(console, options.format() == Format::json ? Json{{"overrides", formats::bridge_overrides(job)}}.dump(1) + "\n"
                                                                : formats::bridge_overrides_text(job));
        return kDone;
    }
    const formats::MegatronVersion version = version_named(megatron);
    const formats::MegatronJob job = formats::megatron_job(plan, version);
    formats::refuse_what_stops(job, plan.cluster.compute_capability);
    const std::vector<std::string> lost = lost_in_megatron_flags(plan, version);
    for (const auto& field : lost)
        console.err << fmt::format("mgplan: no flag of Megatron-LM {} says that {}\n", name_of(version).name, field);
    if (options.format() == Format::json)
        options.write(console, job_to_json(job, lost).dump(1) + "\n");
    else
        options.write(console, *to == "megatron-yaml" ? formats::megatron_yaml_text(job) : formats::megatron_args_text(job));
    return kDone;
}

}  // namespace mgplan::cli
