#include <algorithm>
#include <array>

#include "formats/megatron/flag_rows.hpp"

// The dense MLP and the biases of linear layers.

namespace mgplan::formats {
namespace {

void read_gate(FlagReader& flags, Job& job) {
    const bool swiglu = flags.has("--swiglu"), quick_geglu = flags.has("--quick-geglu");
    if (swiglu && (quick_geglu || flags.has("--squared-relu")))
        flags.problem("--swiglu excludes --squared-relu and --quick-geglu; keep one");
    job.model.gated_mlp = swiglu || quick_geglu;
    job.model.activation = swiglu ? Activation::silu : Activation::gelu;
}

void write_gate(FlagWriter& out, const Job& job) {
    if (job.model.gated_mlp) out.flag(job.model.activation == Activation::silu ? "swiglu" : "quick-geglu");
}

void read_squared(FlagReader& flags, Job& job) {
    if (flags.has("--squared-relu") && !flags.has("--swiglu")) job.model.activation = Activation::squared_relu;
}

void write_squared(FlagWriter& out, const Job& job) {
    out.flag_if(!job.model.gated_mlp && job.model.activation == Activation::squared_relu, "squared-relu");
}

// One switch takes all biases of linear layers away; one brings that of q, k and v back.
constexpr std::array kMlpFlags{
    FlagRow{"ffn-hidden-size", Whole{MGPLAN_FIELD(model.ffn), 0, 1, ModelLimits::ffn}},
    FlagRow{"swiglu quick-geglu", Both{read_gate, write_gate}},
    FlagRow{"squared-relu", Both{read_squared, write_squared}},
    FlagRow{"disable-bias-linear", Switch{MGPLAN_FIELD(model.mlp_bias), false}},
    FlagRow{"add-qkv-bias", Switch{MGPLAN_FIELD(model.qkv_bias)}, Written::changed, [](const Job& job) { return !job.model.mlp_bias; }},
};

/// --xielu of swiss-ai's fork (megatron/training/activations.py at 81d44dbe): torch.compile keeps its input alone, as mgplan's own does.
void read_xielu(FlagReader& flags, ModelSpec& model) {
    if (!flags.has("--xielu")) return;
    if (model.gated_mlp || model.activation != Activation::gelu) {
        flags.problem("--xielu excludes --swiglu, --squared-relu and --quick-geglu; keep one");
    } else if (!flags.has("--disable-bias-linear") && !flags.has("--no-bias-gelu-fusion")) {
        flags.problem("--xielu has no kernel that adds a bias; add --disable-bias-linear or --no-bias-gelu-fusion");
    } else if (flags.has("--num-experts")) {
        flags.not_computed("--xielu", "xIELU in experts", Decides::fit);
    } else {
        model.activation = Activation::xielu;
    }
}

}  // namespace

constinit const FlagTopic kMlpTopic{kMlpFlags};

void read_mlp(FlagReader& flags, Job& job) {
    ModelSpec& model = job.model;
    read_topic(flags, kMlpTopic, job);
    model.attention_output_bias = model.mlp_bias;
    model.qkv_bias = (model.mlp_bias || model.qkv_bias) && !model.mla;
    // SwiGLU's default keeps three matrices as large as two of width 4h, rounded down to a multiple of 64.
    const std::int64_t width = flags.has("--swiglu") ? std::max<std::int64_t>(64, 8 * model.hidden / 3 / 64 * 64) : 4 * model.hidden;
    if (model.ffn == 0) model.ffn = width;
    // Its fused GELU, with biases alone, is the form by tanh (fused_bias_gelu.py); else it is torch's, by erf.
    read_xielu(flags, model);
    const bool is_gelu = !model.gated_mlp && model.activation == Activation::gelu;
    if (is_gelu && (flags.has("--disable-bias-linear") || flags.has("--no-bias-gelu-fusion"))) model.activation = Activation::gelu_exact;
    // gpt-oss' gate.
    if (flags.has("--quick-geglu") && flags.real_or("--activation-func-clamp-value", 0, 0, 1e6) == 7 &&
        flags.real_or("--glu-linear-offset", 0, -1e6, 1e6) == 1)
        model.activation = Activation::clamped_swish;
}

}  // namespace mgplan::formats
