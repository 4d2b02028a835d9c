#pragma once
// What tests of `mgplan export` make plans of.

#include <cstdint>
#include <string>
#include <vector>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "planner/candidates.hpp"
#include "say.hpp"

namespace mgplan::cli::testing::exported {

inline Workload workload_of(const std::string& model, std::int64_t world) {
    Workload work;
    work.model = formats::load_model(model).model;
    work.cluster = load_cluster("dgx-h100");
    work.world = world;
    work.batch = {.global_batch = 8 * world, .sequence = 2048};
    work.memory_limit = work.cluster.memory_bytes;
    return work;
}

/// The k-th legal layout of a workload, of all in the order of enumeration, every `stride`-th.
inline std::vector<Layout> some_layouts(const Workload& work, const planner::SearchSpace& space, std::size_t stride) {
    planner::CandidateCounts counts;
    std::vector<Layout> layouts;
    std::size_t seen = 0;
    for (const auto& prefix : planner::prefixes(work, space, counts)) {
        planner::visit_layouts(work, space, prefix, counts, [&](const Layout& layout) {
            if (seen++ % stride == 0) layouts.push_back(layout);
        });
    }
    return layouts;
}

}  // namespace mgplan::cli::testing::exported
