#include "formats/megatron/flag_reader.hpp"
#include "formats/megatron/megatron_hybrid.hpp"
#include "formats/megatron/tokenizer_sizes.hpp"

#include "plan/model/layer_pattern.hpp"

namespace mgplan::formats {
namespace {

/// DeepSeek Sparse Attention, whose sizes have no defaults (transformer_config.py, dsa_indexer_n_heads and those behind it).
void read_indexer(FlagReader& flags, MlaSpec& mla) {
    const auto read = [&](std::string_view flag, std::int64_t high, std::int64_t& value) {
        if (const auto stated = flags.integer(flag, 1, high))
            value = *stated;
        else if (!flags.has(flag))
            flags.problem("--experimental-attention-variant dsa needs {}, which has no default; give it", flag);
    };
    read("--dsa-indexer-n-heads", ModelLimits::heads, mla.index_heads);
    read("--dsa-indexer-head-dim", ModelLimits::head_dim, mla.index_head_dim);
    read("--dsa-indexer-topk", ModelLimits::positions, mla.index_top_k);
    if (mla.q_lora_rank > 0) return;
    // mla_qk_norm_config.py, _resolve_dsa_qk_layernorm; without that norm the indexer takes the layer's input (dsa.py, DSAIndexer).
    if (flags.has("--qk-layernorm"))
        flags.problem("--experimental-attention-variant dsa with --qk-layernorm needs --q-lora-rank; give it, or remove --qk-layernorm");
    for (const char* flag : {"--experimental-attention-variant", "--dsa-indexer-n-heads", "--dsa-indexer-head-dim", "--dsa-indexer-topk"})
        flags.not_computed(flag, "sparse attention (DSA) without --q-lora-rank, predicted as full attention", Decides::fit);
    mla.index_heads = mla.index_head_dim = mla.index_top_k = 0;
}

void read_heads(FlagReader& flags, ModelSpec& model) {
    model.heads = flags.integer_or("--num-attention-heads", 1, 1, ModelLimits::heads);
    model.kv_heads = model.heads;
    if (flags.has("--group-query-attention")) model.kv_heads = flags.integer_or("--num-query-groups", 1, 1, ModelLimits::heads);
    if (flags.has("--multi-latent-attention")) {
        if (flags.has("--group-query-attention"))
            flags.problem("--multi-latent-attention has no query groups; remove --group-query-attention");
        MlaSpec mla;  // defaults: MLATransformerConfig
        mla.q_lora_rank = flags.integer_or("--q-lora-rank", 0, 0, ModelLimits::hidden);
        mla.kv_lora_rank = flags.integer_or("--kv-lora-rank", 512, 1, ModelLimits::hidden);
        mla.qk_nope_head_dim = flags.integer_or("--qk-head-dim", 128, 1, ModelLimits::head_dim);
        mla.qk_rope_head_dim = flags.integer_or("--qk-pos-emb-head-dim", 64, 0, ModelLimits::head_dim);
        mla.v_head_dim = flags.integer_or("--v-head-dim", 128, 1, ModelLimits::head_dim);
        if (flags.raw("--experimental-attention-variant") == "dsa") read_indexer(flags, mla);
        model.mla = mla;
        model.head_dim = 0;
        return;
    }
    if (const auto channels = flags.integer("--kv-channels", 1, ModelLimits::head_dim)) {
        model.head_dim = *channels;
    } else {
        model.head_dim = std::max<std::int64_t>(1, model.hidden / model.heads);
        if (!flags.has("--kv-channels") && flags.problems().empty() && model.hidden % model.heads != 0)
            flags.problem("--num-attention-heads = {} does not divide --hidden-size = {}; give --kv-channels, or use {}", model.heads,
                          model.hidden, divisors_text(model.hidden, model.hidden));
    }
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

/// --window-size LEFT,RIGHT, "128,0" or "(128, 0)": a query sees its own place and LEFT before it (core/transformer/utils.py,
/// get_sliding_window_causal_mask; Transformer Engine's DotProductAttention, inclusive at both ends); -1 is no border.
void read_window(FlagReader& flags, Job& job) {
    const auto window = flags.texts("--window-size");
    if (!window.empty()) {
        std::string left = window.front();
        std::erase_if(left, [](char c) { return c == '(' || c == ')'; });
        const auto tokens = parse_integer(left);
        if (!tokens || *tokens < -1 || *tokens >= ModelLimits::positions)
            flags.problem("--window-size = '{}' does not start with a number of tokens; write 4096,0", FlagReader::shown(left));
        else
            job.model.sliding_window = *tokens + 1;
    }
    read_full_attention(flags, job);
}

/// --position-embedding-type.
PositionEmbedding read_position_kind(FlagReader& flags) {
    constexpr std::string_view kFlag = "--position-embedding-type";
    if (flags.raw(kFlag) == "alibi") {  // of forks: BigScience's Megatron-DeepSpeed, MindSpeed-LLM
        flags.cannot_plan("{} = alibi: attention scores lowered by distance (ALiBi) cannot be planned; use rope or learned_absolute",
                          kFlag);
        return PositionEmbedding::none;
    }
    return flags.choice<PositionEmbedding>(kFlag, PositionEmbedding::learned,
                                           {{"learned_absolute", PositionEmbedding::learned},
                                            {"rope", PositionEmbedding::rope},
                                            {"yarn", PositionEmbedding::rope},
                                            {"mrope", PositionEmbedding::rope},
                                            {"relative", PositionEmbedding::none},
                                            {"none", PositionEmbedding::none}});
}

void read_positions(FlagReader& flags, ModelSpec& model) {
    model.position = read_position_kind(flags);
    if (flags.has("--use-rotary-position-embeddings")) model.position = PositionEmbedding::rope;
    if (flags.has("--no-position-embedding") && model.position == PositionEmbedding::learned) model.position = PositionEmbedding::none;
    model.rotary_fraction = flags.real_or("--rotary-percent", 1.0, 0, 1);
    model.rotary_base = flags.real_or("--rotary-base", 10000, 0, ModelLimits::rotary_base);
    model.norm_epsilon = flags.real_or("--norm-epsilon", 1e-5, 0, 1);
    model.init_deviation = flags.real_or("--init-method-std", model.init_deviation, 0, ModelLimits::init_deviation);
    const std::string kind = flags.text("--position-embedding-type").value_or("");
    if (kind == "yarn" || kind == "mrope") model.rotary_scaling = kind;
    RotaryScaling& values = model.rotary_scaling_values;
    const auto read = [&](std::string_view flag, double fallback, double low) {
        return flags.real_or(flag, fallback, low, ModelLimits::rotary_scaling);
    };
    // rotary_pos_embedding.py, apply_scaling: Llama 3's own numbers but for the factor.
    const double llama3_factor = read("--rope-scaling-factor", 8, 1e-6);
    if (flags.has("--use-rope-scaling")) {
        model.rotary_scaling = "llama3";
        values.factor = llama3_factor;
        values.original_positions = 8192;
    }
    if (flags.has("--rotary-seq-len-interpolation-factor") && model.position == PositionEmbedding::rope) {
        model.rotary_scaling = "linear";
        values.factor = read("--rotary-seq-len-interpolation-factor", 1, 1e-6);
    }
    if (model.mla) {
        // MLATransformerConfig's rope_type is yarn unless it is named.
        const std::string type = flags.text("--rope-type").value_or("yarn");
        model.rotary_scaling = type == "rope" ? "" : type.substr(0, 40);
        // MLATransformerConfig's defaults.
        values = {.factor = read("--rotary-scaling-factor", 40, 1e-6),
                  .original_positions = flags.integer_or("--original-max-position-embeddings", 4096, 0, ModelLimits::positions),
                  .beta_fast = read("--beta-fast", 32, 1e-6),
                  .beta_slow = read("--beta-slow", 1, 1e-6),
                  .mscale = read("--mscale", 1, 0),
                  .mscale_all_dim = read("--mscale-all-dim", 0, 0)};
        if (model.rotary_scaling.empty()) values = {};
    }
    const std::string softmax = flags.text("--softmax-type").value_or("vanilla");
    model.attention_sinks = softmax == "learnable";
}

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

void read_mlp(FlagReader& flags, ModelSpec& model) {
    const bool swiglu = flags.has("--swiglu"), quick_geglu = flags.has("--quick-geglu"), squared = flags.has("--squared-relu");
    if (swiglu && (quick_geglu || squared)) flags.problem("--swiglu excludes --squared-relu and --quick-geglu; keep one");
    model.gated_mlp = swiglu || quick_geglu;
    model.activation = swiglu ? Activation::silu : squared ? Activation::squared_relu : Activation::gelu;
    // Its fused GELU, with biases alone, is the form by tanh (fused_bias_gelu.py); else it is torch's, by erf.
    read_xielu(flags, model);
    const bool is_gelu = !model.gated_mlp && model.activation == Activation::gelu;
    if (is_gelu && (flags.has("--disable-bias-linear") || flags.has("--no-bias-gelu-fusion"))) model.activation = Activation::gelu_exact;
    // gpt-oss' gate.
    if (quick_geglu && flags.real_or("--activation-func-clamp-value", 0, 0, 1e6) == 7 &&
        flags.real_or("--glu-linear-offset", 0, -1e6, 1e6) == 1)
        model.activation = Activation::clamped_swish;
    // SwiGLU's default keeps three matrices as large as two of width 4h, rounded down to a multiple of 64.
    const std::int64_t ffn = swiglu ? std::max<std::int64_t>(64, 8 * model.hidden / 3 / 64 * 64) : 4 * model.hidden;
    model.ffn = flags.integer_or("--ffn-hidden-size", ffn, 1, ModelLimits::ffn);
}

/// An integer N (every N-th layer from the first), or a list expression.
std::vector<bool> read_moe_layers(FlagReader& flags, std::int64_t layers) {
    std::vector<bool> moe(static_cast<std::size_t>(layers), true);
    const auto pattern = flags.text("--moe-layer-freq");
    if (!pattern) return moe;
    if (pattern->find('[') == std::string::npos) {
        const std::int64_t every = flags.integer_or("--moe-layer-freq", 1, 1, ModelLimits::layers);
        for (std::size_t layer = 0; layer < moe.size(); ++layer) moe[layer] = layer % static_cast<std::size_t>(every) == 0;
        return moe;
    }
    try {
        moe = parse_layer_pattern(*pattern, ModelLimits::layers);
    } catch (const ConfigError& error) {
        flags.problems().absorb(error, fmt::format("{}: --moe-layer-freq: ", flags.where()));
        return moe;
    }
    if (static_cast<std::int64_t>(moe.size()) != layers && flags.problems().empty())
        flags.problem("--moe-layer-freq = {} has {} entries for --num-layers = {}; give one entry per layer", FlagReader::shown(*pattern),
                      moe.size(), layers);
    return moe;
}

TokenDispatcher read_dispatcher(FlagReader& flags) {
    enum class Kind { all_gather, all_to_all, flex };
    const Kind kind = flags.choice<Kind>(
        "--moe-token-dispatcher-type", Kind::all_gather,
        {{"allgather", Kind::all_gather}, {"alltoall", Kind::all_to_all}, {"alltoall_seq", Kind::all_to_all}, {"flex", Kind::flex}});
    const TokenDispatcher backend = flags.choice<TokenDispatcher>(
        "--moe-flex-dispatcher-backend", TokenDispatcher::deep_ep,
        {{"deepep", TokenDispatcher::deep_ep}, {"hybridep", TokenDispatcher::hybrid_ep}, {"ncclep", TokenDispatcher::hybrid_ep}});
    if (flags.raw("--moe-flex-dispatcher-backend") == "ncclep" && kind == Kind::flex)
        flags.not_computed("--moe-flex-dispatcher-backend", "NCCL's expert parallelism, predicted as hybridep", Decides::fit);
    // AMD's Primus takes the flex dispatcher with DeepEP then, whatever the command says (its patches/turbo/moe_dispatcher_patches.py).
    if (flags.has("--use-turbo-deepep")) return TokenDispatcher::deep_ep;
    if (kind == Kind::flex) return backend;
    return kind == Kind::all_gather ? TokenDispatcher::all_gather : TokenDispatcher::all_to_all;
}

void read_moe(FlagReader& flags, ModelSpec& model, MegatronSwitches& switches) {
    const std::int64_t experts = flags.integer_or("--num-experts", 0, 0, ModelLimits::experts);
    if (experts == 0) return;
    MoeSpec moe;
    moe.experts = experts;
    moe.top_k = flags.integer_or("--moe-router-topk", 2, 1, ModelLimits::experts);
    moe.expert_ffn = flags.integer_or("--moe-ffn-hidden-size", model.ffn, 1, ModelLimits::ffn);
    moe.latent = flags.integer_or("--moe-latent-size", 0, 0, ModelLimits::hidden);
    moe.shared_ffn = flags.integer_or("--moe-shared-expert-intermediate-size", 0, 0, ModelLimits::ffn);
    moe.shared_gate = flags.has("--moe-shared-expert-gate") && moe.shared_ffn > 0;
    moe.expert_bias = flags.has("--moe-router-enable-expert-bias");
    moe.expert_bias_update_rate =
        flags.real_or("--moe-router-bias-update-rate", moe.expert_bias_update_rate, 0, ModelLimits::expert_bias_update_rate);
    moe.router_bias = model.mlp_bias;  // transformer/moe/router.py: with add_bias_linear
    moe.score = flags.choice<RouterScore>(
        "--moe-router-score-function", RouterScore::softmax,
        {{"softmax", RouterScore::softmax}, {"sigmoid", RouterScore::sigmoid}, {"sqrtsoftplus", RouterScore::sigmoid}});
    moe.dispatcher = read_dispatcher(flags);
    moe.grouped_gemm = flags.has("--moe-grouped-gemm");
    // This kind of balancing is trained, and no other; its weight changes no prediction.
    const std::string balancing = flags.text("--moe-router-load-balancing-type").value_or("aux_loss");
    if (balancing == "aux_loss") moe.auxiliary_loss = flags.real_or("--moe-aux-loss-coeff", 0, 0, ModelLimits::auxiliary_loss);
    if (balancing == "seq_aux_loss") moe.sequence_auxiliary_loss = flags.real_or("--moe-aux-loss-coeff", 0, 0, ModelLimits::auxiliary_loss);
    // moe_utils.py, topk_routing_with_score_function: a factor of 0 is none; sigmoid scores are normalised in any case.
    const double scaling = flags.real_or("--moe-router-topk-scaling-factor", 1, 0, ModelLimits::routed_scaling);
    moe.routed_scaling = scaling == 0 ? 1 : scaling;
    moe.normalize_top_k = !flags.has("--moe-router-pre-softmax") || moe.score != RouterScore::softmax;
    // Negative: Megatron-LM's own way to say none.
    moe.capacity_factor = std::max(0.0, flags.real_or("--moe-expert-capacity-factor", 0, -1, static_cast<double>(ModelLimits::experts)));
    moe.pad_to_capacity = flags.has("--moe-pad-expert-input-to-capacity");
    const std::int64_t groups = flags.integer_or("--moe-router-num-groups", 0, 0, ModelLimits::experts);
    if (groups > 1) {
        moe.groups = groups;
        moe.group_top_k = flags.integer_or("--moe-router-group-topk", groups, 1, ModelLimits::experts);
    }
    const std::string router = flags.text("--moe-router-dtype").value_or("");
    switches.router_fp32 = router == "fp32" || router == "fp64";
    switches.moe_permute_fusion = flags.has("--moe-permute-fusion");
    switches.moe_shared_expert_overlap = flags.has("--moe-shared-expert-overlap");
    model.moe = moe;
    model.moe_layers = read_moe_layers(flags, model.layers);
    if (std::find(model.moe_layers.begin(), model.moe_layers.end(), true) == model.moe_layers.end()) {
        model.moe.reset();
        model.moe_layers.clear();
    }
}

/// The size that the command does not give, from the tokenizer that it names; says so.
std::optional<std::int64_t> tokenizers_size(FlagReader& flags, Job& job, const std::string& folder) {
    TokenizerFlags tokenizer{flags.raw("--tokenizer-type"), flags.raw("--tokenizer-model"), flags.raw("--vocab-file")};
    if (tokenizer.model.empty()) tokenizer.model = flags.raw("--tokenizer-name-or-path");
    const auto found = find_vocabulary(tokenizer, folder);
    if (!found) return std::nullopt;
    const std::int64_t extra = flags.integer_or("--vocab-extra-ids", 0, 0, ModelLimits::vocab);
    job.assumptions.push_back(fmt::format("vocabulary of {} ({})", counted(found->tokens + extra, "token"), found->source));
    return found->tokens + extra;
}

/// The table has --padded-vocab-size rows, whatever else is said (argument_utils.py, gpt_config_from_args). `tokens`: where they are known;
/// else each row is one.
std::int64_t padded_vocabulary(FlagReader& flags, ModelSpec& model, std::optional<std::int64_t> tokens) {
    const auto rows = flags.integer("--padded-vocab-size", 1, ModelLimits::vocab);
    if (!rows) return tokens.value_or(1);
    model.padded_rows = *rows;
    flags.idle("--make-vocab-size-divisible-by");
    if (tokens && *tokens > *rows)
        flags.problem("--padded-vocab-size = {} is less than the {} tokens of --vocab-size, which have a row each; use {} or more", *rows,
                      *tokens, *tokens);
    return tokens ? std::min(*tokens, *rows) : *rows;
}

void read_vocabulary(FlagReader& flags, Job& job, const MegatronSurroundings& surroundings) {
    ModelSpec& model = job.model;
    model.vocab_divisor = flags.integer_or("--make-vocab-size-divisible-by", 128, 1, ModelLimits::vocab);
    // build_tokenizer.py then leaves args.padded_vocab_size at None, by which training.py, num_floating_point_operations, multiplies.
    if (flags.has("--no-pad-vocab-size") && !flags.has("--padded-vocab-size")) {
        // checkpointing.py, load_args_from_checkpoint, sets it from the checkpoint's arguments where the command does not.
        if (flags.has("--use-checkpoint-args") && (flags.has("--load") || flags.has("--pretrained-checkpoint")))
            flags.missing_fact(
                "--no-pad-vocab-size with --use-checkpoint-args, by which the checkpoint tells the number of rows of the embedding; give "
                "it "
                "as --padded-vocab-size N");
        else
            flags.problem(
                "--no-pad-vocab-size without --padded-vocab-size, at which Megatron-LM stops in its first step; give the number of rows of "
                "the "
                "embedding as --padded-vocab-size N, or remove --no-pad-vocab-size");
    }
    const auto ignore = [&](std::initializer_list<const char*> others) {
        for (const auto* flag : others) flags.idle(flag);
    };
    const auto ignore_tokenizer = [&] {
        ignore({"--tokenizer-type", "--tokenizer-model", "--tokenizer-name-or-path", "--vocab-file", "--vocab-extra-ids"});
    };
    if (surroundings.vocab) {
        model.vocab = padded_vocabulary(flags, model, surroundings.vocab);
        ignore({"--vocab-size"});
        ignore_tokenizer();
    } else if (flags.has("--vocab-size")) {
        model.vocab = padded_vocabulary(flags, model, flags.integer_or("--vocab-size", 1, 1, ModelLimits::vocab));
        ignore_tokenizer();
    } else if (flags.has("--padded-vocab-size")) {
        model.vocab = padded_vocabulary(flags, model, std::nullopt);
        ignore_tokenizer();
    } else if (const auto size = tokenizers_size(flags, job, surroundings.folder)) {
        model.vocab = std::clamp<std::int64_t>(*size, 1, ModelLimits::vocab);
    } else if (surroundings.vocab_if_missing) {
        model.vocab = *surroundings.vocab_if_missing;
    } else {
        flags.missing_fact(
            "--vocab-size is missing; Megatron-LM reads it from the tokenizer, which is neither known nor at hand, so give its size, as "
            "--vocab-size N beside --megatron-args FILE too (GPT-2: 50257, Llama 3: 128256)");
        model.vocab = 1;
    }
}

}  // namespace

void read_model(FlagReader& flags, Job& job, MegatronSwitches& switches, const MegatronSurroundings& surroundings) {
    ModelSpec& model = job.model;
    refuse_other_models(flags);
    const auto need = [&](std::string_view flag, std::string_view why) {
        if (!flags.has(flag)) flags.problem("{} is missing; {}", flag, why);
    };
    const std::optional<HybridPattern> hybrid = hybrid_pattern(flags);
    if (hybrid) check_hybrid(flags, *hybrid);
    read_spec(flags, hybrid.has_value());
    const std::string_view layers_flag =
        flags.has("--num-layers") || !flags.has("--encoder-num-layers") ? "--num-layers" : "--encoder-num-layers";
    if (!hybrid) need(layers_flag, "give the number of transformer layers");
    need("--hidden-size", "give the width of the model");
    need("--num-attention-heads", "give the number of attention heads");
    model.layers = flags.integer_or(layers_flag, 1, 1, ModelLimits::layers);
    if (hybrid && hybrid->flag.ends_with("pattern")) {
        model.layers = std::max<std::int64_t>(1, std::ssize(hybrid->layers));  // arguments.py takes the pattern's number
        flags.idle(layers_flag);
    }
    model.hidden = flags.integer_or("--hidden-size", 1, 1, ModelLimits::hidden);
    const bool linear_bias = !flags.has("--disable-bias-linear");
    model.attention_output_bias = model.mlp_bias = linear_bias;
    model.qkv_bias = (linear_bias || flags.has("--add-qkv-bias")) && !flags.has("--multi-latent-attention");
    read_heads(flags, model);
    read_mlp(flags, model);
    model.normalization = flags.choice<Normalization>("--normalization", Normalization::layer_norm,
                                                      {{"LayerNorm", Normalization::layer_norm}, {"RMSNorm", Normalization::rms_norm}});
    read_positions(flags, model);
    read_window(flags, job);
    model.qk_norm = flags.has("--qk-layernorm");
    model.attention_output_gate = flags.has("--attention-output-gate");
    if (model.mla && model.attention_output_gate)
        flags.problem("--attention-output-gate with --multi-latent-attention, which Megatron-LM does not have; remove one");
    model.tied_embeddings = !flags.has("--untie-embeddings-and-output-weights");
    read_vocabulary(flags, job, surroundings);
    model.attention_dropout = flags.real_or("--attention-dropout", 0.1, 0, 1);
    model.hidden_dropout = flags.real_or("--hidden-dropout", 0.1, 0, 1);
    model.mtp_layers = flags.integer_or("--mtp-num-layers", 0, 0, ModelLimits::mtp_layers);
    model.mtp_repeated = flags.has("--mtp-use-repeated-layer") && model.mtp_layers > 1;
    if (!model.mtp_repeated) flags.idle("--mtp-use-repeated-layer");
    model.mtp_loss_factor = flags.real_or("--mtp-loss-scaling-factor", model.mtp_loss_factor, 0, ModelLimits::mtp_loss_factor);
    if (!hybrid || hybrid->layers.find('E') != std::string::npos) read_moe(flags, model, switches);
    const std::string_view sequence_flag =
        flags.has("--seq-length") || !flags.has("--encoder-seq-length") ? "--seq-length" : "--encoder-seq-length";
    model.default_sequence = flags.integer(sequence_flag, 1, ModelLimits::positions);
    model.default_global_batch = read_global_batch(flags, job);
    model.max_positions = flags.integer_or("--max-position-embeddings", model.default_sequence.value_or(4096), 1, ModelLimits::positions);
    if (model.default_sequence && *model.default_sequence > model.max_positions)
        flags.problem("{} = {} is longer than --max-position-embeddings = {}; raise the latter", sequence_flag, *model.default_sequence,
                      model.max_positions);
    compose_hybrid(flags, model, hybrid);
    if (model.default_sequence && model.default_global_batch)
        job.batch = BatchSpec{.global_batch = *model.default_global_batch, .sequence = *model.default_sequence};
}

}  // namespace mgplan::formats
