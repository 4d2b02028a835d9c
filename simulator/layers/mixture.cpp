#include <algorithm>
#include <cmath>

#include "simulator/collectives/all_gather.hpp"
#include "simulator/collectives/all_to_all.hpp"
#include "simulator/layers/mlp.hpp"
#include "simulator/layers/quantisation.hpp"

namespace mgplan::simulator {
namespace {

/// Rows that a rank sends, and those that the busiest rank's experts process: the others of its group wait for it.
struct Routing {
    double sent;      ///< token copies one rank sends out: its tokens · top_k
    double even;      ///< token copies one rank's experts process under balanced routing, gathered over etp
    double received;  ///< those of the busiest rank
    std::int64_t local_experts;
    std::int64_t rows_per_expert;
};

Routing routing_of(const Shard& s) {
    const MoeSpec& moe = *s.model().moe;
    Routing routing{};
    routing.sent = static_cast<double>(s.tokens_outside) * static_cast<double>(moe.top_k);
    // Padding to capacity sends full slots whatever the router says (GShard's capacity, arXiv 2006.16668).
    if (moe.capacity_factor > 0 && moe.pad_to_capacity) routing.sent *= moe.capacity_factor;
    routing.even = routing.sent * static_cast<double>(s.etp);
    routing.received = routing.even * s.busiest_experts;
    routing.local_experts = moe.experts / s.ep;
    routing.rows_per_expert =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(std::llround(routing.received / static_cast<double>(routing.local_experts))));
    return routing;
}

/// Share of a token's copies that travel where it goes once to each of `places` that hold any of its experts: of n places, top_k balanced
/// draws hit n·(1 - (1 - 1/n)^top_k) different ones.
double different_places(const Shard& s, double places) {
    const double top_k = static_cast<double>(s.model().moe->top_k);
    return std::min(1.0, places * (1 - std::pow(1 - 1 / places, top_k)) / top_k);
}

/// DeepEP and HybridEP: kernels of their own that take tokens as they are and leave them by rank.
bool sends_tokens_once(const Shard& s) {
    const TokenDispatcher dispatcher = s.model().moe->dispatcher;
    return dispatcher == TokenDispatcher::deep_ep || dispatcher == TokenDispatcher::hybrid_ep;
}

/// Seconds of one dispatch (or combine): all-to-all over ep, then the gather (or reduce-scatter) over etp.
double exchange_seconds(const Shard& s, const Routing& routing) {
    const MoeSpec& moe = *s.model().moe;
    // What arrives at the busiest rank, or leaves it on the way back, takes longest.
    double bytes = routing.sent * s.busiest_experts * static_cast<double>(s.model().hidden * s.element);
    if (sends_tokens_once(s)) {
        // To each node that holds any of its experts (inside one node: to each rank), not once per expert (DeepEP README).
        const auto& ep = s.paths->ep;
        bytes *= different_places(s, ep.crosses_network() ? static_cast<double>(ep.ranks) / static_cast<double>(ep.ranks_per_domain)
                                                          : static_cast<double>(ep.ranks));
    }
    double seconds = all_to_all_seconds(bytes, s.paths->ep, *s.calibration);
    if (moe.dispatcher == TokenDispatcher::all_gather) {
        seconds =
            all_gather_seconds(static_cast<double>(s.tokens_outside * s.ep * s.model().hidden * s.element), s.paths->ep, *s.calibration);
    }
    return seconds + all_gather_seconds(bytes * static_cast<double>(s.etp), s.paths->etp, *s.calibration);
}

/// Seconds of moving rows of tokens around one dispatch and one combine.
struct Permutation {
    double dispatch, combine;
};

Permutation permutation_seconds(const Shard& s, const Routing& routing) {
    const MoeSpec& moe = *s.model().moe;
    const double row_bytes = static_cast<double>(s.model().hidden * s.element);
    if (sends_tokens_once(s)) {
        // Tokens leave as they are. The rank's experts get their copies from what arrived, once for each rank it came from, and the
        // results are added up on the way back; HybridEP may do both inside its own kernels (megatron/core/transformer/moe/
        // token_dispatcher.py, _DeepepManager and _HybridEPManager; fuse_permute_dispatch of HybridEP's buffer).
        if (s.megatron() != nullptr && s.megatron()->permute_in_hybrid_ep && moe.dispatcher == TokenDispatcher::hybrid_ep) return {0, 0};
        const double arrived = routing.received * different_places(s, static_cast<double>(s.ep));
        const double seconds = s.kernels->memory_bound((routing.received + arrived) * row_bytes, Traffic::permutation);
        return {seconds, seconds};
    }
    // Before and behind the all-to-all, and back: each reads and writes every copied row once. What arrives for a single expert is in
    // order (Megatron-core token_dispatcher.py, MoEAlltoAllTokenDispatcher, num_local_experts; mgplan's own:
    // model/layers/token_dispatcher.cpp).
    const bool in_order = routing.local_experts == 1 && moe.dispatcher == TokenDispatcher::all_to_all;
    const double seconds = s.kernels->memory_bound(2 * routing.sent * row_bytes, Traffic::permutation) +
                           (in_order ? 0 : s.kernels->memory_bound(2 * routing.received * row_bytes, Traffic::permutation));
    return {seconds, seconds};
}

/// Launches of single kernels that take the host as long as one kernel that is priced here: these stand for an eager module around
/// several, 60 to 111 us; a launch from C++ takes 3 to 6.
constexpr std::int64_t kLaunchesOfAKernel = 20;

int kernels_of_launches(std::int64_t launches) {
    return static_cast<int>(std::min<std::int64_t>((launches + kLaunchesOfAKernel - 1) / kLaunchesOfAKernel, 10'000));
}

/// Megatron-LM adds the second product's biases, times the tokens' probabilities, expert by expert in eager PyTorch (megatron/core/
/// transformer/moe/experts.py, TEGroupedMLP._apply_bias). The probabilities are fp32 and so are the sums: b·p is written (4 bytes an
/// element), the rows are read with it and written (2 + 4 + 4), joined (4 + 4) and cast (4 + 2). Backward: cast (2 + 4), the rows' own
/// gradients cast (4 + 2) and joined (2 + 2), and for probabilities and biases each a product and a sum (4 + 4 + 4). The first product's
/// biases have their gradients summed up from the rows'.
void add_expert_biases(PieceCost& cost, const Shard& s, const Routing& routing, std::int64_t first) {
    const double elements = routing.received * static_cast<double>(s.model().hidden);
    cost.forward += s.kernels->memory_bound(28 * elements);
    cost.backward +=
        s.kernels->memory_bound(40 * elements) + s.kernels->memory_bound(routing.received * static_cast<double>(first * s.element));
    // Two splits of views, a product and a sum; six and a sum of biases on the way back.
    cost.kernels_forward += 2 + kernels_of_launches(4 * routing.local_experts);
    cost.kernels_backward += 2 + kernels_of_launches(9 * routing.local_experts);
}

/// Share of a hidden exchange's time that it takes from the products beside it. DeepEP's and HybridEP's kernels occupy a number of
/// multiprocessors that is set (DeepEP: 20 of its own accord; HybridEP: 24, csrc/hybrid_ep/config.cuh), which products then lack. Across
/// domains what was measured with DeepEP counts (Megatron-MoE-ModelZoo, Qwen3-235B on H100, ep 32).
double expert_overlap_cost(const Shard& s) {
    if (!sends_tokens_once(s) || s.megatron() == nullptr || s.paths->ep.crosses_network()) return s.calibration->expert_overlap_cost;
    const std::int64_t given = s.megatron()->dispatcher_sms;
    const bool deep_ep = s.model().moe->dispatcher == TokenDispatcher::deep_ep;
    const std::int64_t occupied = given > 0 ? given : deep_ep ? 20 : 24;
    return std::min(1.0, static_cast<double>(occupied) / static_cast<double>(s.calibration->multiprocessors));
}

}  // namespace

PieceCost router_cost(const Shard& s) {
    const std::int64_t experts = s.model().moe->experts;
    PieceCost cost;
    // A product over all experts, then scores and top-k in fp32; small kernels. Not among the model FLOPs.
    const double product = s.storage_kernels->gemm(s.tokens_outside, experts, s.model().hidden);
    const double scores = s.kernels->memory_bound(static_cast<double>(6 * s.tokens_outside * experts * 4));
    cost.forward = product + scores;
    cost.backward = 2 * product + scores;
    cost.weight_gradient = product;
    cost.kernels_forward = cost.kernels_backward = 12;
    return cost;
}

PieceCost mixture_cost(const Shard& s) {
    const ModelSpec& model = s.model();
    const MoeSpec& moe = *model.moe;
    const Routing routing = routing_of(s);
    const std::int64_t width = moe.expert_ffn / s.etp;
    const std::int64_t first = model.gated_mlp ? 2 * width : width;
    const std::int64_t rows = routing.rows_per_expert, experts = routing.local_experts;
    // One expert is a plain product; several go into one grouped kernel, or one after the other without it.
    const auto product = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
        if (experts == 1) return s.kernels->gemm(m, n, k);
        if (!moe.grouped_gemm) return static_cast<double>(experts) * s.kernels->gemm(m, n, k);
        return s.kernels->grouped_gemm(m, n, k, experts);
    };
    const auto weight_gradient = [&](std::int64_t m, std::int64_t n) {
        if (experts == 1) return s.kernels->weight_gradient(m, n, rows);
        if (!moe.grouped_gemm) return static_cast<double>(experts) * s.kernels->weight_gradient(m, n, rows);
        return s.kernels->grouped_weight_gradient(m, n, rows, experts);
    };

    PieceCost inner = router_cost(s);

    // Experts.
    const double up = product(rows, first, model.hidden);
    const double down = product(rows, model.hidden, width);
    const double before = routing.received * static_cast<double>(first * s.element),
                 after = routing.received * static_cast<double>(width * s.element);
    // Transformer Engine's fused operations compute the activation and its quantisation behind the first product, and their gradients
    // behind the second's (transformer_engine/pytorch/ops/fused/grouped_mlp.py: gated activations on Blackwell).
    const QuantisedFormat format = s.workload->training.format();
    const bool fused = s.megatron() != nullptr && s.megatron()->op_fuser && model.gated_mlp && quantised_products(s) &&
                       (format == QuantisedFormat::mxfp8 || format == QuantisedFormat::nvfp4) &&
                       s.workload->cluster.compute_capability >= 100;
    const double activation = fused ? 0 : s.kernels->memory_bound(before + after);
    inner.forward += up + down + activation;
    const double gradients = weight_gradient(first, model.hidden) + weight_gradient(model.hidden, width);
    inner.backward += product(rows, model.hidden, first) + product(rows, width, model.hidden) + gradients +
                      (fused ? 0 : s.kernels->memory_bound(2 * before + after));
    inner.weight_gradient += gradients;
    const auto copies = static_cast<std::int64_t>(std::llround(routing.received));
    const PieceCost first_operands = quantise_linear(s, LinearInput::plain, copies, model.hidden, first),
                    second_operands = quantise_linear(s, LinearInput::plain, copies, width, model.hidden);
    inner.forward += first_operands.forward + (fused ? 0 : second_operands.forward);
    inner.backward += second_operands.backward + (fused ? 0 : first_operands.backward);
    inner.forward_flops += 2.0 * routing.even * static_cast<double>(model.hidden) * static_cast<double>(first + width);

    if (s.megatron() != nullptr && model.mlp_bias) add_expert_biases(inner, s, routing, first);

    const Permutation permute = permutation_seconds(s, routing);
    inner.forward += permute.dispatch + permute.combine;
    inner.backward += permute.dispatch + permute.combine;
    inner.kernels_forward += 8 + (moe.grouped_gemm ? 0 : static_cast<int>(std::min<std::int64_t>(experts, 256)) * 3);
    inner.kernels_backward += 18 + (moe.grouped_gemm ? 0 : static_cast<int>(std::min<std::int64_t>(experts, 256)) * 6);

    // Transformer Engine's grouped linear layer quantises each expert's rows by itself, brings the scales of both operands into the
    // product's order and starts a product for each (transformer_engine/pytorch/module/grouped_linear.py; common/gemm/cublaslt_gemm.cu).
    if (s.megatron() != nullptr && moe.grouped_gemm && !fused && quantised_products(s)) {
        inner.kernels_forward += kernels_of_launches(8 * experts);
        inner.kernels_backward += kernels_of_launches(14 * experts);
    }

    // Dispatch and combine; another microbatch's compute may hide both (Megatron-LM --overlap-moe-expert-parallel-comm).
    const double exchange = 2 * exchange_seconds(s, routing);
    const bool hidden = s.workload->training.overlap_moe;
    const double taken = expert_overlap_cost(s);
    const auto exposed = [&](double compute) { return hidden ? std::max(taken * exchange, exchange - compute) : exchange; };
    inner.exposed_forward.ep += exposed(inner.backward);
    inner.exposed_backward.ep += exposed(inner.forward);

    const bool whole = s.recomputes(RecomputeModule::moe);
    if (s.recomputes(RecomputeModule::moe_act)) inner.recompute += activation;

    if (moe.shared_ffn > 0) {
        inner += mlp_core_cost(s, moe.shared_ffn, LinearInput::plain, s.recomputes(RecomputeModule::shared_experts));
    }
    if (whole) {
        inner.recompute = inner.forward;
        inner.exposed_recompute = inner.exposed_forward;
        inner.recompute_flops = inner.forward_flops;
    }
    PieceCost cost = norm_and_residual_cost(s);
    cost += inner;
    return cost;
}

}  // namespace mgplan::simulator
