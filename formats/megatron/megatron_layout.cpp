#include <algorithm>
#include <array>

#include "formats/megatron/flag_rows.hpp"
#include "formats/megatron/megatron_hybrid.hpp"
#include "plan/layout/pipeline_layout.hpp"
#include "plan/parameters/layer_kinds.hpp"

// Parallel sizes, stages and chunks.

namespace mgplan::formats {
namespace {

constexpr std::string_view kWithoutExperts = "tp-cp-ep-pp-dp";  // --use-tp-pp-dp-mapping

bool is_interleaved(const Job& job) {
    return job.layout->vpp > 1;
}

/// True if flags say how layers are split: of hybrids the pattern does.
bool has_split(const Job& job) {
    return !layers_by_pattern(job.model);
}

/// Also of models without experts, if data parallelism is not all that follows the other axes: both grids need equally much of it
/// (parallel_state.py, initialize_model_parallel).
bool has_expert_grid(const Job& job) {
    const LayoutRequest& layout = *job.layout;
    return is_mixture(job) || (layout.pp > 1 && layout.cp > 1 && !layout.order.ends_in_pp());
}

void read_cp_comm_type(FlagReader& flags, Job& job) {
    const auto types = flags.texts("--cp-comm-type");
    if (types.empty()) return;
    // transformer_config.py, __post_init__, checks the number under context parallelism alone.
    if (types.size() > 1 && job.layout->cp > 1 && std::ssize(types) != job.model.layers)
        flags.problem("--cp-comm-type names {} kinds for {} layers; give one kind, or one for each layer", types.size(), job.model.layers);
    if (job.layout->cp > 1 && std::any_of(types.begin(), types.end(), [&](const auto& type) { return type != types.front(); }))
        flags.not_computed("--cp-comm-type", "a kind of exchange for each layer, predicted as the first", Decides::fit);
    job.layout->cp_comm_type = flags.named<CpCommType>("--cp-comm-type", types.front(), CpCommType::p2p,
                                                       {{"p2p", CpCommType::p2p},
                                                        {"all_gather", CpCommType::all_gather},
                                                        {"allgather", CpCommType::all_gather},
                                                        {"a2a", CpCommType::a2a},
                                                        {"a2a+p2p", CpCommType::a2a_p2p}});
}

void write_cp_comm_type(FlagWriter& out, const Job& job) {
    const CpCommType type = job.layout->cp_comm_type;
    if (job.layout->cp > 1) out.word("cp-comm-type", type == CpCommType::a2a_p2p ? "a2a+p2p" : to_string(type));
}

void read_chunks(FlagReader& flags, Job& job) {
    LayoutRequest& layout = *job.layout;
    StageSplitRequest& split = *layout.split;
    split.pipeline_layout = flags.text("--pipeline-model-parallel-layout");
    std::string_view stages_flag = "--pipeline-model-parallel-layout";
    const std::optional<HybridPattern> hybrid = hybrid_pattern(flags);
    if (hybrid && !split.pipeline_layout) {
        split.pipeline_layout = stages_of_pattern(*hybrid);
        if (split.pipeline_layout) stages_flag = hybrid->flag;
    }
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
}

/// A layout string says by its number of stages how many chunks a rank has.
void write_chunks(FlagWriter& out, const Job& job) {
    if (!has_split(job)) return;
    if (const auto& stages = job.layout->split->pipeline_layout)
        out.word("pipeline-model-parallel-layout", *stages);
    else if (is_interleaved(job))
        out.integer("num-virtual-stages-per-pipeline-rank", job.layout->vpp);
}

void read_order(FlagReader& flags, Job& job) {
    if (flags.has("--use-tp-pp-dp-mapping")) job.layout->order = AxisOrder::parse(kWithoutExperts);
}

void write_order(FlagWriter& out, const Job& job) {
    out.flag_if(job.layout->order.text() == kWithoutExperts, "use-tp-pp-dp-mapping");
}

constexpr std::array kParallelFlags{
    FlagRow{"tensor-model-parallel-size", Whole{MGPLAN_FIELD(layout->tp), 1, 1, kSizeLimit}, Written::always},
    FlagRow{"sequence-parallel", Switch{MGPLAN_FIELD(layout->sequence_parallel)}},
    FlagRow{"context-parallel-size", Whole{MGPLAN_FIELD(layout->cp), 1, 1, kSizeLimit}, Written::always},
    FlagRow{"cp-comm-type=+", Both{read_cp_comm_type, write_cp_comm_type}},
    FlagRow{"pipeline-model-parallel-size", Whole{MGPLAN_FIELD(layout->pp), 1, 1, kSizeLimit}, Written::always},
    FlagRow{"decoder-first-pipeline-num-layers", Stated{MGPLAN_FIELD(layout->split->first_stage_layers), 0, ModelLimits::layers},
            Written::changed, has_split},
    FlagRow{"decoder-last-pipeline-num-layers", Stated{MGPLAN_FIELD(layout->split->last_stage_layers), 0, ModelLimits::layers},
            Written::changed, has_split},
    FlagRow{"account-for-embedding-in-pipeline-split", Switch{MGPLAN_FIELD(layout->split->account_for_embedding)}, Written::changed,
            has_split},
    FlagRow{"account-for-loss-in-pipeline-split", Switch{MGPLAN_FIELD(layout->split->account_for_loss)}, Written::changed, has_split},
    FlagRow{"pipeline-model-parallel-layout= num-virtual-stages-per-pipeline-rank= num-layers-per-virtual-pipeline-stage=",
            Both{read_chunks, write_chunks}},
    FlagRow{"microbatch-group-size-per-virtual-pipeline-stage", Stated{MGPLAN_FIELD(layout->group_size), 1, kSizeLimit}, Written::changed,
            is_interleaved},
    FlagRow{"expert-model-parallel-size", Whole{MGPLAN_FIELD(layout->ep), 1, 1, kSizeLimit}, Written::always, is_mixture},
    FlagRow{"expert-tensor-parallel-size", Stated{MGPLAN_FIELD(layout->etp), 1, kSizeLimit}, Written::changed, has_expert_grid},
    FlagRow{"use-tp-pp-dp-mapping", Both{read_order, write_order}},
    FlagRow{"micro-batch-size", Whole{MGPLAN_FIELD(layout->micro_batch), 1, 1, ModelLimits::positions}, Written::always},
};

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

constinit const FlagTopic kParallelTopic{kParallelFlags};

void read_layout(FlagReader& flags, Job& job) {
    LayoutRequest& layout = *job.layout;
    layout.engine = Engine::megatron;
    // Megatron-LM splits evenly by default; a request without any wish means that.
    layout.split.emplace();
    read_topic(flags, kParallelTopic, job);
    layout.sequence_parallel = layout.sequence_parallel && layout.tp > 1;  // without tensor parallelism Megatron-LM switches it off
    if (!flags.has("--micro-batch-size")) job.assumptions.emplace_back("--micro-batch-size not given: 1 taken");
    read_recompute(flags, job);
    read_topic(flags, kGraphTopic, job);
    if (layout.ep > 1 && !job.model.moe && flags.has("--num-experts") && flags.problems().empty())
        flags.problem(
            "--expert-model-parallel-size = {} for experts that no layer of the pattern has; write E for layers of experts, or remove it",
            layout.ep);
    else if (layout.ep > 1 && !job.model.moe && !flags.has("--num-experts"))
        flags.problem("--expert-model-parallel-size = {} without --num-experts; remove it or give the experts", layout.ep);
    read_dynamic_context(flags, job, layout);
}

}  // namespace mgplan::formats
