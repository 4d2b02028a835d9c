#pragma once
// What is to be planned or predicted: a model, its batch and training options, on so many GPUs of a cluster.

#include <cstdint>

#include "plan/cluster/cluster_spec.hpp"
#include "plan/model/model_spec.hpp"
#include "plan/model/routing_skew.hpp"
#include "plan/training/batch_spec.hpp"
#include "plan/training/training_spec.hpp"

namespace mgplan {

struct Workload {
    ModelSpec model;
    ClusterSpec cluster;
    BatchSpec batch;
    TrainingSpec training;
    std::int64_t world = 1;
    /// The planner keeps tensor parallelism inside the NVLink domain; asking for a tp by name lifts this.
    bool confine_tp = true;
    std::int64_t memory_limit = 0;  ///< bytes a rank may use; the cluster's memory unless --max-memory says less
    RoutingSkew routing;            ///< under which a mixture of experts must fit
    /// The planner keeps expert parallelism inside an NVLink domain that spans nodes; asking for an ep by name lifts this.
    bool confine_ep = false;
};

}  // namespace mgplan
