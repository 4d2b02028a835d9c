#include <algorithm>
#include <array>

#include "formats/megatron/argument_rules.hpp"
#include "plan/text/text.hpp"

// The configurations that Megatron-LM builds from its flags, at d98e8a64: TransformerConfig and its like (RuleSource says which file).

namespace mgplan::formats {
namespace {

using C = const CommandFlags&;

constexpr auto kLayers = RuleSource::transformer;

/// fp8 or fp4; of values that are not known, possibly.
bool may_quantise(C c, std::string_view format) {
    return c.has(format) && !c.is(format, "none");
}

bool is_fp8(C c) {
    return c.has("--fp8-format") && c.is_none_of("--fp8-format", "none");
}

bool recomputes_all(C c) {
    return !c.has("--recompute-activations") && c.is("--recompute-granularity", "full");
}

/// Among the modules that selective recompute makes again.
bool recomputes(C c, std::string_view module) {
    return c.recomputes_selectively() && c.lists("--recompute-modules", module);
}

/// AMD's Primus takes flex with --use-turbo-deepep, whatever the command says.
bool dispatches_by_none_of(C c, std::string_view types) {
    return !c.has("--use-turbo-deepep") && c.is_none_of("--moe-token-dispatcher-type", types, "allgather");
}

/// The pattern of layers is known and has such a layer.
bool pattern_holds(C c, char letter) {
    for (const std::string_view flag : {"--hybrid-layer-pattern", "--hybrid-override-pattern"}) {
        if (c.word(flag).value_or("").find(letter) != std::string::npos) return true;
    }
    return false;
}

/// Layers of experts are built; of models whose pattern is not known, possibly not.
bool builds_experts(C c) {
    if (c.whole("--num-experts", 0).value_or(0) <= 0) return false;
    return !c.has_pattern() || pattern_holds(c, 'E');
}

bool uses_transformer_engine(C c) {
    return c.is("--transformer-impl", "transformer_engine", "transformer_engine");
}

/// An attention of its own in layers that no pattern names.
bool varies_attention(C c) {
    return !c.has_pattern() && c.has("--experimental-attention-variant") && c.is_none_of("--experimental-attention-variant", "none");
}

bool limits_routing_to_groups(C c) {
    return c.whole("--moe-router-group-topk", 0).value_or(0) != 0;
}

/// True if the kinds of balancing and their coefficients differ in number; a single kind passes.
bool balances_without_coefficients(C c) {
    const std::size_t kinds = c.words("--moe-router-load-balancing-type").size(), coefficients = c.words("--moe-aux-loss-coeff").size();
    const bool known = coefficients > 0 || !c.has("--moe-aux-loss-coeff");
    return kinds > 1 && known && kinds != coefficients;
}

bool overlaps_shared_expert(C c) {
    return c.has("--moe-shared-expert-overlap") && c.has("--moe-shared-expert-intermediate-size");
}

/// The old name and the new.
bool pads_routing(C c) {
    return c.has_one_of("--moe-router-padding-for-fp8 --moe-router-padding-for-quantization");
}

/// Layers without experts between others: moe_layer_freq above 1, or a list with a 0.
bool may_have_dense_layers(C c) {
    const auto pattern = c.word("--moe-layer-freq", "1");
    return !pattern || (pattern->find('[') != std::string::npos ? pattern->find('0') != std::string::npos : *pattern != "1");
}

bool graphs(C c, std::string_view part) {
    return c.lists("--cuda-graph-modules", part) || c.lists("--cuda-graph-scope", part);
}

/// Graphs of parts of layers; "full" and the scopes that moved elsewhere are none.
bool graphs_parts(C c) {
    constexpr auto kParts = std::to_array<std::string_view>({"attn", "mlp", "moe", "moe_router", "moe_preprocess", "mamba"});
    return std::any_of(kParts.begin(), kParts.end(), [&](std::string_view part) { return graphs(c, part); });
}

/// A layer without experts makes its graph before it has the field that says so, unless the graph is that of its attention.
bool graphs_dense_layers_too_early(C c) {
    const bool local = c.is("--cuda-graph-impl", "local") || c.has("--enable-cuda-graph");
    const bool dense = c.has_pattern() ? pattern_holds(c, '-') : c.gives_no_experts() || may_have_dense_layers(c);
    return local && dense && graphs(c, "mlp") && (c.has_pattern() || !graphs(c, "attn"));
}

constexpr std::int64_t kMostOfASize = std::int64_t{1} << 20;  ///< products of two stay far below 2^63

/// fp8 products take the input projection of Mamba-2 in blocks.
bool misaligns_mamba(C c) {
    const auto hidden = c.whole("--hidden-size", 0), state = c.whole("--mamba-state-dim", 128), head = c.whole("--mamba-head-dim", 64),
               groups = c.whole("--mamba-num-groups", 8);
    if (!is_fp8(c) || !pattern_holds(c, 'M') || !hidden || !state || !head || !groups) return false;
    if (*head <= 0 || std::max({*hidden, *state, *head, *groups}) > kMostOfASize) return false;
    const auto heads = c.whole("--mamba-num-heads", 2 * *hidden / *head);
    if (!heads || *heads > kMostOfASize) return false;
    return (2 * *heads * *head + 2 * *groups * *state + *heads) % 16 != 0;
}

/// And that of gated delta nets.
bool misaligns_delta_nets(C c) {
    const bool delta_nets =
        c.has_pattern() ? pattern_holds(c, 'G')
                        : c.is("--experimental-attention-variant", "gated_delta_net") || c.is("--experimental-attention-variant", "gdn");
    const auto keys = c.whole("--linear-num-key-heads", 16), key = c.whole("--linear-key-head-dim", 128),
               values = c.whole("--linear-num-value-heads", 32), value = c.whole("--linear-value-head-dim", 128);
    if (!delta_nets || !is_fp8(c) || !keys || !key || !values || !value) return false;
    if (std::max({*keys, *key, *values, *value}) > kMostOfASize) return false;
    const std::int64_t width = 2 * *keys * *key + 2 * *values * *value + 2 * *values;
    return width % (c.is("--fp8-recipe", "mxfp8") ? 32 : 16) != 0;
}

/// Graphs of parts of layers, by a pattern that is not planned with graphs; plans of other layers have rules of their own.
bool graphs_experts_that_are_not_there(C c) {
    const bool by_parts = c.is("--cuda-graph-impl", "local") || c.is("--cuda-graph-impl", "transformer_engine");
    return c.has_pattern() && by_parts && c.whole("--num-experts", 0).value_or(2) <= 1 && (graphs(c, "moe") || graphs(c, "moe_router"));
}

/// Layers of the decoder: --num-layers, or the letters of a pattern in front of its depths of prediction; 0 where they are not known.
std::int64_t decoder_layers(C c) {
    for (const std::string_view flag : {"--hybrid-layer-pattern", "--hybrid-override-pattern"}) {
        if (!c.has(flag)) continue;
        const std::string pattern = c.word(flag).value_or("");
        const auto end = std::find(pattern.begin(), pattern.end(), '/');
        return std::distance(pattern.begin(), end) - std::count(pattern.begin(), end, '|');
    }
    return c.whole("--num-layers", 0).value_or(0);
}

/// --no-rope-freq N skips every N-th layer, and N does not divide the layers.
bool skips_rotation_unevenly(C c) {
    const auto every = c.whole("--no-rope-freq", 0);
    return every && *every > 0 && decoder_layers(c) % *every != 0;
}

constexpr auto kConfigurationRules = std::to_array<ArgumentRule>({
    // ---- fp8 and fp4 ----
    {kLayers, 1560, "--fp8-recipe",
     [](C c) { return is_fp8(c) && c.is("--fp8-recipe", "custom") && !c.has("--fp8-quantizer-factory"); },
     "needs --fp8-quantizer-factory; add it, or give another recipe"},
    {kLayers, 1566, "--fp8-param-gather", [](C c) { return c.has("--fp8-param-gather") && !may_quantise(c, "--fp8-format") && !c.has("--use-torch-fsdp2"); },
     "needs --fp8-format; add --fp8-format hybrid or e4m3, or remove it"},
    {kLayers, 1570, "--fp8-output-proj", [](C c) { return c.has("--fp8-output-proj") && !may_quantise(c, "--fp8-format"); },
     "needs --fp8-format; add it with --fp8-recipe mxfp8, or remove --fp8-output-proj"},
    {kLayers, 1572, "--fp8-output-proj",
     [](C c) { return c.has("--fp8-output-proj") && is_fp8(c) && c.is_none_of("--fp8-recipe", "mxfp8", "delayed"); },
     "needs --fp8-recipe mxfp8; give it, or remove --fp8-output-proj"},
    {kLayers, 1586, "--fp4-recipe",
     [](C c) { return may_quantise(c, "--fp4-format") && c.is("--fp4-recipe", "custom") && !c.has("--fp4-quantizer-factory"); },
     "needs --fp4-quantizer-factory; add it, or give another recipe"},
    // ---- experts ----
    {kLayers, 1689, "--moe-ffn-hidden-size",
     [](C c) { return c.gives_no_experts() && c.has("--moe-ffn-hidden-size") && !may_have_dense_layers(c); },
     "is the width of experts, and there are none; give --num-experts, or remove it",
     {Exemption::checkpoint_model}},
    {kLayers, 1708, "--moe-single-grouped-weight",
     [](C c) { return c.has("--moe-single-grouped-weight") && !c.has("--moe-grouped-gemm"); }, "needs --moe-grouped-gemm; add it",
     {Exemption::checkpoint_model}},
    {kLayers, 1736, "--moe-single-grouped-weight",
     [](C c) { return c.has("--moe-single-grouped-weight") && !c.has("--moe-use-grouped-tensor"); },
     "needs --moe-use-grouped-tensor; add it",
     {Exemption::checkpoint_model}},
    {kLayers, 1709, "--moe-single-grouped-bias", [](C c) { return c.has("--moe-single-grouped-bias") && !c.has("--moe-grouped-gemm"); },
     "needs --moe-grouped-gemm; add it",
     {Exemption::checkpoint_model}},
    {kLayers, 1738, "--moe-single-grouped-bias", [](C c) { return c.has("--moe-single-grouped-bias") && c.has("--disable-bias-linear"); },
     "needs biases; remove it, or --disable-bias-linear",
     {Exemption::checkpoint_model}},
    {kLayers, 1740, "--moe-single-grouped-bias",
     [](C c) { return c.has("--moe-single-grouped-bias") && !c.has("--moe-use-grouped-tensor"); },
     "needs --moe-use-grouped-tensor; add it",
     {Exemption::checkpoint_model}},
    {RuleSource::experts, 205, "--moe-grouped-gemm",
     [](C c) {
         return c.has("--moe-grouped-gemm") && builds_experts(c) && uses_transformer_engine(c) && !c.has("--disable-bias-linear") &&
                !c.has("--no-bias-dropout-fusion");
     },
     "with biases does not go with the fusion of bias and dropout, which is the default; add --no-bias-dropout-fusion, or "
     "--disable-bias-linear",
     {Exemption::checkpoint_model, Exemption::bridge}},
    {kLayers, 1744, "--moe-enable-deepep", [](C c) { return c.has("--moe-enable-deepep") && dispatches_by_none_of(c, "flex"); },
     "needs --moe-token-dispatcher-type flex; give it, or remove --moe-enable-deepep"},
    {kLayers, 1746, "--moe-enable-deepep",
     [](C c) { return c.has("--moe-enable-deepep") && c.is("--moe-flex-dispatcher-backend", "hybridep"); },
     "does not go with --moe-flex-dispatcher-backend hybridep; keep one of them"},
    {kLayers, 1764, "--moe-flex-dispatcher-backend",
     [](C c) { return c.is("--moe-flex-dispatcher-backend", "ncclep") && dispatches_by_none_of(c, "flex"); },
     "needs --moe-token-dispatcher-type flex; give it, or remove the backend"},
    {kLayers, 1814, "--moe-shared-expert-intermediate-size",
     [](C c) { return c.has("--moe-shared-expert-intermediate-size") && c.whole("--moe-shared-expert-intermediate-size", 1).value_or(1) <= 0; },
     "is no width; give the shared experts' number times their width, or remove it",
     {Exemption::checkpoint_model}},
    {kLayers, 1820, "--moe-shared-expert-overlap",
     [](C c) { return overlaps_shared_expert(c) && dispatches_by_none_of(c, "alltoall flex"); },
     "needs --moe-token-dispatcher-type alltoall or flex (allgather is the default); give one of them, or remove the overlap",
     {Exemption::checkpoint_model}},
    {kLayers, 1828, "--moe-aux-loss-coeff", balances_without_coefficients,
     "does not give each kind of --moe-router-load-balancing-type its coefficient; give as many as there are kinds"},
    {kLayers, 1843, "--moe-expert-capacity-factor",
     [](C c) {
         return c.has("--moe-expert-capacity-factor") &&
                c.is_none_of("--moe-router-load-balancing-type", "aux_loss seq_aux_loss global_aux_loss none", "aux_loss");
     },
     "needs --moe-router-load-balancing-type aux_loss, seq_aux_loss, global_aux_loss or none; give one, or remove the capacity"},
    {kLayers, 1863, "--moe-pad-expert-input-to-capacity",
     [](C c) {
         return c.has("--moe-pad-expert-input-to-capacity") && c.real("--moe-expert-capacity-factor", -1).value_or(0) < 0;
     },
     "needs --moe-expert-capacity-factor; add it, or remove the padding"},
    {kLayers, 2617, "--moe-router-enable-expert-bias",
     [](C c) {
         return c.has("--moe-router-enable-expert-bias") && c.is_none_of("--moe-router-score-function", "sigmoid sqrtsoftplus", "softmax");
     },
     "needs --moe-router-score-function sigmoid or sqrtsoftplus (softmax is the default); give one, or remove the bias",
     {Exemption::checkpoint_model}},
    {kLayers, 2650, "--moe-router-padding-for-fp8",
     [](C c) { return pads_routing(c) && !may_quantise(c, "--fp8-format") && !may_quantise(c, "--fp4-format"); },
     "(--moe-router-padding-for-quantization) needs --fp8-format or --fp4-format; add one, or remove the padding"},
    // Published commands leave the dispatcher to their launcher: where none is named, this is not judged.
    {kLayers, 2655, "--moe-token-dispatcher-type",
     [](C c) {
         return pads_routing(c) && !c.has("--use-turbo-deepep") &&
                (c.is("--moe-token-dispatcher-type", "allgather") || c.is("--moe-token-dispatcher-type", "alltoall_seq"));
     },
     "does not go with --moe-router-padding-for-quantization (--moe-router-padding-for-fp8); give alltoall or flex, or remove the padding"},
    {kLayers, 2661, "--moe-router-topk",
     [](C c) {
         return c.whole("--moe-router-topk", 2) == 1 && c.is("--moe-router-score-function", "softmax", "softmax") &&
                !c.has("--moe-router-pre-softmax") && c.is_none_of("--moe-router-load-balancing-type", "sinkhorn", "aux_loss");
     },
     "with softmax scores needs --moe-router-pre-softmax, since the score of a single expert is always 1; add it",
     {Exemption::checkpoint_model}},
    {kLayers, 2672, "--moe-router-group-topk",
     [](C c) {
         return limits_routing_to_groups(c) && c.whole("--moe-router-topk-limited-devices", 0).value_or(0) != 0;
     },
     "does not go with --moe-router-topk-limited-devices, its old name; remove the latter"},
    {kLayers, 2677, "--moe-router-group-topk",
     [](C c) { return limits_routing_to_groups(c) && c.whole("--moe-router-num-groups", 0) == 0; },
     "needs --moe-router-num-groups; add it"},
    {kLayers, 2682, "--moe-router-group-topk",
     [](C c) { return limits_routing_to_groups(c) && c.gives_no_experts() && c.whole("--moe-router-num-groups", 0).value_or(0) != 0; },
     "divides experts into groups, and there are none; give --num-experts, or remove it",
     {Exemption::checkpoint_model}},
    // ---- recompute ----
    {kLayers, 1913, "--recompute-granularity", [](C c) { return recomputes_all(c) && !c.has("--recompute-method"); },
     "needs --recompute-method; add --recompute-method uniform or block"},
    {kLayers, 1919, "--recompute-granularity", [](C c) { return recomputes_all(c) && !c.has("--recompute-num-layers"); },
     "needs --recompute-num-layers; add --recompute-num-layers 1 or more"},
    {kLayers, 1926, "--recompute-num-layers", [](C c) { return c.recomputes_selectively() && c.has("--recompute-num-layers"); },
     "does not go with selective recompute; remove it, or give --recompute-granularity full"},
    {kLayers, 1934, "--distribute-saved-activations",
     [](C c) {
         return c.has("--distribute-saved-activations") && c.has("--sequence-parallel") &&
                (recomputes_all(c) || c.recomputes_selectively()) && c.whole("--tensor-model-parallel-size", 1).value_or(1) > 1;
     },
     "does not go with --sequence-parallel, which divides them already; remove it",
     {Exemption::checkpoint_sizes}},
    {kLayers, 1964, "--recompute-modules", [](C c) { return recomputes(c, "moe_act") && !c.has("--moe-grouped-gemm"); },
     "names moe_act, which needs --moe-grouped-gemm; add that, or leave moe_act out",
     {Exemption::checkpoint_model}},
    {kLayers, 1969, "--recompute-modules", [](C c) { return recomputes(c, "mla_up_proj") && !c.has("--multi-latent-attention") && !c.has_pattern(); },
     "names mla_up_proj, which needs --multi-latent-attention; leave mla_up_proj out"},
    {kLayers, 1991, "--recompute-modules", [](C c) { return recomputes(c, "shared_experts") && overlaps_shared_expert(c); },
     "names shared_experts, which does not go with --moe-shared-expert-overlap; leave one of them out",
     {Exemption::checkpoint_model}},
    {kLayers, 2001, "--recompute-modules",
     [](C c) {
         return is_fp8(c) && c.is("--fp8-recipe", "delayed", "delayed") && (recomputes(c, "moe_act") || recomputes(c, "layernorm"));
     },
     "names moe_act or layernorm, which do not go with --fp8-recipe delayed, the default; give another recipe, or leave them out"},
    {kLayers, 3024, "--recompute-method",
     [](C c) { return c.has("--overlap-moe-expert-parallel-comm") && c.has("--recompute-method"); },
     "does not go with --overlap-moe-expert-parallel-comm; remove it"},
    {kLayers, 3027, "--recompute-num-layers",
     [](C c) { return c.has("--overlap-moe-expert-parallel-comm") && c.has("--recompute-num-layers"); },
     "does not go with --overlap-moe-expert-parallel-comm; remove it"},
    // ---- activations, norms and positions ----
    {kLayers, 2453, "--fused-residual-rmsnorm",
     [](C c) { return c.has("--fused-residual-rmsnorm") && c.is_none_of("--normalization", "RMSNorm", "LayerNorm"); },
     "needs --normalization RMSNorm; give it, or remove --fused-residual-rmsnorm",
     {Exemption::checkpoint_model}},
    {kLayers, 2526, "--rotary-interleaved", [](C c) { return c.has("--rotary-interleaved") && c.has("--multi-latent-attention"); },
     "does not go with --multi-latent-attention; remove it",
     {Exemption::checkpoint_model}},
    {kLayers, 3141, "--no-rope-freq", skips_rotation_unevenly, "does not divide the number of layers; give a number that does, or a list"},
    {kLayers, 3345, "--rope-type",
     [](C c) {
         return c.has("--multi-latent-attention") && c.is_none_of("--rope-type", "yarn", "yarn") && !c.has("--no-rope-fusion") &&
                (c.is("--position-embedding-type", "rope") || c.has("--use-rotary-position-embeddings"));
     },
     "does not go with fused rotation under --multi-latent-attention; add --no-rope-fusion, or give --rope-type yarn",
     {Exemption::checkpoint_model, Exemption::bridge}},
    // ---- attention of other kinds ----
    {RuleSource::variants, 498, "--experimental-attention-variant", [](C c) { return varies_attention(c) && c.is_none_of("--transformer-impl", "transformer_engine", "transformer_engine"); },
     "needs Transformer Engine; remove --transformer-impl, or the variant"},
    {RuleSource::layers, 572, "--mtp-num-layers", [](C c) { return varies_attention(c) && c.whole("--mtp-num-layers", 0).value_or(0) != 0; },
     "does not go with --experimental-attention-variant before branch dev; remove one of them",
     {Exemption::bridge},
     kReleasedMegatrons},
    {RuleSource::mamba, 254, "--mamba-num-heads", misaligns_mamba,
     "(with --mamba-head-dim, --mamba-num-groups and --mamba-state-dim) gives Mamba-2 a projection that fp8 does not take; make twice the "
     "heads' width, twice the groups' states and the heads a multiple of 16",
     {Exemption::checkpoint_model}},
    {RuleSource::delta_nets, 207, "--linear-num-value-heads", misaligns_delta_nets,
     "(with --linear-num-key-heads and the widths of both) gives gated delta nets a projection that fp8 does not take; make twice the keys, "
     "the values and the value heads a multiple of 16, under --fp8-recipe mxfp8 of 32",
     {Exemption::checkpoint_model}},
    {kLayers, 3163, "--experimental-attention-variant",
     [](C c) { return varies_attention(c) && c.is("--experimental-attention-variant", "dsa") && !c.has("--no-rope-fusion"); },
     "does not go with fused rotation, which is the default; add --no-rope-fusion",
     {Exemption::bridge}},
    {kLayers, 3170, "--experimental-attention-variant",
     [](C c) {
         return varies_attention(c) && c.is("--experimental-attention-variant", "dsa") &&
                c.whole("--context-parallel-size", 1).value_or(1) > 1 && c.is_none_of("--cp-comm-type", "allgather all_gather", "p2p");
     },
     "exchanges its context by all-gathers alone; give --cp-comm-type all_gather",
     {Exemption::bridge}},
    {RuleSource::engine, 2080, "--apply-query-key-layer-scaling",
     [](C c) {
         const auto scales = c.variable("NVTE_APPLY_QK_LAYER_SCALING");
         return scales && uses_transformer_engine(c) && c.has("--apply-query-key-layer-scaling") != (*scales == "1");
     },
     "and NVTE_APPLY_QK_LAYER_SCALING=1 in the environment need each other; set both or none",
     {Exemption::bridge}},
    // ---- CUDA graphs and overlaps ----
    {kLayers, 2794, "--cuda-graph-impl", [](C c) { return c.is("--cuda-graph-impl", "full_iteration") && graphs_parts(c); },
     "goes without --cuda-graph-modules and --cuda-graph-scope; remove these, or give --cuda-graph-impl transformer_engine"},
    {RuleSource::graphs, 108, "--cuda-graph-scope",
     [](C c) {
         return graphs(c, "full_iteration") && (c.is("--cuda-graph-impl", "transformer_engine") || c.has("--external-cuda-graph"));
     },
     "captures the whole step, which transformer_engine does not; give --cuda-graph-impl full_iteration in place of both"},
    {RuleSource::layer, 594, "--cuda-graph-modules", graphs_dense_layers_too_early,
     "(--cuda-graph-scope) captures mlp of layers without experts, at which --cuda-graph-impl local stops; add attn, or give "
     "--cuda-graph-impl transformer_engine",
     {Exemption::checkpoint_model}},
    {kLayers, 2826, "--cuda-graph-modules", graphs_experts_that_are_not_there,
     "(--cuda-graph-scope) captures experts, and there are none; leave moe and moe_router out",
     {Exemption::checkpoint_model}},
    {kLayers, 3014, "--overlap-moe-expert-parallel-comm",
     [](C c) { return c.has("--overlap-moe-expert-parallel-comm") && c.whole("--expert-model-parallel-size", 1) == 1; },
     "hides exchanges of experts, and there are none; give --expert-model-parallel-size 2 or more, or remove it"},
    {kLayers, 3084, "--overlap-dispatch-backward-with-experts-wgrad",
     [](C c) { return c.has("--overlap-dispatch-backward-with-experts-wgrad") && c.has("--overlap-moe-expert-parallel-comm"); },
     "does not go with --overlap-moe-expert-parallel-comm; keep one of them"},
    {kLayers, 3092, "--overlap-dispatch-backward-with-experts-wgrad",
     [](C c) { return c.has("--overlap-dispatch-backward-with-experts-wgrad") && c.has("--delay-wgrad-compute"); },
     "does not go with --delay-wgrad-compute; keep one of them"},
    {kLayers, 3097, "--ep-overlap-early-attn-memory-release",
     [](C c) { return c.has("--ep-overlap-early-attn-memory-release") && !c.has("--overlap-moe-expert-parallel-comm"); },
     "needs --overlap-moe-expert-parallel-comm; add it, or remove the release"},
    {kLayers, 3216, "--batch-invariant-mode",
     [](C c) { return c.has("--batch-invariant-mode") && c.is_none_of("--attention-backend", "flash", "auto"); },
     "needs --attention-backend flash; give it, or remove the mode"},
    {kLayers, 3223, "--batch-invariant-mode",
     [](C c) { return c.has("--batch-invariant-mode") && c.is_none_of("--flash-attention-version", "3 4", "none"); },
     "needs --flash-attention-version 3 or 4; give it, or remove the mode"},
    {kLayers, 3230, "--batch-invariant-mode",
     [](C c) { return c.has("--batch-invariant-mode") && c.whole("--context-parallel-size", 1).value_or(1) > 1; },
     "does not go with context parallelism; use --context-parallel-size 1, or remove the mode"},
    {RuleSource::parallel, 545, "--defer-embedding-wgrad-compute",
     [](C c) { return c.has("--defer-embedding-wgrad-compute") && c.whole("--pipeline-model-parallel-size", 1) == 1; },
     "needs a pipeline; give --pipeline-model-parallel-size 2 or more, or remove it",
     {Exemption::checkpoint_sizes}},
    {RuleSource::parallel, 550, "--defer-embedding-wgrad-compute",
     [](C c) { return c.has("--defer-embedding-wgrad-compute") && c.has("--no-gradient-accumulation-fusion"); },
     "needs fused gradients; remove it, or --no-gradient-accumulation-fusion"},
    {RuleSource::parallel, 570, "--overlap-p2p-communication-warmup-flush",
     [](C c) {
         return c.has("--overlap-p2p-communication-warmup-flush") && (!c.may_have_chunks() || c.has("--no-overlap-p2p-communication"));
     },
     "needs messages overlapped by the interleaved schedule; give --num-virtual-stages-per-pipeline-rank without "
     "--no-overlap-p2p-communication, or remove it"},
    // ---- gradients and optimizer ----
    {RuleSource::gradients, 260, "--reuse-grad-buf-for-mxfp8-param-ag",
     [](C c) {
         return c.has("--reuse-grad-buf-for-mxfp8-param-ag") && !c.has("--fp8-param-gather") &&
                !c.has_one_of("--use-megatron-fsdp --use-custom-fsdp --use-torch-fsdp2");
     },
     "needs --fp8-param-gather; add it, or remove the reuse",
     {Exemption::bridge}},
    {RuleSource::gradients, 276, "--ddp-num-buckets", [](C c) { return c.has("--ddp-num-buckets") && c.has("--ddp-bucket-size") && !c.has("--use-torch-fsdp2"); },
     "does not go with --ddp-bucket-size; keep one of them"},
    {RuleSource::optimizer, 1057, "--use-precision-aware-optimizer",
     [](C c) {
         return c.has("--use-precision-aware-optimizer") && !c.has("--use-distributed-optimizer") && !c.is("--megatron-fsdp-version", "2") &&
                !c.has_one_of("--use-megatron-fsdp --use-custom-fsdp --skip-train") && !c.is_of_slime() &&
                c.is("--optimizer", "adam", "adam");
     },
     "needs --use-distributed-optimizer; add it, or remove --use-precision-aware-optimizer"},
});

}  // namespace

std::span<const ArgumentRule> rules_of_configurations() {
    return kConfigurationRules;
}

}  // namespace mgplan::formats
