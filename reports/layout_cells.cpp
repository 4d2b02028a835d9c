#include "reports/layout_cells.hpp"

#include <utility>

#include <fmt/format.h>

#include "plan/text/text.hpp"

namespace mgplan::reports {

NamedCells layout_csv(const Layout& layout) {
    return {{"tp", std::to_string(layout.sizes.tp)},
            {"cp", std::to_string(layout.sizes.cp)},
            {"ep", std::to_string(layout.sizes.ep)},
            {"etp", std::to_string(layout.sizes.etp)},
            {"dp", std::to_string(layout.dp())},
            {"edp", std::to_string(layout.edp())},
            {"pp", std::to_string(layout.sizes.pp)},
            {"vpp", std::to_string(layout.vpp)},
            {"micro_batch", std::to_string(layout.micro_batch)},
            {"num_microbatches", std::to_string(layout.num_microbatches)},
            {"sequence_parallel", layout.sequence_parallel ? "true" : "false"},
            {"cp_comm_type", std::string(to_string(layout.cp_comm_type))},
            {"recompute", std::string(to_string(layout.recompute))}};
}

Table table_of(const NamedCells& first, const std::vector<NamedCells>& rows) {
    std::vector<Table::Column> columns;
    for (const auto& [name, cell] : first) columns.push_back({name});
    Table table(columns);
    for (const NamedCells& row : rows) {
        std::vector<std::string> cells;
        for (const auto& [name, cell] : row) cells.push_back(cell);
        table.add_row(std::move(cells));
    }
    return table;
}

std::string tp_cell(const Layout& layout) {
    if (layout.sizes.tp == 1) return "1";
    return fmt::format("{}{}", layout.sizes.tp, layout.sequence_parallel ? "+sp" : "-sp");
}

std::string cp_cell(const Layout& layout) {
    if (layout.sizes.cp == 1 || layout.cp_comm_type == CpCommType::p2p) return std::to_string(layout.sizes.cp);
    return fmt::format("{}{}", layout.sizes.cp, layout.cp_comm_type == CpCommType::all_gather ? "ag" : to_string(layout.cp_comm_type));
}

std::string pp_cell(const Layout& layout) {
    return layout.vpp == 1 ? std::to_string(layout.sizes.pp) : fmt::format("{}x{}", layout.sizes.pp, layout.vpp);
}

std::string order_cell(const ParallelSizes& sizes, bool moe) {
    std::vector<std::string> axes;
    for (const auto& word : split(sizes.order.text(), '-')) {
        const bool one = (word == "tp" && sizes.tp == 1 && (!moe || sizes.etp == 1)) || (word == "cp" && sizes.cp == 1) ||
                         (word == "ep" && sizes.ep == 1) || (word == "dp" && sizes.dp() == 1 && (!moe || sizes.edp() == 1)) ||
                         (word == "pp" && sizes.pp == 1);
        if (!one) axes.push_back(word);
    }
    return fmt::format("{}", fmt::join(axes, "-"));
}

std::string gib(std::int64_t bytes) {
    return fmt::format("{:.1f}", static_cast<double>(bytes) / static_cast<double>(std::int64_t{1} << 30));
}

}  // namespace mgplan::reports
