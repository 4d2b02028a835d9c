#include <algorithm>
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

/// Width of a terminal in columns. Without --wide no sentence is wider, and of dense models no table.
constexpr std::size_t kColumns = 80;
/// Width at which even a table of --wide is wrapped.
constexpr std::size_t kWideColumns = 200;
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

/// An option and what it gains over the first plan: "--grad-dtype bf16 -7.5 GiB".
std::string change_text(const planner::JobChange& change, const simulator::Prediction& usual) {
    std::string text = change.option;
    if (const double faster = 1 - change.seconds / usual.time.iteration_seconds; faster >= 0.005)
        text += fmt::format(" -{:.0f} % time", 100 * faster);
    if (const std::int64_t fewer = usual.memory.deciding_bytes() - change.bytes; fewer > 0) text += fmt::format(" -{} GiB", gib(fewer));
    return text;
}

/// The options that make the first plan faster or smaller and that no search takes: they change the numbers that it computes, or take
/// memory of the host.
std::string changes_text(const PlanReport& report) {
    std::vector<std::string> words;
    const simulator::Prediction& usual = report.plans.front().prediction;
    for (const planner::JobChange& change : report.changes) words.push_back(change_text(change, usual));
    return (words.empty() ? "" : wrapped("numerics: ", words, ",", kColumns)) +
           (report.offload ? wrapped("offload: ", {change_text(*report.offload, usual)}, ",", kColumns) : "");
}

/// Names NVIDIA's recipe for the job, if a row is like it.
std::string recipe_text(const PlanReport& report) {
    const bool shown = std::ranges::any_of(report.plans, [](const PlannedLayout& plan) {
        return std::ranges::find(plan.why, planner::PlanReason::like_nvidia_recipe) != plan.why.end();
    });
    return shown ? fmt::format("recipe: mgplan check --recipe {}\n", report.recipe) : "";
}

/// Engine of the predicted runs.
Engine engine_of(const PlanReport& report) {
    return report.plans.front().layout.engine;
}

/// Suggests the next command.
std::string next_text(const PlanReport& report) {
    if (report.saved_as) {
        const std::string file = shell_word(*report.saved_as);
        if (report.workload.model.adapters && engine_of(report) == Engine::megatron)
            return fmt::format("next: mgplan export {} --to bridge-overrides (of Megatron-Bridge)\n", file);
        const std::string flags = fmt::format("mgplan export {} --to megatron-args (its flags)", file);
        const std::string start = engine_of(report) == Engine::mgplan
                                      ? fmt::format("mgplan run {} (train it)", file)
                                      : fmt::format("mgplan launch {} --job megatron --via slurm --dry-run (a job script)", file);
        return wrapped("next: ", {flags, start}, ",", kColumns);
    }
    std::vector<std::string> words{"--explain 1 (every term)", "--save-plan FILE (keep it)"};
    if (report.detail != Detail::wide) words.emplace_back("--wide (more detail)");
    return wrapped("next: ", words, ",", kColumns);
}

/// Width of the table of plans without --wide: layouts of MoE models have two sizes more.
std::size_t table_columns(const PlanReport& report) {
    return report.workload.model.moe ? 100 : kColumns;
}

/// Columns to drop from a table that is too wide, in this order; before dp its gaps become narrow, before TFLOP/s its features are wrapped.
/// The largest overhead is also in --wide, ranks of dp follow from the other
/// sizes, and speeds follow from the seconds of a step; tokens per second are dropped last, because others publish them.
enum class Spare : std::uint8_t { never, overhead, dp, tflops, tokens };

/// When a column is displayed without --wide, by its cells.
enum class Shown : std::uint8_t { always, unless_one, if_different };

/// A column of the table of plans.
struct PlanColumn {
    std::string header;
    Align align = Align::right;
    std::function<std::string(const PlannedLayout& plan)> cell;
    Shown shown = Shown::always;
    Spare spare = Spare::never;
    bool wraps = false;  ///< its cells are words, and may have lines
};

PlanColumn figure_column(std::string_view name, Spare spare = Spare::never) {
    const auto cell = [name](const PlannedLayout& plan) { return cell_text(name, plan.prediction.time); };
    return {std::string(figure(name).heading), Align::right, cell, Shown::always, spare};
}

/// Returns true if plans differ in their CUDA graphs, or the search chose those of all rows: each row then names its graphs.
bool search_chose_graphs(const PlanReport& report) {
    return std::any_of(report.plans.begin(), report.plans.end(), [&](const PlannedLayout& plan) {
        return plan.layout.cuda_graphs != report.plans.front().layout.cuda_graphs ||
               (report.graphs_searched && !plan.layout.cuda_graphs.empty());
    });
}

/// "-" for a plan beyond the list, which has no number.
std::string rank_cell(const PlannedLayout& plan) {
    return plan.rank == 0 ? "-" : std::to_string(plan.rank);
}

/// The reasons to show a plan, "recommended" first.
std::vector<std::string> reasons_of(const PlannedLayout& plan) {
    std::vector<std::string> reasons;
    if (plan.recommended) reasons.emplace_back("recommended");
    for (const std::string_view word : words_of(plan.why)) reasons.emplace_back(word);
    return reasons;
}

std::vector<PlanColumn> plan_columns(const PlanReport& report) {
    using Plan = const PlannedLayout&;
    const bool moe = report.workload.model.moe.has_value(), wide = report.detail == Detail::wide;
    const auto any = [&](auto what) { return std::any_of(report.plans.begin(), report.plans.end(), what); };
    std::vector<PlanColumn> columns{
        {"#", Align::right, rank_cell},
        {"tp", Align::left, [](Plan p) { return tp_cell(p.layout); }, Shown::unless_one},
        {"cp", Align::right, [](Plan p) { return cp_cell(p.layout); }, Shown::unless_one},
    };
    const auto add = [&](PlanColumn column) { columns.push_back(std::move(column)); };
    if (moe) {
        add({"ep", Align::right, [](Plan p) { return std::to_string(p.layout.sizes.ep); }, Shown::unless_one});
        add({"etp", Align::right, [](Plan p) { return std::to_string(p.layout.sizes.etp); }, Shown::unless_one});
    }
    add({"dp", Align::right, [](Plan p) { return std::to_string(p.layout.dp()); }, Shown::if_different, Spare::dp});
    add({"pp", Align::left, [](Plan p) { return pp_cell(p.layout); }, Shown::unless_one});
    add({"mbs", Align::right, [](Plan p) { return std::to_string(p.layout.micro_batch); }});
    add({"rec", Align::left, [](Plan p) { return recompute_cell(p.layout); }});
    if (const bool graphs = search_chose_graphs(report); graphs || any([](Plan p) { return p.layout.switches != nullptr; }))
        add({"features", Align::left, [graphs](Plan p) { return switches_cell(p.layout, graphs); }, Shown::if_different});
    if (report.orders > 1) add({"order", Align::left, [moe](Plan p) { return order_cell(p.layout.sizes, moe); }});
    if (!report.schedules.empty())
        add({"schedule", Align::left, [](Plan p) { return std::string(p.layout.sizes.pp == 1 ? "-" : schedule_name(p.layout)); }});
    add(figure_column("iteration_seconds"));
    add(figure_column("adverse_seconds"));
    add(figure_column("tokens_per_second_per_gpu", Spare::tokens));
    add(figure_column("model_tflops_per_gpu", Spare::tflops));
    if (wide) add(figure_column("mfu"));
    add({"GiB", Align::right, [](Plan p) { return gib(p.prediction.memory.deciding_bytes()); }});
    add({"overhead", Align::right, [](Plan p) { return largest_overhead(p.prediction.time); }, Shown::if_different, Spare::overhead});
    if (wide) add({"fullest", Align::right, [](Plan p) { return fullest_term(p.layout, p.prediction.memory); }});
    if (any([](Plan p) { return !p.why.empty(); }))
        add({"why", Align::left, [](Plan p) { return fmt::format("{}", fmt::join(reasons_of(p), ", ")); }, Shown::always, Spare::never,
             true});
    return columns;
}

/// Columns and their cells, and the choice of displayed columns.
class PlanTable {
public:
    explicit PlanTable(const PlanReport& report)
        : columns_(plan_columns(report)), most_(report.detail == Detail::wide ? kWideColumns : table_columns(report)) {
        for (const PlanColumn& column : columns_) {
            std::vector<std::string>& cells = cells_.emplace_back();
            for (const PlannedLayout& plan : report.plans) cells.push_back(column.cell(plan));
        }
        if (report.detail == Detail::wide) return;
        const std::vector<std::string> shared_features = take_shared_features();
        const auto is_equal = [&](std::size_t i) {
            const auto& cells = cells_[i];
            if (columns_[i].shown == Shown::always || std::adjacent_find(cells.begin(), cells.end(), std::not_equal_to()) != cells.end())
                return false;
            return columns_[i].shown == Shown::if_different || cells.front() == "1";
        };
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            if (columns_[i].header == "features" && !shared_features.empty())
                in_all_rows_.push_back(fmt::format("features {}", fmt::join(shared_features, " ")));
            else if (is_equal(i) && cells_[i].front() != "-")
                in_all_rows_.push_back(fmt::format("{} {}", columns_[i].header, cells_[i].front()));
        }
        leave_out(is_equal);
        const auto drop = [&](Spare spare) {
            if (width() > most_) leave_out([&](std::size_t i) { return columns_[i].spare == spare; });
        };
        drop(Spare::overhead);
        narrow_ = width() > most_;
        drop(Spare::dp);
        for (PlanColumn& column : columns_) column.wraps = column.wraps || (width() > most_ && column.header == "features");
        drop(Spare::tflops);
        drop(Spare::tokens);
    }

    [[nodiscard]] bool has(std::string_view header) const {
        return std::any_of(columns_.begin(), columns_.end(), [header](const PlanColumn& column) { return column.header == header; });
    }

    /// The values that all rows share, whose columns are not displayed: "all rows: cp 1, dp 8".
    [[nodiscard]] std::string shared_text() const { return in_all_rows_.empty() ? "" : wrapped("all rows: ", in_all_rows_, ",", most_); }

    [[nodiscard]] std::string to_text() const {
        PlanTable wrapped = *this;
        wrapped.wrap();
        return wrapped.table().to_text(kWideColumns, Style::plain, gap());
    }
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

    /// Removes the features that all rows have from the cells, and returns them.
    std::vector<std::string> take_shared_features() {
        const auto column =
            std::find_if(columns_.begin(), columns_.end(), [](const PlanColumn& each) { return each.header == "features"; });
        if (column == columns_.end()) return {};
        std::vector<std::string>& cells = cells_[static_cast<std::size_t>(column - columns_.begin())];
        std::vector<std::vector<std::string>> rows;
        for (const std::string& cell : cells) rows.push_back(split(cell, ' '));
        std::vector<std::string> shared;
        for (const std::string& word : rows.front()) {
            const auto has_word = [&](const auto& row) { return std::find(row.begin(), row.end(), word) != row.end(); };
            if (word != "-" && std::all_of(rows.begin(), rows.end(), has_word)) shared.push_back(word);
        }
        for (std::size_t i = 0; i < rows.size(); ++i) {
            std::erase_if(rows[i], [&](const std::string& word) { return std::find(shared.begin(), shared.end(), word) != shared.end(); });
            cells[i] = rows[i].empty() ? "-" : fmt::format("{}", fmt::join(rows[i], " "));
        }
        return shared;
    }

    template <class Unwanted>
    void leave_out(Unwanted unwanted) {
        for (std::size_t i = columns_.size(); i-- > 0;) {
            if (!unwanted(i)) continue;
            columns_.erase(columns_.begin() + static_cast<std::ptrdiff_t>(i));
            cells_.erase(cells_.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }

    [[nodiscard]] std::size_t gap() const { return narrow_ ? 1 : 2; }

    /// Width of a column in terminal columns; for a column to be wrapped, the width of its longest word.
    [[nodiscard]] std::size_t width_of(std::size_t i) const {
        std::size_t widest = display_width(columns_[i].header);
        for (const auto& cell : cells_[i]) {
            std::string lines = cell;
            if (columns_[i].wraps) std::replace(lines.begin(), lines.end(), ' ', '\n');
            for (const auto& line : split(lines, '\n')) widest = std::max(widest, display_width(line));
        }
        return widest;
    }

    [[nodiscard]] std::size_t width() const {
        std::size_t sum = gap() * (columns_.size() - 1);
        for (std::size_t i = 0; i < columns_.size(); ++i) sum += width_of(i);
        return sum;
    }

    /// Breaks cells of several words into lines that use the width of the table.
    void wrap() {
        for (std::size_t i = 0; i < columns_.size(); ++i) {
            if (!columns_[i].wraps) continue;
            const std::size_t room = most_ - std::min(most_, width()) + width_of(i);
            for (std::string& cell : cells_[i]) cell = in_lines_of(cell, room);
            columns_[i].wraps = false;
        }
    }

    /// The cell's words in lines of at most `room` columns, if each fits.
    static std::string in_lines_of(const std::string& cell, std::size_t room) {
        std::string lines;
        std::size_t filled = 0;
        for (const std::string& word : split(cell, ' ')) {
            const std::size_t width = display_width(word);
            const bool fits = filled > 0 && filled + 1 + width <= room;
            if (filled > 0) lines += fits ? " " : "\n";
            filled = (fits ? filled + 1 : 0) + width;
            lines += word;
        }
        return lines;
    }

    std::vector<PlanColumn> columns_;
    std::size_t most_;                             ///< width of the table
    std::vector<std::vector<std::string>> cells_;  ///< by column
    std::vector<std::string> in_all_rows_;
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
        std::vector<std::string> row{rank_cell(plan)};
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
    constexpr std::size_t kUsefulList = 20;
    return fmt::format("Best layout of each group (same tp, cp, {}pp, rec{}). Every layout: --all --top {}\n",
                       report.workload.model.moe ? "ep, etp, " : "", sharded ? ", fsdp" : "",
                       std::max(kUsefulList, std::ranges::max(report.plans, {}, &PlannedLayout::rank).rank));
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
    if (shows([](const Layout& l) { return l.vpp > 1; })) words.emplace_back("pp: AxB, B virtual stages a rank");
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
    if (shows([](const Layout& l) { return l.switches && (l.switches->overlap_tp || l.switches->overlap_moe); }))
        words.emplace_back("ov: overlap");
    if (shows([](const Layout& l) { return l.switches && (l.switches->bf16_gradients || l.switches->bf16_moments); }))
        words.emplace_back("bf16: g gradients, m moments");
    if (shows(is_sharded)) words.emplace_back("fsdp: all state sharded, hsdp:N: in each of N replicas");
    if (search_chose_graphs(report)) words.emplace_back("graphs: CUDA graphs");
    for (const EqualDispatcher& equal : equal_dispatchers(report)) words.push_back(equal_dispatcher_text(equal, report.plans.size()));
    if (std::ranges::any_of(report.plans, [](const PlannedLayout& plan) { return plan.rank == 0; }))
        words.emplace_back("-: beyond the list, a search of the recipe's tp to pp");
    words.emplace_back("worst: s/step in adverse conditions");
    if (table.has("TFLOP/s"))
        words.emplace_back("tok/s, TFLOP/s: per GPU");
    else if (table.has("tok/s"))
        words.emplace_back("tok/s: per GPU");
    if (const Precision precision = report.workload.training.precision; table.has("MFU") && quantised(precision))
        words.push_back(fmt::format("MFU: of the {} peak", to_string(precision)));
    if (table.has("overhead") || table.shared_text().find("overhead") != std::string::npos)
        words.emplace_back("overhead: largest non-compute share of the step");
    if (table.has("fullest")) words.emplace_back("fullest: what fills the fullest GPU most, sN its pipeline stage");
    if (report.workload.model.moe) words.emplace_back("GiB: peak at p99 of the routing skew");
    if (shows([](const Layout& l) { return l.sequence_parallel; })) words.emplace_back("+sp: sequence parallel");
    if (shows([](const Layout& l) { return l.sizes.tp > 1 && !l.sequence_parallel; })) words.emplace_back("-sp: not sequence parallel");
    if (shows([](const Layout& l) { return l.sizes.cp > 1 && l.cp_comm_type != CpCommType::p2p; }))
        words.emplace_back("ag, a2a: all-gather, all-to-all cp");
    return wrapped("", words, "; ", report.detail == Detail::wide ? kColumns : table_columns(report));
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
        std::vector<std::string> row{rank_cell(plan)};
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
    std::string workload = workload_text(report.workload);
    std::ranges::replace(workload, '\n', ' ');
    for (const auto& word : split(workload, ' ')) {
        if (!word.empty()) job.push_back(word);
    }
    std::string text = fmt::format("**{}**\n\n", markdown_text(fmt::format("{}", fmt::join(job, " "))));
    if (report.plans.empty()) {
        text += as_code(nearest_text(report));
    } else {
        const PlanTable table(report);
        if (const std::string shared = table.shared_text(); !shared.empty()) text += markdown_text(shared) + "\n";
        text += table.to_markdown() + "\n" +
                markdown_text(families_text(report) + legend_text(report, table) + unproven_text(report.search)) +
                as_code(balanced_text(report) + schedules_text(report));
        if (report.detail == Detail::wide)
            text += "\nWhere the time of a step goes:\n\n" + time_table(report).to_markdown() +
                    "\nWhat fills the fullest GPU, in GiB:\n\n" + memory_table(report).to_markdown();
        text += "\n" + markdown_text(recipe_text(report) + accuracy_text(report.workload, engine_of(report)));
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
        text += table.shared_text() + table.to_text() + "\n" + families_text(report) + legend_text(report, table) + unproven_text(s) +
                balanced_text(report) + schedules_text(report);
        if (wide) text += "\nWhere the time of a step goes:\n" + time_table(report).to_text() + times_legend(report);
        text += (wide ? "\n" : "") + changes_text(report) + recipe_text(report) + accuracy_text(w, engine_of(report));
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
