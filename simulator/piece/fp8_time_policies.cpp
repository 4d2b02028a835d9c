#include <algorithm>
#include <utility>

#include "simulator/piece/fp8_operands.hpp"
#include "simulator/piece/time_policies.hpp"

namespace mgplan::simulator::timed {
namespace {

/// Kernels that bring the operands of a linear layer's products to fp8 (Transformer Engine 2.x, transformer_engine/pytorch/module/:
/// linear.py, layernorm_linear.py, base.py): the input and the output's gradient, each once for two products. Before Blackwell fp8
/// products take operands of one layout alone, and the transpose is written beside (nvte_is_non_tn_fp8_gemm_supported). Weights are
/// quantised once an iteration and left out.
class Quantiser {
public:
    Quantiser(LayerEditor& layer, const PolicyContext& context) : layer_(layer), context_(context) {}

    void run() {
        forward(layer_.forward_steps());
        forward(layer_.backward_steps());
        backward(layer_.backward_steps());
        for (PieceSteps* steps : {&layer_.forward_steps(), &layer_.backward_steps()}) gather_quantised_rows(*steps);
    }

private:
    [[nodiscard]] Fp8OperandBytes operand(std::int64_t rows, std::int64_t columns) const {
        return fp8_operand_bytes(rows, columns, context_.megatron().fp8_recipe, context_.sizes.traits.architecture);
    }
    [[nodiscard]] std::int64_t element() const { return bytes_of(context_.sizes.dtype); }
    [[nodiscard]] bool delayed() const { return context_.megatron().fp8_recipe == Fp8Recipe::delayed; }
    /// Recipes with one scale for a tensor store the same bytes in both directions; the others' scales differ, so that they quantise twice.
    [[nodiscard]] bool one_scale() const { return delayed() || context_.megatron().fp8_recipe == Fp8Recipe::tensorwise; }
    /// 16-bit elements read, fp8 written for both products.
    [[nodiscard]] std::int64_t quantise(std::int64_t rows, std::int64_t columns) const {
        return rows * columns * element() + operand(rows, columns).both;
    }
    /// A rank's own rows, in the one direction that is gathered.
    [[nodiscard]] std::int64_t quantise_own(std::int64_t columns) const {
        const std::int64_t rows = context_.sizes.rows_outside();
        return one_scale() ? rows * columns * element() + operand(rows, columns).rowwise : quantise(rows, columns);
    }
    /// One byte an element read, one written.
    [[nodiscard]] std::int64_t transpose(std::int64_t rows, std::int64_t columns) const {
        const Fp8OperandBytes bytes = operand(rows, columns);
        return one_scale() ? 2 * (bytes.both - bytes.rowwise) : 0;
    }

    /// Router, gate and everything outside of linear layers stay in the storage type.
    [[nodiscard]] static bool linear(const PieceStep& step) {
        return step.kind == StepKind::op && !step.router && !step.gate && step.op.product.m > 0;
    }
    [[nodiscard]] bool gathers(const PieceStep& step, std::int64_t rows, std::int64_t columns) const {
        return step.kind == StepKind::start && step.group == LayerGroup::tp && step.collective == model::CollectiveKind::all_gather &&
               context_.sizes.sequence_parallel && step.sent == rows * columns * element();
    }
    static bool is_norm(const PieceStep& step) { return step.kind == StepKind::op && step.op.name.ends_with("_norm"); }

    /// An op that moves so many bytes, in front of `place`; returns how many steps it added.
    static std::size_t insert(PieceSteps& steps, std::size_t place, std::string_view name, std::int64_t bytes) {
        if (bytes <= 0) return 0;
        PieceStep step;
        step.pass = steps[place].pass == StepPass::weight_gradient ? StepPass::input_gradient : steps[place].pass;
        step.op.name = name;
        step.op.bytes_read = bytes;
        steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(place), step);
        return 1;
    }

    void forward(PieceSteps& steps) const {
        for (std::size_t i = 0; i < steps.size(); ++i) {
            if (steps[i].pass != StepPass::forward && steps[i].pass != StepPass::recompute) continue;
            if (steps[i].op.grouped.groups > 0) {
                const model::GroupedProductSizes& sizes = steps[i].op.grouped;
                steps[i].op.grouped.dtype = Dtype::fp8;
                i += insert(steps, i, "quantise", quantise(sizes.groups * sizes.m, sizes.k));
            }
            if (!linear(steps[i])) continue;
            steps[i].op.product.dtype = Dtype::fp8;
            const model::ProductSizes product = steps[i].op.product;
            // [start, first chunk or wait,] product
            std::size_t begin = i;
            if (i >= 2 && gathers(steps[i - 2], product.m, product.k)) begin = i - 2;
            const bool gathered = begin != i;
            const bool normed = delayed() && begin > 0 && is_norm(steps[begin - 1]);
            if (gathered)
                i += normed ? 0 : insert(steps, begin, "quantise", quantise_own(product.k));
            else
                i += insert(steps, begin, "quantise", normed ? transpose(product.m, product.k) : quantise(product.m, product.k));
        }
    }

    void backward(PieceSteps& steps) const {
        for (std::size_t i = 0; i < steps.size(); ++i) {
            if (steps[i].pass == StepPass::recompute) continue;
            if (steps[i].op.grouped.groups > 0) {
                const model::GroupedProductSizes sizes = steps[i].op.grouped;
                steps[i].op.grouped.dtype = Dtype::fp8;
                if (sizes.accumulate) i += insert(steps, i, "quantise", quantise(sizes.groups * sizes.k, sizes.m));
                continue;
            }
            if (!linear(steps[i])) continue;
            steps[i].op.product.dtype = Dtype::fp8;
            if (!steps[i].op.product.accumulate) continue;
            // (out, in) += gradient (rows, out) · input (rows, in)
            const std::int64_t out = steps[i].op.product.m, in = steps[i].op.product.n, rows = steps[i].op.product.k;
            const auto gathered = [&](std::int64_t columns) {
                return std::any_of(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(i),
                                   [&](const PieceStep& step) { return gathers(step, rows, columns); });
            };
            if (gathered(out)) {
                i += insert(steps, i, "quantise", quantise_own(out));
                i += insert(steps, i, "transpose_fp8", transpose(rows, out));
            } else {
                i += insert(steps, i, "quantise", quantise(rows, out));
                if (gathered(in)) i += insert(steps, i, "transpose_fp8", transpose(rows, in));
            }
        }
    }

    void gather_quantised_rows(PieceSteps& steps) const {
        // Keys' rotated part enters no product.
        const std::int64_t rotated = context_.model.mla ? context_.model.mla->qk_rope_head_dim : 0, rows = context_.sizes.rows();
        for (PieceStep& step : steps) {
            const std::int64_t columns = step.sent / (rows * element());
            if (columns > 0 && columns != rotated && gathers(step, rows, columns))
                step.sent = step.received = operand(rows, columns).rowwise;
        }
    }

    LayerEditor& layer_;
    const PolicyContext& context_;
};

}  // namespace

void multiply_in_fp8(LayerEditor& layer, const PolicyContext& context) {
    Quantiser(layer, context).run();
}

}  // namespace mgplan::simulator::timed
