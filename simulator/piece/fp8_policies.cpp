#include "simulator/piece/fp8_policies.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include "plan/parameters/parameters.hpp"
#include "plan/text/errors.hpp"
#include "simulator/piece/fp8_operands.hpp"
#include "simulator/piece/offload_policies.hpp"

namespace mgplan::simulator::fp8 {
namespace {

using model::MemoryCategory;
using EditedTensor = LayerEditor::Tensor;

/// Begin and end of one GEMM, taken from its workspace.
struct Product {
    std::int64_t begin = 0, end = 0;
};

std::vector<Product> products_of(const LayerEditor& layer, TraceRange where) {
    std::vector<Product> products;
    for (const EditedTensor& tensor : layer.tensors()) {
        if (tensor.name == "matmul workspace" && tensor.bytes > 0 && where.contains(tensor.taken))
            products.push_back({tensor.taken, tensor.returned});
    }
    std::ranges::sort(products, {}, &Product::begin);
    return products;
}

/// The first GEMM after a time; product_before(): the last before it.
Product product_after(const std::vector<Product>& products, std::int64_t when) {
    const auto found = std::ranges::find_if(products, [&](const Product& each) { return each.begin > when; });
    MGPLAN_ASSERT(found != products.end(), "a product follows");
    return *found;
}

Product product_before(const std::vector<Product>& products, std::int64_t when) {
    const auto found = std::ranges::find_if(products, [&](const Product& each) { return each.begin > when; });
    MGPLAN_ASSERT(found != products.begin(), "a product is in front");
    return *(found - 1);
}

Fp8OperandBytes operand(const PolicyContext& context, std::int64_t rows, std::int64_t columns) {
    return fp8_operand_bytes(rows, columns, context.training.format(), context.sizes.traits.architecture);
}

std::int64_t element(const PolicyContext& context) {
    return bytes_of(context.sizes.dtype);
}

std::int64_t rows_of(const PolicyContext& context, const EditedTensor& tensor, std::int64_t columns) {
    return tensor.bytes / element(context) / columns;
}

std::int64_t columns_of(const PolicyContext& context, const EditedTensor& tensor, std::int64_t rows) {
    return tensor.bytes / element(context) / rows;
}

/// Tokens of experts, quantised and padded separately for each expert.
Fp8OperandBytes expert_operand(const PolicyContext& context, std::int64_t rows, std::int64_t columns) {
    const std::int64_t experts = context.mixture()->experts / context.sizes.ep;
    return operand(context, (rows + experts - 1) / experts, columns).times(experts);
}

bool attention(const LayerEditor& layer) {
    return layer.piece() == Piece::attention;
}

bool mixture(const LayerEditor& layer) {
    return layer.piece() == Piece::mixture;
}

bool gathers(const PolicyContext& context) {
    return context.sizes.sequence_parallel && context.sizes.tp > 1;
}

bool has_query_norm(const PolicyContext& context) {
    return context.latent()->latent_norms && context.latent()->q_lora_rank == 0;
}

bool recomputes(const PolicyContext& context, RecomputeModule module) {
    return context.sizes.modules.contains(module);
}

/// Time at which a module's forward returns and frees its local variables: directly before the addition to the residual stream.
std::int64_t module_end(LayerEditor& layer) {
    const EditedTensor* stream = layer.find(layer.forward(), "residual stream");
    MGPLAN_ASSERT(stream != nullptr, "the residual stream");
    return stream->taken - 1;
}

/// Input of a GEMM that quantises it: 16 bits until time `sixteen_bits`, quantised both ways during the GEMM, then one way until it is read
/// for the weight's gradient or as long as the trace keeps it.
void quantise_input(LayerEditor& layer, EditedTensor& input, const Fp8OperandBytes& bytes, Product product, std::int64_t sixteen_bits) {
    const std::int64_t until = input.returned, taken = std::max(product.begin - 1, input.taken + 1);
    input.returned = std::min(until, sixteen_bits);
    layer.add("input in fp8", MemoryCategory::activations, bytes.columnwise, taken, std::max(until, product.end + 1));
    layer.add("input in fp8, along rows", MemoryCategory::activations, bytes.both - bytes.columnwise, taken, product.end + 1);
}

/// Quantises the input of the second linear layer of a dense MLP or of shared experts, which run before the routed ones.
void quantise_activation(LayerEditor& layer, const PolicyContext& context, std::int64_t rows) {
    EditedTensor* activation = layer.find(layer.forward(), "activation output");
    MGPLAN_ASSERT(activation != nullptr, "the activation's output");
    const Product second = product_after(products_of(layer, layer.forward()), activation->taken);
    quantise_input(layer, *activation, operand(context, rows, columns_of(context, *activation, rows)), second, module_end(layer));
    // Recomputed for the backward: in a MoE layer everything, else only the first GEMM and the activation.
    activation = layer.find(layer.backward(), "activation output");
    if (activation == nullptr || (mixture(layer) && !recomputes(context, RecomputeModule::moe))) return;
    const Product again = mixture(layer) ? product_after(products_of(layer, layer.backward()), activation->taken)
                                         : Product{activation->taken + 2, activation->taken + 3};
    quantise_input(layer, *activation, operand(context, rows, columns_of(context, *activation, rows)), again, again.end);
}

void quantise_latent_inputs(LayerEditor& layer, const PolicyContext& context) {
    EditedTensor& normed = *layer.find(layer.forward(), "norm output");
    // Under recompute of the norm the layers keep the recomputed tensor (transformer_layer.py, set_for_recompute_input_layernorm).
    if (normed.returned < layer.backward().begin || recomputes(context, RecomputeModule::layernorm)) return;
    const std::int64_t until = normed.returned;
    const Fp8OperandBytes bytes = operand(context, context.sizes.rows_outside(), context.model.hidden);
    const Product first = product_after(products_of(layer, layer.forward()), normed.taken);
    // The queries' own norm, if there is one, reads the 16 bits in its backward, and its output is the input of the queries' projection.
    const bool query_norm = has_query_norm(context);
    // Recompute of a block's norms holds their outputs until the block ends, and from its backward on.
    if (!recomputes(context, RecomputeModule::mhc) && !query_norm) normed.returned = module_end(layer);
    for (int layers = query_norm ? 1 : 0; layers < 2; ++layers)  // queries down (or up), and keys and values down
        layer.add("input in fp8", MemoryCategory::activations, bytes.columnwise, first.begin - 1, until);
}

/// Quantises the output gradient of the linear layer whose input gradient is number `which` of the backward.
void quantise_gradient(LayerEditor& layer, const PolicyContext& context, int which, std::int64_t rows, std::int64_t columns,
                       bool weight_first) {
    const EditedTensor* d_input = layer.find(layer.backward(), "input gradient", which);
    MGPLAN_ASSERT(d_input != nullptr, "the input's gradient of a linear layer");
    const std::int64_t when = d_input->taken;
    const std::vector<Product> all = products_of(layer, layer.backward());
    const Product input = product_after(all, when), weight = weight_first ? product_before(all, when) : product_after(all, input.end);
    layer.add("output gradient in fp8", MemoryCategory::activations, operand(context, rows, columns).both,
              std::min({when, input.begin, weight.begin}) - 1, std::max(input.end, weight.end) + 1);
}

void quantise_grouped_gradient(LayerEditor& layer, const PolicyContext& context, std::string_view d_input, std::int64_t rows,
                               std::int64_t columns) {
    const EditedTensor* tensor = layer.find(layer.backward(), d_input);
    if (tensor == nullptr) return;  // no rows
    const std::int64_t when = tensor->taken;
    const std::vector<Product> all = products_of(layer, layer.backward());
    layer.add("output gradient in fp8", MemoryCategory::activations, expert_operand(context, rows, columns).both,
              product_before(all, when).begin - 1, product_after(all, when).end + 1);
}

}  // namespace

bool products(const PolicyContext& context) {
    return quantised(context.training.precision) && context.layer.precision == LayerPrecision::of_training &&
           context.megatron().transformer_engine && operand(context, 1, 1).both > 0;
}

bool keeps_operands(const PolicyContext& context) {
    return products(context) && !context.layer.adapters;
}

bool copies_core_output(const PolicyContext& context) {
    return keeps_operands(context) && context.training.format() == QuantisedFormat::delayed;
}

void keep_normed_inputs(LayerEditor& layer, const PolicyContext& context) {
    // Without norms before them (OLMo 2) linear layers read the residual stream, which stays in 16 bits.
    if (!context.layer.norms.before) return;
    const std::int64_t rows = context.sizes.rows_outside();
    const auto quantise = [&](TraceRange where, int which, std::int64_t width) {
        EditedTensor* normed = layer.find(where, "norm output", which);
        if (normed == nullptr || normed->bytes != rows * width * element(context)) return;
        const Fp8OperandBytes bytes = operand(context, rows, width);
        const std::int64_t taken = normed->taken;
        normed->bytes = bytes.columnwise;
        // Ranks that gather quantise one way only.
        if (gathers(context) || where.begin == layer.backward().begin) return;
        layer.add("input in fp8, along rows", MemoryCategory::activations, bytes.both - bytes.columnwise, taken,
                  product_after(products_of(layer, where), taken).end + 1);
    };
    for (const TraceRange where : {layer.forward(), layer.backward()}) {
        if (context.latent() == nullptr || !attention(layer)) {
            quantise(where, 0, context.model.hidden);
            continue;
        }
        // Latents or the input of queries without one; queries' first.
        for (int which = 0; which < 3; ++which) {
            const EditedTensor* normed = layer.find(where, "norm output", which);
            const bool of_layer = which == 0 && normed != nullptr && normed->bytes == rows * context.model.hidden * element(context);
            if (of_layer) continue;
            if (has_query_norm(context)) quantise(where, which, context.model.hidden);
            for (const std::int64_t width : {context.latent()->q_lora_rank, context.latent()->kv_lora_rank}) quantise(where, which, width);
        }
    }
}

void keep_linear_inputs(LayerEditor& layer, const PolicyContext& context) {
    if (attention(layer)) {
        if (context.latent() != nullptr) quantise_latent_inputs(layer, context);
        return;
    }
    if (!mixture(layer)) {
        quantise_activation(layer, context, context.sizes.rows());
        return;
    }
    if (context.mixture()->shared_ffn == 0 || recomputes(context, RecomputeModule::shared_experts)) return;
    quantise_activation(layer, context, context.sizes.rows());
    // The router keeps the norm's output in 16 bits; with recipes other than delayed, Megatron-LM's shared experts use it too.
    if (context.training.format() != QuantisedFormat::delayed) return;
    const EditedTensor* normed = layer.find(layer.forward(), "norm output");
    if (normed->returned < layer.backward().begin || recomputes(context, RecomputeModule::layernorm)) return;
    const std::int64_t taken = normed->taken, until = normed->returned;
    layer.add("input in fp8", MemoryCategory::activations, operand(context, context.sizes.rows_outside(), context.model.hidden).columnwise,
              taken + 1, until);
}

void keep_core_output(LayerEditor& layer, const PolicyContext& context) {
    const std::int64_t rows = context.sizes.rows(), width = context.heads() / context.sizes.tp * context.value_width();
    const Product projection = products_of(layer, layer.forward()).back();
    const EditedTensor* d_input = layer.find(layer.backward(), "input gradient");
    MGPLAN_ASSERT(d_input != nullptr, "the gradient of the projection's input");
    const std::vector<Product> backward = products_of(layer, layer.backward());
    const Product weight = product_after(backward, product_after(backward, d_input->taken).end);
    if (recomputes(context, RecomputeModule::core_attn)) {
        // The core keeps nothing, and the projection only its copy.
        if (EditedTensor* output = layer.find(layer.forward(), "attention output"))
            output->returned = std::min(output->returned, module_end(layer));
    }
    const Fp8OperandBytes bytes = operand(context, rows, width);
    layer.add("input in fp8", MemoryCategory::activations, bytes.columnwise, projection.begin - 1, weight.end + 1);
    layer.add("input in fp8, along rows", MemoryCategory::activations, bytes.both - bytes.columnwise, projection.begin - 1,
              projection.end + 1);
}

void keep_joined_inputs(LayerEditor& front, const PolicyContext& context) {
    EditedTensor* joined = front.find(front.forward(), "joined embeddings and states");
    if (joined == nullptr || joined->returned < front.backward().begin) return;  // recomputed
    const Product projection = product_after(products_of(front, front.forward()), joined->taken);
    quantise_input(front, *joined, operand(context, context.sizes.rows_outside(), 2 * context.model.hidden), projection,
                   projection.end + 1);
}

void keep_expert_inputs(LayerEditor& layer, const PolicyContext& context) {
    const std::int64_t hidden = context.model.routed_width();
    for (const TraceRange where : {layer.forward(), layer.backward()}) {
        const EditedTensor* first = layer.find(where, "expert first product");
        if (first == nullptr) continue;
        const std::vector<Product> all = products_of(layer, where);
        const std::int64_t at = first->taken,
                           width = context.mixture()->expert_ffn / context.sizes.etp * (context.mixture()->gated ? 2 : 1);
        const std::int64_t rows = rows_of(context, *first, width);
        const EditedTensor* output = layer.find(where, "expert output");
        MGPLAN_ASSERT(output != nullptr, "the experts' output");
        const std::int64_t second = output->taken;
        const Product last = product_after(all, second);
        // The time before the GEMM's result is taken, which may have the same size.
        EditedTensor* const dispatched = host::keeps_expert_rows(context) ? nullptr : layer.alive(at - 1, rows * hidden * element(context));
        if (dispatched != nullptr)
            quantise_input(layer, *dispatched, expert_operand(context, rows, hidden), product_after(all, at), last.end + 1);
        // Recomputed activations are kept unquantised (experts.py, set_save_original_input).
        if (recomputes(context, RecomputeModule::moe_act)) continue;
        const std::int64_t inner = context.mixture()->expert_ffn / context.sizes.etp;
        if (EditedTensor* activation = layer.alive(second, rows * inner * element(context), "activation output"))
            quantise_input(layer, *activation, expert_operand(context, rows, inner), last, last.end + 1);
    }
}

void gather_quantised(LayerEditor& layer, const PolicyContext& context) {
    const std::int64_t rows = context.sizes.rows();
    // Keys' rotated part enters no GEMM.
    const std::int64_t rotated = context.latent() != nullptr && attention(layer) ? context.latent()->qk_rope_head_dim : 0;
    // Times at which gradients of inputs, and their sums over tp, are taken.
    const auto taken = [&](std::string_view name) {
        std::vector<std::int64_t> instants;
        for (int which = 0; const EditedTensor* tensor = layer.find(layer.backward(), name, which); ++which)
            instants.push_back(tensor->taken);
        return instants;
    };
    const std::vector<std::int64_t> gradients = taken("input gradient"), sums = taken("scattered rows");
    const bool by_blocks = context.megatron().fp8_recipe == Fp8Recipe::blockwise || context.megatron().fp8_recipe == Fp8Recipe::mxfp8;
    for (const TraceRange where : {layer.forward(), layer.backward()}) {
        for (int which = 0; EditedTensor* gathered = layer.find(where, "gathered rows", which); ++which) {
            const std::int64_t columns = columns_of(context, *gathered, rows);
            if (columns == rotated) continue;
            const Fp8OperandBytes bytes = operand(context, rows, columns);
            // A gathered tensor that lives while an input's gradient is computed is either an output gradient, multiplied for it, or an
            // input gathered for the weight's gradient: then the sum of that gradient over tp runs while it lives.
            const auto lives = [&](std::int64_t when) { return gathered->taken < when && gathered->returned > when; };
            const bool beside = std::ranges::any_of(gradients, lives), for_weight = beside && std::ranges::any_of(sums, lives);
            const bool gradient = beside && !for_weight;
            if (gradient)
                gathered->bytes = bytes.both;
            else if (for_weight)
                gathered->bytes = by_blocks ? bytes.columnwise : bytes.both;
            else
                gathered->bytes = bytes.rowwise;
        }
    }
}

void quantise_gradients(LayerEditor& layer, const PolicyContext& context) {
    const std::int64_t hidden = context.model.hidden, rows = context.sizes.rows(), outside = context.sizes.rows_outside();
    const bool gathered = gathers(context);  // gradients of row-parallel layers, which are gathered in fp8
    const auto width_of = [&](int which) {
        const EditedTensor* output = layer.find(layer.forward(), "column-parallel output", which);
        MGPLAN_ASSERT(output != nullptr, "the output of a column-parallel layer");
        return columns_of(context, *output, rows);
    };
    if (attention(layer) && context.latent() != nullptr) {
        const LatentAttention& latent = *context.latent();
        const bool down = latent.q_lora_rank > 0;
        const std::int64_t queries = width_of(0), keys = width_of(1);
        if (!gathered) quantise_gradient(layer, context, 0, rows, hidden, false);
        quantise_gradient(layer, context, 1, rows, queries, false);
        if (down) quantise_gradient(layer, context, 2, outside, latent.q_lora_rank, true);
        quantise_gradient(layer, context, down ? 3 : 2, rows, keys, false);
        quantise_gradient(layer, context, down ? 4 : 3, outside, latent.kv_lora_rank + latent.qk_rope_head_dim, true);
    } else if (!mixture(layer)) {
        const std::int64_t width = width_of(0);
        if (!gathered) quantise_gradient(layer, context, 0, rows, hidden, false);
        quantise_gradient(layer, context, 1, rows, width, false);
    } else {
        const EditedTensor* first = layer.find(layer.forward(), "expert first product");
        if (first != nullptr) {
            const std::int64_t width = context.mixture()->expert_ffn / context.sizes.etp * (context.mixture()->gated ? 2 : 1);
            const std::int64_t copies = rows_of(context, *first, width);
            quantise_grouped_gradient(layer, context, "expert activation gradient", copies, context.model.routed_width());
            quantise_grouped_gradient(layer, context, "expert input gradient", copies, width);
        }
        if (context.mixture()->shared_ffn == 0) return;
        const std::int64_t width = width_of(0);
        // The router's comes first.
        if (!gathered) quantise_gradient(layer, context, 1, rows, hidden, false);
        quantise_gradient(layer, context, 2, rows, width, false);
    }
}

}  // namespace mgplan::simulator::fp8
