#include <array>
#include <optional>
#include <string>

#include "formats/megatron/flag_rows.hpp"
#include "plan/graphs/graph_scopes.hpp"

// Activation recompute and CUDA graphs.

namespace mgplan::formats {
namespace {

bool recomputes_all(const Job& job) {
    return job.layout->recompute == Recompute::full;
}

bool recomputes_streams(const Job& job) {
    return job.layout->recompute == Recompute::selective && job.layout->recompute_modules.contains(RecomputeModule::mhc);
}

void read_modules(FlagReader& flags, Job& job) {
    LayoutRequest& layout = *job.layout;
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
    if (!job.model.moe) {  // no layer has them; Megatron-LM accepts and ignores them
        for (const RecomputeModule module : {RecomputeModule::moe, RecomputeModule::moe_act, RecomputeModule::shared_experts})
            layout.recompute_modules.remove(module);
    }
    if (flags.has("--moe-layer-recompute")) {
        // transformer_config.py: the old name of the module moe, in addition to those that are recomputed anyway.
        if (layout.recompute == Recompute::full)
            flags.problem("--moe-layer-recompute with --recompute-granularity full, which recomputes all layers; remove it");
        layout.recompute = Recompute::selective;
        if (job.model.moe) layout.recompute_modules.add(RecomputeModule::moe);
    }
    // Where no module that is computed is named, nothing is predicted as recomputed.
    if (layout.recompute == Recompute::selective && layout.recompute_modules.empty()) layout.recompute = Recompute::none;
}

void write_modules(FlagWriter& out, const Job& job) {
    if (job.layout->recompute == Recompute::selective) out.flag("recompute-modules", names_in(job.layout->recompute_modules));
}

void read_stream_block(FlagReader& flags, Job& job) {
    if (recomputes_streams(job))
        job.layout->mhc_recompute_layers = flags.integer_or("--mhc-recompute-layer-num", 0, 1, ModelLimits::layers);
}

void write_stream_block(FlagWriter& out, const Job& job) {
    if (recomputes_streams(job) && job.layout->mhc_recompute_layers > 0)
        out.integer("mhc-recompute-layer-num", job.layout->mhc_recompute_layers);
}

void read_cuda_graphs(FlagReader& flags, Job& job) {
    LayoutRequest& layout = *job.layout;
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
                                         {"mamba", CudaGraphScope::mamba},
                                         {"full", CudaGraphScope::layer},
                                         {"layer", CudaGraphScope::layer},
                                         {"full_iteration", CudaGraphScope::full_iteration}};
    bool whole_layers = true;  // no scope
    for (const auto* flag : {"--cuda-graph-scope", "--cuda-graph-modules"}) {
        for (const auto& scope : flags.texts(flag)) {
            whole_layers = false;
            layout.cuda_graphs.add(flags.named(flag, scope, CudaGraphScope::layer, scopes));
        }
    }
    if (whole_layers) layout.cuda_graphs.add(CudaGraphScope::layer);
    // Scopes of layers that the model lacks capture nothing.
    if (!has_mamba_layers(job.model)) layout.cuda_graphs.remove(CudaGraphScope::mamba);
}

void write_cuda_graphs(FlagWriter& out, const Job& job) {
    const EnumSet<CudaGraphScope> scopes = job.layout->cuda_graphs;
    if (scopes.empty()) return;
    if (scopes.contains(CudaGraphScope::full_iteration)) return out.word("cuda-graph-impl", "full_iteration");
    out.word("cuda-graph-impl", "transformer_engine");
    if (!scopes.contains(CudaGraphScope::layer)) out.flag("cuda-graph-scope", names_in(scopes));  // no scope: whole layers
}

constexpr std::array<std::pair<std::string_view, Recompute>, 2> kGranularities{
    {{"full", Recompute::full}, {"selective", Recompute::selective}}};
constexpr std::array<std::pair<std::string_view, RecomputeMethod>, 2> kMethods{
    {{"uniform", RecomputeMethod::uniform}, {"block", RecomputeMethod::block}}};

constexpr std::array kRecomputeFlags{
    FlagRow{"recompute-granularity", Word<Recompute>{MGPLAN_FIELD(layout->recompute), Recompute::none, kGranularities}},
    FlagRow{"recompute-modules=+ recompute-activations", Both{read_modules, write_modules}},
    FlagRow{"mhc-recompute-layer-num=", Both{read_stream_block, write_stream_block}},
    FlagRow{"recompute-method", Word<RecomputeMethod>{MGPLAN_FIELD(layout->recompute_method), RecomputeMethod::uniform, kMethods},
            Written::always, recomputes_all},
    FlagRow{"recompute-num-layers", Whole{MGPLAN_FIELD(layout->recompute_num_layers), 1, 0, ModelLimits::layers}, Written::always,
            recomputes_all},
};

constexpr std::array kGraphFlags{FlagRow{"cuda-graph-impl= cuda-graph-scope=+", Both{read_cuda_graphs, write_cuda_graphs}}};

}  // namespace

constinit const FlagTopic kRecomputeTopic{kRecomputeFlags};
constinit const FlagTopic kGraphTopic{kGraphFlags};

void read_recompute(FlagReader& flags, Job& job) {
    read_topic(flags, kRecomputeTopic, job);
    if (!recomputes_all(job)) return;
    if (!flags.has("--recompute-method")) job.assumptions.emplace_back("full recompute without --recompute-method: uniform taken");
    if (!flags.has("--recompute-num-layers")) job.assumptions.emplace_back("full recompute without --recompute-num-layers: 1 taken");
    if (job.layout->recompute_method == RecomputeMethod::uniform && job.layout->recompute_num_layers == 0)
        flags.problem("--recompute-num-layers = 0 with --recompute-method uniform; give the layers of one checkpoint, at least 1");
}

}  // namespace mgplan::formats
