#include "planner/alike_plans.hpp"

#include <algorithm>
#include <cmath>

namespace mgplan::planner {
namespace {

bool is_near(double a, double b) {
    return std::abs(a - b) <= kAlike * std::max(std::abs(a), std::abs(b));
}

bool alike(const RankedLayout& a, const RankedLayout& b) {
    if (!is_near(a.iteration_seconds, b.iteration_seconds)) return false;
    if (!is_near(static_cast<double>(a.peak_bytes), static_cast<double>(b.peak_bytes))) return false;
    Layout same = b.layout;
    same.cp_comm_type = a.layout.cp_comm_type;
    if (a.layout.vpp > 1 && same.vpp > 1 && a.layout.vpp != same.vpp) {  // interleaved with more or with fewer chunks
        same.vpp = a.layout.vpp;
        same.split = a.layout.split;
    }
    return a.layout == same;
}

}  // namespace

std::vector<AlikePlans> alike_plans(std::span<const RankedLayout> best, std::size_t most) {
    std::vector<AlikePlans> found;
    for (std::size_t i = 0; i < best.size(); ++i) {
        const auto before =
            std::find_if(found.begin(), found.end(), [&](const AlikePlans& plans) { return alike(best[plans.shown], best[i]); });
        if (before != found.end())
            before->left_out.push_back(i);
        else if (found.size() == most)
            break;
        else
            found.push_back({i, {}});
    }
    return found;
}

}  // namespace mgplan::planner
