#pragma once
// The job to plan or predict: a model, its batch and training options, on `world` GPUs of a cluster.

#include <cstdint>
#include <optional>

#include "plan/cluster/adverse_conditions.hpp"
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
    /// The planner keeps tensor parallelism inside the NVLink domain; a tp that the user sets lifts this.
    bool confine_tp = true;
    std::int64_t memory_limit = 0;  ///< bytes a rank may use; the cluster's memory unless --max-memory says less
    RoutingSkew routing;            ///< under which the experts of an MoE model must fit
    /// The planner keeps expert parallelism inside an NVLink domain that spans nodes; an ep that the user sets lifts this.
    bool confine_ep = false;
    /// False to predict a job that an older release of Megatron-LM ran: rules that only newer releases have are not applied.
    bool newest_rules = true;
    /// Conditions of the adverse time; none: the published ones.
    std::optional<AdverseConditions> adverse = {};
};

}  // namespace mgplan
