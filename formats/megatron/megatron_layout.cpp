#include "formats/megatron/flag_reader.hpp"
#include "formats/megatron/megatron_hybrid.hpp"

#include "plan/layout/pipeline_layout.hpp"

namespace mgplan::formats {
namespace {

void read_stages(FlagReader& flags, LayoutRequest& layout) {
    StageSplitRequest split;
    split.first_stage_layers = flags.integer("--decoder-first-pipeline-num-layers", 0, ModelLimits::layers);
    split.last_stage_layers = flags.integer("--decoder-last-pipeline-num-layers", 0, ModelLimits::layers);
    split.account_for_embedding = flags.has("--account-for-embedding-in-pipeline-split");
    split.account_for_loss = flags.has("--account-for-loss-in-pipeline-split");
    split.pipeline_layout = flags.text("--pipeline-model-parallel-layout");
    std::string_view stages_flag = "--pipeline-model-parallel-layout";
    const std::optional<HybridPattern> hybrid = hybrid_pattern(flags);
    if (hybrid && !split.pipeline_layout) {
        split.pipeline_layout = stages_of_pattern(*hybrid);
        if (split.pipeline_layout) stages_flag = hybrid->flag;
    }
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
    if (per_chunk && (split.first_stage_layers || split.last_stage_layers))
        flags.problem(
            "--num-layers-per-virtual-pipeline-stage with stages of different size (--decoder-first-pipeline-num-layers, "
            "--decoder-last-pipeline-num-layers); give --num-virtual-stages-per-pipeline-rank in its place");
    if (chunks) layout.vpp = *chunks;
    if (per_chunk && layout.pp > 1) layout.layers_per_virtual_stage = per_chunk;
    if (split.pipeline_layout) {
        try {
            const auto stages = static_cast<std::int64_t>(parse_pipeline_layout(*split.pipeline_layout).size());
            if (stages % layout.pp == 0)
                layout.vpp = stages / layout.pp;
            else
                flags.problem("{} has {} stages, no multiple of --pipeline-model-parallel-size = {}; add or remove |", stages_flag, stages,
                              layout.pp);
        } catch (const ConfigError& error) {
            flags.problems().absorb(error, fmt::format("{}: {}: ", flags.where(), stages_flag));
        }
    }
    // Primus' own name; one chunk of layers for each rank is what there is without it.
    if (flags.integer_or("--virtual-pipeline-model-parallel-size", 1, 0, ModelLimits::layers) != 1)
        flags.not_computed("--virtual-pipeline-model-parallel-size", "virtual pipeline of a fork", Decides::fit_and_legal);
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
        for (const auto& module : modules) {
            if (module == "gdn_norm_out" || module == "gdp_in_proj" || module == "gdp_qkv") {
                flags.not_computed("--recompute-modules", fmt::format("recompute of {}", module), Decides::fit);
                continue;
            }
            layout.recompute_modules.add(flags.named<RecomputeModule>("--recompute-modules", module, RecomputeModule::core_attn,
                                                                      {{"core_attn", RecomputeModule::core_attn},
                                                                       {"mlp", RecomputeModule::mlp},
                                                                       {"moe_act", RecomputeModule::moe_act},
                                                                       {"layernorm", RecomputeModule::layernorm},
                                                                       {"mla_up_proj", RecomputeModule::mla_up_proj},
                                                                       {"moe", RecomputeModule::moe},
                                                                       {"shared_experts", RecomputeModule::shared_experts},
                                                                       {"mhc", RecomputeModule::mhc}}));
        }
    }
    if (flags.has("--moe-layer-recompute")) {
        // transformer_config.py: the old name of the module moe, beside those that are recomputed anyway.
        if (layout.recompute == Recompute::full)
            flags.problem("--moe-layer-recompute with --recompute-granularity full, which recomputes all layers; remove it");
        layout.recompute = Recompute::selective;
        layout.recompute_modules.add(RecomputeModule::moe);
    }
    // Where no module that is computed is named, nothing is predicted as recomputed.
    if (layout.recompute == Recompute::selective && layout.recompute_modules.empty()) layout.recompute = Recompute::none;
    layout.recompute_method = flags.choice<RecomputeMethod>("--recompute-method", RecomputeMethod::uniform,
                                                            {{"uniform", RecomputeMethod::uniform}, {"block", RecomputeMethod::block}});
    layout.recompute_num_layers = flags.integer_or("--recompute-num-layers", 1, 0, ModelLimits::layers);
    if (layout.recompute != Recompute::full) return;
    if (!flags.has("--recompute-method")) assumptions.emplace_back("full recompute without --recompute-method: uniform taken");
    if (!flags.has("--recompute-num-layers")) assumptions.emplace_back("full recompute without --recompute-num-layers: 1 taken");
    if (layout.recompute_method == RecomputeMethod::uniform && layout.recompute_num_layers == 0)
        flags.problem("--recompute-num-layers = 0 with --recompute-method uniform; give the layers of one checkpoint, at least 1");
}

void read_cuda_graphs(FlagReader& flags, const ModelSpec& model, LayoutRequest& layout) {
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
    if (!model.compositions.empty()) {
        for (const auto* flag :
             {"--cuda-graph-impl", "--enable-cuda-graph", "--external-cuda-graph", "--cuda-graph-scope", "--cuda-graph-modules"})
            flags.not_computed(flag, "CUDA graphs of hybrids' layers", Decides::fit);
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

/// --hybrid-context-parallel. Rules: arguments.py, validate_args, and multi_latent_attention.py at d98e8a64.
void read_dynamic_context(FlagReader& flags, Job& job, const LayoutRequest& layout) {
    constexpr std::string_view kSwitch = "--hybrid-context-parallel", kMost = "--max-seqlen-per-dp-cp-rank";
    const auto most = flags.integer(kMost, 1, ModelLimits::positions);
    if (!flags.has(kSwitch)) {
        flags.not_computed(kMost, "variable context parallelism", Decides::fit);
        return;
    }
    if (!flags.has(kMost)) flags.problem("{} needs {}, which has no default; give it", kSwitch, kMost);
    if (layout.pp > 1) flags.problem("{} works without a pipeline only; use a pipeline size of 1", kSwitch);
    if (flags.has("--enable-cuda-graph")) flags.problem("{} does not go with --enable-cuda-graph; remove one", kSwitch);
    if (flags.has("--use-megatron-fsdp")) flags.problem("{} does not go with --use-megatron-fsdp; remove one", kSwitch);
    if (const auto loader = flags.text("--dataloader-type"); loader && *loader != "single")
        flags.problem("{} needs --dataloader-type single, not {}", kSwitch, FlagReader::shown(*loader));
    if (!flags.has("--calculate-per-token-loss")) flags.problem("{} needs --calculate-per-token-loss; add it", kSwitch);
    if (job.model.mla) flags.problem("{} does not go with --multi-latent-attention; remove one", kSwitch);
    job.most_of_a_document = most;
}

}  // namespace

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
    read_cuda_graphs(flags, job.model, layout);
    if (layout.ep > 1 && !job.model.moe && flags.has("--num-experts") && flags.problems().empty())
        flags.problem(
            "--expert-model-parallel-size = {} for experts that no layer of the pattern has; write E for layers of experts, or remove it",
            layout.ep);
    else if (layout.ep > 1 && !job.model.moe && !flags.has("--num-experts"))
        flags.problem("--expert-model-parallel-size = {} without --num-experts; remove it or give the experts", layout.ep);
    read_dynamic_context(flags, job, layout);
    job.layout = std::move(layout);
}

}  // namespace mgplan::formats
