#include "planner/switch_rules.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "plan/graphs/graph_scopes.hpp"
#include "plan/layout/beside_streams.hpp"
#include "plan/layout/layout_switches.hpp"
#include "plan/layout/megatron_offload.hpp"
#include "plan/layout/unpredicted_shards.hpp"
#include "plan/model/layers_of_model.hpp"
#include "plan/parameters/layer_kinds.hpp"
#include "plan/text/errors.hpp"
#include "plan/training/own_offload.hpp"
#include "plan/training/own_optimizer.hpp"
#include "plan/training/own_sharding.hpp"

namespace mgplan::planner {
namespace {

bool switched_to(const Layout& l, std::initializer_list<TokenDispatcher> dispatchers) {
    return l.switches && l.switches->dispatcher &&
           std::find(dispatchers.begin(), dispatchers.end(), *l.switches->dispatcher) != dispatchers.end();
}

bool is_flex(const Layout& l) {
    return switched_to(l, {TokenDispatcher::deep_ep, TokenDispatcher::hybrid_ep});
}

/// The model must have MoE layers.
TokenDispatcher dispatcher_of(const Workload& w, const Layout& l) {
    return l.switches && l.switches->dispatcher ? *l.switches->dispatcher : w.model.moe->dispatcher;
}

/// True if Megatron-LM uses this dispatcher, by the layout's choice or the job's own. mgplan's engine has no such kernels.
bool dispatches_with(const Workload& w, const Layout& l, TokenDispatcher dispatcher) {
    return w.model.moe && l.engine == Engine::megatron && dispatcher_of(w, l) == dispatcher;
}

/// True if Megatron-LM's flex dispatcher (DeepEP or HybridEP) exchanges this layout's tokens.
bool exchanges_by_flex(const Workload& w, const Layout& l) {
    return dispatches_with(w, l, TokenDispatcher::deep_ep) || dispatches_with(w, l, TokenDispatcher::hybrid_ep);
}

/// True if exchanged tokens are bf16, the only dtype that both kernels can sum.
bool exchanges_bf16(const Workload& w) {
    return w.training.compute_dtype() == Dtype::bf16;
}

/// HybridEP is a CUDA program. DeepEP has ports for AMD's GPUs (ROCm/DeepEP, ROCm/mori), which AMD's Primus switches on.
bool is_amd(const ClusterSpec& cluster) {
    return cluster.gpu.starts_with("MI");
}

/// Megatron-Bridge training/flex_dispatcher_backend.py: compute capability 8, 9 or 10; its kernels reach the ranks of a domain over NVLink.
bool hybrid_ep_knows(const ClusterSpec& cluster) {
    const int major = cluster.compute_capability / 10;
    return !is_amd(cluster) && major >= 8 && major <= 10 && cluster.nvlink_domain >= 2;
}

/// True if the search's own choice of DeepEP or HybridEP would exchange over a network whose verbs GPUs cannot post. A job that states
/// the dispatcher may have a port (UCCL, NVSHMEM over libfabric) and is predicted.
bool switched_beyond_verbs(const Workload& w, const Layout& l) {
    return is_flex(l) && !w.cluster.gpus_post_to_network() && l.sizes.ep * l.sizes.etp > w.cluster.fast_domain();
}

/// True if the job could use HybridEP, ignoring its graphs.
bool hybrid_ep_suits(const Workload& w) {
    return exchanges_bf16(w) && hybrid_ep_knows(w.cluster);
}

/// Expert ops that graphs cannot contain with the layout's dispatcher.
std::vector<std::string> graphs_beside_dispatcher(const Workload& w, const Layout& l) {
    Problems problems;
    if (w.model.moe && !l.cuda_graphs.empty())
        check_scopes_of_dispatcher(l.cuda_graphs, w.model, dispatcher_of(w, l), problems, hybrid_ep_suits(w));
    return problems.list();
}

std::vector<std::string> obstacles_of_own_sharding(const Workload& w, const Layout& l) {
    if (l.engine != Engine::mgplan || !w.training.megatron.fully_sharded.active()) return {};
    return own_sharding_obstacles(w.model, w.training, !l.cuda_graphs.empty());
}

std::vector<std::string> obstacles_of_own_optimizer(const Workload& w, const Layout& l) {
    return l.engine == Engine::mgplan ? own_optimizer_obstacles(w.model, w.training, l.sizes.tp) : std::vector<std::string>{};
}

std::vector<std::string> obstacles_of_own_offload(const Workload& w, const Layout& l) {
    if (l.engine != Engine::mgplan) return {};
    return own_offload_obstacles(w.model, w.training, !l.cuda_graphs.empty(), l.recompute == Recompute::full);
}

std::vector<std::string> obstacles_of_megatron_offload(const Workload& w, const Layout& l) {
    if (l.engine != Engine::megatron) return {};
    return megatron_offload_obstacles(w.training, beside_offload(l));
}

std::optional<std::string> unpredicted_offload(const Workload& w, const Layout& l) {
    if (l.engine != Engine::megatron) return std::nullopt;
    const UnpredictedOffload missing = unpredicted_megatron_offload(w.model, w.training, beside_offload(l));
    for (const auto* list : {&missing.optimizer, &missing.modules}) {
        if (!list->empty()) return list->front();
    }
    return std::nullopt;
}

/// Feature that is not predicted together with split weights; "" if all are.
std::string_view unpredicted_shards(const Workload& w, const Layout& l) {
    if (l.engine != Engine::megatron || !w.training.megatron.weight_shards.active()) return "";
    return unpredicted_beside_shards(w.training, beside_offload(l));
}

bool overlaps_moe(const Layout& l) {
    return l.switches && l.switches->overlap_moe;
}

/// True if the layout enables tp overlap, or the job does for more than one tensor rank; with one rank it has no effect.
bool overlaps_tp(const Workload& w, const Layout& l) {
    const bool asked = w.training.overlap_tp && l.engine == Engine::megatron && l.sizes.tp > 1;
    return asked || (l.switches && l.switches->overlap_tp);
}

/// Feature that is not predicted together with mixed residual streams; "" if all are.
std::string_view beside_streams(const Workload& w, const Layout& l) {
    if (!w.model.hyper_connections) return "";
    TrainingSpec training = w.training;
    if (overlaps_moe(l)) training.overlap_moe = true;
    return unpredicted_beside_streams(w.model, training, l.cuda_graphs);
}

/// True if shared experts are computed during the exchange of tokens.
bool overlaps_shared_expert(const Workload& w) {
    return w.model.moe && w.model.moe->shared_ffn > 0 && w.training.megatron.moe_shared_expert_overlap;
}

/// Maximum number of ranks for DeepEP: 8 peers over NVLink times 20 nodes (deepseek-ai/DeepEP, csrc/kernels/configs.cuh, NUM_MAX_NVL_PEERS
/// and NUM_MAX_RDMA_PEERS).
constexpr std::int64_t kDeepEpPeers = 8, kDeepEpRanks = kDeepEpPeers * 20;

/// The reason, with a way out, why Megatron-LM refuses --overlap-moe-expert-parallel-comm for this layout
/// (core/transformer/transformer_config.py, __post_init__); nothing if it accepts.
std::optional<std::string> moe_overlap_problem(const Workload& w, const Layout& l) {
    if (!w.model.moe) return "needs experts; drop it";
    if (l.sizes.ep == 1) return "needs ep > 1; use a larger ep or drop it";
    if (l.sizes.pp > 1 && l.vpp == 1) return fmt::format("needs an interleaved schedule with pp = {}; use vpp > 1 or pp 1", l.sizes.pp);
    if (l.recompute == Recompute::full) return "does not go with full recompute; use --recompute none or selective";
    if (l.recompute == Recompute::selective && l.recompute_modules.contains(RecomputeModule::moe))
        return "does not go with recompute of the module moe; use others of --recompute-modules";
    if (w.training.megatron.moe_shared_expert_overlap) return "does not go with --moe-shared-expert-overlap; drop one of them";
    if (w.model.mtp_layers > 1) return fmt::format("goes with one MTP layer at most, not {}; drop it", w.model.mtp_layers);
    const TokenDispatcher dispatcher = dispatcher_of(w, l);
    if (dispatcher == TokenDispatcher::all_gather) return "needs the dispatcher alltoall, deepep or hybridep; use one of them";
    if (w.training.compute_dtype() != Dtype::bf16 && w.training.compute_dtype() != Dtype::fp16)
        return "needs bf16 or fp16; use another --precision or drop it";
    using Scope = CudaGraphScope;
    if (l.cuda_graphs.contains(Scope::moe) || l.cuda_graphs.contains(Scope::mlp) || l.cuda_graphs.contains(Scope::layer))
        return "does not go with CUDA graphs of moe or mlp; use attn, moe_router and moe_preprocess";
    // core/pipeline_parallel/combined_1f1b.py calls build_schedule_plan(), which GPTModel alone has.
    if (layers_by_pattern(w.model)) return "is not built for hybrids whose layers are a mixer or a feed-forward each; drop it";
    return std::nullopt;
}

using W = const Workload&;
using L = const Layout&;

/// Rule::no_tail.
constexpr bool kNoTail = true;

constexpr auto kSwitchRules = std::to_array<Rule>({
    {"switches_need_engine_megatron", "a switch of Megatron-LM with another engine", Level::switches,
     [](W, L l) { return l.switches && *l.switches != LayoutSwitches{} && l.engine != Engine::megatron; },
     [](W, L l) {
         return fmt::format("{} is a choice of Megatron-LM, not of engine {}; use --engine megatron or leave it out",
                            fmt::join(switch_words(*l.switches), ", "), to_string(l.engine));
     },
     false, kNoTail},
    {"cuda_graphs_suit_the_dispatcher", "CUDA graphs of experts that the dispatcher forbids", Level::switches,
     [](W w, L l) { return captures_experts(l.cuda_graphs) && !graphs_beside_dispatcher(w, l).empty(); },
     [](W w, L l) { return fmt::format("{}", fmt::join(graphs_beside_dispatcher(w, l), "; ")); }},
    // Megatron-LM core/transformer/moe/token_dispatcher.py, MoEFlexTokenDispatcher: TPxEP > 1, and no padding to capacity.
    {"flex_dispatcher_exchanges", "DeepEP or HybridEP without ranks to exchange with", Level::switches,
     [](W w, L l) { return (is_flex(l) && !w.model.moe) || (exchanges_by_flex(w, l) && l.sizes.ep * l.sizes.etp == 1); },
     [](W w, L l) {
         return fmt::format("dispatcher {} exchanges over ep·etp = {}·{} ranks and needs more than one; use alltoall or a larger ep",
                            dispatcher_word(dispatcher_of(w, l)), l.sizes.ep, l.sizes.etp);
     },
     false, kNoTail},
    {"flex_dispatcher_does_not_pad", "DeepEP or HybridEP with experts padded to capacity", Level::switches,
     [](W w, L l) { return exchanges_by_flex(w, l) && w.model.moe->pad_to_capacity; },
     [](W w, L l) {
         return fmt::format(
             "dispatcher {} does not pad experts to their capacity; use alltoall, or drop --moe-pad-expert-input-to-capacity",
             dispatcher_word(dispatcher_of(w, l)));
     },
     false, kNoTail},
    // Megatron-LM core/transformer/transformer_config.py, __post_init__.
    {"expert_buffers_need_hybridep", "experts' buffers of a fixed size behind another dispatcher", Level::switches,
     [](W w, L l) {
         return w.model.moe && w.training.megatron.expert_buffers.capacity > 0 && l.engine == Engine::megatron &&
                dispatcher_of(w, l) != TokenDispatcher::hybrid_ep;
     },
     [](W w, L l) {
         return fmt::format(
             "--moe-expert-rank-capacity-factor sizes the buffers of hybridep, and the dispatcher is {}; use hybridep, or drop that flag",
             dispatcher_word(dispatcher_of(w, l)));
     },
     false, kNoTail},
    {"shared_overlap_needs_exchanges", "overlapped shared experts without exchanges of tokens", Level::switches,
     [](W w, L l) { return overlaps_shared_expert(w) && dispatches_with(w, l, TokenDispatcher::all_gather); },
     [](W, L) {
         return std::string(
             "--moe-shared-expert-overlap hides exchanges of tokens, and the dispatcher allgather has none; use alltoall, deepep or "
             "hybridep, or drop that flag");
     },
     false, kNoTail},
    // deepseek-ai/DeepEP at dd758ca: csrc/kernels/legacy/launch.cuh, SWITCH_TYPES, and internode.cu, combine(), support only CUDA_R_16BF.
    // Its branch hybrid-ep at 94a9f8f sums tokens in bf16 (csrc/hybrid_ep/backend/hybrid_ep_backend.cuh; extension/permute.cu asserts it).
    // Neither dispatches in 8 bits for Megatron-LM, whose experts quantise their input (core/transformer/moe/fused_a2a.py).
    {"flex_dispatcher_exchanges_bf16", "DeepEP or HybridEP with tokens that are not bf16", Level::switches,
     [](W w, L l) { return exchanges_by_flex(w, l) && !exchanges_bf16(w); },
     [](W w, L l) {
         return fmt::format(
             "dispatcher {} combines tokens in bf16 alone, and these are {}; use alltoall, or a --precision that computes in bf16",
             dispatcher_word(dispatcher_of(w, l)), to_string(w.training.compute_dtype()));
     },
     false, kNoTail},
    {"flex_dispatcher_reaches_other_nodes", "DeepEP or HybridEP between nodes without InfiniBand or RoCE", Level::switches,
     switched_beyond_verbs,
     [](W w, L l) {
         return fmt::format(
             "dispatcher {} posts InfiniBand verbs from the GPU, and the network of {} is {}; use alltoall, or ep x etp <= {}",
             dispatcher_word(dispatcher_of(w, l)), w.cluster.name, to_string(w.cluster.network_kind), w.cluster.fast_domain());
     },
     false, kNoTail},
    // Megatron-Bridge training/flex_dispatcher_backend.py: Ampere, Hopper, B200 and B300, whose nodes suit DeepEP; not GB200 and GB300,
    // where jobs ran with a patched build (Megatron-LM's history of DeepSeek-V3 on GB200): a job that states it is predicted, with a
    // warning.
    {"deepep_reaches_its_ranks", "DeepEP beyond nodes of 8 GPUs or 160 ranks", Level::switches,
     [](W w, L l) {
         return dispatches_with(w, l, TokenDispatcher::deep_ep) &&
                ((!deep_ep_knows(w.cluster) && switched_to(l, {TokenDispatcher::deep_ep})) || w.cluster.nvlink_domain < 2 ||
                 l.sizes.ep * l.sizes.etp > kDeepEpRanks);
     },
     [](W w, L l) {
         if (l.sizes.ep * l.sizes.etp > kDeepEpRanks)
             return fmt::format("dispatcher deepep exchanges among at most {} ranks, not ep·etp = {}·{}; use hybridep or a smaller ep",
                                kDeepEpRanks, l.sizes.ep, l.sizes.etp);
         return fmt::format("dispatcher deepep needs NVLink among 2 to {} GPUs, and the domain of {} is {}; use hybridep or alltoall",
                            kDeepEpPeers, w.cluster.name, w.cluster.nvlink_domain);
     },
     false, kNoTail},
    {"hybridep_knows_the_gpu", "HybridEP on a GPU or a cluster that it does not know", Level::switches,
     [](W w, L l) { return dispatches_with(w, l, TokenDispatcher::hybrid_ep) && !hybrid_ep_knows(w.cluster); },
     [](W w, L) {
         if (is_amd(w.cluster))
             return fmt::format("dispatcher hybridep is a CUDA program, and {} has AMD's GPUs; use deepep or alltoall", w.cluster.name);
         return fmt::format(
             "dispatcher hybridep needs NVLink and a GPU of compute capability 8.0 to 10.3, and {} has {:.1f} and domains of "
             "{}; use alltoall",
             w.cluster.name, w.cluster.compute_capability / 10.0, w.cluster.nvlink_domain);
     },
     false, kNoTail},
    // Megatron-LM arguments.py, validate_args: --tp-comm-overlap needs sequence parallelism and Transformer Engine.
    {"tp_overlap_needs_sequence_parallel", "tp overlap without sequence parallelism", Level::switches,
     [](W w, L l) {
         const bool switched = l.switches && l.switches->overlap_tp;
         return (overlaps_tp(w, l) && (l.sizes.tp == 1 || !l.sequence_parallel)) || (switched && !w.training.megatron.transformer_engine);
     },
     [](W, L l) {
         return fmt::format("tp overlap needs tp > 1 (here {}), sequence parallelism and Transformer Engine; turn these on or drop it",
                            l.sizes.tp);
     },
     false, kNoTail},
    {"moe_overlap_suits_the_layout", "overlap of experts' exchanges that Megatron-LM refuses", Level::switches,
     [](W w, L l) {
         const bool asked = w.training.overlap_moe && w.model.moe && l.engine == Engine::megatron;  // no effect without experts
         return (asked || overlaps_moe(l)) && moe_overlap_problem(w, l).has_value();
     },
     [](W w, L l) { return fmt::format("overlap moe {}", moe_overlap_problem(w, l).value_or("")); }},
    // Megatron-LM arguments.py, validate_args: --use-precision-aware-optimizer needs the distributed optimizer; optimizer_config.py: Adam.
    {"bf16_moments_need_sharded_adam", "bf16 moments without Adam and the distributed optimizer", Level::switches,
     [](W w, L l) {
         return l.switches && l.switches->bf16_moments &&
                (!w.training.distributed_optimizer || w.training.megatron.optimizer != OptimizerKind::adam ||
                 w.training.megatron.fully_sharded.active());
     },
     [](W, L) {
         return std::string(
             "bf16 moments need Adam with the distributed optimizer (--use-precision-aware-optimizer); turn it on or keep fp32 moments");
     },
     false, kNoTail},
    {"own_engine_shards_what_it_trains", "sharded gradients and parameters that mgplan's own engine does not train", Level::switches,
     [](W w, L l) { return !obstacles_of_own_sharding(w, l).empty(); },
     [](W w, L l) {
         return fmt::format("engine mgplan does not train {}; or use --engine megatron", obstacles_of_own_sharding(w, l).front());
     }},
    {"own_engine_has_the_optimizer", "an optimizer that mgplan's own engine does not train with", Level::switches,
     [](W w, L l) { return !obstacles_of_own_optimizer(w, l).empty(); },
     [](W w, L l) {
         return fmt::format("engine mgplan does not train {}; or use --engine megatron", obstacles_of_own_optimizer(w, l).front());
     },
     false, kNoTail},
    {"own_engine_offloads_what_it_trains", "offloading that mgplan's own engine does not train with", Level::switches,
     [](W w, L l) { return !obstacles_of_own_offload(w, l).empty(); },
     [](W w, L l) { return fmt::format("engine mgplan does not train {}", obstacles_of_own_offload(w, l).front()); }},
    {"own_engine_holds_whole_weights", "parts of weights that mgplan's own engine does not hold", Level::switches,
     [](W w, L l) { return l.engine == Engine::mgplan && w.training.megatron.weight_shards.active(); },
     [](W, L) {
         return std::string(
             "engine mgplan holds no weights in parts (--tensor-parallel-num-weight-shards, --expert-tensor-parallel-num-weight-shards); "
             "leave these flags out, or use --engine megatron");
     },
     false, kNoTail},
    // Only fused kernels separate the documents of a sequence (Transformer Engine, dot_product_attention, qkv_format "thd").
    {"packed_lengths_need_fused_attention", "documents of several lengths where nothing computes them", Level::switches,
     [](W w, L l) {
         return !w.batch.lengths.empty() && (l.engine != Engine::megatron || w.training.attention == AttentionBackend::unfused ||
                                             has_mixer_with(w.model, &MixerTraits::joins_documents));
     },
     [](W w, L l) {
         if (has_mixer_with(w.model, &MixerTraits::joins_documents))
             return std::string(
                 "--lengths packs documents, which the prediction of compressed attention does not tell apart; leave it out");
         if (l.engine != Engine::megatron)
             return std::string(
                 "--lengths packs documents, and mgplan's own engine trains whole sequences; use --engine megatron, or leave --lengths "
                 "out");
         return fmt::format("--lengths packs documents, which attention {} does not tell apart; use --attention flash",
                            to_string(w.training.attention));
     },
     false, kNoTail},
    {"megatron_offloads_what_it_can", "offloading that Megatron-LM refuses", Level::switches,
     [](W w, L l) { return !obstacles_of_megatron_offload(w, l).empty(); },
     [](W w, L l) { return fmt::format("{}", fmt::join(obstacles_of_megatron_offload(w, l), "; ")); }},
    {"megatron_offload_is_predicted", "offloading that is not predicted for engine megatron", Level::switches,
     [](W w, L l) { return unpredicted_offload(w, l).has_value(); },
     [](W w, L l) { return fmt::format("engine megatron: not predicted are {}", unpredicted_offload(w, l).value_or("")); }},
    {"weight_shards_are_predicted", "parts of weights beside what is not predicted with them", Level::switches,
     [](W w, L l) { return !unpredicted_shards(w, l).empty(); },
     [](W w, L l) {
         return fmt::format(
             "engine megatron: not predicted are {}; leave that out, or the parts of weights (--tensor-parallel-num-weight-shards)",
             unpredicted_shards(w, l));
     }},
    {"residual_streams_are_predicted", "residual streams beside what is not predicted with them", Level::switches,
     [](W w, L l) { return !beside_streams(w, l).empty(); },
     [](W w, L l) { return fmt::format("not predicted are {}; leave that out, or the streams", beside_streams(w, l)); }},
});

}  // namespace

std::span<const Rule> switch_rules() {
    return kSwitchRules;
}

bool deep_ep_knows(const ClusterSpec& cluster) {
    return cluster.nvlink_domain >= 2 && cluster.nvlink_domain <= kDeepEpPeers;
}

std::vector<std::string> dispatcher_problems(const Workload& workload, TokenDispatcher dispatcher, Engine engine,
                                             EnumSet<CudaGraphScope> cuda_graphs) {
    if (!workload.model.moe) return {};
    constexpr std::array<std::string_view, 6> kWhateverTheSizes{"cuda_graphs_suit_the_dispatcher", "flex_dispatcher_does_not_pad",
                                                                "shared_overlap_needs_exchanges",  "flex_dispatcher_exchanges_bf16",
                                                                "deepep_reaches_its_ranks",        "hybridep_knows_the_gpu"};
    Layout layout;
    layout.sizes.ep = 2;  // with an exchange
    layout.engine = engine;
    layout.cuda_graphs = cuda_graphs;
    LayoutSwitches switches;
    switches.dispatcher = dispatcher;
    layout.switches = std::make_shared<const LayoutSwitches>(switches);
    std::vector<std::string> messages;
    for (const Rule& rule : kSwitchRules) {
        const bool asked = std::find(kWhateverTheSizes.begin(), kWhateverTheSizes.end(), rule.name) != kWhateverTheSizes.end();
        if (asked && rule.broken(workload, layout)) messages.push_back(rule.message(workload, layout));
    }
    return messages;
}

}  // namespace mgplan::planner
