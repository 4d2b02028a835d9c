// MLP and mixture of experts of a Hugging Face config.

#include <algorithm>

#include <fmt/core.h>

#include "formats/hugging_face/arrangement.hpp"
#include "formats/hugging_face/hugging_face_layers.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {

Activation read_activation(ConfigReader& config, Activation fallback, Aliases fields) {
    const std::string name = lower_case(config.text_or(fields, ""));
    if (name.empty()) return fallback;
    if (name == "silu" || name == "swish" || name == "swiglu" || name == "swiglu_clamped") return Activation::silu;
    if (name == "relu" || name == "reglu") return Activation::relu;
    if (name == "relu2" || name == "relu_squared" || name == "squared_relu" || name == "squared-relu") return Activation::squared_relu;
    if (name == "gelu" || name == "gelu_python") return Activation::gelu_exact;
    if (name == "xielu") return Activation::xielu;
    if (name.find("gelu") != std::string::npos || name == "geglu") return Activation::gelu;
    config.problem(
        "{} = '{}' is not known; known are silu, gelu, gelu_new, gelu_pytorch_tanh, relu and relu2, and another one makes "
        "another network",
        config.stated(fields), name.substr(0, 40));
    return fallback;
}

namespace {

using Json = nlohmann::ordered_json;

/// Llama 4 lists its MoE layers, or has one every interleave_moe_layer_step, the first at that step's end (configuration_llama4.py).
std::vector<bool> read_llama4_moe_layers(ConfigReader& config, std::int64_t layers) {
    const std::int64_t step = config.integer_or({"interleave_moe_layer_step"}, 1, 1, ModelLimits::layers);
    const bool has_list = config.list("moe_layers") != nullptr;
    std::vector<bool> moe(static_cast<std::size_t>(layers), false);
    for (std::int64_t layer = step - 1; !has_list && layer < layers; layer += step) moe[static_cast<std::size_t>(layer)] = true;
    if (!has_list) return moe;
    for (const auto layer : config.integers("moe_layers", 0, ModelLimits::layers)) {
        if (layer < layers) moe[static_cast<std::size_t>(layer)] = true;
    }
    return moe;
}

/// True for each MoE layer: DeepSeek counts from first_k_dense_replace every moe_layer_freq-th, Qwen every decoder_sparse_step-th but
/// mlp_only_layers.
std::vector<bool> read_moe_layers(ConfigReader& config, std::int64_t layers) {
    std::vector<bool> moe(static_cast<std::size_t>(layers), true);
    const std::int64_t first = config.integer_or({"first_k_dense_replace"}, 0, 0, ModelLimits::layers);
    const std::int64_t step = config.integer_or({"decoder_sparse_step"}, 1, 1, ModelLimits::layers);
    std::int64_t every = 1;
    const Json* frequency = config.member("moe_layer_freq", {JsonKind::number, JsonKind::list});
    const bool listed = frequency != nullptr && frequency->is_array();
    std::vector<std::int64_t> list;
    if (listed) {
        list = config.integers("moe_layer_freq", 0, 1);
        if (static_cast<std::int64_t>(list.size()) != layers && config.problems().empty())
            config.problem("moe_layer_freq has {} entries for {} layers; give one entry per layer", list.size(), layers);
    } else {
        every = config.integer_or({"moe_layer_freq"}, 1, 1, ModelLimits::layers);
    }
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        const auto index = static_cast<std::size_t>(layer);
        moe[index] = layer >= first && layer % every == 0 && (layer + 1) % step == 0;
        if (listed && index < list.size()) moe[index] = list[index] == 1;
    }
    const std::vector<std::string> kinds = config.texts("mlp_layer_types");
    if (!kinds.empty() && static_cast<std::int64_t>(kinds.size()) != layers)
        config.problem("mlp_layer_types has {} entries for {} layers; give one entry per layer", kinds.size(), layers);
    for (std::size_t layer = 0; layer < std::min(kinds.size(), moe.size()); ++layer) moe[layer] = kinds[layer] == "sparse";
    for (const auto layer : config.integers("mlp_only_layers", 0, ModelLimits::layers)) {
        if (layer < layers) moe[static_cast<std::size_t>(layer)] = false;
    }
    return moe;
}

}  // namespace

void read_router(ConfigReader& config, const ModelType& type, MoeSpec& moe) {
    moe.router_bias = type.router_bias;
    const std::string of_type = type.sigmoid_router ? "sigmoid" : "softmax";
    std::string score = lower_case(config.text_or({"scoring_func", "moe_router_activation_func"}, of_type));
    if (score == "noaux_tc") score = of_type;  // dots.llm1 states its topk_method here
    // DeepSeek-V4's scores are of its kind: one for each expert by itself, by whose sum those chosen are divided. The model says what is
    // left out.
    if (score == "sqrtsoftplus" && type.name == "deepseek_v4") score = "sigmoid";
    if (score != "sigmoid" && score != "softmax")
        config.problem("scoring_func = '{}' is not known; use softmax or sigmoid", score.substr(0, 40));
    moe.score = score == "sigmoid" ? RouterScore::sigmoid : RouterScore::softmax;
    moe.normalize_top_k = config.boolean_or({"norm_topk_prob", "moe_renormalize"}, true);
    moe.routed_scaling = config.real_or({"routed_scaling_factor"}, 1, 0, ModelLimits::routed_scaling);
    const std::string method = config.text_or({"topk_method"}, type.expert_bias ? "noaux_tc" : "");
    moe.expert_bias = method == "noaux_tc";
    // DeepSeek's weighs experts within each sequence where seq_aux says so (configuration_deepseek.py).
    moe.auxiliary_loss = config.real_or({"router_aux_loss_coef", "aux_loss_alpha"}, 0, 0, ModelLimits::auxiliary_loss);
    if (config.boolean_or({"seq_aux"}, false)) std::swap(moe.auxiliary_loss, moe.sequence_auxiliary_loss);
    const std::int64_t groups = config.integer_or({"n_group", "num_expert_group"}, 0, 0, ModelLimits::experts);
    const std::int64_t group_top_k = config.integer_or({"topk_group"}, 0, 0, ModelLimits::experts);
    if (groups > 1 && method != "greedy") {
        moe.groups = groups;
        moe.group_top_k = group_top_k;
        // DeepseekV2Moe counts a group's largest score, DeepseekV3's router (and who has its own from there) the two largest.
        moe.group_scores = type.sigmoid_router ? 2 : 1;
        const std::int64_t usual = std::max<std::int64_t>(1, group_top_k > 0 ? moe.top_k / group_top_k : 1);
        if (moe.group_scores == usual) moe.group_scores = 0;
    }
}

void read_mlp(ConfigParts& parts) {
    ConfigReader& config = parts.config;
    ModelSpec& model = parts.model;
    model.gated_mlp = parts.type.gated;
    model.activation = read_activation(config, parts.type.gated ? Activation::silu : Activation::gelu);
    // Megatron-LM's fused GELU and JAX's default are the form by tanh.
    const bool by_tanh = parts.type.name == "megatron_gpt" || parts.type.name == "grok-1";
    if (by_tanh && model.activation == Activation::gelu_exact) model.activation = Activation::gelu;
    const Aliases kFfn{"intermediate_size", "n_inner", "ffn_hidden_size", "ffn_dim"};
    if (parts.type.llama4)  // intermediate_size is the experts'
        model.ffn = config.integer({"intermediate_size_mlp", "intermediate_size"}, 1, ModelLimits::ffn);
    else if (!config.has(kFfn) && (!parts.type.gated || parts.type.name == "dbrx"))
        model.ffn = 4 * model.hidden;  // GPT-2: n_inner absent or null; DBRX: given with its experts (arrange_dbrx)
    else if (!config.has(kFfn) && config.has({"moe_intermediate_size"}))
        model.ffn = config.integer({"moe_intermediate_size"}, 1, ModelLimits::ffn);
    else
        model.ffn = config.size(kFfn, ModelLimits::ffn);
}

void read_mixture(ConfigParts& parts) {
    ConfigReader& config = parts.config;
    ModelSpec& model = parts.model;
    const Aliases kExperts{"n_routed_experts", "num_experts", "num_local_experts", "moe_num_experts"};
    if (!parts.type.moe) {
        // A class without experts passes over these fields; 0 and 1 of them mean no experts anywhere.
        if (const auto field = config.stated(kExperts); !field.empty() && config.integer({field}, 0, ModelLimits::experts) > 1)
            config.problem("{} is stated for model_type '{}', which has no experts; remove it, or give the type that has them", field,
                           parts.type.name);
        return;
    }
    if (parts.type.arrange == arrange_hunyuan_moe) return;  // which reads lists as well
    const std::int64_t experts = config.integer_or(kExperts, 0, 0, ModelLimits::experts);
    if (experts == 0) return;
    MoeSpec moe;
    moe.experts = experts;
    moe.top_k =
        config.integer({"num_experts_per_tok", "experts_per_token", "num_selected_experts", "moe_topk", "moe_k"}, 1, ModelLimits::experts);
    // A width of its own that only the class states comes before the dense one, which the file states.
    const Aliases kOwnWidth{"moe_intermediate_size"}, kDenseWidth{"intermediate_size"};
    moe.expert_ffn = config.integer(config.has(kOwnWidth) ? kOwnWidth : kDenseWidth, 1, ModelLimits::ffn);
    // Llama 4 always has one shared expert as wide as the others.
    const std::int64_t shared = config.integer_or({"n_shared_experts", "num_shared_experts", "moe_num_shared_experts"},
                                                  parts.type.llama4 ? 1 : 0, 0, ModelLimits::experts);
    moe.shared_ffn = config.integer_or({"shared_expert_intermediate_size", "shared_intermediate_size"},
                                       std::min(shared * moe.expert_ffn, ModelLimits::ffn), 0, ModelLimits::ffn);
    moe.shared_gate = parts.type.shared_gate && moe.shared_ffn > 0;
    read_router(config, parts.type, moe);
    model.moe_layers = parts.type.llama4 ? read_llama4_moe_layers(config, model.layers) : read_moe_layers(config, model.layers);
    if (std::find(model.moe_layers.begin(), model.moe_layers.end(), true) == model.moe_layers.end()) {
        model.moe_layers.clear();
        return;
    }
    model.moe = moe;
    // Classes that read it give biases to dense MLPs and to shared experts alone (modeling_deepseek_v2.py, modeling_aria.py); others pass
    // it over. gpt-oss' experts have some.
    if (model.mlp_bias && parts.type.name != "gpt_oss" && parts.type.biases != BiasRule::all)
        config.problem("mlp_bias = true puts no biases on the experts of model_type '{}', which no layer here has so; give false",
                       parts.type.name);
}

}  // namespace mgplan::formats
