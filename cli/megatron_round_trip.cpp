#include "cli/megatron_round_trip.hpp"

#include <optional>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "formats/megatron/megatron_arguments.hpp"
#include "formats/megatron/megatron_job.hpp"
#include "plan/layout/unpredicted_shards.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "plan/training/kernel_fusions.hpp"
#include "planner/constraints.hpp"

namespace mgplan::cli {
namespace {

/// Returns true if both splits put the same layers on every stage, however they were specified.
bool same_chunks(const StageSplit& one, const StageSplit& other) {
    if (one.pp() != other.pp() || one.vpp() != other.vpp()) return false;
    for (int rank = 0; rank < one.pp(); ++rank) {
        for (int chunk = 0; chunk < one.vpp(); ++chunk) {
            if (!(one.chunk(rank, chunk) == other.chunk(rank, chunk))) return false;
        }
    }
    return true;
}

/// Fields that say nothing about what is trained get one value, so that they do not differ.
Plan comparable(Plan plan, const Plan& original) {
    ModelSpec& model = plan.model;
    model.name = model.source = model.type = "";
    model.left_out.clear();
    if (model.labels) model.output_bias = false;  // said in words
    model.labels.reset();
    model.rotary_interleaved = false;  // an order of published weights
    if (model.activation == Activation::clamped_swish) plan.training.megatron.activation_clamp = 7;
    // Its fused GELU, the form by tanh, is off where the exact one is meant, and where it is off the exact one is.
    const bool is_gelu = !model.gated_mlp && model.mlp_bias && model.activation == Activation::gelu;
    if (is_gelu && !original.training.megatron.bias_activation_fusion) model.activation = Activation::gelu_exact;
    if (!may_fuse_activation(original.model)) plan.training.megatron.bias_activation_fusion = false;
    model.default_sequence.reset();
    model.default_global_batch.reset();
    if (model.mla) {
        model.mla->query_norm = false;  // said in words
        model.head_dim = 0;
        model.kv_heads = model.heads;
    }
    if (!formats::may_fuse_rotation(model)) plan.training.megatron.rope_fusion = false;
    if (!may_fuse_dropout(model)) plan.training.megatron.bias_dropout_fusion = false;
    if (model.position != PositionEmbedding::rope) {
        model.rotary_fraction = 1;
        model.rotary_base = 10000;
        model.rotary_scaling.clear();
    }
    if (model.rotary_scaling.empty()) model.rotary_scaling_values = {};
    if (model.moe && !model.moe->expert_bias) model.moe->expert_bias_update_rate = MoeSpec{}.expert_bias_update_rate;
    // One sigmoid score is taken as it is, by Megatron-LM too.
    if (model.moe && model.moe->score == RouterScore::sigmoid && model.moe->top_k == 1) model.moe->normalize_top_k = true;
    if (model.mtp_layers < 2) model.mtp_repeated = false;
    if (!quantised(plan.training.precision)) plan.training.megatron.bf16_layers_at_start = plan.training.megatron.bf16_layers_at_end = 0;
    // Switches that are not predicted in this combination are read as if absent, but their flags are written all the same.
    const BesideOffload beside = beside_offload(original.layout);
    const MegatronSwitches& said = original.training.megatron;
    if (!unpredicted_beside_shards(original.training, beside).empty()) plan.training.megatron.weight_shards = said.weight_shards;
    if (!model.moe) plan.training.megatron.weight_shards.experts = 1;
    if (quantised(plan.training.precision) && !beside.graphs.empty() && !beside.graphs.contains(CudaGraphScope::full_iteration)) {
        plan.training.megatron.bf16_layers_at_start = said.bf16_layers_at_start;
        plan.training.megatron.bf16_layers_at_end = said.bf16_layers_at_end;
    }
    // Without effect on one tensor-parallel rank or on a dense model.
    if (original.layout.sizes.tp == 1) plan.training.overlap_tp = original.training.overlap_tp;
    if (!model.moe) plan.training.overlap_moe = original.training.overlap_moe;
    // Written without the checks that such a graph has no room for.
    if (original.layout.cuda_graphs.contains(CudaGraphScope::full_iteration)) plan.training.megatron.gradient_checks = said.gradient_checks;
    if (model.mtp_layers == 0) model.mtp_loss_factor = ModelSpec{}.mtp_loss_factor;
    if (!model.kinds.empty()) {
        model = with_stated_fields(model);
        for (NamedLayer& kind : model.kinds) kind.name.clear();
        // A pattern's | gives the split of the layers, but not the options that led to it.
        if (same_chunks(*plan.layout.split, *original.layout.split)) plan.layout.split = original.layout.split;
    }
    plan.layout.engine = original.layout.engine;
    if (original.layout.engine != Engine::megatron) plan.training.megatron = original.training.megatron;
    return plan;
}

}  // namespace

Plan read_back_from_megatron(const Plan& plan, std::optional<formats::MegatronVersion> version) {
    const formats::Job job = formats::read_megatron_arguments(formats::megatron_job(plan, version).words(), "exported arguments",
                                                              {.held_against = formats::HeldAgainst::nothing});
    Workload work = workload_of(plan);
    work.model = job.model;
    work.batch = job.batch.value();
    work.training = job.training.value();
    Layout layout = planner::make_layout(job.layout.value(), work);
    return {work.model, work.cluster, work.batch, work.training, std::move(layout), work.routing};
}

std::vector<std::string> lost_in_megatron_flags(const Plan& plan, std::optional<formats::MegatronVersion> version) {
    const Plan written = comparable(plan, plan), read = comparable(read_back_from_megatron(plan, version), plan);
    std::vector<std::string> lost;
    for (const auto& what : plan.model.left_out) {
        if (formats::flag_of_left_out(what).empty()) lost.push_back(fmt::format("the network has {}", what));
    }
    // mla_qk_norm_config.py, _resolve_mla_qk_layernorm: no flag selects only one of the two norms.
    if (!(as_built_by(Engine::megatron, plan.model) == plan.model))
        lost.emplace_back("the network has no norm in front of its queries' projection, where --qk-layernorm puts one of the hidden size");
    if (plan.model.labels)
        lost.push_back(
            fmt::format("the network ends in a head of {}, and Megatron-LM's pretrain_gpt.py has none: it trains the output "
                        "layer of a language model in its place",
                        counted(*plan.model.labels, "label")));
    // --quick-geglu, the only gated GELU with a flag, gates with x · sigmoid(1.702 x).
    if (plan.model.gated_mlp && (plan.model.activation == Activation::gelu || plan.model.activation == Activation::gelu_exact))
        lost.emplace_back("model.activation after the gate is gelu, and its quick approximation to Megatron-LM");
    if (written == read) return lost;
    const auto ours = plan_to_json(written).flatten(), theirs = plan_to_json(read).flatten();
    const auto shown = [](const auto& values, const std::string& key) { return values.contains(key) ? values[key].dump() : "not set"; };
    const auto compare = [&](const std::string& key) {
        const std::string was = shown(ours, key), is = shown(theirs, key);
        if (was == is) return;
        std::string name = key.substr(1);
        for (char& c : name) c = c == '/' ? '.' : c;
        lost.push_back(fmt::format("{} is {}, and {} to Megatron-LM", name, was, is));
    };
    for (const auto& entry : ours.items()) compare(entry.key());
    for (const auto& entry : theirs.items()) {
        if (!ours.contains(entry.key())) compare(entry.key());
    }
    return lost;
}

}  // namespace mgplan::cli
