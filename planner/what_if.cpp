#include "planner/what_if.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

#include "plan/text/errors.hpp"
#include "planner/constraints.hpp"
#include "simulator/cluster_parameters.hpp"
#include "simulator/cost_model.hpp"
#include "simulator/timeline/stragglers.hpp"

namespace mgplan::planner {
namespace {

constexpr double kLeastShare = 0.005;  // of the step; smaller changes are below a prediction's noise
constexpr double kSlowHost = 2, kFastHost = 0.5, kNetworkShare = 0.5, kStraggler = 1.1;

bool always(const Workload& /*work*/, const Layout& /*layout*/) {
    return true;
}
bool routes_tokens(const Workload& work, const Layout& /*layout*/) {
    return work.model.moe.has_value();
}

/// A switch of Megatron-LM that changes the time of a step.
struct SwitchRow {
    std::string_view name;   ///< of what it does
    std::string_view lever;  ///< the flag that has it on, and what it needs besides
    bool (*get)(const Workload& work);
    void (*set)(Workload& work, bool on);
    bool (*matters)(const Workload& work, const Layout& layout) = always;
};

#define MGPLAN_SWITCH(member) \
    [](const Workload& work) { return work.training.member; }, [](Workload& work, bool on) { work.training.member = on; }

constexpr std::array kSwitches{
    SwitchRow{"overlap of gradient reduction", "--overlap-grad-reduce", MGPLAN_SWITCH(overlap_grad_reduce),
              [](const Workload&, const Layout& layout) { return layout.dp() * layout.sizes.cp > 1; }},
    SwitchRow{"overlap of parameter gathering", "--overlap-param-gather (with --use-distributed-optimizer and --overlap-grad-reduce)",
              MGPLAN_SWITCH(overlap_param_gather),
              [](const Workload& work, const Layout& layout) {
                  return work.training.distributed_optimizer && layout.dp() * layout.sizes.cp > 1;
              }},
    SwitchRow{"overlap of pipeline transfers", "interleaved stages without --no-overlap-p2p-communication", MGPLAN_SWITCH(overlap_p2p),
              [](const Workload&, const Layout& layout) { return layout.sizes.pp > 1 && layout.vpp > 1; }},
    SwitchRow{"overlap of tensor-parallel exchanges", "--tp-comm-overlap (needs userbuffers and --sequence-parallel)",
              MGPLAN_SWITCH(overlap_tp), [](const Workload&, const Layout& layout) { return layout.sizes.tp > 1; }},
    SwitchRow{"overlap of expert exchanges", "--overlap-moe-expert-parallel-comm with CUDA_DEVICE_MAX_CONNECTIONS of 32",
              MGPLAN_SWITCH(overlap_moe),
              [](const Workload& work, const Layout& layout) { return work.model.moe.has_value() && layout.sizes.ep > 1; }},
    SwitchRow{"fused rotary embedding", "apply_rope_fusion (no --no-rope-fusion; needs Transformer Engine or Apex)",
              MGPLAN_SWITCH(megatron.rope_fusion)},
    SwitchRow{"fused bias and activation", "no --no-bias-swiglu-fusion or --no-bias-gelu-fusion",
              MGPLAN_SWITCH(megatron.bias_activation_fusion)},
    SwitchRow{"fused bias and dropout", "no --no-bias-dropout-fusion", MGPLAN_SWITCH(megatron.bias_dropout_fusion)},
    SwitchRow{"fused accumulation of weight gradients", "no --no-gradient-accumulation-fusion (needs Apex or Transformer Engine)",
              MGPLAN_SWITCH(megatron.gradient_accumulation_fusion)},
    SwitchRow{"fused cross entropy", "--cross-entropy-loss-fusion", MGPLAN_SWITCH(fused_cross_entropy)},
    SwitchRow{"fused permutation of tokens", "--moe-permute-fusion", MGPLAN_SWITCH(megatron.moe_permute_fusion), routes_tokens},
    SwitchRow{"grouped products of experts", "--moe-grouped-gemm",
              [](const Workload& work) { return work.model.moe && work.model.moe->grouped_gemm; },
              [](Workload& work, bool on) { work.model.moe->grouped_gemm = on; }, routes_tokens},
    SwitchRow{"shared experts beside the exchange", "--moe-shared-expert-overlap", MGPLAN_SWITCH(megatron.moe_shared_expert_overlap),
              routes_tokens},
    SwitchRow{"fused attention", "--attention-backend flash, fused or auto with a head size and mask that the kernels take",
              [](const Workload& work) { return work.training.attention == AttentionBackend::flash; },
              [](Workload& work, bool on) { work.training.attention = on ? AttentionBackend::flash : AttentionBackend::unfused; }},
};

#undef MGPLAN_SWITCH

/// Seconds of a step of a changed workload; nothing if its layout is not legal or not predicted.
std::optional<double> seconds_of(const Workload& work, const Layout& layout) {
    try {
        if (!broken_messages(work, layout).empty()) return std::nullopt;
        return simulator::CostModel(work).exact_seconds(layout);
    } catch (const ConfigError&) {
        return std::nullopt;
    }
}

double with_other_host(const Workload& work, const Layout& layout, double factor) {
    simulator::Calibration calibration = simulator::calibration_of(work.cluster, work.training.software);
    calibration.host_kernel_seconds *= factor;
    calibration.checkpoint_host_seconds *= factor;
    calibration.issue_seconds *= factor;
    return simulator::CostModel(work, calibration).exact_seconds(layout);
}

std::optional<double> with_straggler(const Workload& work, const Layout& layout) {
    if (work.world == 1 || simulator::CostModel::passes(layout) > simulator::kMostReplayedPasses) return std::nullopt;
    const auto slowdowns = simulator::stage_slowdowns(layout.sizes, {{0, kStraggler}});
    return simulator::CostModel(work).timeline(layout, false, slowdowns.front()).step.time.iteration_seconds;
}

template <class Change>
std::optional<double> changed_seconds(const Workload& work, const Layout& layout, const Change& change) {
    Workload changed = work;
    change(changed);
    return seconds_of(changed, layout);
}

/// Assumptions on machine and data, with the seconds of a step under them.
std::vector<std::pair<WhatIf, std::optional<double>>> assumptions(const Workload& work, const Layout& layout) {
    std::vector<std::pair<WhatIf, std::optional<double>>> found;
    found.push_back({{"host", "the host launches kernels half as fast",
                      "CUDA graphs (--cuda-graph-impl), a larger --micro-batch-size, a CPU without other work; see also NUMA binding"},
                     with_other_host(work, layout, kSlowHost)});
    found.push_back({{"fast host", "the host launches kernels twice as fast", "a CPU faster than the one that the prediction assumes"},
                     with_other_host(work, layout, kFastHost)});
    if (work.model.moe && !work.training.megatron.forced_routing) {
        if (work.routing.kind == RoutingKind::uniform)
            found.push_back(
                {{"routing", "the router prefers some experts (zipf:1), as before its balance has settled",
                  "--moe-router-load-balancing-type and --moe-aux-loss-coeff, expert bias; --moe-router-force-load-balancing to test it; "
                  "mgplan's --routing-skew takes measured counts"},
                 changed_seconds(work, layout, [](Workload& w) { w.routing = {.kind = RoutingKind::zipf, .exponent = 1, .counts = {}}; })});
        found.push_back({{"even routing", "every expert receives the same number of tokens",
                          "--moe-router-force-load-balancing or a capacity factor in the job; tell mgplan with --routing forced or "
                          "--routing-skew balanced"},
                         changed_seconds(work, layout, [](Workload& w) { w.routing = {.kind = RoutingKind::balanced, .counts = {}}; })});
    }
    if (work.world > work.cluster.fast_domain())
        found.push_back({{"network", "the network between nodes gives half its rate",
                          "NCCL_DEBUG=INFO names the links in use, nccl-tests their rate; tell mgplan with --cluster NAME,"
                          "node_network_gbits_per_second=…"},
                         changed_seconds(work, layout, [](Workload& w) { w.cluster.network.bandwidth *= kNetworkShare; })});
    if (work.world > 1 && work.cluster.nvlink_domain > 1 && work.cluster.pcie.bandwidth > 0)
        found.push_back({{"nvlink", "GPUs of a node exchange by PCIe and not by NVLink",
                          "nvidia-smi topo -m, NCCL_P2P_DISABLE; tell mgplan with --cluster NAME,nvlink_domain=1"},
                         changed_seconds(work, layout, [](Workload& w) { w.cluster.nvlink_domain = 1; })});
    found.push_back({{"straggler", "one GPU computes 10 % slower",
                      "--log-straggler names it, --timing-log-level 2 shows the spread; mgplan simulate --straggler RANK=1.1"},
                     with_straggler(work, layout)});
    return found;
}

template <class Row>
void sort_by_seconds(std::vector<Row>& rows, double Row::*seconds) {
    std::stable_sort(rows.begin(), rows.end(),
                     [seconds](const Row& a, const Row& b) { return std::abs(a.*seconds) > std::abs(b.*seconds); });
}

}  // namespace

std::vector<WhatIf> what_ifs(const Workload& work, const Layout& layout) {
    const double base = simulator::CostModel(work).exact_seconds(layout);
    std::vector<WhatIf> found;
    const auto keep = [&](WhatIf row, std::optional<double> seconds) {
        if (!seconds || std::abs(*seconds - base) < kLeastShare * base) return;
        row.seconds = *seconds - base;
        found.push_back(std::move(row));
    };
    for (auto& [row, seconds] : assumptions(work, layout)) keep(std::move(row), seconds);
    for (const SwitchRow& row : kSwitches) {
        if (!row.matters(work, layout) || !row.get(work)) continue;
        keep({std::string(row.name), "does not take effect", std::string(row.lever), ChangeKind::not_effective},
             changed_seconds(work, layout, [&](Workload& w) { row.set(w, false); }));
    }
    sort_by_seconds(found, &WhatIf::seconds);
    return found;
}

std::vector<UnusedSwitch> unused_switches(const Workload& work, const Layout& layout) {
    const double base = simulator::CostModel(work).exact_seconds(layout);
    std::vector<UnusedSwitch> found;
    for (const SwitchRow& row : kSwitches) {
        if (!row.matters(work, layout) || row.get(work)) continue;
        const auto seconds = changed_seconds(work, layout, [&](Workload& w) { row.set(w, true); });
        if (seconds && base - *seconds >= kLeastShare * base)
            found.push_back({std::string(row.name), std::string(row.lever), base - *seconds});
    }
    sort_by_seconds(found, &UnusedSwitch::saved_seconds);
    return found;
}

}  // namespace mgplan::planner
