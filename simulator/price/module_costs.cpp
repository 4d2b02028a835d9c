#include "simulator/price/module_costs.hpp"

#include <algorithm>
#include <string_view>

#include "simulator/price/op_price.hpp"

namespace mgplan::simulator {
namespace {

/// True for norms, rotary embeddings, and ops on the residual stream or several streams (hyper-connections).
bool is_elementwise(std::string_view op) {
    const auto contains = [op](std::string_view part) { return op.find(part) != std::string_view::npos; };
    return contains("norm") || contains("stream") || contains("balance_maps") || contains("dropout") || op == "add" || op == "rotary";
}

bool is_product(const model::OpRecord& op) {
    return op.product.m > 0 || op.grouped.groups > 0;
}

ComputeModule module_of_experts(const PieceStep& step) {
    if (step.router) return ComputeModule::router_permute;
    const std::string_view name = step.op.name;
    if (is_elementwise(name)) return ComputeModule::norms_elementwise;
    const bool of_experts = is_product(step.op) || step.gate || name.starts_with("activation") || name.starts_with("xielu") ||
                            name.find("bias") != std::string_view::npos;
    return of_experts ? ComputeModule::experts : ComputeModule::router_permute;
}

/// FLOPs that the kernel of an op computes; 0 for ops that only move data.
double computed_flops(const model::OpRecord& op, const OpRates& rates) {
    if (op.part.queries > 0) {
        // Packed documents have no pairs with each other.
        const double qk = static_cast<double>(op.part.qk_dim), v = static_cast<double>(op.part.v_dim);
        const double passes = op.name == "attention_backward" ? (3 * qk + 2 * v) / (qk + v) : 1;
        return std::min(op.flops, passes * op.part.causal_half_flops() * rates.attention_share);
    }
    return is_product(op) || op.arithmetic.small_products ? op.flops : 0;
}

}  // namespace

ComputeModule module_of(const PieceStep& step, Piece piece) {
    const model::OpRecord& op = step.op;
    if (is_copy_to_or_from_host(op)) return ComputeModule::host;
    if (quantises(op)) return ComputeModule::quantisation;
    switch (piece) {
        case Piece::attention:
        case Piece::recurrent:
        case Piece::mtp_front:
            if (is_product(op)) return ComputeModule::qkv_projection;
            return piece == Piece::mtp_front || is_elementwise(op.name) ? ComputeModule::norms_elementwise : ComputeModule::attention_core;
        case Piece::dense:
            return is_elementwise(op.name) ? ComputeModule::norms_elementwise : ComputeModule::dense_mlp;
        case Piece::mixture:
            return module_of_experts(step);
        case Piece::loss:
            return ComputeModule::output_loss;
        case Piece::embedding:
        case Piece::norm:
        case Piece::mtp_embedding:
        case Piece::mtp_end:
        case Piece::mtp_rest:
            break;
    }
    return ComputeModule::norms_elementwise;
}

ByModule<PassWork> module_costs(Piece piece, const PieceSteps& forward, const PieceSteps& backward, const OpRates& rates) {
    ByModule<PassWork> costs;
    const auto add = [&](const PieceStep& step, ModuleWork PassWork::*pass) {
        const double seconds = step.kind == StepKind::op ? step_seconds(step, rates) : 0;
        if (seconds <= 0) return;  // a collective, or part of another op's kernel
        const double bytes = static_cast<double>(step.op.bytes_read + step.op.bytes_written);
        ModuleWork& work = costs[module_of(step, piece)].*pass;
        work.seconds += seconds;
        work.flops += computed_flops(step.op, rates);
        work.bytes += step.op.own.bytes > 0 ? step.op.own.bytes : bytes;
    };
    for (const PieceStep& step : forward) add(step, &PassWork::forward);
    for (const PieceStep& step : backward) add(step, step.pass == StepPass::recompute ? &PassWork::recompute : &PassWork::backward);
    return costs;
}

}  // namespace mgplan::simulator
