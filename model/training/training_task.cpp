#include "model/training/training_task.hpp"

#include <set>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "model/ops/fp8.hpp"
#include "model/ops/fp8_blocks.hpp"
#include "model/ops/router.hpp"
#include "plan/graphs/graph_scopes.hpp"
#include "plan/layout/layout_schedule.hpp"
#include "plan/parameters/adapters_of_model.hpp"
#include "plan/parameters/composed_layer.hpp"
#include "plan/parameters/counted_only.hpp"
#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "plan/training/own_fp8.hpp"
#include "plan/training/own_offload.hpp"
#include "plan/training/own_optimizer.hpp"
#include "plan/training/own_sharding.hpp"

namespace mgplan::model {
namespace {

/// Adds a text for each type of gradients and optimizer state that is not computed with.
void add_unsupported_types(const TrainingSpec& training, std::vector<std::string>& features) {
    if (training.precision == Precision::fp64) return;  // all state is fp64
    if (training.grad_dtype != Dtype::fp32 && training.grad_dtype != training.compute_dtype())
        features.push_back(fmt::format("grad_dtype = {} (use fp32, or {} as the parameters)", to_string(training.grad_dtype),
                                       to_string(training.compute_dtype())));
    if (training.compute_dtype() != Dtype::fp32 && training.main_param_dtype != Dtype::fp32)
        features.push_back(fmt::format("main_param_dtype = {} (use fp32)", to_string(training.main_param_dtype)));
    for (const auto& [name, dtype] :
         {std::pair("exp_avg_dtype", training.exp_avg_dtype), std::pair("exp_avg_sq_dtype", training.exp_avg_sq_dtype)}) {
        if (dtype != Dtype::fp32 && dtype != Dtype::bf16)
            features.push_back(fmt::format("{} = {} (use fp32 or bf16)", name, to_string(dtype)));
    }
}

/// Adds features of the model's MoE layers, as such or under this layout, that are not computed.
void add_mixture_features(std::vector<std::string>& features, const ModelSpec& model, const Layout& layout) {
    const MoeSpec& moe = *model.moe;
    const ParallelSizes& sizes = layout.sizes;
    if (moe.dispatcher == TokenDispatcher::all_gather) features.emplace_back("the all-gather token dispatcher");
    if (moe.dispatcher == TokenDispatcher::deep_ep) features.emplace_back("the DeepEP token dispatcher");
    if (moe.dispatcher == TokenDispatcher::hybrid_ep) features.emplace_back("the HybridEP token dispatcher");
    // Megatron-LM arguments.py has this rule too: the ranks of a tp group would all route the same rows.
    if (sizes.tp > 1 && !layout.sequence_parallel)
        features.push_back(fmt::format("experts with tp = {} and without sequence parallelism", sizes.tp));
    if (moe.experts % sizes.ep != 0)
        features.push_back(fmt::format("experts = {} divided over ep = {}, which does not divide them", moe.experts, sizes.ep));
    if (moe.expert_ffn % sizes.etp != 0)
        features.push_back(fmt::format("expert ffn size = {} divided over etp = {}, which does not divide it", moe.expert_ffn, sizes.etp));
    if (moe.shared_ffn % sizes.tp != 0)
        features.push_back(
            fmt::format("shared expert ffn size = {} divided over tp = {}, which does not divide it", moe.shared_ffn, sizes.tp));
}

/// Adds features of the model's layers that change values alone and are not computed.
void add_values_not_computed(std::vector<std::string>& features, const TrainingTask& task) {
    const ModelSpec& model = task.model;
    if (model.moe && model.moe->groups > ExpertChoice::most_groups)
        features.push_back(fmt::format("routing limited to groups of experts with more than {} groups", ExpertChoice::most_groups));
    if ((model.position == PositionEmbedding::rope || model.mla) && !model.rotary_scaling.empty()) {
        const bool known = model.rotary_scaling == "linear" || model.rotary_scaling == "llama3" || model.rotary_scaling == "yarn";
        if (!known) features.push_back(fmt::format("rotary scaling '{}' (linear, llama3 and yarn are)", model.rotary_scaling));
        if (known && model.rotary_scaling_values.factor == 1)
            features.push_back(fmt::format("rotary scaling '{}' whose factor is not given", model.rotary_scaling));
    }
    for (auto& feature : features_not_computed(model)) features.push_back(std::move(feature));
    for (auto& layer : layers_known_of_shapes(model)) features.push_back(std::move(layer));
    if (model.labels) features.push_back(fmt::format("a head of {} in place of the output layer", counted(*model.labels, "label")));
    if (model.attention_dropout > 0) features.emplace_back("dropout inside attention");
    if (task.training.precision == Precision::fp16) features.emplace_back("fp16 with loss scaling");
    const MegatronSwitches& megatron = task.training.megatron;
    if (megatron.weight_shards.active())
        features.emplace_back("weights that data-parallel neighbours hold in parts (--tensor-parallel-num-weight-shards)");
    if (megatron.offloaded_layers > 0) features.emplace_back("activations that wait in the host's memory");
}

/// Adds features that CUDA graphs do not hold. plan/graphs/graph_scopes.hpp checks which scopes exclude each other, or the model.
void add_graph_features(std::vector<std::string>& features, const ModelSpec& model, const Layout& layout) {
    const EnumSet<CudaGraphScope> scopes = layout.cuda_graphs;
    if (scopes.empty()) return;
    using Scope = CudaGraphScope;
    const std::string asked = fmt::format("--cuda-graphs = {}", fmt::join(names_in(scopes), ","));
    const std::string instead = fmt::format("use --cuda-graphs {} or none", fmt::join(names_in(usual_graph_scopes(model)), ","));
    const bool padded = model.moe && model.moe->pad_to_capacity;
    if (model.moe && !padded && captures_experts(scopes))
        features.push_back(fmt::format(
            "{}: CUDA graphs hold no experts that are not padded to capacity, whose products take row counts from the host ({})", asked,
            instead));
    if (model.moe && !padded && model.moe->capacity_factor > 0 && scopes.contains(Scope::moe_preprocess))
        features.push_back(
            fmt::format("{}: moe_preprocess in CUDA graphs with a capacity that is not padded to, of which the host reads how many copies "
                        "are left ({})",
                        asked, instead));
    if (model.moe && model.normed_residual && (scopes.contains(Scope::moe_router) || scopes.contains(Scope::moe_preprocess)))
        features.push_back(fmt::format("{}: CUDA graphs that end within a layer whose residual path begins behind the norm ({})", asked,
                                       "use --cuda-graphs attn or none"));
    if (model.moe && model.moe->latent > 0 && (scopes.contains(Scope::moe_router) || scopes.contains(Scope::moe_preprocess)))
        features.push_back(fmt::format("{}: CUDA graphs that end within a mixture whose rows are mapped to a smaller width ({})", asked,
                                       "use --cuda-graphs attn or none"));
    if (scopes.contains(Scope::full_iteration)) return;
    const std::string_view whole = !model.moe || padded ? "full_iteration or none" : "none";
    if (model.mtp_layers > 0)
        features.push_back(fmt::format("{}: CUDA graphs of layers with multi-token prediction (use --cuda-graphs {})", asked, whole));
    if (layout.recompute == Recompute::full)
        features.push_back(
            fmt::format("{}: CUDA graphs of layers with full recompute, which runs across them (use --recompute selective or none, or "
                        "--cuda-graphs {})",
                        asked, whole));
}

/// Adds features that layers with parallel halves are not computed with.
void add_beside_features(std::vector<std::string>& features, const ModelSpec& model, const Layout& layout) {
    if (model.moe) features.emplace_back("experts beside the attention");
    if (model.mla) features.emplace_back("an MLP beside latent attention");
    const auto& scopes = layout.cuda_graphs;
    if (!scopes.empty() && !scopes.contains(CudaGraphScope::layer) && !scopes.contains(CudaGraphScope::full_iteration))
        features.emplace_back("CUDA graphs of one half of a layer whose halves stand beside each other (use layer or full_iteration)");
}

/// Adds features that multi-token prediction is not computed with; Megatron-LM too has it with rotary positions or none (arguments.py).
void add_mtp_features(std::vector<std::string>& features, const ModelSpec& model, const Layout& layout) {
    if (model.mtp_weights(model.mtp_layers) != model.mtp_layers)
        features.emplace_back("one layer of multi-token prediction used repeatedly (--mtp-use-repeated-layer)");
    if (model.position == PositionEmbedding::learned) features.emplace_back("multi-token prediction with learned positions");
    if (model.token_types > 0) features.emplace_back("multi-token prediction with token types");
    // Its stage would hold the tied table twice, as embedding and as output layer.
    if (model.tied_embeddings && layout.sizes.pp > 1)
        features.push_back(fmt::format("multi-token prediction with tied embeddings over pp = {}", layout.sizes.pp));
    for (int pp = 0; pp < layout.split->pp(); ++pp) {
        for (int vpp = 0; vpp < layout.split->vpp(); ++vpp) {
            const StageChunk& chunk = layout.split->chunk(pp, vpp);
            if (chunk.mtp > 0 && !chunk.loss) features.emplace_back("multi-token prediction on another stage than the loss");
        }
    }
}

/// Adds features that layers of several kinds are not computed with.
void add_composed_features(std::vector<std::string>& features, const ModelSpec& model, const Layout& layout) {
    const std::vector<std::string> obstacles = obstacles_of_kinds(model, layout.sizes);
    features.insert(features.end(), obstacles.begin(), obstacles.end());
    if (!layout.cuda_graphs.empty() && !layout.cuda_graphs.contains(CudaGraphScope::full_iteration))
        features.emplace_back("CUDA graphs of layers of different kinds (use full_iteration or none)");
}

/// Returns true if the layout divides heads, experts and their sizes evenly.
bool fp8_shares_are_known(const ModelSpec& model, const ParallelSizes& sizes) {
    if (model.heads % sizes.tp != 0 || !packed_heads_divide(model, sizes.tp)) return false;
    if (!model.moe) return true;
    return model.moe->experts % sizes.ep == 0 && model.moe->expert_ffn % sizes.etp == 0 && model.moe->shared_ffn % sizes.tp == 0;
}

/// Parameters of all layers, with names inside a layer.
std::vector<Parameter> layer_parameters_of(const ModelSpec& model, const ParallelSizes& sizes) {
    std::vector<Parameter> parameters;
    for (std::int64_t layer = 0; layer < model.layers; ++layer) {
        for (Parameter& parameter : decoder_layer_parameters(model, layer, sizes, "")) parameters.push_back(std::move(parameter));
    }
    if (model.mtp_layers == 0) return parameters;
    const std::string_view depth = "mtp.layers.0.", layer = "transformer_layer.";
    for (Parameter& parameter : chunk_parameters(model, sizes, {.mtp = 1})) {
        if (!parameter.name.starts_with(depth)) continue;
        parameter.name.erase(0, depth.size());
        if (parameter.name.starts_with(layer)) parameter.name.erase(0, layer.size());
        parameters.push_back(std::move(parameter));
    }
    return parameters;
}

/// Returns true if a layer has products of only the rows that sequence parallelism leaves a rank (model/layers/tensor_parallel.hpp,
/// DuplicatedLinear): down projections of latent attention, maps of MoE layers to a smaller width and back.
bool multiplies_rows_of_a_rank(const ModelSpec& model, const Layout& layout) {
    return layout.sequence_parallel && layout.sizes.tp > 1 && (model.mla || (model.moe && model.moe->latent > 0));
}

/// Adds features that fp8 is not computed with: cuBLASLt multiplies it in sizes that 16 divides, or 32.
void add_fp8_features(std::vector<std::string>& features, const TrainingTask& task) {
    const ModelSpec& model = task.model;
    const Layout& layout = task.layout;
    std::vector<std::string> obstacles = own_fp8_obstacles(model, task.training);
    if (obstacles.empty()) {
        const std::string_view word = precision_text(task.training);
        const std::int64_t multiple = own_fp8(model, task.training) == OwnFp8::mxfp8 ? kMxfp8Multiple : kFp8Multiple;
        const auto divides = [&](std::int64_t size, std::string_view what) {
            if (size % multiple != 0)
                obstacles.push_back(
                    fmt::format("{} products of {} {}, no multiple of {} (change the model, tp or the micro-batch, or use bf16)", word,
                                size, what, multiple));
        };
        const std::int64_t sequence = task.batch.sequence / layout.sizes.cp;
        const std::int64_t rows = layout.micro_batch * sequence;
        divides(rows, "rows of a microbatch on a rank");
        if (rows % multiple == 0 && multiplies_rows_of_a_rank(model, layout))
            divides(rows / layout.sizes.tp, "rows of a microbatch that sequence parallelism leaves a rank");
        // Sizes that the layout does not divide are reported elsewhere.
        std::vector<Parameter> parameters;
        if (fp8_shares_are_known(model, layout.sizes)) parameters = layer_parameters_of(model, layout.sizes);
        std::set<std::string> seen;  // layers are alike, and so are experts
        for (const Parameter& parameter : parameters) {
            if (!parameter.linear_weight || !seen.insert(parameter.name).second) continue;
            if (parameter.expert && !parameter.name.ends_with("weight0")) continue;
            divides(parameter.shape[0], fmt::format("rows of {} on a rank", parameter.name));
            divides(parameter.shape[1], fmt::format("columns of {} on a rank", parameter.name));
        }
    }
    for (std::string& obstacle : obstacles) features.push_back(std::move(obstacle));
}

}  // namespace

std::vector<std::string> features_not_executed(const TrainingTask& task, bool computes) {
    const ModelSpec& model = task.model;
    refuse_counted_only(model, model.name);
    std::vector<std::string> features;
    const Layout& layout = task.layout;
    if (computes) add_values_not_computed(features, task);
    if (model.moe) add_mixture_features(features, model, layout);
    if (model.mtp_layers > 0) add_mtp_features(features, model, layout);
    // A rank would hold a part of a head's weights, and all of the head.
    if ((model.qk_norm_full_width || model.qk_norm_per_head) && layout.sizes.tp > model.kv_heads)
        features.push_back(fmt::format("QK-norm {} with tp = {} above {} kv heads",
                                       model.qk_norm_per_head ? "with weights of its own for each head" : "over the whole width",
                                       layout.sizes.tp, model.kv_heads));
    for (const std::string& obstacle : adapter_obstacles(model, task.training, true))
        features.push_back("adapters (LoRA) with " + obstacle);
    if (model.order != LayerOrder::sequential) add_beside_features(features, model, layout);
    const auto rotated = static_cast<std::int64_t>(static_cast<double>(model.head_dim) * model.rotary_fraction);
    if (model.kinds.empty() && !model.mla && model.position == PositionEmbedding::rope && rotated % 2 != 0)
        features.push_back(fmt::format("rotary embedding of {} values of a head, an odd number", rotated));
    const bool turned = model.kinds.empty() || model.position != PositionEmbedding::none;
    if (model.mla && turned && model.mla->qk_rope_head_dim % 2 != 0)
        features.push_back(fmt::format("rotary embedding of {} values of a head, an odd number", model.mla->qk_rope_head_dim));
    if (quantised(task.training.precision)) add_fp8_features(features, task);
    add_unsupported_types(task.training, features);
    for (auto& obstacle : own_optimizer_obstacles(model, task.training, layout.sizes.tp)) features.push_back(std::move(obstacle));
    if (task.training.attention == AttentionBackend::unfused) features.emplace_back("unfused attention");
    for (auto& obstacle : own_sharding_obstacles(model, task.training, !layout.cuda_graphs.empty()))
        features.push_back(std::move(obstacle));
    for (auto& obstacle : own_offload_obstacles(model, task.training, !layout.cuda_graphs.empty(), layout.recompute == Recompute::full))
        features.push_back(std::move(obstacle));
    if (!model.kinds.empty())
        add_composed_features(features, model, layout);
    else if (model.heads % layout.sizes.tp != 0 || !packed_heads_divide(model, layout.sizes.tp))
        features.push_back(fmt::format("tp = {} over {} heads with {} kv heads", layout.sizes.tp, model.heads, model.kv_heads));
    else if (model.attention_output_gate && (model.mla || layout.sizes.tp > model.kv_heads))
        features.push_back(fmt::format("a gate of attention's output with latent attention, or with tp = {} above {} kv heads",
                                       layout.sizes.tp, model.kv_heads));
    if (layout.sizes.cp > 1 && layout.cp_comm_type == CpCommType::a2a_p2p) features.emplace_back("hierarchical context parallelism");
    add_graph_features(features, model, layout);
    for (auto& obstacle : split_schedule_obstacles(model, task.training, layout)) features.push_back(std::move(obstacle));
    if (computes && !task.batch.lengths.empty())
        features.emplace_back("documents of several lengths in a sequence (make the plan without --lengths)");
    const std::int64_t sequence = task.batch.sequence;
    if (layout.sizes.cp > 1 && sequence % (2 * layout.sizes.cp) != 0)
        features.push_back(fmt::format("a sequence of {} tokens, which 2·cp = {} does not divide", sequence, 2 * layout.sizes.cp));
    else if (layout.sequence_parallel && sequence / layout.sizes.cp % layout.sizes.tp != 0)
        features.push_back(fmt::format("sequence parallelism over {} tokens a rank, which tp = {} does not divide",
                                       sequence / layout.sizes.cp, layout.sizes.tp));
    if (model.position == PositionEmbedding::learned && sequence > model.max_positions)
        features.push_back(fmt::format("a sequence of {} tokens with {} learned positions", sequence, model.max_positions));
    return features;
}

void check_features(const TrainingTask& task, bool computes) {
    if (const auto features = features_not_executed(task, computes); !features.empty()) {
        throw ConfigError(fmt::format("{} cannot be trained by this version: {}; choose a model and layout without", task.model.name,
                                      fmt::join(features, ", ")));
    }
}

}  // namespace mgplan::model
