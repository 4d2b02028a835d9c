#include <array>
#include <string>
#include <string_view>

#include "formats/megatron/flag_rows.hpp"
#include "plan/layout/beside_streams.hpp"

// Residual streams that maps mix (mHC). Rules: __post_init__ of megatron/core/transformer/transformer_config.py and transformer_layer.py of
// Megatron-LM at d98e8a64; of branch dev, which spells the switch --enable-hyper-connections, at d48bd6be.

namespace mgplan::formats {
namespace {

constexpr std::string_view kMainSwitch = "--enable-mhc-connections", kDevSwitch = "--enable-hyper-connections",
                           kRecomputed = "--recompute-modules", kStreamBlock = "--mhc-recompute-layer-num",
                           kFusedStreams = "--use-fused-mhc";
constexpr std::array<std::string_view, 6> kOfStreams{"--mhc-num-residual-streams",
                                                     "--num-residual-streams",
                                                     "--mhc-sinkhorn-iterations",
                                                     "--mhc-init-gating-factor",
                                                     kStreamBlock,
                                                     kFusedStreams};

/// Reports combinations that main stops at and dev does not.
void check_main(FlagReader& flags, const Job& job) {
    const LayoutRequest& layout = *job.layout;
    if (layout.pp > 1)
        flags.problem("{} does not go with --pipeline-model-parallel-size = {}: stages would send one stream; use 1, or {} of branch dev",
                      kMainSwitch, layout.pp, kDevSwitch);
    if (layout.recompute == Recompute::full)
        flags.problem("{} does not go with --recompute-granularity full; use selective with {} mhc", kMainSwitch, kRecomputed);
    if (job.model.mtp_layers > 0)
        flags.problem("{} does not go with --mtp-num-layers = {}; remove one of them", kMainSwitch, job.model.mtp_layers);
    if (job.model.moe)
        flags.problem("{} does not go with --num-experts: layers of experts have no residual streams there; use {} of branch dev",
                      kMainSwitch, kDevSwitch);
    if (flags.has("--fp32-residual-connection"))
        flags.problem("{} does not go with --fp32-residual-connection; remove the latter", kMainSwitch);
    if (flags.has(kFusedStreams)) flags.problem("{} is of branch dev, which has {} in place of {}", kFusedStreams, kDevSwitch, kMainSwitch);
}

/// Checks recompute. `repeats`: true if the module mhc is to be recomputed.
void check_recompute(FlagReader& flags, const Job& job, bool main, bool repeats) {
    if (!repeats) return;
    if (job.layout->recompute_modules.contains(RecomputeModule::mlp))
        flags.problem("{} holds mhc and mlp, which exclude each other; remove one of them", kRecomputed);
    if (!flags.has("--fine-grained-activation-offloading")) return;
    for (const std::string& module : flags.texts("--offload-modules")) {
        if (!main && module != "attn_norm" && module != "mlp_norm") continue;
        flags.problem("{} mhc does not go with --offload-modules {}; remove one of them", kRecomputed, module);
        return;
    }
}

std::int64_t read_streams(FlagReader& flags) {
    constexpr std::string_view kMainStreams = "--mhc-num-residual-streams", kDevStreams = "--num-residual-streams";
    const std::int64_t streams = flags.integer_or(kMainStreams, HyperConnections{}.streams, 1, ModelLimits::residual_streams);
    return flags.integer_or(kDevStreams, streams, 1, ModelLimits::residual_streams);
}

void read_hyper_connections(FlagReader& flags, Job& job) {
    LayoutRequest& layout = *job.layout;
    TrainingSpec& training = *job.training;
    const bool repeats = layout.recompute == Recompute::selective && layout.recompute_modules.contains(RecomputeModule::mhc);
    const bool main = flags.has(kMainSwitch);
    if (!main && !flags.has(kDevSwitch)) {
        if (repeats) flags.problem("{} mhc needs {}, or {} of branch dev; add it, or remove mhc", kRecomputed, kMainSwitch, kDevSwitch);
        if (flags.has(kFusedStreams)) flags.problem("{} needs {}; add it", kFusedStreams, kDevSwitch);
        for (const std::string_view flag : kOfStreams) flags.idle(flag);
        return;
    }
    if (main && flags.has(kDevSwitch)) flags.problem("{} and {} are of main and of branch dev; keep one", kMainSwitch, kDevSwitch);
    HyperConnections streams;
    streams.streams = read_streams(flags);
    streams.sinkhorn_iterations =
        flags.integer_or("--mhc-sinkhorn-iterations", streams.sinkhorn_iterations, 1, ModelLimits::sinkhorn_iterations);
    (void)flags.real_or("--mhc-init-gating-factor", 0.01, 0, 1e6);
    flags.idle("--mhc-init-gating-factor");  // where a trained scale begins
    streams.learned_head = !main;
    if (main) {
        check_main(flags, job);
        // No model of that commit builds its layers so (gpt_layer_specs.py); commands that do so come with a specification of their own.
        job.assumptions.push_back(
            fmt::format("layers of residual streams, which at d98e8a64 a --spec has to name (HyperConnectionTransformerLayer)"));
    }
    check_recompute(flags, job, main, repeats);
    if (!repeats) flags.idle(kStreamBlock);
    const std::string_view missing = unpredicted_beside_streams(job.model, training, layout.cuda_graphs);
    if (missing.empty()) {
        job.model.hyper_connections = streams;
        return;
    }
    flags.not_computed(main ? kMainSwitch : kDevSwitch, std::string(missing), Decides::fit_and_legal);
    training.megatron.fused_streams = false;
    layout.recompute_modules.remove(RecomputeModule::mhc);
    if (layout.recompute == Recompute::selective && layout.recompute_modules.empty()) layout.recompute = Recompute::none;
}

/// As main spells them, or branch dev where streams come together by trained weights.
void write_hyper_connections(FlagWriter& out, const Job& job) {
    if (!job.model.hyper_connections) return;
    const HyperConnections& streams = *job.model.hyper_connections;
    out.flag(streams.learned_head ? "enable-hyper-connections" : "enable-mhc-connections");
    out.integer(streams.learned_head ? "num-residual-streams" : "mhc-num-residual-streams", streams.streams);
    out.integer("mhc-sinkhorn-iterations", streams.sinkhorn_iterations);
}

constexpr std::array kStreamFlags{
    FlagRow{"enable-hyper-connections enable-mhc-connections num-residual-streams= mhc-num-residual-streams= mhc-sinkhorn-iterations=",
            Both{read_hyper_connections, write_hyper_connections}},
};

}  // namespace

constinit const FlagTopic kStreamTopic{kStreamFlags};

}  // namespace mgplan::formats
