#include "reports/layout_cells.hpp"

#include <fmt/format.h>

#include "plan/text/text.hpp"

namespace mgplan::reports {

std::vector<std::string> layout_csv_columns() {
    return {"tp",           "cp",       "ep", "etp", "dp", "edp", "pp", "vpp", "micro_batch", "num_microbatches", "sequence_parallel",
            "cp_comm_type", "recompute"};
}

std::vector<std::string> layout_csv_row(const Layout& layout) {
    std::vector<std::string> row;
    for (const std::int64_t size :
         {std::int64_t{layout.sizes.tp}, std::int64_t{layout.sizes.cp}, std::int64_t{layout.sizes.ep}, std::int64_t{layout.sizes.etp},
          std::int64_t{layout.dp()}, std::int64_t{layout.edp()}, std::int64_t{layout.sizes.pp}, std::int64_t{layout.vpp},
          std::int64_t{layout.micro_batch}, std::int64_t{layout.num_microbatches}})
        row.push_back(std::to_string(size));
    row.emplace_back(layout.sequence_parallel ? "true" : "false");
    row.emplace_back(to_string(layout.cp_comm_type));
    row.emplace_back(to_string(layout.recompute));
    return row;
}

std::string tp_cell(const Layout& layout) {
    if (layout.sizes.tp == 1) return "1";
    return fmt::format("{}{}", layout.sizes.tp, layout.sequence_parallel ? "+sp" : "-sp");
}

std::string cp_cell(const Layout& layout) {
    if (layout.sizes.cp == 1 || layout.cp_comm_type == CpCommType::p2p) return std::to_string(layout.sizes.cp);
    return fmt::format("{}{}", layout.sizes.cp, layout.cp_comm_type == CpCommType::all_gather ? "ag" : to_string(layout.cp_comm_type));
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
