#pragma once
// A plan to be exported, without a search.

#include <memory>
#include <string>

#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/plan.hpp"

namespace mgplan::tests::megatron {

inline void split_stages(Plan& plan, int pp, int vpp) {
    plan.layout.sizes.world = plan.layout.sizes.pp = pp;
    plan.layout.vpp = vpp;
    plan.layout.group_size = pp;
    StageSplitRequest request;
    request.layers = plan.model.layers;
    request.pp = pp;
    request.vpp = vpp;
    plan.layout.split = std::make_shared<const StageSplit>(make_stage_split(request));
}

/// One microbatch after the other on a GPU, without anything special.
inline Plan plain_plan(const std::string& model) {
    Plan plan;
    plan.model = formats::load_model(model).model;
    plan.model.rotary_scaling.clear();
    plan.cluster = load_cluster("dgx-h100");
    plan.batch = {.global_batch = 64, .sequence = 512};
    plan.layout.engine = Engine::megatron;
    plan.layout.sizes.world = 1;
    plan.layout.num_microbatches = 64;
    split_stages(plan, 1, 1);
    return plan;
}

}  // namespace mgplan::tests::megatron
