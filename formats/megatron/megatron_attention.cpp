#include <array>
#include <string>
#include <string_view>

#include "formats/megatron/flag_rows.hpp"
#include "plan/model/layer_pattern.hpp"

// Heads, multi-latent attention and its indexer, windows and sinks.

namespace mgplan::formats {
namespace {

bool is_latent(const Job& job) {
    return job.model.mla.has_value();
}

void read_latent(FlagReader& flags, Job& job) {
    if (!flags.has("--multi-latent-attention")) return;
    if (flags.has("--group-query-attention")) flags.problem("--multi-latent-attention has no query groups; remove --group-query-attention");
    job.model.mla.emplace();
}

void write_latent(FlagWriter& out, const Job& job) {
    out.flag_if(is_latent(job), "multi-latent-attention");
}

struct IndexerSize {
    std::string_view flag;
    std::int64_t high;
    std::int64_t MlaSpec::*field;
};

constexpr std::array kIndexerSizes{IndexerSize{"dsa-indexer-n-heads", ModelLimits::heads, &MlaSpec::index_heads},
                                   IndexerSize{"dsa-indexer-head-dim", ModelLimits::head_dim, &MlaSpec::index_head_dim},
                                   IndexerSize{"dsa-indexer-topk", ModelLimits::positions, &MlaSpec::index_top_k}};

/// DeepSeek Sparse Attention, whose sizes have no defaults (transformer_config.py, dsa_indexer_n_heads and the fields after it).
void read_indexer(FlagReader& flags, Job& job) {
    if (flags.raw("--experimental-attention-variant") != "dsa") return;
    MlaSpec& mla = *job.model.mla;
    for (const IndexerSize& size : kIndexerSizes) {
        const std::string flag = fmt::format("--{}", size.flag);
        if (const auto stated = flags.integer(flag, 1, size.high))
            mla.*size.field = *stated;
        else if (!flags.has(flag))
            flags.problem("--experimental-attention-variant dsa needs {}, which has no default; give it", flag);
    }
    if (mla.q_lora_rank > 0) return;
    // mla_qk_norm_config.py, _resolve_dsa_qk_layernorm; without that norm the indexer takes the layer's input (dsa.py, DSAIndexer).
    if (flags.has("--qk-layernorm"))
        flags.problem("--experimental-attention-variant dsa with --qk-layernorm needs --q-lora-rank; give it, or remove --qk-layernorm");
    constexpr std::string_view kInstead = "sparse attention (DSA) without --q-lora-rank, predicted as full attention";
    flags.not_computed("--experimental-attention-variant", std::string(kInstead), Decides::fit);
    for (const IndexerSize& size : kIndexerSizes) {
        flags.not_computed(fmt::format("--{}", size.flag), std::string(kInstead), Decides::fit);
        mla.*size.field = 0;
    }
}

void write_indexer(FlagWriter& out, const Job& job) {
    const MlaSpec& mla = *job.model.mla;
    if (mla.index_heads == 0) return;
    out.word("experimental-attention-variant", "dsa");
    for (const IndexerSize& size : kIndexerSizes) out.integer(size.flag, mla.*size.field);
}

void read_query_groups(FlagReader& flags, Job& job) {
    ModelSpec& model = job.model;
    model.kv_heads = flags.has("--group-query-attention") ? flags.integer_or("--num-query-groups", 1, 1, ModelLimits::heads) : model.heads;
}

void write_query_groups(FlagWriter& out, const Job& job) {
    if (job.model.mla || job.model.kv_heads == job.model.heads) return;
    out.flag("group-query-attention");
    out.integer("num-query-groups", job.model.kv_heads);
}

/// --window-size LEFT,RIGHT, "128,0" or "(128, 0)": a query sees its own place and LEFT before it (core/transformer/utils.py,
/// get_sliding_window_causal_mask; Transformer Engine's DotProductAttention, inclusive at both ends); -1 is no border.
void read_window(FlagReader& flags, Job& job) {
    const auto window = flags.texts("--window-size");
    if (window.empty()) return;
    std::string left = window.front();
    std::erase_if(left, [](char c) { return c == '(' || c == ')'; });
    const auto tokens = parse_integer(left);
    if (!tokens || *tokens < -1 || *tokens >= ModelLimits::positions)
        flags.problem("--window-size = '{}' does not start with a number of tokens; write 4096,0", FlagReader::shown(left));
    else
        job.model.sliding_window = *tokens + 1;
}

void write_window(FlagWriter& out, const Job& job) {
    // It counts the places before the query's own.
    if (job.model.sliding_window > 0) out.word("window-size", fmt::format("{},0", job.model.sliding_window - 1));
}

/// --window-attn-skip-freq N: every N-th layer sees all; a list: those with 0 do (core/transformer/utils.py,
/// is_layer_window_attention, which counts layers from 1).
void read_full_attention(FlagReader& flags, Job& job) {
    ModelSpec& model = job.model;
    const auto pattern = flags.text("--window-attn-skip-freq");
    if (!pattern || model.sliding_window == 0) return;
    if (pattern->find('[') == std::string::npos) {
        model.full_attention_every = flags.integer_or("--window-attn-skip-freq", 0, 1, ModelLimits::layers);
        if (model.full_attention_every == 1) model.sliding_window = model.full_attention_every = 0;
        return;
    }
    std::vector<bool> windows;
    try {
        windows = parse_layer_pattern(*pattern, ModelLimits::layers);
    } catch (const ConfigError& error) {
        flags.problems().absorb(error, fmt::format("{}: --window-attn-skip-freq: ", flags.where()));
        return;
    }
    if (static_cast<std::int64_t>(windows.size()) != model.layers) {
        flags.problem("--window-attn-skip-freq = {} has {} entries for --num-layers = {}; give one entry per layer",
                      FlagReader::shown(*pattern), windows.size(), model.layers);
        return;
    }
    const std::int64_t first = std::find(windows.begin(), windows.end(), false) - windows.begin() + 1;
    if (first > model.layers) return;  // every layer has the window
    bool regular = first > 1;
    for (std::size_t i = 0; i < windows.size(); ++i) regular = regular && windows[i] == ((static_cast<std::int64_t>(i) + 1) % first != 0);
    if (regular)
        model.full_attention_every = first;
    else if (std::find(windows.begin(), windows.end(), true) == windows.end())
        model.sliding_window = 0;
    else
        job.assumptions.emplace_back("--window-attn-skip-freq repeats irregularly, every layer taken with the window");
}

void write_full_attention(FlagWriter& out, const Job& job) {
    const ModelSpec& model = job.model;
    if (model.sliding_window > 0 && model.full_attention_every > 0) out.integer("window-attn-skip-freq", model.full_attention_every);
}

void read_channels(FlagReader& flags, Job& job) {
    if (!is_latent(job)) job.model.head_dim = flags.integer_or("--kv-channels", 0, 1, ModelLimits::head_dim);
}

/// Latent attention does not read them, and validate_args requires them where heads do not divide the width (arguments.py).
void write_channels(FlagWriter& out, const Job& job) {
    const ModelSpec& model = job.model;
    if (!model.mla)
        out.integer("kv-channels", model.head_dim);
    else if (model.hidden % model.heads != 0)
        out.integer("kv-channels", model.mla->qk_nope_head_dim + model.mla->qk_rope_head_dim);
}

constexpr std::array kAttentionFlags{
    FlagRow{"num-attention-heads", Whole{MGPLAN_FIELD(model.heads), 1, 1, ModelLimits::heads}, Written::always},
    FlagRow{"multi-latent-attention", Both{read_latent, write_latent}},
};

// Defaults: MLATransformerConfig.
constexpr std::array kLatentFlags{
    FlagRow{"q-lora-rank", Whole{MGPLAN_FIELD(model.mla->q_lora_rank), 0, 0, ModelLimits::hidden}},
    FlagRow{"kv-lora-rank", Whole{MGPLAN_FIELD(model.mla->kv_lora_rank), 512, 1, ModelLimits::hidden}, Written::always},
    FlagRow{"qk-head-dim", Whole{MGPLAN_FIELD(model.mla->qk_nope_head_dim), 128, 1, ModelLimits::head_dim}, Written::always},
    FlagRow{"qk-pos-emb-head-dim", Whole{MGPLAN_FIELD(model.mla->qk_rope_head_dim), 64, 0, ModelLimits::head_dim}, Written::always},
    FlagRow{"v-head-dim", Whole{MGPLAN_FIELD(model.mla->v_head_dim), 128, 1, ModelLimits::head_dim}, Written::always},
    FlagRow{"dsa-indexer-n-heads= dsa-indexer-head-dim= dsa-indexer-topk=", Both{read_indexer, write_indexer}},
};

/// Features that no field of a model holds, in the words of hugging_face_left_out.cpp.
constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kLeftOut{
    {{"norms of queries and keys without weights", "qk-l2-norm"},
     {"router weights multiplied with the experts' input", "moe-apply-probs-on-input"}}};

void read_unstated(FlagReader& flags, Job& job) {
    for (const auto& [what, flag] : kLeftOut) {
        if (flags.has(fmt::format("--{}", flag))) job.model.left_out.emplace_back(what);
    }
}

void write_unstated(FlagWriter& out, const Job& job) {
    for (const std::string& what : job.model.left_out) {
        if (const std::string_view flag = flag_of_left_out(what); !flag.empty()) out.flag(flag);
    }
}

constexpr std::array<std::pair<std::string_view, bool>, 1> kSoftmaxKinds{{{"learnable", true}}};

constexpr std::array kHeadFlags{
    FlagRow{"group-query-attention num-query-groups=", Both{read_query_groups, write_query_groups}},
    FlagRow{"kv-channels=", Both{read_channels, write_channels}},
    FlagRow{"qk-layernorm", Switch{MGPLAN_FIELD(model.qk_norm)}},
    FlagRow{"attention-output-gate", Switch{MGPLAN_FIELD(model.attention_output_gate)}},
    FlagRow{"window-size=", Both{read_window, write_window}},
    FlagRow{"window-attn-skip-freq=", Both{read_full_attention, write_full_attention}},
    FlagRow{"qk-l2-norm moe-apply-probs-on-input", Both{read_unstated, write_unstated}},
    FlagRow{"softmax-type", Word<bool>{MGPLAN_FIELD(model.attention_sinks), false, kSoftmaxKinds, true}},
};

}  // namespace

std::string_view flag_of_left_out(std::string_view what) {
    const auto* const found = std::find_if(kLeftOut.begin(), kLeftOut.end(), [&](const auto& one) { return one.first == what; });
    return found == kLeftOut.end() ? std::string_view() : found->second;
}

constinit const FlagTopic kAttentionTopic{kAttentionFlags};
constinit const FlagTopic kLatentTopic{kLatentFlags, is_latent};
constinit const FlagTopic kHeadTopic{kHeadFlags};

void read_attention(FlagReader& flags, Job& job) {
    ModelSpec& model = job.model;
    for (const FlagTopic* topic : {&kAttentionTopic, &kLatentTopic, &kHeadTopic}) read_topic(flags, *topic, job);
    if (model.mla) {
        model.head_dim = 0;
        if (model.attention_output_gate)
            flags.problem("--attention-output-gate with --multi-latent-attention, which Megatron-LM does not have; remove one");
    } else if (model.head_dim == 0) {
        model.head_dim = std::max<std::int64_t>(1, model.hidden / model.heads);
        if (!flags.has("--kv-channels") && flags.problems().empty() && model.hidden % model.heads != 0)
            flags.problem("--num-attention-heads = {} does not divide --hidden-size = {}; give --kv-channels, or use {}", model.heads,
                          model.hidden, divisors_text(model.hidden, model.hidden));
    }
}

}  // namespace mgplan::formats
