#include "importers/megatron_arguments.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "importers/megatron_flags.hpp"
#include "plan/errors.hpp"
#include "plan/layer_pattern.hpp"
#include "plan/pipeline_layout.hpp"
#include "plan/text.hpp"

// Defaults and rules: megatron/training/arguments.py (parsers and validate_args) of Megatron-LM.

namespace mgplan::importers {
namespace {

constexpr std::int64_t kSizeLimit = std::int64_t{1} << 30;  ///< of parallel sizes and counts

template <class Value>
using Choices = std::vector<std::pair<std::string_view, Value>>;

/// Values of the flags that are interpreted; what is wrong with them becomes problems.
class FlagReader {
public:
    FlagReader(const ParsedFlags& parsed, const std::string& where, Problems& problems)
        : parsed_(parsed), where_(where), problems_(problems) {}

    [[nodiscard]] bool has(std::string_view flag) const { return parsed_.used.contains(flag); }
    [[nodiscard]] Problems& problems() { return problems_; }
    [[nodiscard]] const std::string& where() const { return where_; }

    template <class... Args>
    void problem(fmt::format_string<Args...> format, Args&&... args) {
        problems_.add("{}: {}", where_, fmt::format(format, std::forward<Args>(args)...));
    }

    /// The value of a flag, "" (and a problem) when it stands there without one; nothing when it is absent.
    std::optional<std::string> text(std::string_view flag) {
        const auto found = parsed_.used.find(flag);
        if (found == parsed_.used.end()) return std::nullopt;
        if (found->second.empty() || found->second.front().empty()) {
            problem("{} needs a value", flag);
            return std::nullopt;
        }
        return checked(flag, found->second.front());
    }

    std::vector<std::string> texts(std::string_view flag) {
        std::vector<std::string> values;
        const auto found = parsed_.used.find(flag);
        if (found == parsed_.used.end()) return values;
        for (const auto& value : found->second) {
            // Some write lists with commas or brackets.
            std::string plain = value;
            std::replace_if(
                plain.begin(), plain.end(), [](char c) { return c == ',' || c == '[' || c == ']' || c == '"'; }, ' ');
            for (const auto& word : split(plain, ' ')) {
                if (word.empty()) continue;
                if (const auto kept = checked(flag, word)) values.push_back(*kept);
            }
        }
        return values;
    }

    std::optional<std::int64_t> integer(std::string_view flag, std::int64_t low, std::int64_t high) {
        const auto value = text(flag);
        if (!value) return std::nullopt;
        const std::size_t before = problems_.list().size();
        const std::int64_t number = read_integer(problems_, fmt::format("{}: {}", where_, flag), *value, low, high);
        if (problems_.list().size() != before) return std::nullopt;
        return number;
    }

    std::int64_t integer_or(std::string_view flag, std::int64_t fallback, std::int64_t low, std::int64_t high) {
        return integer(flag, low, high).value_or(fallback);
    }

    double real_or(std::string_view flag, double fallback, double low, double high) {
        const auto value = text(flag);
        if (!value) return fallback;
        const auto number = parse_real(*value);
        if (!number || !(*number >= low && *number <= high)) {
            problem("{} = '{}' is no number from {} to {}", flag, shown(*value), low, high);
            return fallback;
        }
        return *number;
    }

    template <class Value>
    Value choice(std::string_view flag, Value fallback, const Choices<Value>& choices) {
        const auto value = text(flag);
        return value ? named(flag, *value, fallback, choices) : fallback;
    }

    template <class Value>
    Value named(std::string_view flag, const std::string& value, Value fallback, const Choices<Value>& choices) {
        std::vector<std::string> names;
        for (const auto& [name, meaning] : choices) {
            if (name == value) return meaning;
            names.emplace_back(name);
        }
        problem("{} = '{}' is not known; use {}", flag, shown(value), any_of_text(names));
        return fallback;
    }

    static std::string shown(const std::string& value) { return value.size() > 60 ? value.substr(0, 57) + "..." : value; }

private:
    std::optional<std::string> checked(std::string_view flag, const std::string& value) {
        if (value.find('$') == std::string::npos && value.find('`') == std::string::npos) return value;
        problem("{} = {} holds a variable that the file does not set; write its value", flag, shown(value));
        return std::nullopt;
    }

    const ParsedFlags& parsed_;
    const std::string& where_;
    Problems& problems_;
};

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

void read_positions(FlagReader& flags, ModelSpec& model) {
    model.position = flags.choice<PositionEmbedding>("--position-embedding-type", PositionEmbedding::learned,
                                                     {{"learned_absolute", PositionEmbedding::learned},
                                                      {"rope", PositionEmbedding::rope},
                                                      {"yarn", PositionEmbedding::rope},
                                                      {"mrope", PositionEmbedding::rope},
                                                      {"relative", PositionEmbedding::none},
                                                      {"none", PositionEmbedding::none}});
    if (flags.has("--use-rotary-position-embeddings")) model.position = PositionEmbedding::rope;
    if (flags.has("--no-position-embedding") && model.position == PositionEmbedding::learned) model.position = PositionEmbedding::none;
    model.rotary_fraction = flags.real_or("--rotary-percent", 1.0, 0, 1);
    // "128,0" or "(128, 0)": tokens to the left and to the right; -1 is no border.
    const auto window = flags.texts("--window-size");
    if (!window.empty()) {
        std::string left = window.front();
        std::erase_if(left, [](char c) { return c == '(' || c == ')'; });
        const auto tokens = parse_integer(left);
        if (!tokens || *tokens < -1 || *tokens > ModelLimits::positions)
            flags.problem("--window-size = '{}' does not start with a number of tokens; write 4096,0", FlagReader::shown(left));
        else
            model.sliding_window = std::max<std::int64_t>(0, *tokens);
    }
    const std::string softmax = flags.text("--softmax-type").value_or("vanilla");
    model.attention_sinks = softmax == "learnable";
}

void read_mlp(FlagReader& flags, ModelSpec& model) {
    const bool swiglu = flags.has("--swiglu"), quick_geglu = flags.has("--quick-geglu"), squared = flags.has("--squared-relu");
    if (swiglu && (quick_geglu || squared)) flags.problem("--swiglu excludes --squared-relu and --quick-geglu; keep one");
    model.gated_mlp = swiglu || quick_geglu;
    model.activation = swiglu ? Activation::silu : squared ? Activation::squared_relu : Activation::gelu;
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
    const TokenDispatcher backend =
        flags.choice<TokenDispatcher>("--moe-flex-dispatcher-backend", TokenDispatcher::deep_ep,
                                      {{"deepep", TokenDispatcher::deep_ep}, {"hybridep", TokenDispatcher::hybrid_ep}});
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
    moe.shared_ffn = flags.integer_or("--moe-shared-expert-intermediate-size", 0, 0, ModelLimits::ffn);
    moe.shared_gate = flags.has("--moe-shared-expert-gate") && moe.shared_ffn > 0;
    moe.expert_bias = flags.has("--moe-router-enable-expert-bias");
    moe.router_bias = model.mlp_bias;  // transformer/moe/router.py: with add_bias_linear
    moe.score = flags.choice<RouterScore>(
        "--moe-router-score-function", RouterScore::softmax,
        {{"softmax", RouterScore::softmax}, {"sigmoid", RouterScore::sigmoid}, {"sqrtsoftplus", RouterScore::sigmoid}});
    moe.dispatcher = read_dispatcher(flags);
    moe.grouped_gemm = flags.has("--moe-grouped-gemm");
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

void refuse_other_models(FlagReader& flags) {
    for (const auto* flag :
         {"--is-hybrid-model", "--hybrid-layer-pattern", "--hybrid-override-pattern", "--hybrid-attention-ratio", "--hybrid-mlp-ratio"}) {
        if (flags.has(flag)) {
            flags.problem("{}: hybrids of Mamba and attention cannot be planned; give a model of transformer layers only", flag);
            return;
        }
    }
}

void read_model(FlagReader& flags, Job& job, MegatronSwitches& switches) {
    ModelSpec& model = job.model;
    refuse_other_models(flags);
    const auto need = [&](std::string_view flag, std::string_view why) {
        if (!flags.has(flag)) flags.problem("{} is missing; {}", flag, why);
    };
    const std::string_view layers_flag =
        flags.has("--num-layers") || !flags.has("--encoder-num-layers") ? "--num-layers" : "--encoder-num-layers";
    need(layers_flag, "give the number of transformer layers");
    need("--hidden-size", "give the width of the model");
    need("--num-attention-heads", "give the number of attention heads");
    model.layers = flags.integer_or(layers_flag, 1, 1, ModelLimits::layers);
    model.hidden = flags.integer_or("--hidden-size", 1, 1, ModelLimits::hidden);
    const bool linear_bias = !flags.has("--disable-bias-linear");
    model.attention_output_bias = model.mlp_bias = linear_bias;
    model.qkv_bias = (linear_bias || flags.has("--add-qkv-bias")) && !flags.has("--multi-latent-attention");
    read_heads(flags, model);
    read_mlp(flags, model);
    model.normalization = flags.choice<Normalization>("--normalization", Normalization::layer_norm,
                                                      {{"LayerNorm", Normalization::layer_norm}, {"RMSNorm", Normalization::rms_norm}});
    read_positions(flags, model);
    model.qk_norm = flags.has("--qk-layernorm");
    model.tied_embeddings = !flags.has("--untie-embeddings-and-output-weights");
    model.vocab_divisor = flags.integer_or("--make-vocab-size-divisible-by", 128, 1, ModelLimits::vocab);
    if (flags.has("--vocab-size")) {
        model.vocab = flags.integer_or("--vocab-size", 1, 1, ModelLimits::vocab);
    } else if (flags.has("--padded-vocab-size")) {
        model.vocab = flags.integer_or("--padded-vocab-size", 1, 1, ModelLimits::vocab);
    } else {
        flags.problem("--vocab-size is missing; Megatron-LM reads it from the tokenizer, so give its size (GPT-2: 50257, Llama 3: 128256)");
        model.vocab = 1;
    }
    model.attention_dropout = flags.real_or("--attention-dropout", 0.1, 0, 1);
    model.hidden_dropout = flags.real_or("--hidden-dropout", 0.1, 0, 1);
    model.mtp_layers = flags.integer_or("--mtp-num-layers", 0, 0, ModelLimits::mtp_layers);
    read_moe(flags, model, switches);
    const std::string_view sequence_flag =
        flags.has("--seq-length") || !flags.has("--encoder-seq-length") ? "--seq-length" : "--encoder-seq-length";
    model.default_sequence = flags.integer(sequence_flag, 1, ModelLimits::positions);
    model.default_global_batch = flags.integer("--global-batch-size", 1, ModelLimits::positions);
    model.max_positions = flags.integer_or("--max-position-embeddings", model.default_sequence.value_or(4096), 1, ModelLimits::positions);
    if (model.default_sequence && *model.default_sequence > model.max_positions && flags.problems().empty())
        flags.problem("{} = {} is longer than --max-position-embeddings = {}; raise the latter", sequence_flag, *model.default_sequence,
                      model.max_positions);
    if (model.default_sequence && model.default_global_batch)
        job.batch = BatchSpec{.global_batch = *model.default_global_batch, .sequence = *model.default_sequence};
}

void read_stages(FlagReader& flags, LayoutRequest& layout) {
    StageSplitRequest split;
    split.first_stage_layers = flags.integer("--decoder-first-pipeline-num-layers", 0, ModelLimits::layers);
    split.last_stage_layers = flags.integer("--decoder-last-pipeline-num-layers", 0, ModelLimits::layers);
    split.account_for_embedding = flags.has("--account-for-embedding-in-pipeline-split");
    split.account_for_loss = flags.has("--account-for-loss-in-pipeline-split");
    split.pipeline_layout = flags.text("--pipeline-model-parallel-layout");
    // Megatron-LM splits evenly unless told otherwise; a request without any wish says so.
    layout.split = split;
    const auto per_chunk = flags.integer("--num-layers-per-virtual-pipeline-stage", 1, ModelLimits::layers);
    const auto chunks = flags.integer("--num-virtual-stages-per-pipeline-rank", 1, ModelLimits::layers);
    if (static_cast<int>(per_chunk.has_value()) + static_cast<int>(chunks.has_value()) +
            static_cast<int>(split.pipeline_layout.has_value()) >
        1)
        flags.problem(
            "--num-layers-per-virtual-pipeline-stage, --num-virtual-stages-per-pipeline-rank and --pipeline-model-parallel-layout exclude "
            "each other; keep one");
    if (chunks) layout.vpp = *chunks;
    if (per_chunk && layout.pp > 1) layout.layers_per_virtual_stage = per_chunk;
    if (split.pipeline_layout) {
        try {
            const auto stages = static_cast<std::int64_t>(parse_pipeline_layout(*split.pipeline_layout).size());
            if (stages % layout.pp == 0)
                layout.vpp = stages / layout.pp;
            else
                flags.problem(
                    "--pipeline-model-parallel-layout has {} stages, no multiple of --pipeline-model-parallel-size = {}; add or remove |",
                    stages, layout.pp);
        } catch (const ConfigError& error) {
            flags.problems().absorb(error, fmt::format("{}: --pipeline-model-parallel-layout: ", flags.where()));
        }
    }
    layout.group_size = flags.integer("--microbatch-group-size-per-virtual-pipeline-stage", 1, kSizeLimit);
}

CpCommType read_cp_comm_type(FlagReader& flags) {
    const auto types = flags.texts("--cp-comm-type");
    if (types.empty()) return CpCommType::p2p;
    if (std::any_of(types.begin(), types.end(), [&](const auto& type) { return type != types.front(); }))
        flags.problem("--cp-comm-type names several kinds, one per layer; only one kind for all layers can be planned");
    return flags.named<CpCommType>("--cp-comm-type", types.front(), CpCommType::p2p,
                                   {{"p2p", CpCommType::p2p},
                                    {"all_gather", CpCommType::all_gather},
                                    {"allgather", CpCommType::all_gather},
                                    {"a2a", CpCommType::a2a},
                                    {"a2a+p2p", CpCommType::a2a_p2p}});
}

void read_recompute(FlagReader& flags, LayoutRequest& layout, std::vector<std::string>& assumptions) {
    layout.recompute = flags.choice<Recompute>("--recompute-granularity", Recompute::none,
                                               {{"full", Recompute::full}, {"selective", Recompute::selective}});
    if (flags.has("--recompute-activations")) layout.recompute = Recompute::selective;
    if (const auto modules = flags.texts("--recompute-modules"); !modules.empty()) {
        layout.recompute_modules = {};
        for (const auto& module : modules)
            layout.recompute_modules.add(flags.named<RecomputeModule>("--recompute-modules", module, RecomputeModule::core_attn,
                                                                      {{"core_attn", RecomputeModule::core_attn},
                                                                       {"mlp", RecomputeModule::mlp},
                                                                       {"moe_act", RecomputeModule::moe_act},
                                                                       {"layernorm", RecomputeModule::layernorm},
                                                                       {"mla_up_proj", RecomputeModule::mla_up_proj},
                                                                       {"moe", RecomputeModule::moe},
                                                                       {"shared_experts", RecomputeModule::shared_experts}}));
    }
    layout.recompute_method = flags.choice<RecomputeMethod>("--recompute-method", RecomputeMethod::uniform,
                                                            {{"uniform", RecomputeMethod::uniform}, {"block", RecomputeMethod::block}});
    layout.recompute_num_layers = flags.integer_or("--recompute-num-layers", 1, 0, ModelLimits::layers);
    if (layout.recompute != Recompute::full) return;
    if (!flags.has("--recompute-method")) assumptions.emplace_back("full recompute without --recompute-method: uniform taken");
    if (!flags.has("--recompute-num-layers")) assumptions.emplace_back("full recompute without --recompute-num-layers: 1 taken");
    if (layout.recompute_method == RecomputeMethod::uniform && layout.recompute_num_layers == 0)
        flags.problem("--recompute-num-layers = 0 with --recompute-method uniform; give the layers of one checkpoint, at least 1");
}

void read_cuda_graphs(FlagReader& flags, LayoutRequest& layout) {
    enum class Graphs { off, on, full_iteration };
    Graphs graphs = flags.choice<Graphs>(
        "--cuda-graph-impl", Graphs::off,
        {{"none", Graphs::off}, {"local", Graphs::on}, {"transformer_engine", Graphs::on}, {"full_iteration", Graphs::full_iteration}});
    if (flags.has("--enable-cuda-graph") || flags.has("--external-cuda-graph")) graphs = Graphs::on;
    if (graphs == Graphs::off) return;
    if (graphs == Graphs::full_iteration) {
        layout.cuda_graphs.add(CudaGraphScope::full_iteration);
        return;
    }
    const Choices<CudaGraphScope> scopes{{"attn", CudaGraphScope::attn},
                                         {"mlp", CudaGraphScope::mlp},
                                         {"moe", CudaGraphScope::moe},
                                         {"moe_router", CudaGraphScope::moe_router},
                                         {"moe_preprocess", CudaGraphScope::moe_preprocess},
                                         {"full", CudaGraphScope::layer},
                                         {"layer", CudaGraphScope::layer},
                                         {"full_iteration", CudaGraphScope::full_iteration}};
    for (const auto* flag : {"--cuda-graph-scope", "--cuda-graph-modules"}) {
        for (const auto& scope : flags.texts(flag)) layout.cuda_graphs.add(flags.named(flag, scope, CudaGraphScope::layer, scopes));
    }
    if (layout.cuda_graphs.empty()) layout.cuda_graphs.add(CudaGraphScope::layer);  // no scope: whole layers
}

void read_layout(FlagReader& flags, Job& job) {
    LayoutRequest layout;
    layout.engine = Engine::megatron;
    layout.tp = flags.integer_or("--tensor-model-parallel-size", 1, 1, kSizeLimit);
    layout.cp = flags.integer_or("--context-parallel-size", 1, 1, kSizeLimit);
    layout.pp = flags.integer_or("--pipeline-model-parallel-size", 1, 1, kSizeLimit);
    layout.ep = flags.integer_or("--expert-model-parallel-size", 1, 1, kSizeLimit);
    layout.etp = flags.integer("--expert-tensor-parallel-size", 1, kSizeLimit);
    layout.micro_batch = flags.integer_or("--micro-batch-size", 1, 1, ModelLimits::positions);
    if (!flags.has("--micro-batch-size")) job.assumptions.emplace_back("--micro-batch-size not given: 1 taken");
    // Without tensor parallelism Megatron-LM switches sequence parallelism off.
    layout.sequence_parallel = flags.has("--sequence-parallel") && layout.tp > 1;
    if (flags.has("--use-tp-pp-dp-mapping")) layout.order = AxisOrder::parse("tp-cp-ep-pp-dp");
    layout.cp_comm_type = read_cp_comm_type(flags);
    read_stages(flags, layout);
    read_recompute(flags, layout, job.assumptions);
    read_cuda_graphs(flags, layout);
    if (layout.ep > 1 && !job.model.moe && flags.problems().empty())
        flags.problem("--expert-model-parallel-size = {} without --num-experts; remove it or give the experts", layout.ep);
    job.layout = std::move(layout);
}

void read_precision(FlagReader& flags, TrainingSpec& training, std::vector<std::string>& not_computed) {
    const bool bf16 = flags.has("--bf16"), fp16 = flags.has("--fp16");
    if (bf16 && fp16) flags.problem("--bf16 and --fp16 exclude each other; keep one");
    training.precision = bf16 ? Precision::bf16 : fp16 ? Precision::fp16 : Precision::fp32;
    const Choices<Dtype> dtypes{{"fp32", Dtype::fp32}, {"bf16", Dtype::bf16}, {"fp16", Dtype::fp16}, {"fp8", Dtype::fp8}};
    const Dtype main_grads = flags.choice<Dtype>("--main-grads-dtype", Dtype::fp32, dtypes);
    training.main_param_dtype = flags.choice<Dtype>("--main-params-dtype", Dtype::fp32, dtypes);
    training.exp_avg_dtype = flags.choice<Dtype>("--exp-avg-dtype", Dtype::fp32, dtypes);
    training.exp_avg_sq_dtype = flags.choice<Dtype>("--exp-avg-sq-dtype", Dtype::fp32, dtypes);
    // bf16 accumulates gradients in fp32 unless told otherwise; fp16 only when told to.
    bool in_fp32 = flags.has("--accumulate-allreduce-grads-in-fp32") || training.precision == Precision::fp32;
    if (bf16) in_fp32 = flags.has("--grad-reduce-in-bf16") ? false : in_fp32 || main_grads == Dtype::fp32;
    training.grad_dtype = in_fp32 ? Dtype::fp32 : training.compute_dtype();
    if (const auto format = flags.text("--fp8-format"); format && *format != "none") {
        if (!bf16) not_computed.emplace_back("fp8 over weights that are not bf16 (--fp8-format without --bf16), predicted over bf16");
        training.precision = Precision::fp8;
    }
    training.fp8_parameters = training.precision == Precision::fp8 && flags.has("--fp8-param-gather");
    training.megatron.precision_aware_optimizer = flags.has("--use-precision-aware-optimizer");
    training.megatron.fp8_recipe = flags.choice<Fp8Recipe>("--fp8-recipe", Fp8Recipe::delayed,
                                                           {{"delayed", Fp8Recipe::delayed},
                                                            {"tensorwise", Fp8Recipe::tensorwise},
                                                            {"blockwise", Fp8Recipe::blockwise},
                                                            {"mxfp8", Fp8Recipe::mxfp8}});
}

void read_attention(FlagReader& flags, TrainingSpec& training) {
    training.megatron.transformer_engine =
        flags.choice<bool>("--transformer-impl", true, {{"transformer_engine", true}, {"local", false}, {"inference_optimized", true}});
    // auto: Transformer Engine takes a fused kernel for 16-bit types; the local implementation has none of its own.
    const bool fused = training.megatron.transformer_engine ? training.precision != Precision::fp32 : flags.has("--use-flash-attn");
    training.attention = fused ? AttentionBackend::flash : AttentionBackend::unfused;
    if (flags.has("--use-flash-attn") && training.precision != Precision::fp32) training.attention = AttentionBackend::flash;
    training.attention = flags.choice<AttentionBackend>("--attention-backend", training.attention,
                                                        {{"flash", AttentionBackend::flash},
                                                         {"fused", AttentionBackend::flash},
                                                         {"auto", training.attention},
                                                         {"unfused", AttentionBackend::unfused},
                                                         {"local", AttentionBackend::unfused}});
}

void read_switches(FlagReader& flags, MegatronSwitches& switches) {
    switches.gradient_accumulation_fusion = !flags.has("--no-gradient-accumulation-fusion");
    switches.bias_activation_fusion = !flags.has("--no-bias-gelu-fusion") && !flags.has("--no-bias-swiglu-fusion");
    switches.bias_dropout_fusion = !flags.has("--no-bias-dropout-fusion");
    switches.masked_softmax_fusion = !flags.has("--no-masked-softmax-fusion");
    switches.rope_fusion = !flags.has("--no-rope-fusion");
    switches.te_cross_entropy = flags.choice<bool>("--cross-entropy-fusion-impl", false, {{"native", false}, {"te", true}});
    switches.attention_mask_in_dataloader = !flags.has("--no-create-attention-mask-in-dataloader");
    switches.query_key_layer_scaling = flags.has("--apply-query-key-layer-scaling");
    switches.attention_softmax_in_fp32 = flags.has("--attention-softmax-in-fp32") || switches.query_key_layer_scaling;
    switches.fp32_residual_connection = flags.has("--fp32-residual-connection");
    switches.deterministic = flags.has("--deterministic-mode");
    switches.gradient_checks = !flags.has("--no-check-for-nan-in-loss-and-grad");
    switches.log_params_norm = flags.has("--log-params-norm");
    switches.log_num_zeros_in_grad = flags.has("--log-num-zeros-in-grad");
    switches.defer_embedding_wgrad = flags.has("--defer-embedding-wgrad-compute");
    switches.gather_with_optimizer_step = flags.has("--overlap-param-gather-with-optimizer-step");
    switches.delay_wgrad = flags.has("--delay-wgrad-compute");
    switches.bucket_size = flags.integer_or("--ddp-bucket-size", 0, 0, std::int64_t{1} << 50);
    switches.num_buckets = flags.integer_or("--ddp-num-buckets", 0, 0, kSizeLimit);
    switches.pad_buckets = flags.has("--ddp-pad-buckets-for-high-nccl-busbw");
}

void read_training(FlagReader& flags, Job& job, MegatronSwitches switches) {
    TrainingSpec training;
    training.megatron = switches;
    read_precision(flags, training, job.features_not_computed);
    read_attention(flags, training);
    read_switches(flags, training.megatron);
    training.distributed_optimizer = flags.has("--use-distributed-optimizer");
    training.distributed_optimizer_instances =
        static_cast<int>(flags.integer_or("--num-distributed-optimizer-instances", 1, 1, kSizeLimit));
    training.overlap_grad_reduce = flags.has("--overlap-grad-reduce");
    training.overlap_param_gather = flags.has("--overlap-param-gather");
    training.overlap_p2p = !flags.has("--no-overlap-p2p-communication");
    training.overlap_tp = flags.has("--tp-comm-overlap");
    training.overlap_moe = flags.has("--overlap-moe-expert-parallel-comm");
    training.fused_cross_entropy = flags.has("--cross-entropy-loss-fusion");
    const std::string optimizer = flags.text("--optimizer").value_or("adam");
    if (optimizer != "adam" && optimizer != "adamw")
        job.features_not_computed.push_back(fmt::format("optimizer {} (--optimizer), predicted as Adam", FlagReader::shown(optimizer)));
    // FSDP gathers parameters without the distributed optimizer's buffers; named as not computed already.
    const bool fsdp = std::any_of(job.features_not_computed.begin(), job.features_not_computed.end(),
                                  [](const std::string& feature) { return feature.find("FSDP") != std::string::npos; });
    if (training.overlap_param_gather && !training.distributed_optimizer && !fsdp)
        flags.problem("--overlap-param-gather needs --use-distributed-optimizer; add it");
    if (training.overlap_param_gather && !training.overlap_grad_reduce)
        flags.problem("--overlap-param-gather needs --overlap-grad-reduce; add it");
    job.training = training;
}

}  // namespace

Job read_megatron_arguments(const std::vector<std::string>& words, const std::string& where) {
    ParsedFlags parsed = parse_flags(words);
    if (parsed.used.empty())
        throw ConfigError(
            fmt::format("{}: holds no Megatron-LM flags (--num-layers 32 …), and is neither JSON nor YAML with MODEL_ARGS", where));
    Job job;
    job.flags_without_effect = std::move(parsed.without_effect);
    job.features_not_computed = std::move(parsed.not_computed);
    job.unknown_flags = std::move(parsed.unknown);
    Problems problems;
    FlagReader flags(parsed, where, problems);
    MegatronSwitches switches;
    read_model(flags, job, switches);
    read_layout(flags, job);
    read_training(flags, job, switches);
    problems.throw_if_any();
    job.model.name = "megatron";
    job.model.source = where;
    validate(job.model, where);
    return job;
}

}  // namespace mgplan::importers
