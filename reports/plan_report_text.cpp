#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "plan/layout/layout_schedule.hpp"
#include "plan/layout/layout_switches.hpp"
#include "plan/text/shell_quoting.hpp"
#include "plan/text/text.hpp"
#include "reports/blind_accuracy.hpp"
#include "reports/figures.hpp"
#include "reports/flag_account.hpp"
#include "reports/layout_cells.hpp"
#include "reports/layout_fields.hpp"
#include "reports/layout_report.hpp"
#include "reports/memory_terms.hpp"
#include "reports/plan_report.hpp"
#include "reports/rejections.hpp"
#include "reports/table.hpp"
#include "reports/time_terms.hpp"

namespace mgplan::reports {
namespace {

/// Width of a terminal in columns; output without --wide is no wider.
constexpr std::size_t kColumns = 80;
/// Number of assumptions in a first look: the first of the list matter most.
constexpr std::size_t kFirstAssumed = 3;

/// The items in lines of at most `columns`, the first after `head`, the others indented by its width.
std::string wrapped(const std::string& head, const std::vector<std::string>& items, std::string_view between, std::size_t columns) {
    std::string text = head;
    std::size_t width = display_width(head);
    const std::size_t indent = width;
    for (std::size_t i = 0; i < items.size(); ++i) {
        const std::string item = items[i] + (i + 1 < items.size() ? std::string(between.substr(0, 1)) : "");
        const bool first = width == indent;
        if (!first && width + 1 + display_width(item) > columns) {
            text += "\n" + std::string(indent, ' ');
            width = indent;
            text += item;
        } else {
            text += (first ? "" : " ") + item;
            width += first ? 0 : 1;
        }
        width += display_width(item);
    }
    return text + "\n";
}

/// `batch_apart`: the batch has a line of its own.
std::string first_assumed_text(const std::vector<std::string>& assumed, bool batch_apart) {
    if (assumed.empty()) return {};
    std::vector<std::string> items;
    for (std::size_t i = 0; i < std::min(assumed.size(), kFirstAssumed); ++i) {
        if (!batch_apart || !assumed[i].starts_with("global batch")) items.push_back(assumed[i]);
    }
    if (assumed.size() > items.size()) items.push_back(fmt::format("{} more: --assumed", assumed.size() - items.size()));
    return wrapped("assumed: ", items, ",", kColumns);
}

/// Says of a batch that was not given that the ranking depends on it.
std::string batch_source_text(BatchSource source) {
    if (source == BatchSource::given) return {};
    return fmt::format("batch:   {}; the ranking depends on it: --global-batch N\n",
                       source == BatchSource::published ? "the model's own" : "assumed");
}

/// The options that make the first plan faster or smaller by changing the numbers that it computes, with their gains.
std::string changes_text(const PlanReport& report) {
    std::vector<std::string> words;
    const simulator::Prediction& usual = report.plans.front().prediction;
    for (const planner::NumericChange& change : report.changes) {
        words.push_back(change.option);
        if (const double faster = 1 - change.seconds / usual.time.iteration_seconds; faster >= 0.005)
            words.back() += fmt::format(" -{:.0f} % time", 100 * faster);
        if (const std::int64_t fewer = usual.memory.deciding_bytes() - change.bytes; fewer > 0)
            words.back() += fmt::format(" -{} GiB", gib(fewer));
    }
    return words.empty() ? "" : wrapped("numerics: ", words, ",", kColumns);
}

/// Engine of the predicted runs.
Engine engine_of(const PlanReport& report) {
    return report.plans.front().layout.engine;
}

/// Suggests the next command.
std::string next_text(const PlanReport& report) {
    if (report.saved_as) {
        const std::string file = shell_word(*report.saved_as), flags = fmt::format("mgplan export {} --to megatron-args (its flags)", file);
        const std::string start = engine_of(report) == Engine::mgplan
                                      ? fmt::format("mgplan run {} (train it)", file)
                                      : fmt::format("mgplan launch {} --job megatron --via slurm --dry-run (a job script)", file);
        return wrapped("next: ", {flags, start}, ",", kColumns);
    }
    std::vector<std::string> words{"--explain 1 (every term, and why it wins)", "--save-plan FILE (keep it)"};
    if (report.detail != Detail::wide) words.emplace_back("--wide (where time goes, what was rejected)");
    return wrapped("next: ", words, ",", kColumns);
}

/// Columns to drop on a narrow terminal. Ranks of dp follow from the other sizes; the largest loss is also in --wide; tokens per second are
/// dropped last, because others publish them.
constexpr int kSpareDp = 1, kSpareLoss = 2, kSpareTokens = 4, kSpareMfu = 8;
/// Sets of columns to drop: the first that is enough, or else the last.
constexpr std::array kSpared{kSpareDp, kSpareLoss, kSpareDp | kSpareLoss, kSpareDp | kSpareLoss | kSpareMfu,
                             kSpareDp | kSpareLoss | kSpareTokens | kSpareMfu};

/// A column of the table of plans.
struct PlanColumn {
    std::string header;
    Align align = Align::right;
    std::function<std::string(const PlannedLayout& plan)> cell;
    bool always = true;  ///< false: left out where it is 1 in all rows
    int spare = 0;       ///< of kSpared; 0: never
};

PlanColumn figure_column(std::string_view name, int spare = 0) {
    const auto cell = [name](const PlannedLayout& plan) { return cell_text(name, plan.prediction.time); };
    return {std::string(figure(name).heading), Align::right, cell, true, spare};
}

/// Returns true if plans differ in their CUDA graphs, or the search chose those of all rows: each row then names its graphs.
bool search_chose_graphs(const PlanReport& report) {
    return std::any_of(report.plans.begin(), report.plans.end(), [&](const PlannedLayout& plan) {
        return plan.layout.cuda_graphs != report.plans.front().layout.cuda_graphs ||
               (report.graphs_searched && !plan.layout.cuda_graphs.empty());
    });
}

std::vector<PlanColumn> plan_columns(const PlanReport& report) {
    using Plan = const PlannedLayout&;
    const bool moe = report.workload.model.moe.has_value();
    std::vector<PlanColumn> columns{
        {"#", Align::right, [](Plan p) { return std::to_string(p.rank); }},
        {"tp", Align::left, [](Plan p) { return tp_cell(p.layout); }, false},
        {"cp", Align::right, [](Plan p) { return cp_cell(p.layout); }, false},
    };
    if (moe) {
        columns.push_back({"ep", Align::right, [](Plan p) { return std::to_string(p.layout.sizes.ep); }, false});
        columns.push_back({"etp", Align::right, [](Plan p) { return std::to_string(p.layout.sizes.etp); }, false});
    }
    const std::vector<PlanColumn> others{
        {"dp", Align::right, [](Plan p) { return std::to_string(p.layout.dp()); }, true, kSpareDp},
        {"pp", Align::left, [](Plan p) { return pp_cell(p.layout); }, false},
        {"mbs", Align::right, [](Plan p) { return std::to_string(p.layout.micro_batch); }},
        {"rec", Align::left, [](Plan p) { return recompute_cell(p.layout); }},
        figure_column("iteration_seconds"),
        figure_column("adverse_seconds"),
        figure_column("tokens_per_second_per_gpu", kSpareTokens),
        figure_column("mfu", kSpareMfu),
        {"GiB", Align::right, [](Plan p) { return gib(p.prediction.memory.deciding_bytes()); }},
        {"loss", Align::right, [](Plan p) { return largest_loss(p.prediction.time); }, true, kSpareLoss},
    };
    columns.insert(columns.end(), others.begin(), others.end());
    if (!report.schedules.empty())
        columns.push_back(
            {"schedule", Align::left, [](Plan p) { return std::string(p.layout.sizes.pp == 1 ? "-" : schedule_name(p.layout)); }});
    const bool graphs = search_chose_graphs(report);
    if (graphs || std::any_of(report.plans.begin(), report.plans.end(), [](Plan p) { return p.layout.switches != nullptr; })) {
        const auto behind =
            std::find_if(columns.begin(), columns.end(), [](const PlanColumn& column) { return column.header == "rec"; }) + 1;
        columns.insert(behind, graphs ? PlanColumn{"on", Align::left, [](Plan p) { return switches_cell(p.layout, true); }}
                                      : PlanColumn{"on", Align::left, [](Plan p) { return switches_cell(p.layout, false); }});
    }
    if (report.detail == Detail::wide)
        columns.push_back({"fullest", Align::right, [](Plan p) { return fullest_term(p.layout, p.prediction.memory); }});
    if (report.orders > 1) {
        columns.push_back(moe ? PlanColumn{"order", Align::left, [](Plan p) { return order_cell(p.layout.sizes, true); }}
                              : PlanColumn{"order", Align::left, [](Plan p) { return order_cell(p.layout.sizes, false); }});
    }
    return columns;
}

/// Columns and their cells, and the choice of displayed columns.
class PlanTable {
public:
    explicit PlanTable(const PlanReport& report) : columns_(plan_columns(report)) {
        for (const PlanColumn& column : columns_) {
            std::vector<std::string>& cells = cells_.emplace_back();
            for (const PlannedLayout& plan : report.plans) cells.push_back(column.cell(plan));
        }
        if (report.detail == Detail::wide) return;
        const auto is_one = [&](std::size_t i) {
            return !columns_[i].always && std::all_of(cells_[i].begin(), cells_[i].end(), [](const auto& cell) { return cell == "1"; });
        };
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            if (is_one(i)) all_one_.push_back(columns_[i].header);
        }
        leave_out(is_one);
        if (width() <= kColumns) return;
        const auto enough = std::find_if(kSpared.begin(), kSpared.end() - 1, [this](int spared) { return width(spared) <= kColumns; });
        leave_out([&](std::size_t i) { return (columns_[i].spare & *enough) != 0; });
        narrow_ = width() > kColumns;
    }

    [[nodiscard]] bool has(std::string_view header) const {
        return std::any_of(columns_.begin(), columns_.end(), [header](const PlanColumn& column) { return column.header == header; });
    }

    /// Names of columns that would contain only 1.
    [[nodiscard]] const std::vector<std::string>& all_one() const { return all_one_; }

    [[nodiscard]] std::string to_text() const { return table().to_text(100, Style::plain, narrow_ ? 1 : 2); }
    [[nodiscard]] std::string to_markdown() const { return table().to_markdown(); }

private:
    [[nodiscard]] Table table() const {
        std::vector<Table::Column> headers;
        for (const PlanColumn& column : columns_) headers.push_back({column.header, column.align});
        Table table(headers);
        for (std::size_t row = 0; row < cells_.front().size(); ++row) {
            std::vector<std::string> cells;
            for (const auto& column : cells_) cells.push_back(column[row]);
            table.add_row(std::move(cells));
        }
        return table;
    }

    template <class Unwanted>
    void leave_out(Unwanted unwanted) {
        for (std::size_t i = columns_.size(); i-- > 0;) {
            if (!unwanted(i)) continue;
            columns_.erase(columns_.begin() + static_cast<std::ptrdiff_t>(i));
            cells_.erase(cells_.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }

    /// Width in terminal columns without those of `spared`.
    [[nodiscard]] std::size_t width(int spared = 0) const {
        std::size_t sum = 0;
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            if ((columns_[i].spare & spared) != 0) continue;
            std::size_t widest = display_width(columns_[i].header);
            for (const auto& cell : cells_[i]) widest = std::max(widest, display_width(cell));
            sum += widest + (i > 0 ? 2 : 0);
        }
        return sum;
    }

    std::vector<PlanColumn> columns_;
    std::vector<std::vector<std::string>> cells_;  ///< by column
    std::vector<std::string> all_one_;
    bool narrow_ = false;  ///< one space between columns, for a table that is too wide with two
};

/// The terms of time with a column: terms below a thousandth of every plan's step have none.
std::vector<std::size_t> shown_times(const PlanReport& report) {
    std::vector<std::size_t> shown;
    for (std::size_t i = 0; i < kTimeTerms; ++i) {
        if (std::any_of(report.plans.begin(), report.plans.end(), [i](const PlannedLayout& plan) {
                const auto& time = plan.prediction.time;
                return time_terms(time)[i].seconds >= 0.001 * time.iteration_seconds;
            }))
            shown.push_back(i);
    }
    return shown;
}

/// Explanation of those headers of shown_times() that say less than the term's name.
std::string times_legend(const PlanReport& report) {
    std::vector<std::string> words;
    bool exposed = false;
    for (const auto i : shown_times(report)) {
        const TimeTerm term = time_terms(simulator::TimePrediction{})[i];
        if (term.name == "host") words.emplace_back("host: waiting for kernel launches.");
        if (term.name.starts_with("exposed ") && !std::exchange(exposed, true))
            words.emplace_back("tp to pp: communication that nothing hides.");
        if (term.name == "fixed") words.emplace_back("fixed: data, logging.");
    }
    return words.empty() ? "" : fmt::format("\n{}\n", fmt::join(words, " "));
}

/// Time of each plan's step by term, in percent.
Table time_table(const PlanReport& report) {
    const std::vector<std::size_t> shown = shown_times(report);
    std::vector<Table::Column> columns{{"#"}};
    for (const auto i : shown) columns.push_back({std::string(time_terms(simulator::TimePrediction{})[i].heading)});
    Table table(columns);
    for (const PlannedLayout& plan : report.plans) {
        const auto terms = time_terms(plan.prediction.time);
        std::vector<std::string> row{std::to_string(plan.rank)};
        for (const auto i : shown) row.push_back(fmt::format("{:.1f}%", 100 * terms[i].seconds / plan.prediction.time.iteration_seconds));
        table.add_row(std::move(row));
    }
    return table;
}

/// True if the search chose the sharding of the layout's state.
bool is_sharded(const Layout& layout) {
    return layout.switches && layout.switches->sharding.has_value();
}

/// Explanation of rows, if each is a family.
std::string families_text(const PlanReport& report) {
    std::size_t others = 0;
    for (const PlannedLayout& plan : report.plans) others += plan.others.size();
    if (others == 0) return {};
    const bool sharded =
        std::any_of(report.plans.begin(), report.plans.end(), [](const PlannedLayout& plan) { return is_sharded(plan.layout); });
    return fmt::format("One row a family (same tp, cp, {}pp, rec{}), its best; all: --all --top {}\n",
                       report.workload.model.moe ? "ep, etp, " : "", sharded ? ", fsdp" : "", report.plans.back().rank);
}

/// The reasons of the rows that have one.
std::string reasons_text(const PlanReport& report) {
    std::vector<std::string> words;
    for (const PlannedLayout& plan : report.plans) {
        std::vector<std::string_view> reasons = words_of(plan.why);
        if (plan.recommended) reasons.emplace_back("recommended");
        if (!reasons.empty()) words.push_back(fmt::format("#{} {}", plan.rank, fmt::join(reasons, ", ")));
    }
    return words.empty() ? "" : in_lines(fmt::format("why: {}\n", fmt::join(words, "; ")), 5);
}

/// A dispatcher, and the rows with layouts that use it although the displayed one does not.
struct EqualDispatcher {
    std::string_view name;
    std::vector<std::size_t> rows;
};

std::vector<EqualDispatcher> equal_dispatchers(const PlanReport& report) {
    const auto of = [](const Layout& layout) { return layout.switches ? layout.switches->dispatcher : std::nullopt; };
    std::vector<EqualDispatcher> found;
    for (const PlannedLayout& plan : report.plans) {
        for (const std::size_t rank : plan.others) {
            const Layout& other = report.search.best[rank - 1].layout;
            if (of(other) == of(plan.layout)) continue;
            const std::string_view name = dispatcher_word(of(other).value_or(report.workload.model.moe->dispatcher));
            auto same = std::find_if(found.begin(), found.end(), [name](const EqualDispatcher& each) { return each.name == name; });
            if (same == found.end()) same = found.insert(found.end(), {name, {}});
            if (same->rows.empty() || same->rows.back() != plan.rank) same->rows.push_back(plan.rank);
        }
    }
    return found;
}

/// Lists the rows that also represent another dispatcher.
std::string equal_dispatcher_text(const EqualDispatcher& equal, std::size_t rows) {
    constexpr std::size_t kMostNamed = 6;
    if (equal.rows.size() == rows) return fmt::format("{}: as fast, not listed", equal.name);
    if (equal.rows.size() > kMostNamed) return fmt::format("{}: as fast in {} rows, not listed", equal.name, equal.rows.size());
    return fmt::format("{}: as fast in row{} {}, not listed", equal.name, equal.rows.size() > 1 ? "s" : "", fmt::join(equal.rows, ", "));
}

/// Explanation of the headers.
std::string legend_text(const PlanReport& report, const PlanTable& table) {
    std::string text;
    const auto shows = [&](auto what) {
        return std::any_of(report.plans.begin(), report.plans.end(), [&](const PlannedLayout& plan) { return what(plan.layout); });
    };
    std::vector<std::string> words;
    if (!table.all_one().empty()) words.push_back(fmt::format("{}: 1 in all rows", fmt::join(table.all_one(), ", ")));
    if (shows([](const Layout& l) { return l.vpp > 1; })) words.emplace_back("pp: AxB, B virtual stages a rank");
    words.emplace_back("mbs: micro-batch");
    words.emplace_back(shows([](const Layout& l) { return recompute_cell(l) == "sel"; }) ? "rec: recompute (sel: selective)"
                                                                                         : "rec: recompute");
    const auto repeats = [&](RecomputeModule module, std::string_view name) {
        if (shows([module](const Layout& l) { return recompute_cell(l) != "sel" && l.recompute_modules.contains(module); }))
            words.push_back(fmt::format("{}: {}", name, to_string(module)));
    };
    repeats(RecomputeModule::mla_up_proj, "up");
    repeats(RecomputeModule::layernorm, "norm");
    repeats(RecomputeModule::moe_act, "act");
    repeats(RecomputeModule::shared_experts, "shared");
    repeats(RecomputeModule::mhc, "streams");
    if (shows([](const Layout& l) { return l.recompute_method == RecomputeMethod::block; }))
        words.emplace_back("blkN: full recompute of N layers a chunk");
    if (table.has("on")) {
        words.emplace_back("on: switched on for the row (ov: overlap");
        if (shows([](const Layout& l) { return l.switches && (l.switches->bf16_gradients || l.switches->bf16_moments); }))
            words.emplace_back("bf16: g gradients, m moments");
        if (shows(is_sharded)) words.emplace_back("fsdp: all state sharded, hsdp:N: in each of N replicas");
        if (search_chose_graphs(report)) words.emplace_back("graphs: CUDA graphs");
        words.back() += ")";
    }
    for (const EqualDispatcher& equal : equal_dispatchers(report)) words.push_back(equal_dispatcher_text(equal, report.plans.size()));
    words.emplace_back("worst: s/step in adverse conditions");
    if (table.has("tok/s")) words.emplace_back("tok/s: a GPU's");
    if (const Precision precision = report.workload.training.precision; quantised(precision))
        words.push_back(fmt::format("MFU: of the {} peak", to_string(precision)));
    if (table.has("loss")) words.emplace_back("loss: largest non-compute share of the step");
    if (table.has("fullest")) words.emplace_back("fullest: what fills the fullest GPU most, sN its pipeline stage");
    if (report.workload.model.moe) words.emplace_back("GiB: at p99 of the routing skew");
    if (shows([](const Layout& l) { return l.sequence_parallel; })) words.emplace_back("+sp: sequence parallel");
    if (shows([](const Layout& l) { return l.sizes.tp > 1 && !l.sequence_parallel; })) words.emplace_back("-sp: not sequence parallel");
    if (shows([](const Layout& l) { return l.sizes.cp > 1 && l.cp_comm_type != CpCommType::p2p; }))
        words.emplace_back("ag, a2a: all-gather, all-to-all cp");
    return wrapped("", words, "; ", kColumns);
}

/// A note if the event-by-event ranking may have missed the fastest layout.
std::string unproven_text(const planner::SearchResult& search) {
    if (search.fastest_is_proven.value_or(true)) return {};
    return fmt::format("{} ranked event by event; others might be as fast by their bounds.\n",
                       counted(static_cast<std::int64_t>(search.replayed), "layout"));
}

/// Gain from balancing; empty if it was not requested.
std::string balanced_text(const PlanReport& report) {
    if (!report.balanced) return {};
    std::string text = fmt::format("\nBalanced stages: {} with pp > 1 tried, {} became faster{}\n",
                                   counted(static_cast<std::int64_t>(report.balanced->tried), "layout"), report.balanced->faster,
                                   report.balanced->faster > 0 ? "; of those in the table:" : ".");
    for (const PlannedLayout& plan : report.plans) {
        if (const auto before = report.seconds_before(plan))
            text +=
                fmt::format("{:2} {:.2f} % faster with --pipeline-layout '{}'\n", plan.rank,
                            100 * (*before / plan.prediction.time.iteration_seconds - 1), *plan.layout.split->request().pipeline_layout);
    }
    return text;
}

/// Number of fitting layouts. Allocators are replayed for only some of them: the count includes those that then do not fit, so that it does
/// not depend on the number of plans; if no layout is left, nothing fits.
std::string feasible_text(const PlanReport& report) {
    const planner::SearchResult& found = report.search;
    const std::int64_t count = found.feasible + (report.plans.empty() ? 0 : found.too_large_replayed.count);
    return (found.bounded > 0 && count > 0 ? "at least " : "") + with_thousands(count);
}

std::string schedules_text(const PlanReport& report) {
    return report.schedules.empty() ? "" : fmt::format("\n{}\n", fmt::join(schedule_lines(report), "\n"));
}

std::string rejections_text(const PlanReport& report) {
    auto lines = rejected_candidates(report);
    std::stable_sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return a.count > b.count; });
    Table table({{"rejected"}, {"reason", Align::left}});
    for (const auto& line : lines) {
        const bool at_least = report.search.bounded > 0 &&
                              (line.rule == planner::kFits || line.rule == planner::kFitsAtP99 || line.rule == planner::kFitsInHost);
        table.add_row({(at_least ? "at least " : "") + with_thousands(line.count), std::string(line.reason)});
    }
    if (report.search.best.empty() && report.search.bounded > 0)
        table.add_row({with_thousands(report.search.bounded), "does not fit either, by bounds that do not tell what of it is most"});
    return table.to_text();
}

/// Layouts that do not fit, by their largest term; for each kind the one nearest to the limit.
std::string too_large_text(const PlanReport& report) {
    if (report.too_large.empty()) return {};
    Table table({{"too large"}, {"most is"}, {"missing at least"}, {"on rank"}, {"with the layout", Align::left}});
    for (const auto& kind : report.too_large) {
        const auto& m = kind.memory;
        const std::int64_t missing = m.deciding_bytes() - m.limit_bytes;
        table.add_row({(report.search.bounded > 0 ? "at least " : "") + with_thousands(kind.count), std::string(most_of(kind)),
                       missing > 0 ? human_bytes(missing) : human_bytes(m.node_host_bytes - m.host_limit_bytes) + " of the host's",
                       fmt::format("{} (stage {})", m.worst_rank, m.worst_stage), summary(kind.nearest)});
    }
    return "\n" + table.to_text();
}

/// The nearest misses, and the results of the schedules that were tried.
std::string nearest_text(const PlanReport& report) {
    std::string text = report.schedules_alone ? "No layout fits with what --schedule names." : "No layout fits.";
    if (!report.nearest.empty()) text += " Nearest misses:";
    text += "\n";
    for (const auto& miss : report.nearest) {
        const auto& m = miss.memory;
        if (!m.host_fits()) {
            text += fmt::format("\n  {}\n    {}\n", summary(miss.layout), missing_text(m));
            continue;
        }
        text += fmt::format("\n  {}\n    needs {}{}, {} more than the limit of {}, on rank {} (stage {}):\n", summary(miss.layout),
                            human_bytes(m.deciding_bytes()), m.worst.routing ? " at p99 of the routing skew" : "",
                            human_bytes(m.deciding_bytes() - m.limit_bytes), human_bytes(m.limit_bytes), m.worst_rank, m.worst_stage);
        if (m.worst.routing) text += fmt::format("    with even routing {}\n", human_bytes(m.worst.peak_bytes()));
        auto terms = memory_terms(m.worst.breakdown);
        std::stable_sort(terms.begin(), terms.end(), [](const MemoryTerm& a, const MemoryTerm& b) { return a.bytes > b.bytes; });
        std::vector<std::string> largest;
        for (std::size_t i = 0; i < 4 && terms[i].bytes > 0; ++i)
            largest.push_back(fmt::format("{} {}", terms[i].name, human_bytes(terms[i].bytes)));
        text += fmt::format("    {}\n", fmt::join(largest, ", "));
        for (const auto& remedy : miss.remedies)
            text += fmt::format("    would fit with {}: {}\n", remedy.change, human_bytes(remedy.peak_bytes));
        if (miss.remedies.empty())
            text += "    no single change (bf16 gradients, recompute, micro-batch, pp, precision, offload, more GPUs) makes it fit\n";
    }
    return text + schedules_text(report);
}

/// Memory of the fullest GPU of each plan at its peak by term, in GiB; terms that no plan has get no column.
Table memory_table(const PlanReport& report) {
    std::vector<std::size_t> shown;
    std::vector<Table::Column> columns{{"#"}};
    const auto terms_of = [](const PlannedLayout& plan) { return memory_terms(plan.prediction.memory.worst.breakdown); };
    for (std::size_t i = 0; i < terms_of(report.plans.front()).size(); ++i) {
        if (std::none_of(report.plans.begin(), report.plans.end(), [&](const PlannedLayout& plan) { return terms_of(plan)[i].bytes > 0; }))
            continue;
        shown.push_back(i);
        columns.push_back({std::string(terms_of(report.plans.front())[i].name)});
    }
    Table table(columns);
    for (const PlannedLayout& plan : report.plans) {
        std::vector<std::string> row{std::to_string(plan.rank)};
        for (const auto i : shown) row.push_back(gib(terms_of(plan)[i].bytes));
        table.add_row(std::move(row));
    }
    return table;
}

/// Wraps the text in a Markdown code block.
std::string as_code(const std::string& text) {
    return text.empty() ? "" : "```text\n" + text.substr(text.front() == '\n' ? 1 : 0) + "```\n";
}

}  // namespace

std::vector<std::string> schedule_lines(const PlanReport& report) {
    std::vector<std::string> lines;
    for (const planner::ScheduleGain& gain : report.schedules) {
        std::string line = fmt::format("schedule {}: {} tried, {} fit", to_string(gain.kind),
                                       counted(static_cast<std::int64_t>(gain.tried), "layout"), gain.fit);
        if (gain.seconds && gain.seconds_before) {
            const double saved = 100 * (1 - *gain.seconds / *gain.seconds_before);
            line += fmt::format("; the fastest takes {:.1f} % {} than with the schedules of Megatron-LM", std::abs(saved),
                                saved < 0 ? "longer" : "less");
        } else if (!gain.why_not.empty()) {
            line += ": " + gain.why_not;
        }
        lines.push_back(std::move(line));
    }
    return lines;
}

std::string plan_report_markdown(const PlanReport& report) {
    std::vector<std::string> job;
    for (const auto& word : split(workload_text(report.workload), ' ')) {
        if (!word.empty() && word != "\n") job.push_back(word.substr(0, word.find('\n')));
    }
    std::string text = fmt::format("**{}**\n\n", markdown_text(fmt::format("{}", fmt::join(job, " "))));
    if (report.plans.empty()) {
        text += as_code(nearest_text(report));
    } else {
        const PlanTable table(report);
        text += table.to_markdown() + "\n" +
                markdown_text(reasons_text(report) + families_text(report) + legend_text(report, table) + unproven_text(report.search)) +
                as_code(balanced_text(report) + schedules_text(report));
        if (report.detail == Detail::wide)
            text += "\nWhere the time of a step goes:\n\n" + time_table(report).to_markdown() +
                    "\nWhat fills the fullest GPU, in GiB:\n\n" + memory_table(report).to_markdown();
        text += "\n" + markdown_text(accuracy_text(report.workload, engine_of(report)));
    }
    if (!report.assumed.empty()) text += "\n" + markdown_text(fmt::format("assumed: {}\n", fmt::join(report.assumed, ", ")));
    text += markdown_text(batch_source_text(report.batch_source));
    return text;
}

std::string plan_report_text(const PlanReport& report) {
    const Workload& w = report.workload;
    const auto& s = report.search;
    const bool wide = report.detail == Detail::wide;
    std::string text = workload_text(w);
    text += wide || report.all_assumed ? assumed_text(report.assumed)
                                       : first_assumed_text(report.assumed, report.batch_source != BatchSource::given);
    text += batch_source_text(report.batch_source);
    if (report.flags) text += flag_account_text(*report.flags);
    text += fmt::format("searched {} in {:.2f} s on {}:\n{} legal, {} fit in {} per GPU{}\n", counted(s.counts.candidates(), "candidate"),
                        s.seconds, counted(s.threads, "thread"), with_thousands(s.counts.legal), feasible_text(report),
                        human_bytes(s.limit_bytes),
                        report.headroom_bytes() > 0 ? fmt::format(", headroom {}", human_bytes(report.headroom_bytes())) : "");
    if (s.headroom_missed) text += "Nothing leaves the headroom free; these plans fit the whole GPU.\n";
    text += "\n";
    if (report.plans.empty()) {
        text += nearest_text(report);
    } else {
        const PlanTable table(report);
        text += table.to_text() + "\n" + reasons_text(report) + families_text(report) + legend_text(report, table) + unproven_text(s) +
                balanced_text(report) + schedules_text(report);
        if (wide) text += "\nWhere the time of a step goes:\n" + time_table(report).to_text() + times_legend(report);
        text += "\n" + changes_text(report) + accuracy_text(w, engine_of(report));
    }
    // Rejections are of Megatron-LM's schedules: if only others are requested, they do not explain the result.
    const bool says_why = report.plans.empty() && !report.schedules_alone;
    if (wide || says_why) text += "\n" + rejections_text(report) + too_large_text(report);
    if (!report.plans.empty()) text += next_text(report);
    if (const auto& plan = report.explained)
        text += fmt::format("\nplan {} in detail\n", plan->rank) + layout_text(w, plan->layout, plan->prediction);
    if (report.comparison) text += comparison_text(*report.comparison);
    if (report.compared) text += compared_layout_text(*report.compared, s.feasible);
    return text;
}

}  // namespace mgplan::reports
