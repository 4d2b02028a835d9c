#pragma once
// Trainings of other kinds of layers, optimizers, shardings and schedules: what the layouts of two plain models do not show.

#include <algorithm>
#include <string>
#include <vector>

#include "plan/training/data_sharding.hpp"
#include "tests/gpu/small_models.hpp"
#include "tests/support/hybrid_models.hpp"
#include "tests/support/small_mixtures.hpp"

namespace mgplan::tests {

struct Kind {
    std::string name;
    ModelSpec model;
    Case layout;
    OptimizerKind optimizer = OptimizerKind::adam;
    bool fully_sharded = false;
};

/// Tasks of kPlaces tokens a sequence, but for the models that have fewer positions.
inline model::TrainingTask task_for(const Kind& kind, Precision precision) {
    model::TrainingTask task = task_for(kind.model, kind.layout, precision, std::min(kPlaces, kind.model.max_positions));
    task.training.megatron.optimizer = kind.optimizer;
    if (kind.fully_sharded) set_data_sharding({DataSharding::full}, task.training);
    return task;
}

inline std::vector<Kind> kinds() {
    using namespace model::small;
    const Case alone{.name = ""}, tp2{.name = "", .tp = 2, .sequence_parallel = true}, pp2{.name = "", .pp = 2};
    const Case cp2{.name = "", .cp = 2};
    const Case ep2{.name = "", .dp = 2, .ep = 2}, dp2{.name = "", .dp = 2};
    Case zb_h1 = pp2, zb_v = pp2;
    zb_h1.schedule = SplitSchedule::zb_h1;
    zb_v.vpp = 2;
    zb_v.schedule = SplitSchedule::zb_v;
    return {
        {"latent_attention_mtp_expert_bias_ep2", model::small_deepseek_v3(), ep2},
        {"latent_attention_mtp_tp2", model::small_deepseek_v3(), tp2},
        {"sinks_windows_biases_ep2", model::small_gpt_oss(), ep2},
        {"sigmoid_mixture", model::small_sigmoid_mixture(), alone},
        {"mamba2_attention_mlp_tp2", small_nemotron_h(), tp2},
        {"mamba2_attention_mlp_cp2", small_nemotron_h(), cp2},
        {"gated_delta_net_experts_ep2", small_qwen3_next(), ep2},
        {"gated_delta_net_attention_cp2", small_olmo_hybrid(), cp2},
        {"kimi_delta_attention", small_kimi_linear(), alone},
        {"lightning_attention_pp2", small_minimax(), pp2},
        {"short_convolution", small_lfm2(), alone},
        {"attention_beside_mamba2_tp2", small_falcon_h1(), tp2},
        {"muon_tp2", small_llama(), tp2, OptimizerKind::muon},
        {"lion_dp2", small_llama(), dp2, OptimizerKind::lion},
        {"sgd_dp2", small_llama(), dp2, OptimizerKind::sgd},
        {"fully_sharded_dp2", small_llama(), dp2, OptimizerKind::adam, true},
        {"zb_h1", small_llama(), zb_h1},
        {"zb_v", small_llama(), zb_v},
    };
}

}  // namespace mgplan::tests
