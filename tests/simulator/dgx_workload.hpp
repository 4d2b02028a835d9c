#pragma once
// A model on one node of H100.

#include <utility>

#include "plan/json/cluster_json.hpp"
#include "plan/workload.hpp"

namespace mgplan::simulator {

/// 64 sequences of 4,096 tokens a step on eight GPUs.
inline Workload dgx_workload(ModelSpec model) {
    Workload work;
    work.model = std::move(model);
    work.cluster = load_cluster("dgx-h100");
    work.memory_limit = work.cluster.memory_bytes;
    work.world = 8;
    work.batch = {64, 4096};
    return work;
}

}  // namespace mgplan::simulator
