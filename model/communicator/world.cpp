#include "model/communicator/world.hpp"

#include <algorithm>
#include <iterator>
#include <vector>

#include <fmt/format.h>

namespace mgplan::model {

int place_in_group(std::span<const std::int32_t> ranks, int rank, int world_size) {
    std::vector<std::int32_t> sorted(ranks.begin(), ranks.end());
    std::sort(sorted.begin(), sorted.end());
    MGPLAN_ASSERT(!sorted.empty() && sorted.front() >= 0 && sorted.back() < world_size, "the group's ranks are inside the world");
    MGPLAN_ASSERT(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), "the group names each rank once");
    const auto place = std::find(ranks.begin(), ranks.end(), rank);
    MGPLAN_ASSERT(place != ranks.end(), "the rank is a member of the group it asks for");
    return static_cast<int>(std::distance(ranks.begin(), place));
}

std::string group_text(const std::string& group, std::span<const std::int32_t> ranks) {
    constexpr std::size_t kMostListed = 16;
    const auto listed = ranks.first(std::min(ranks.size(), kMostListed));
    return fmt::format("{} (rank{} {}{})", group, ranks.size() == 1 ? "" : "s", fmt::join(listed, ", "),
                       listed.size() < ranks.size() ? fmt::format(", … {} in all", ranks.size()) : "");
}

}  // namespace mgplan::model
