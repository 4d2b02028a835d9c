#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "cli/command.hpp"
#include "cli/list_writer.hpp"
#include "cli/options.hpp"
#include "cli/plan_file.hpp"
#include "plan/layout/rank_groups.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::cli {
namespace {

constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();
constexpr std::size_t kGroupColumns = 100;
constexpr std::size_t kLinesPerName = 6;

struct GroupsOptions {
    std::optional<std::int64_t> world;
    std::optional<std::int64_t> etp;
    std::optional<std::int64_t> dp;
    std::string order = "tp-cp-ep-dp-pp";
    ParallelSizes sizes;
    bool by_document = false;
};

/// The sizes to lay out; every problem of the options together.
ParallelSizes sizes_of(const GroupsOptions& given) {
    Problems problems;
    ParallelSizes sizes = given.sizes;
    sizes.etp = given.etp.value_or(sizes.tp);
    try {
        sizes.order = AxisOrder::parse(given.order);
    } catch (const ConfigError& error) {
        problems.absorb(error);
    }
    if (given.dp) {
        std::int64_t product = 0;
        const bool beyond = __builtin_mul_overflow(sizes.tp, sizes.cp, &product) || __builtin_mul_overflow(product, sizes.pp, &product) ||
                            __builtin_mul_overflow(product, *given.dp, &product);
        if (beyond) {
            problems.add("tp·cp·dp·pp = {}·{}·{}·{} is larger than any world; use smaller sizes", sizes.tp, sizes.cp, *given.dp, sizes.pp);
        } else if (given.world && *given.world != product) {
            problems.add("tp·cp·dp·pp = {}·{}·{}·{} = {} is not --world {}; leave out --dp, or use --world {}", sizes.tp, sizes.cp,
                         *given.dp, sizes.pp, product, *given.world, product);
        }
        sizes.world = product;
    }
    if (given.world) sizes.world = *given.world;
    if (!given.world && !given.dp) problems.add("--world is missing; give the number of ranks, or --dp");
    if (sizes.world > kMaxListedRanks) {
        problems.add("--world {} is too large to list its groups; use at most {}", sizes.world, kMaxListedRanks);
    }
    if (problems.empty()) {
        for (const auto& problem : mgplan::problems(sizes)) problems.add("{}", problem);
    }
    problems.throw_if_any();
    return sizes;
}

void write_json(std::ostream& out, const RankGroups& groups) {
    const auto& s = groups.sizes();
    ListWriter writer(out);
    writer.text(fmt::format(R"({{"world":{},"tp":{},"cp":{},"ep":{},"etp":{},"pp":{},"dp":{},"edp":{},"order":"{}","groups":{{)", s.world,
                            s.tp, s.cp, s.ep, s.etp, s.pp, s.dp(), s.edp(), s.order.text()));
    for (std::size_t i = 0; i < groups.all().size(); ++i) {
        const auto& named = groups.all()[i];
        writer.text(fmt::format("{}\"{}\":[", i > 0 ? "," : "", named.name));
        for (std::size_t k = 0; k < named.count(); ++k) {
            if (k > 0) writer.text(",");
            writer.list(named[k]);
        }
        writer.text("]");
    }
    writer.text("}}\n");
}

void write_csv(std::ostream& out, const RankGroups& groups) {
    ListWriter writer(out);
    writer.text("name,group,ranks\n");
    for (const auto& named : groups.all()) {
        for (std::size_t k = 0; k < named.count(); ++k) {
            writer.text(named.name);
            writer.text(",");
            writer.number(k);
            writer.text(",");
            writer.numbers(named[k], " ");
            writer.text("\n");
        }
    }
}

/// "[0 1 2 3]", a long one as "[0 1 2 3 … 126 127]".
std::string group_text(std::span<const std::int32_t> ranks) {
    constexpr std::size_t kShown = 16;
    if (ranks.size() <= kShown) return fmt::format("[{}]", fmt::join(ranks, " "));
    return fmt::format("[{} ... {}]", fmt::join(ranks.first(kShown - 2), " "), fmt::join(ranks.last(2), " "));
}

void write_table(std::ostream& out, const RankGroups& groups) {
    const auto& s = groups.sizes();
    out << fmt::format("{}, order {}\n", counted(s.world, "rank"), s.order.text());
    out << fmt::format("dense grid   tp {} x cp {} x dp {} x pp {}\n", s.tp, s.cp, s.dp(), s.pp);
    out << fmt::format("expert grid  tp {} x ep {} x dp {} x pp {}\n", s.etp, s.ep, s.edp(), s.pp);
    for (const auto& named : groups.all()) {
        out << fmt::format("\n{}: {} group{} of {}\n", named.name, with_thousands(static_cast<std::int64_t>(named.count())),
                           named.count() == 1 ? "" : "s", named.group_size);
        std::string line = " ";
        std::size_t lines = 0;
        std::size_t k = 0;
        for (; k < named.count(); ++k) {
            const std::string text = group_text(named[k]);
            if (line.size() > 1 && line.size() + 1 + text.size() > kGroupColumns) {
                out << line << "\n";
                line = " ";
                if (++lines == kLinesPerName) break;
            }
            line += " " + text;
        }
        if (k < named.count()) {
            out << fmt::format("  ... {} more (--format json or csv lists all)\n",
                               with_thousands(static_cast<std::int64_t>(named.count() - k)));
        } else {
            out << line << "\n";
        }
    }
}

}  // namespace

int run_groups(const std::vector<std::string>& args, Console& console) {
    GroupsOptions given;
    std::vector<std::string> plan;
    Options options("groups (PLAN | --world N) [options]",
                    "Lists which global ranks form each communication group of a layout, for the dense grid "
                    "(tp, cp, dp, pp) and the expert grid (etp, ep, edp, pp) over the same ranks.");
    options.positional("PLAN", plan, 1, "a plan written by --save-plan");
    options.group("Layout");
    options.integer("world", given.world, 1, kAny, "number of ranks");
    options.integer("tp", given.sizes.tp, 1, kAny, "tensor parallel size");
    options.integer("cp", given.sizes.cp, 1, kAny, "context parallel size");
    options.integer("ep", given.sizes.ep, 1, kAny, "expert parallel size");
    options.integer("etp", given.etp, 1, kAny, "tensor parallel size of the experts (default: tp)");
    options.integer("dp", given.dp, 1, kAny, "data parallel size (default: what the world leaves); with it --world may be left out");
    options.integer("pp", given.sizes.pp, 1, kAny, "pipeline parallel size");
    options.text("order", given.order, "AXES", "order of the axes, fastest varying first; axes of size 1 may be left out");
    options.integer("distributed-optimizer-instances", given.sizes.optimizer_instances, 1, kAny,
                    "number of distributed optimizer instances; more than 1 adds the intra_partial and inter_partial groups");
    options.flag("hybrid-context-parallel", given.by_document, "dynamic context parallelism: add the groups of each power of two of ranks");
    options.use_texts(console);
    if (!options.parse(args, console.out)) return kDone;

    constexpr std::array kOfPlan{"world", "tp", "cp", "ep", "etp", "dp", "pp", "order", "distributed-optimizer-instances"};
    const ParallelSizes sizes = plan.empty() ? sizes_of(given) : load_asked_plan(options, plan.front(), kOfPlan).layout.sizes;
    const RankGroups groups(sizes, given.by_document);
    options.write(console, [&](std::ostream& out) {
        switch (options.format()) {
            case Format::json:
                return write_json(out, groups);
            case Format::csv:
                return write_csv(out, groups);
            case Format::table:
                return write_table(out, groups);
        }
    });
    return kDone;
}

}  // namespace mgplan::cli
