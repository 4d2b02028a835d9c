#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "formats/megatron/flag_rows.hpp"
#include "plan/model/layer_pattern.hpp"
#include "plan/parameters/layer_kinds.hpp"

// Mixtures of experts.

namespace mgplan::formats {
namespace {

/// An integer N (every N-th layer from the first), or a list expression.
void read_mixture_layers(FlagReader& flags, Job& job) {
    const std::int64_t layers = job.model.layers;
    std::vector<bool>& moe = job.model.moe_layers;
    moe.assign(static_cast<std::size_t>(layers), true);
    const auto pattern = flags.text("--moe-layer-freq");
    if (!pattern) return;
    if (pattern->find('[') == std::string::npos) {
        // gpt_layer_specs.py: layer i has experts if i % frequency is 0, which holds for all layers at -1, too.
        const std::int64_t every = flags.integer_or("--moe-layer-freq", 1, -ModelLimits::layers, ModelLimits::layers);
        if (every == 0) return flags.problem("--moe-layer-freq = 0 divides by zero; use 1 for experts in every layer");
        for (std::size_t layer = 0; layer < moe.size(); ++layer) moe[layer] = static_cast<std::int64_t>(layer) % every == 0;
        return;
    }
    try {
        moe = parse_layer_pattern(*pattern, ModelLimits::layers);
    } catch (const ConfigError& error) {
        flags.problems().absorb(error, fmt::format("{}: --moe-layer-freq: ", flags.where()));
    }
    if (static_cast<std::int64_t>(moe.size()) != layers && flags.problems().empty())
        flags.problem("--moe-layer-freq = {} has {} entries for --num-layers = {}; give one entry per layer", FlagReader::shown(*pattern),
                      moe.size(), layers);
}

void write_mixture_layers(FlagWriter& out, const Job& job) {
    const std::vector<bool>& layers = job.model.moe_layers;
    const bool all = std::find(layers.begin(), layers.end(), false) == layers.end();
    if (!all && !layers_by_pattern(job.model)) out.word("moe-layer-freq", fmt::format("({})", layer_pattern_text(layers)));
}

/// These kinds of balancing are trained, and no other; their weight changes no prediction.
void read_balancing(FlagReader& flags, Job& job) {
    constexpr std::string_view kKinds = "--moe-router-load-balancing-type", kCoefficients = "--moe-aux-loss-coeff";
    std::vector<std::string> kinds = flags.texts(kKinds);
    if (kinds.empty()) kinds.emplace_back("aux_loss");
    const std::vector<std::string> coefficients = flags.texts(kCoefficients);
    MoeSpec& moe = *job.model.moe;
    for (std::size_t i = 0; i < std::min(kinds.size(), coefficients.size()); ++i) {
        const auto coefficient = parse_real(without_grouping(coefficients[i]));
        if (!coefficient || *coefficient < 0 || *coefficient > ModelLimits::auxiliary_loss)
            flags.problem("{} = '{}' is no number from 0 to {}", kCoefficients, FlagReader::shown(coefficients[i]),
                          ModelLimits::auxiliary_loss);
        else if (kinds[i] == "aux_loss" || kinds[i] == "seq_aux_loss")
            (kinds[i] == "aux_loss" ? moe.auxiliary_loss : moe.sequence_auxiliary_loss) = *coefficient;
    }
}

void write_balancing(FlagWriter& out, const Job& job) {
    const MoeSpec& moe = *job.model.moe;
    std::vector<std::string> kinds, coefficients;
    for (const auto& [kind, coefficient] :
         {std::pair("aux_loss", moe.auxiliary_loss), std::pair("seq_aux_loss", moe.sequence_auxiliary_loss)}) {
        if (coefficient == 0) continue;
        kinds.emplace_back(kind);
        coefficients.push_back(fmt::format("{}", coefficient));
    }
    out.flag("moe-router-load-balancing-type", kinds.empty() ? std::vector<std::string>{"none"} : kinds);
    if (!kinds.empty()) out.flag("moe-aux-loss-coeff", coefficients);
}

/// moe_utils.py, topk_routing_with_score_function: sigmoid scores are normalised in any case.
void read_normalized(FlagReader& flags, Job& job) {
    MoeSpec& moe = *job.model.moe;
    moe.normalize_top_k = !flags.has("--moe-router-pre-softmax") || moe.score != RouterScore::softmax;
}

void write_normalized(FlagWriter& out, const Job& job) {
    const MoeSpec& moe = *job.model.moe;
    out.flag_if(!moe.normalize_top_k && moe.score == RouterScore::softmax, "moe-router-pre-softmax");
}

void read_groups(FlagReader& flags, Job& job) {
    constexpr std::string_view kGroups = "--moe-router-num-groups", kOfToken = "--moe-router-group-topk";
    const std::int64_t groups = flags.integer_or(kGroups, 0, 0, ModelLimits::experts);
    const std::int64_t of_token = flags.integer_or(kOfToken, 0, 0, ModelLimits::experts);
    if (of_token == 0) flags.idle(kGroups);  // transformer_config.py, __post_init__: routing is limited by the latter alone
    if (groups <= 1 || of_token == 0) return;
    job.model.moe->groups = groups;
    job.model.moe->group_top_k = of_token;
}

void write_groups(FlagWriter& out, const Job& job) {
    const MoeSpec& moe = *job.model.moe;
    if (moe.groups <= 1) return;
    out.integer("moe-router-num-groups", moe.groups);
    out.integer("moe-router-group-topk", moe.group_top_k);
}

void read_dispatcher(FlagReader& flags, Job& job) {
    enum class Kind { all_gather, all_to_all, flex };
    const Kind kind = flags.choice<Kind>(
        "--moe-token-dispatcher-type", Kind::all_gather,
        {{"allgather", Kind::all_gather}, {"alltoall", Kind::all_to_all}, {"alltoall_seq", Kind::all_to_all}, {"flex", Kind::flex}});
    const TokenDispatcher backend = flags.choice<TokenDispatcher>(
        "--moe-flex-dispatcher-backend", TokenDispatcher::deep_ep,
        {{"deepep", TokenDispatcher::deep_ep}, {"hybridep", TokenDispatcher::hybrid_ep}, {"ncclep", TokenDispatcher::hybrid_ep}});
    if (flags.raw("--moe-flex-dispatcher-backend") == "ncclep" && kind == Kind::flex)
        flags.not_computed("--moe-flex-dispatcher-backend", "NCCL's expert parallelism, predicted as hybridep", Decides::fit);
    TokenDispatcher& dispatcher = job.model.moe->dispatcher;
    dispatcher = kind == Kind::flex ? backend : kind == Kind::all_gather ? TokenDispatcher::all_gather : TokenDispatcher::all_to_all;
    // AMD's Primus takes the flex dispatcher with DeepEP then, whatever the command says (its patches/turbo/moe_dispatcher_patches.py).
    if (flags.has("--use-turbo-deepep")) dispatcher = TokenDispatcher::deep_ep;
}

void write_dispatcher(FlagWriter& out, const Job& job) {
    const TokenDispatcher dispatcher = job.model.moe->dispatcher;
    switch (dispatcher) {
        case TokenDispatcher::all_gather:
            out.word("moe-token-dispatcher-type", "allgather");
            return;
        case TokenDispatcher::all_to_all:
            out.word("moe-token-dispatcher-type", "alltoall");
            return;
        case TokenDispatcher::deep_ep:
        case TokenDispatcher::hybrid_ep:
            out.word("moe-token-dispatcher-type", "flex");
            out.word("moe-flex-dispatcher-backend", dispatcher == TokenDispatcher::deep_ep ? "deepep" : "hybridep");
            return;
    }
}

constexpr std::array<std::pair<std::string_view, RouterScore>, 3> kScores{
    {{"softmax", RouterScore::softmax}, {"sigmoid", RouterScore::sigmoid}, {"sqrtsoftplus", RouterScore::sigmoid}}};

/// Megatron-LM has it for sigmoid scores alone (transformer_config.py).
bool may_have_bias(const Job& job) {
    return job.model.moe->score == RouterScore::sigmoid;
}

constexpr std::array kMixtureFlags{
    FlagRow{"num-experts", Whole{MGPLAN_FIELD(model.moe->experts), 0, 0, ModelLimits::experts}},
    FlagRow{"moe-router-topk", Whole{MGPLAN_FIELD(model.moe->top_k), 2, 1, ModelLimits::experts}, Written::always},
    FlagRow{"moe-ffn-hidden-size", Whole{MGPLAN_FIELD(model.moe->expert_ffn), 0, 1, ModelLimits::ffn}},
    FlagRow{"moe-latent-size", Whole{MGPLAN_FIELD(model.moe->latent), 0, 0, ModelLimits::hidden}},
    FlagRow{"moe-shared-expert-intermediate-size", Whole{MGPLAN_FIELD(model.moe->shared_ffn), 0, 0, ModelLimits::ffn}},
    FlagRow{"moe-shared-expert-gate", Switch{MGPLAN_FIELD(model.moe->shared_gate)}, Written::changed,
            [](const Job& job) { return job.model.moe->shared_ffn > 0; }},
    FlagRow{"moe-layer-freq=", Both{read_mixture_layers, write_mixture_layers}},
    FlagRow{"moe-router-score-function", Word<RouterScore>{MGPLAN_FIELD(model.moe->score), RouterScore::softmax, kScores}, Written::always},
    FlagRow{"moe-router-load-balancing-type=+ moe-aux-loss-coeff=+", Both{read_balancing, write_balancing}},
    FlagRow{"moe-router-pre-softmax", Both{read_normalized, write_normalized}},
    FlagRow{"moe-router-topk-scaling-factor", Real{MGPLAN_FIELD(model.moe->routed_scaling), 1, 0, ModelLimits::routed_scaling}},
    FlagRow{"moe-router-enable-expert-bias", Switch{MGPLAN_FIELD(model.moe->expert_bias)}, Written::changed, may_have_bias},
    FlagRow{"moe-router-bias-update-rate",
            Real{MGPLAN_FIELD(model.moe->expert_bias_update_rate), {}, 0, ModelLimits::expert_bias_update_rate}, Written::always,
            [](const Job& job) { return may_have_bias(job) && job.model.moe->expert_bias; }},
    FlagRow{"moe-router-num-groups= moe-router-group-topk=", Both{read_groups, write_groups}},
    FlagRow{"moe-expert-capacity-factor", Real{MGPLAN_FIELD(model.moe->capacity_factor), 0, -1, static_cast<double>(ModelLimits::experts)}},
    FlagRow{"moe-pad-expert-input-to-capacity", Switch{MGPLAN_FIELD(model.moe->pad_to_capacity)}, Written::changed,
            [](const Job& job) { return job.model.moe->capacity_factor > 0; }},
    FlagRow{"moe-grouped-gemm", Switch{MGPLAN_FIELD(model.moe->grouped_gemm)}},
    FlagRow{"moe-token-dispatcher-type= moe-flex-dispatcher-backend=", Both{read_dispatcher, write_dispatcher}},
};

}  // namespace

constinit const FlagTopic kMixtureTopic{kMixtureFlags, is_mixture};

void read_mixture(FlagReader& flags, Job& job) {
    ModelSpec& model = job.model;
    if (flags.integer_or("--num-experts", 0, 0, ModelLimits::experts) == 0) return;
    MoeSpec& moe = model.moe.emplace();
    moe.router_bias = model.mlp_bias;  // transformer/moe/router.py: with add_bias_linear
    read_topic(flags, kMixtureTopic, job);
    if (moe.expert_ffn == 0) moe.expert_ffn = model.ffn;
    moe.shared_gate = moe.shared_gate && moe.shared_ffn > 0;
    if (moe.routed_scaling == 0) moe.routed_scaling = 1;       // moe_utils.py: a factor of 0 is none
    moe.capacity_factor = std::max(0.0, moe.capacity_factor);  // negative: Megatron-LM's own way to say none
    if (std::find(model.moe_layers.begin(), model.moe_layers.end(), true) == model.moe_layers.end()) {
        model.moe.reset();
        model.moe_layers.clear();
    }
}

}  // namespace mgplan::formats
