#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <ostream>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/options.hpp"
#include "cli/plan_details.hpp"
#include "cli/plan_options.hpp"
#include "cli/plan_search.hpp"
#include "cli/workload_options.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/text/count_text.hpp"
#include "plan/text/shell_quoting.hpp"
#include "plan/text/text.hpp"
#include "planner/batch_sizes.hpp"
#include "reports/side_by_side_report.hpp"

namespace mgplan::cli {
namespace {

/// Most options of one comparison: each is a search.
constexpr std::size_t kMostOptions = 32;

/// Keys of --on besides those of a cluster.
constexpr std::array<std::string_view, 4> kJobKeys{"global_batch", "precision", "price", "seq"};

/// One --on: what it changes in the options of all, and its search.
struct Side {
    std::string given;
    WorkloadOptions job;
    PlanOptions values;
    std::unique_ptr<PlanSearch> search;

    [[nodiscard]] std::string prefix() const { return fmt::format("--on {}: ", given); }
};

/// Writes a key of the job into the options.
void set_key(Side& side, std::string_view key, const std::string& value, Problems& problems) {
    const std::string field = side.prefix() + std::string(key);
    if (key == "precision") {
        check_precision(field, value, problems);
        side.job.precision = value;
    } else if (key == "price") {
        check_price(field, value, problems);
        side.values.gpu_hour_price = value;
    } else if (key == "seq") {
        side.job.sequence = read_count(problems, field, value, 1, kLongestSequence);
    } else {
        side.job.global_batch = read_integer(problems, field, value, 1, kMostSequences);
        side.job.global_batch_tokens.reset();
    }
}

/// Reads WORLD:CLUSTER[,key=value…] into the options of one side.
void read_side(Side& side, Problems& problems) {
    const auto colon = side.given.find(':');
    if (colon == std::string::npos || colon == 0 || colon + 1 == side.given.size()) {
        problems.add("--on = '{}' is no WORLD:CLUSTER; write the number of GPUs, a colon and the cluster, such as 512:dgx-h100",
                     side.given.substr(0, 60));
        return;
    }
    side.job.world = read_integer(problems, side.prefix() + "the world", side.given.substr(0, colon), 1, kMostRanks);
    side.job.names_cluster = true;
    const auto words = split(side.given.substr(colon + 1), ',');
    side.job.cluster = words.front();
    std::vector<std::string> known(kJobKeys.begin(), kJobKeys.end()), seen;
    for (std::string& key : cluster_keys()) known.push_back(std::move(key));
    for (auto word = words.begin() + 1; word != words.end(); ++word) {
        const auto equals = word->find('=');
        const std::string key = word->substr(0, equals);
        if (std::ranges::find(kJobKeys, key) == kJobKeys.end()) {
            if (is_cluster_key(key)) {
                side.job.cluster += "," + *word;
                continue;
            }
            const std::string hint = did_you_mean(key, known);
            problems.add("{}unknown key '{}'; {}the keys are {}", side.prefix(), key.substr(0, 60), hint.empty() ? "" : hint + " ",
                         fmt::join(known, ", "));
        } else if (equals == std::string::npos) {
            problems.add("{}{} needs a value; write {}=VALUE", side.prefix(), key, key);
        } else if (std::ranges::find(seen, key) != seen.end()) {
            problems.add("{}{} is given twice; give it once", side.prefix(), key);
        } else {
            seen.push_back(key);
            set_key(side, key, word->substr(equals + 1), problems);
        }
    }
}

/// Runs the function for each side. Throws ConfigError with the problems of all; a problem of every side is reported once, and one of a
/// single side with its --on.
template <class Function>
void for_each_side(std::vector<Side>& sides, Function function) {
    std::vector<std::vector<std::string>> found(sides.size());
    for (std::size_t i = 0; i < sides.size(); ++i) {
        try {
            function(sides[i]);
        } catch (const ConfigError& error) {
            found[i] = error.problems();
        }
    }
    Problems problems;
    for (std::size_t i = 0; i < sides.size(); ++i) {
        for (const std::string& problem : found[i]) {
            const bool in_all =
                std::ranges::all_of(found, [&](const auto& list) { return std::ranges::find(list, problem) != list.end(); });
            problems.add("{}{}", in_all ? "" : sides[i].prefix(), problem);
        }
    }
    problems.throw_if_any();
}

/// One call of `side-by-side`. Its members hold the results of its steps, in the order of the steps.
class SideBySideRun {
public:
    explicit SideBySideRun(Console& console)
        : console_(console),
          options_(
              "side-by-side --model CFG --on WORLD:CLUSTER[,KEY=VALUE...] --on ... [options]",
              "Plans one model for several clusters, precisions or batches, and shows the recommended plan of each in one table. Other "
              "options apply to all of them.") {
        options_.group("What to compare");
        options_.texts("on", given_, "WORLD:CLUSTER[,KEY=VALUE...]",
                       "number of GPUs and their cluster, twice or more; keys: those of --cluster (mgplan plan --help), precision, "
                       "global_batch, seq and price");
        options_.checked("tokens", values_.tokens, "COUNT", check_tokens, "tokens to train on, such as 15T; adds days and GPU-hours");
        options_.checked(
            "price", values_.gpu_hour_price, "P",
            [](const std::string& given, Problems& problems) { check_price("--price", given, problems); },
            "price per GPU-hour of each --on without a price of its own; adds the cost of --tokens");
        declare_workload_options(options_, job_, false, GpuOptions::none);
        declare_search_options(options_, values_);
        options_.use_texts(console);
    }

    /// Returns the exit code. Throws ConfigError for wrong options, and if no layout is legal on any cluster.
    int run(const std::vector<std::string>& args) {
        if (!options_.parse(args, console_.out)) return kDone;
        read_sides();
        for_each_side(sides_, [](Side& side) { side.search->settle_job(); });
        share_batch();
        settle_spaces();
        search();
        write();
        return std::ranges::any_of(compared_.options, [](const auto& option) { return option.plan.has_value(); }) ? kDone : kNothingFits;
    }

private:
    void read_sides();
    void share_batch();
    void settle_spaces();
    void search();
    void write();

    Console& console_;
    Options options_;
    std::vector<std::string> given_;
    WorkloadOptions job_;
    PlanOptions values_;
    std::vector<Side> sides_;
    reports::SideBySide compared_;
};

void SideBySideRun::read_sides() {
    Problems problems;
    if (given_.size() < 2)
        problems.add("--on is {}, and a comparison takes two or more; write --on 512:dgx-h100 --on 128:gb300-nvl72{}",
                     given_.empty() ? "missing" : "given once", given_.empty() ? "" : ", or ask mgplan plan for one cluster");
    if (given_.size() > kMostOptions)
        problems.add("--on is given {} times, more than {}; compare fewer at once", given_.size(), kMostOptions);
    if (job_.global_batch && job_.global_batch_tokens)
        problems.add("--global-batch and --global-batch-tokens both give the batch; give one of them");
    read_search_options(job_, values_, problems);
    for (const std::string& given : given_) {
        if (std::ranges::count(given_, given) > 1) problems.add("--on {} is given twice; drop one, or change one of its keys", given);
        Side& side = sides_.emplace_back(Side{given, job_, values_, nullptr});
        read_side(side, problems);
        if (side.values.gpu_hour_price && !values_.tokens)
            problems.add("{} needs --tokens, which is missing; add it, such as --tokens 15T",
                         values_.gpu_hour_price ? fmt::format("--price {}", *values_.gpu_hour_price) : side.prefix() + "price");
    }
    problems.throw_if_any();
    for (Side& side : sides_) side.search = std::make_unique<PlanSearch>(options_, side.job, side.values, console_);
}

/// Gives all sides without a batch the tokens of the largest one's default, rounded so that it suits all worlds; other sequence lengths
/// get about the same tokens, in a batch that suits the side's own world.
void SideBySideRun::share_batch() {
    const auto has_default = [](const Side& side) { return side.search->resolved().batch_source != BatchSource::given; };
    std::vector<std::int64_t> worlds;
    const Side* largest = nullptr;
    for (const Side& side : sides_) {
        if (!has_default(side)) continue;
        worlds.push_back(*side.job.world);
        if (largest == nullptr || *side.job.world > *largest->job.world) largest = &side;
    }
    if (largest == nullptr) return;
    compared_.batch_source = largest->search->resolved().batch_source;
    BatchSpec batch = largest->search->resolved().workload.batch;
    if (compared_.batch_source == BatchSource::assumed) batch.global_batch = planner::batch_for_worlds(batch.global_batch, worlds);
    const std::int64_t tokens = batch.global_batch * batch.sequence;
    for_each_side(sides_, [&](Side& side) {
        if (!has_default(side)) return;
        const std::int64_t sequence = side.search->resolved().workload.batch.sequence;
        const std::int64_t equal = std::max<std::int64_t>(1, tokens / sequence);
        // A batch that its world does not divide leaves few layouts.
        side.job.global_batch = sequence == batch.sequence ? equal : planner::suiting_batch(equal, *side.job.world).value_or(equal);
        side.search->settle_job();
    });
}

/// Notes that several sides have are printed once.
void SideBySideRun::settle_spaces() {
    std::vector<std::string> lines;
    for_each_side(sides_, [&](Side& side) {
        std::ostringstream out, err;
        Console notes{out, err};
        side.search->settle_space(notes);
        side.search->settle_ranking(true);
        side.search->ranking().recipe.reset();  // one plan is shown: the recommended one
        for (std::string& line : split(err.str(), '\n')) {
            if (!line.empty() && std::ranges::find(lines, line) == lines.end()) lines.push_back(std::move(line));
        }
    });
    for (const std::string& line : lines) console_.err << line << "\n";
}

/// Words of `plan` that differ between the sides.
std::string plan_options(const Side& side) {
    const BatchSpec& batch = side.search->resolved().workload.batch;
    return fmt::format("--world {} --cluster {}{} --seq {} --global-batch {}", *side.job.world, shell_word(side.job.cluster),
                       side.job.precision ? " --precision " + *side.job.precision : "", batch.sequence, batch.global_batch);
}

/// Searches one side after the other; each search uses all threads. Throws ConfigError if no layout is legal on any.
void SideBySideRun::search() {
    Problems illegal;
    std::size_t searched = 0;
    for (Side& side : sides_) {
        console_.err << fmt::format("mgplan: planning {} of {}\n", counted(*side.job.world, "GPU"), side.job.cluster) << std::flush;
        reports::SideOption& option = compared_.options.emplace_back();
        option.goal = training_goal(side.values.tokens, side.values.gpu_hour_price);
        option.workload = side.search->resolved().workload;
        option.options = plan_options(side);
        option.assumed = side.search->resolved().assumed;
        try {
            reports::PlanReport report = side.search->search();
            ++searched;
            option.assumed = report.assumed;
            const auto recommended = std::ranges::find(report.plans, true, &reports::PlannedLayout::recommended);
            if (recommended != report.plans.end()) {
                option.plan = *recommended;
            } else {
                NearestMiss miss = nearest_miss(report);
                option.why_not = std::move(miss.why_not);
                option.remedy = std::move(miss.remedy);
            }
        } catch (const ConfigError& error) {
            option.why_not = first_reason(error);
            illegal.absorb(error, side.prefix());
        }
    }
    if (searched == 0) illegal.throw_if_any();
}

void SideBySideRun::write() {
    switch (options_.format()) {
        case Format::json:
            options_.write(console_, reports::side_by_side_json(compared_));
            break;
        case Format::csv:
            options_.write(console_, reports::side_by_side_csv(compared_));
            break;
        case Format::table:
            options_.write(console_, reports::side_by_side_text(compared_));
            break;
    }
}

}  // namespace

int run_side_by_side(const std::vector<std::string>& args, Console& console) {
    return SideBySideRun(console).run(args);
}

}  // namespace mgplan::cli
