#include <algorithm>
#include <optional>
#include <utility>

#include "simulator/piece/fp8_operands.hpp"
#include "simulator/piece/fp8_policies.hpp"
#include "simulator/piece/step_edits.hpp"
#include "simulator/piece/time_policies.hpp"

namespace mgplan::simulator::timed {
namespace {

/// Adds the kernels that convert the operands of a linear layer's GEMMs to fp8 (Transformer Engine 2.x, transformer_engine/pytorch/module/:
/// linear.py, layernorm_linear.py, base.py): the input and the output's gradient, each once for two GEMMs. Before Blackwell fp8 GEMMs take
/// operands of one layout only, and the transpose is written in addition (nvte_is_non_tn_fp8_gemm_supported). Weights are quantised once
/// per iteration and left out.
class Quantiser {
public:
    Quantiser(LayerEditor& layer, const PolicyContext& context)
        : layer_(layer), context_(context), frozen_(context.layer.adapters.has_value()) {}

    void run() {
        forward(layer_.forward_steps());
        forward(layer_.backward_steps());
        backward(layer_.backward_steps());
        for (PieceSteps* steps : {&layer_.forward_steps(), &layer_.backward_steps()}) gather_quantised_rows(*steps);
    }

private:
    [[nodiscard]] Fp8OperandBytes operand(std::int64_t rows, std::int64_t columns) const {
        return fp8_operand_bytes(rows, columns, context_.training.format(), context_.sizes.traits.architecture);
    }
    [[nodiscard]] std::int64_t element() const { return bytes_of(context_.sizes.dtype); }
    [[nodiscard]] QuantisedFormat format() const { return context_.training.format(); }
    [[nodiscard]] bool delayed() const { return format() == QuantisedFormat::delayed; }
    /// Recipes with one scale per tensor store the same bytes in both directions; the others have different scales and quantise twice.
    [[nodiscard]] bool one_scale() const { return delayed() || format() == QuantisedFormat::tensorwise; }
    /// Bytes of 16-bit elements read and fp8 written for both GEMMs.
    [[nodiscard]] std::int64_t quantise(std::int64_t rows, std::int64_t columns) const {
        return rows * columns * element() + (frozen_ ? operand(rows, columns).rowwise : operand(rows, columns).both);
    }
    /// Bytes for a rank's own rows, in the one direction that is gathered.
    [[nodiscard]] std::int64_t quantise_own(std::int64_t columns) const {
        const std::int64_t rows = context_.sizes.rows_outside();
        return one_scale() ? rows * columns * element() + operand(rows, columns).rowwise : quantise(rows, columns);
    }
    /// Bytes: one read and one written per element.
    [[nodiscard]] std::int64_t transpose(std::int64_t rows, std::int64_t columns) const {
        const Fp8OperandBytes bytes = operand(rows, columns);
        return one_scale() && !frozen_ ? 2 * (bytes.both - bytes.rowwise) : 0;
    }

    /// True for GEMMs of linear layers: router, gate, steps marked as unquantised and everything else stay in the storage type.
    [[nodiscard]] static bool linear(const PieceStep& step) {
        return step.kind == StepKind::op && !step.router && !step.gate && !step.unquantised && step.op.product.m > 0;
    }
    /// True for the experts' GEMMs, but not for those of their adapters.
    [[nodiscard]] static bool grouped(const PieceStep& step) { return step.op.grouped.groups > 0 && !step.unquantised; }
    [[nodiscard]] bool gathers(const PieceStep& step, std::int64_t rows, std::int64_t columns) const {
        return step.kind == StepKind::start && !step.unquantised && step.group == LayerGroup::tp &&
               step.collective == model::CollectiveKind::all_gather && context_.sizes.sequence_parallel &&
               step.sent == rows * columns * element();
    }
    /// Maximum distance in steps between a layer's input-gradient and weight-gradient GEMMs, with collectives between.
    static constexpr std::size_t kNear = 5;
    /// The first of the tp starts and waits directly before a GEMM: those of its own collectives, in any order.
    static std::size_t with_collectives(const PieceSteps& steps, std::size_t product) {
        while (product > 0 && steps[product - 1].kind != StepKind::op && steps[product - 1].group == LayerGroup::tp) --product;
        return product;
    }
    [[nodiscard]] bool gathers_between(const PieceSteps& steps, std::size_t begin, std::size_t end, std::int64_t rows,
                                       std::int64_t columns) const {
        for (std::size_t i = begin; i < end; ++i) {
            if (gathers(steps[i], rows, columns)) return true;
        }
        return false;
    }

    /// True if a norm before `place` is fused with the following linear layer. Norms of MoE layers are separate, and so is the one before
    /// latent attention's down projections; both norms of the latents run before the up projections.
    [[nodiscard]] bool is_fused_with_norm(const PieceSteps& steps, std::size_t place, std::int64_t columns) const {
        if (place == 0 || layer_.piece() == Piece::mixture) return false;
        const auto is_norm = [](const PieceStep& step) { return step.kind == StepKind::op && step.op.name.ends_with("_norm"); };
        const LatentAttention* const latent = context_.latent();
        if (layer_.piece() != Piece::attention || latent == nullptr) return is_norm(steps[place - 1]);
        if (columns != latent->q_lora_rank && columns != latent->kv_lora_rank) return false;
        constexpr std::int64_t kStatistics = 4;  // elements in addition to a row's
        const std::int64_t row = context_.sizes.rows_outside() * element();
        return std::any_of(steps.begin(), steps.begin() + static_cast<std::ptrdiff_t>(place), [&](const PieceStep& step) {
            return is_norm(step) && step.pass == steps[place].pass && step.op.bytes_written >= row * columns &&
                   step.op.bytes_written <= row * (columns + kStatistics);
        });
    }
    static bool is_activation(const PieceStep& step) { return op_named(step, "activation"); }

    /// Quantises before `place`; returns the number of added steps. `produced`: directly after a norm or an activation.
    ///
    /// Recipes whose scale depends on the tensor itself first read all of it for its amax: tensorwise for its only scale, nvfp4 for the one
    /// above its blocks'. Under tensorwise scaling norms and activations compute the amax of their output (Transformer Engine #2004 and
    /// #2013); nvfp4 also needs that of the Hadamard transform (transformer_engine/common/hadamard_transform).
    [[nodiscard]] std::size_t insert_cast(PieceSteps& steps, std::size_t place, bool produced, std::int64_t elements,
                                          std::int64_t bytes) const {
        std::size_t added = 0;
        const std::int64_t whole = elements * element();
        if (format() == QuantisedFormat::nvfp4)
            added += insert(steps, place, "find_largest", whole);
        else if (format() == QuantisedFormat::tensorwise)
            added += insert(steps, place, produced ? "find_largest_produced" : "find_largest", whole);
        if (format() == QuantisedFormat::nvfp4) added += insert(steps, place + added, "quantise_again", whole);
        return added + insert(steps, place + added, "quantise", bytes);
    }

    /// Inserts an op that moves `bytes` before `place`; returns the number of added steps.
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
            if (grouped(steps[i])) {
                const model::GroupedProductSizes sizes = steps[i].op.grouped;
                steps[i].op.grouped.dtype = Dtype::fp8;
                const std::int64_t rows = sizes.groups * sizes.m;
                i += insert_cast(steps, i, false, rows * sizes.k, quantise(rows, sizes.k));
            }
            if (!linear(steps[i])) continue;
            steps[i].op.product.dtype = Dtype::fp8;
            const model::ProductSizes product = steps[i].op.product;
            const std::size_t begin = with_collectives(steps, i);
            const bool gathered = gathers_between(steps, begin, i, product.m, product.k);
            const bool normed = is_fused_with_norm(steps, begin, product.k);
            const bool produced = normed || (begin > 0 && is_activation(steps[begin - 1]));
            if (delayed() && normed)
                i += gathered ? 0 : insert(steps, begin, "quantise", transpose(product.m, product.k));
            else if (gathered)
                i += insert_cast(steps, begin, produced, context_.sizes.rows_outside() * product.k, quantise_own(product.k));
            else
                i += insert_cast(steps, begin, produced, product.m * product.k, quantise(product.m, product.k));
        }
    }

    void backward(PieceSteps& steps) const {
        for (std::size_t i = 0; i < steps.size(); ++i) {
            if (steps[i].pass == StepPass::recompute) continue;
            if (grouped(steps[i])) {
                const model::GroupedProductSizes sizes = steps[i].op.grouped;
                steps[i].op.grouped.dtype = Dtype::fp8;
                const std::int64_t rows = sizes.groups * (sizes.accumulate ? sizes.k : sizes.m);
                if (sizes.accumulate || frozen_)
                    i += insert_cast(steps, i, false, rows * (sizes.accumulate ? sizes.m : sizes.k),
                                     quantise(rows, sizes.accumulate ? sizes.m : sizes.k));
                continue;
            }
            if (!linear(steps[i])) continue;
            steps[i].op.product.dtype = Dtype::fp8;
            if (frozen_) {  // the gradient, for the only product that reads it
                const model::ProductSizes product = steps[i].op.product;
                i += insert_cast(steps, with_collectives(steps, i), false, product.m * product.k, quantise(product.m, product.k));
                continue;
            }
            if (!steps[i].op.product.accumulate) continue;
            // (out, in) += gradient (rows, out) · input (rows, in)
            const std::int64_t out = steps[i].op.product.m, in = steps[i].op.product.n, rows = steps[i].op.product.k;
            // The gradient is quantised before the first GEMM that reads it, and transposed where it was gathered.
            std::size_t first = i;
            for (std::size_t j = i; j-- > 0 && i - j <= kNear;) {
                const model::ProductSizes& near = steps[j].op.product;
                if (is_product(steps[j]) && !near.accumulate && near.m == rows && near.k == out && near.n == in) first = j;
            }
            const std::size_t begin = with_collectives(steps, first);
            // A column-parallel layer gathers its input again and reduces the input's gradient; a row-parallel one gathers the output's.
            const std::size_t end = std::min(i + 2, steps.size());
            const bool reduces =
                std::any_of(steps.begin() + static_cast<std::ptrdiff_t>(begin), steps.begin() + static_cast<std::ptrdiff_t>(end),
                            [](const PieceStep& step) {
                                return starts_over(step, LayerGroup::tp) && step.collective == model::CollectiveKind::reduce_scatter;
                            });
            const bool gathers_gradient = !reduces && gathers_between(steps, begin, i, rows, out);
            const bool gathers_input = reduces && gathers_between(steps, begin, i, rows, in);
            i += gathers_gradient ? insert_cast(steps, begin, false, context_.sizes.rows_outside() * out, quantise_own(out))
                                  : insert_cast(steps, begin, false, rows * out, quantise(rows, out));
            if (gathers_gradient || gathers_input) i += insert(steps, i, "transpose_fp8", transpose(rows, gathers_gradient ? out : in));
        }
    }

    void gather_quantised_rows(PieceSteps& steps) const {
        // Keys' rotated part enters no GEMM.
        const std::int64_t rotated = context_.latent() != nullptr ? context_.latent()->qk_rope_head_dim : 0, rows = context_.sizes.rows();
        for (PieceStep& step : steps) {
            const std::int64_t columns = step.sent / (rows * element());
            if (columns > 0 && columns != rotated && gathers(step, rows, columns))
                step.sent = step.received = operand(rows, columns).rowwise;
        }
    }

    LayerEditor& layer_;
    const PolicyContext& context_;
    bool frozen_;  ///< weights have no gradients, so that each operand has one product and is written along its rows alone
};

}  // namespace

void multiply_in_fp8(LayerEditor& layer, const PolicyContext& context) {
    Quantiser(layer, context).run();
}

bool multiplies_output_in_fp8(const PolicyContext& context) {
    return context.megatron().fp8_output_projection && fp8::products(context) && context.training.format() == QuantisedFormat::mxfp8;
}

bool attends_in_fp8(const PolicyContext& context) {
    return context.megatron().fp8_attention && fp8::products(context) && context.training.attention == AttentionBackend::flash;
}

void attend_in_fp8(LayerEditor& layer, const PolicyContext& context) {
    // Queries, keys and values are cast before attention; the output's gradient in the backward: two bytes read, one written.
    const std::int64_t bytes = bytes_of(context.sizes.dtype) + 1;
    for (PieceSteps* steps : {&layer.forward_steps(), &layer.backward_steps()}) {
        for (std::size_t i = 0; i < steps->size(); ++i) {
            const model::AttentionPart part = (*steps)[i].op.part;
            if (part.queries == 0 || !part.fused) continue;
            (*steps)[i].in_fp8 = true;
            const std::int64_t outputs = part.batch * part.queries * part.heads * part.v_dim;
            const std::int64_t operands =
                part.batch * (part.queries * part.heads * part.qk_dim + part.keys * part.kv_heads * (part.qk_dim + part.v_dim));
            const bool backward = op_named((*steps)[i], "attention_backward");
            insert_at(*steps, i,
                      stream_op((*steps)[i], "quantise_attention", static_cast<double>(bytes * (backward ? outputs : operands))));
            ++i;
        }
    }
}

}  // namespace mgplan::simulator::timed
