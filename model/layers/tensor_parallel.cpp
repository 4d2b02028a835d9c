#include "model/layers/tensor_parallel.hpp"

#include <array>
#include <string>
#include <utility>

#include "model/layers/deferred_gradients.hpp"
#include "model/layers/fp8_block_linear.hpp"
#include "model/ops/bias.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/linear.hpp"
#include "model/ops/matmul.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {

namespace {

/// Marks that a layer's product makes the weight's gradient, and returns the weight.
const Weight& with_product(const Weight& weight) {
    if (weight.start != nullptr) weight.start->products = true;
    return weight;
}

/// Algorithm for weights that a rank holds its own part of: no other rank computes these products.
constexpr ProductAlgorithm kOwn = ProductAlgorithm::timed;

/// Algorithm for weights that all tp ranks hold. Without sequence parallelism each rank computes the same from the same rows, including
/// gradients, which are not reduced: they must stay equal to the bit.
ProductAlgorithm of_duplicates(const RankContext& context) {
    return context.tp->size() == 1 || context.sequence_parallel ? ProductAlgorithm::timed : ProductAlgorithm::first;
}

/// Adds the product of dy (rows, out) and x (rows, in) to the gradient (out, in), or overwrites an empty one; likewise a bias's (out).
void add_product(const Weight& weight, const Tensor& dy, const Tensor& x, ProductAlgorithm algorithm, const Tensor& bias_gradient = {}) {
    const bool adds = weight.start == nullptr || !weight.start->empty;
    if (bias_gradient.defined())
        linear_gradients(dy, x, weight.gradient, adds, bias_gradient, algorithm);
    else if (adds)
        matmul_accumulate(dy, x, {.a = true}, weight.gradient, algorithm);
    else
        matmul_write(dy, x, {.a = true}, weight.gradient, algorithm);
    if (!adds) weight.start->empty = false;
}

/// Returns x Wᵀ (rows, out), with the bias if there is one.
Tensor product_with_bias(const RankContext& context, const Weight& weight, const Weight& bias, const Tensor& x, std::string_view name) {
    if (!bias.defined()) return matmul(x, weight.value, {.b = true}, name, kOwn);
    return linear(x, weight.value, bias.value, name, kOwn, context.biases_in_products);
}

/// Returns true if the product that makes the weight's gradient makes the bias's too, of whole dy and x.
bool makes_bias_gradient(const RankContext& context, const Weight& weight, const Weight& bias, const Tensor& dy, const LinearInput& x) {
    return context.biases_in_products && bias.defined() && weight.trained() && weight.fp8 == nullptr &&
           sums_columns_in_product(dy, x.x, weight.gradient);
}

/// Adds the product of casts likewise.
void add_fp8_product(const Weight& weight, const Fp8Tensor& dy, const Fp8Tensor& x, ProductAlgorithm algorithm) {
    const auto columns = [](const Fp8Tensor& cast) -> Fp8Tensor {
        return {cast.turned.defined() ? cast.turned : transpose_codes(cast.codes), cast.scale};
    };
    const Fp8Tensor columns_of_dy = columns(dy), columns_of_x = columns(x);
    if (weight.start == nullptr || !weight.start->empty)
        return fp8_matmul_accumulate(columns_of_dy, columns_of_x, weight.gradient, algorithm);
    fp8_matmul_write(columns_of_dy, columns_of_x, weight.gradient, algorithm);
    weight.start->empty = false;
}

/// Returns true if a layer multiplies in fp8 with scales for blocks.
bool in_blocks(const Weight& weight) {
    return weight.fp8 != nullptr && weight.fp8->blocks;
}

void refresh_copies(const Weight& weight) {
    if (!weight.fp8->fresh) refresh(std::array{CopiedWeight{weight.fp8, weight.value}});
}

/// Returns the context over whose tp rows of column-parallel inputs are gathered; nullptr if they need not be.
const RankContext* gathering(const RankContext& context) {
    return context.sequence_parallel && context.tp->size() > 1 ? &context : nullptr;
}

/// Return the codes of a cast input that a forward reads, and those that the gradient of the weight reads.
Fp8Tensor rows_of(const LinearInput& x) {
    MGPLAN_ASSERT(x.lie == ColumnCodes::as_rows || x.forward.defined(), "a forward reads codes as rows lie");
    return {x.lie == ColumnCodes::turned ? x.forward.codes : x.x, x.scale};
}
Fp8Tensor columns_of(const LinearInput& x) {
    return x.lie == ColumnCodes::turned ? Fp8Tensor{{}, x.scale, x.x} : Fp8Tensor{x.x, x.scale};
}

/// Cast a layer's input, and a gradient of its output. Ranks of `group` have one scale, which under delayed scaling all ranks have.
Fp8Tensor input_in_fp8(const Weight& weight, const Tensor& x, Communicator* group, Fp8Copies copies) {
    constexpr std::string_view kName = "input in fp8";
    const auto& followed = weight.fp8->followed;
    return followed ? to_fp8(x, Dtype::fp8, followed->input, copies, kName) : to_fp8(x, Dtype::fp8, group, copies, kName);
}
Fp8Tensor gradient_in_fp8(const Weight& weight, const Tensor& dy, Communicator* group, Fp8Copies copies) {
    constexpr std::string_view kName = "output gradient in fp8";
    const auto& followed = weight.fp8->followed;
    return followed ? to_fp8(dy, Dtype::e5m2, followed->gradient, copies, kName) : to_fp8(dy, Dtype::e5m2, group, copies, kName);
}

/// Returns the order of a cast's codes: rows alone if ranks gather them; else turned ones too.
Fp8Copies copies_of(const RankContext* gathered) {
    return gathered != nullptr ? Fp8Copies::rows : Fp8Copies::both;
}

/// Returns the gradient of an input, dy · W. Frees dy's codes that the gradient of the weight does not read.
Tensor multiply_fp8_gradient(const Weight& weight, Fp8Tensor& dy, ProductAlgorithm algorithm) {
    Tensor dx = fp8_matmul(dy, {weight.fp8->transposed, weight.fp8->values.scale}, weight.value.dtype(), "input gradient", algorithm);
    if (dy.turned.defined()) dy.codes = {};
    return dx;
}
/// Returns the layer's input for the gradient of its weight, cast again if no cast was kept.
Fp8Tensor columns_of_input(const Weight& weight, const LinearInput& x) {
    return x.in_fp8() ? columns_of(x) : input_in_fp8(weight, x.x, nullptr, Fp8Copies::turned);
}

/// Codes on their way from all tp ranks, which have one scale; or own rows that are not gathered, cast in wait().
struct Fp8Underway {
    const Weight& weight;
    LinearInput own;
    Underway codes;
    Tensor scale;
    [[nodiscard]] Fp8Tensor wait() {
        if (!own.defined()) return {codes.wait(), std::move(scale)};
        return columns_of_input(weight, own);
    }
};

/// The backward of a column-parallel layer: begin() starts the gather of x, whose wait() gives the operand of the weight's gradient;
/// dx = multiply(dy), (rows, in), a partial sum over tp; add(dy, whole x), which takes the last share of both; add_bias(), the gradient of
/// a bias that add() does not make. Returns the sum of dx. Megatron-core has this order, so that the gather overlaps the first product,
/// the reduction the second. If weight gradients are deferred, so is the gather, and nothing but add_bias() hides the reduction.
template <class Gradient, class Begin, class Multiply, class Add, class AddBias>
Tensor both_gradients(const RankContext& context, Gradient dy, Begin begin, Multiply multiply, Add add, AddBias add_bias) {
    if (context.deferred != nullptr) {
        Underway reduced = start_leaving(context, multiply(dy));
        add_weight_gradient(context, [dy = std::move(dy), begin = std::move(begin), add] { add(dy, begin().wait()); });
        add_bias();
        return reduced.wait();
    }
    auto x = begin();
    Tensor dx = multiply(dy);
    auto whole = x.wait();
    Underway reduced = start_leaving(context, std::move(dx));
    add(std::exchange(dy, {}), std::exchange(whole, {}));
    add_bias();
    return reduced.wait();
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(const Weight& weight, Weight bias, ColumnParallelOptions options)
    : weight_(with_product(weight)), bias_(std::move(bias)), added_(options.skip_bias_add ? Weight{} : bias_), options_(options) {}

RowParallelLinear::RowParallelLinear(const Weight& weight, Weight bias, RowParallelOptions options)
    : weight_(with_product(weight)), bias_(std::move(bias)), added_(options.skip_bias_add ? Weight{} : bias_), options_(options) {}

DuplicatedLinear::DuplicatedLinear(const Weight& weight) : weight_(with_product(weight)) {}

ColumnParallelLinear::ColumnParallelLinear(const LayerSite& site, const std::string& module)
    : ColumnParallelLinear(site.weights.at(site.prefix + module + ".weight"), site.weights.find(site.prefix + module + ".bias")) {
    adapter_ = LowRankAdapter(site, module);
}

RowParallelLinear::RowParallelLinear(const LayerSite& site, const std::string& module)
    : RowParallelLinear(site.weights.at(site.prefix + module + ".weight"), site.weights.find(site.prefix + module + ".bias")) {
    adapter_ = LowRankAdapter(site, module);
}

DuplicatedLinear::DuplicatedLinear(const LayerSite& site, const std::string& module)
    : DuplicatedLinear(site.weights.find(site.prefix + module + ".weight")) {
    adapter_ = LowRankAdapter(site, module);
}

Underway start_entering(const RankContext& context, Tensor x) {
    if (context.tp->size() == 1 || !context.sequence_parallel) return Underway(std::move(x));
    Tensor whole =
        context.device->empty({x.shape()[0] * context.tp->size(), x.shape()[1]}, x.dtype(), MemoryCategory::communication, "gathered rows");
    auto pending = context.tp->start_all_gather(x, whole);
    return {std::move(x), std::move(whole), std::move(pending)};
}

Underway start_leaving(const RankContext& context, Tensor partial) {
    if (context.tp->size() == 1) return Underway(std::move(partial));
    if (!context.sequence_parallel) {
        auto pending = context.tp->start_all_reduce(partial, Reduction::sum);
        return {{}, std::move(partial), std::move(pending)};
    }
    Tensor part = context.device->empty({partial.shape()[0] / context.tp->size(), partial.shape()[1]}, partial.dtype(),
                                        MemoryCategory::activations, "scattered rows");
    auto pending = context.tp->start_reduce_scatter(partial, part, Reduction::sum);
    return {std::move(partial), std::move(part), std::move(pending)};
}

Tensor enter_region(const RankContext& context, const Tensor& x) {
    return start_entering(context, x).wait();
}

Tensor leave_region(const RankContext& context, const Tensor& partial) {
    return start_leaving(context, partial).wait();
}

Tensor gather_columns(const RankContext& context, const Tensor& part) {
    if (context.tp->size() == 1) return part;
    const std::int64_t ranks = context.tp->size(), rows = part.shape()[0], width = part.shape()[1];
    const Tensor by_rank = context.device->empty({ranks, rows, width}, part.dtype(), MemoryCategory::communication, "gathered columns");
    context.tp->all_gather(part, by_rank);
    return swap_leading(by_rank).view({rows, ranks * width});
}

Tensor own_columns(const RankContext& context, const Tensor& whole) {
    if (context.tp->size() == 1) return whole;
    const std::int64_t width = whole.shape()[1] / context.tp->size();
    return columns(whole, width * context.tp->rank(), width * (context.tp->rank() + 1));
}

void ColumnParallelLinear::add_copied(std::vector<CopiedWeight>& into) const {
    if (weight_.fp8 != nullptr) into.push_back({weight_.fp8, weight_.value});
}

void RowParallelLinear::add_copied(std::vector<CopiedWeight>& into) const {
    if (weight_.fp8 != nullptr) into.push_back({weight_.fp8, weight_.value});
}

LinearInput ColumnParallelLinear::input(const RankContext& context, const Tensor& x) const {
    if (weight_.fp8 == nullptr) return x;
    if (in_blocks(weight_))
        return gathering(context) != nullptr && casts_behind_gather(x) ? LinearInput(x) : cast_input(weight_, x, gathering(context));
    return LinearInput(input_in_fp8(weight_, x, context.sequence_parallel ? context.tp : nullptr, copies_of(gathering(context))));
}

Tensor ColumnParallelLinear::forward(const RankContext& context, const LinearInput& x, AdapterSaved* saved) const {
    MGPLAN_ASSERT(!options_.gather_output || !context.sequence_parallel, "with sequence parallelism outputs stay divided");
    Tensor y;  // (rows, out / tp)
    if (in_blocks(weight_)) {
        refresh_copies(weight_);
        y = multiply_input(weight_, x, gathering(context), kOwn, "column-parallel output");
    } else if (weight_.fp8 != nullptr) {
        refresh_copies(weight_);
        Communicator* const group = context.sequence_parallel ? context.tp : nullptr;
        const Fp8Tensor own = x.in_fp8() ? rows_of(x) : input_in_fp8(weight_, x.x, group, Fp8Copies::rows);
        y = fp8_matmul({enter_region(context, own.codes), own.scale}, weight_.fp8->values, weight_.value.dtype(), "column-parallel output",
                       kOwn);
    } else {
        const Tensor whole = enter_region(context, x.x);
        y = product_with_bias(context, weight_, added_, whole, "column-parallel output");
        if (adapter_.defined()) adapter_.add_to_columns(context, whole, y, *saved);
    }
    if (weight_.fp8 != nullptr && added_.defined()) add_bias(y, added_.value);
    return options_.gather_output ? gather_columns(context, y) : y;
}

Tensor ColumnParallelLinear::backward(const RankContext& context, const Tensor& d_output, const LinearInput& x, AdapterSaved* saved) const {
    const Tensor dy = options_.gather_output ? own_columns(context, d_output) : d_output;
    if (!weight_.trained()) {
        MGPLAN_ASSERT(weight_.fp8 == nullptr, "frozen weights are multiplied in the storage type");
        const Tensor dx = matmul(dy, weight_.value, {}, "input gradient", kOwn);
        if (adapter_.defined()) adapter_.columns_backward(context, dy, x.x, *saved, dx);
        return leave_region(context, dx);
    }
    const bool in_product = makes_bias_gradient(context, weight_, added_, dy, x);
    const auto add_bias_gradient = [&] {
        if (added_.defined() && !in_product) bias_gradient(dy, added_.gradient);
    };
    // With sequence parallelism x is kept divided, and gathered where the product reads it. The weight's gradient is (out / tp, in).
    if (in_blocks(weight_)) {
        return both_gradients(
            context, cast_gradient(weight_, dy), [this, &context, x] { return start_columns(weight_, x, gathering(context)); },
            [this](BlockGradient& cast) { return multiply_gradient(weight_, cast, kOwn); },
            [this](const BlockGradient& cast, Fp8Columns whole) { add_block_gradient(weight_, cast.columns, std::move(whole), kOwn); },
            add_bias_gradient);
    }
    if (weight_.fp8 != nullptr) {
        return both_gradients(
            context, gradient_in_fp8(weight_, dy, nullptr, Fp8Copies::both),
            [this, &context, x] {
                if (gathering(context) == nullptr) return Fp8Underway{weight_, x, {}, {}};
                LinearInput own = x.in_fp8() ? x : input(context, x.x);
                MGPLAN_ASSERT(own.lie == ColumnCodes::as_rows, "ranks' rows are gathered behind each other");
                return Fp8Underway{weight_, {}, start_entering(context, std::move(own.x)), std::move(own.scale)};
            },
            [this](Fp8Tensor& cast) { return multiply_fp8_gradient(weight_, cast, kOwn); },
            [this](const Fp8Tensor& cast, const Fp8Tensor& whole) { add_fp8_product(weight_, cast, whole, kOwn); }, add_bias_gradient);
    }
    return both_gradients(
        context, dy, [&context, x = x.x] { return start_entering(context, x); },
        [this](const Tensor& gradient) { return matmul(gradient, weight_.value, {}, "input gradient", kOwn); },
        [this, in_product](const Tensor& gradient, const Tensor& whole) {
            add_product(weight_, gradient, whole, kOwn, in_product ? added_.gradient : Tensor());
        },
        add_bias_gradient);
}

LinearInput RowParallelLinear::input(const Tensor& x) const {
    if (weight_.fp8 == nullptr) return x;
    if (in_blocks(weight_)) return cast_input(weight_, x, nullptr);
    return LinearInput(input_in_fp8(weight_, x, nullptr, Fp8Copies::both));
}

Tensor RowParallelLinear::forward(const RankContext& context, const LinearInput& x, AdapterSaved* saved) const {
    MGPLAN_ASSERT(options_.input_is_parallel || !context.sequence_parallel, "with sequence parallelism inputs are divided");
    Tensor y;  // (rows outside, out)
    if (weight_.fp8 != nullptr) {
        MGPLAN_ASSERT(options_.input_is_parallel, "in fp8 inputs are divided");
        refresh_copies(weight_);
        if (in_blocks(weight_)) {
            y = leave_region(context, multiply_input(weight_, x, nullptr, kOwn, "row-parallel output"));
            if (added_.defined()) add_bias(y, added_.value);
            return y;
        }
        // A cast that is not kept is freed after the product.
        const auto multiply = [&](const Fp8Tensor& own) {
            return fp8_matmul(own, weight_.fp8->values, weight_.value.dtype(), "row-parallel output", kOwn);
        };
        y = leave_region(context, multiply(x.in_fp8() ? rows_of(x) : input_in_fp8(weight_, x.x, nullptr, Fp8Copies::rows)));
    } else {
        constexpr std::string_view kName = "row-parallel output";
        const Tensor part = options_.input_is_parallel ? x.x : own_columns(context, x.x);
        const bool alone = context.tp->size() == 1;
        y = alone ? product_with_bias(context, weight_, added_, part, kName)
                  : leave_region(context, matmul(part, weight_.value, {.b = true}, kName, kOwn));
        if (adapter_.defined()) adapter_.add_to_rows(context, part, y, *saved);
        if (alone) return y;
    }
    if (added_.defined()) add_bias(y, added_.value);
    return y;
}

Tensor RowParallelLinear::backward(const RankContext& context, const Tensor& dy, const LinearInput& x, AdapterSaved* saved) const {
    if (!weight_.trained()) {
        MGPLAN_ASSERT(weight_.fp8 == nullptr && options_.input_is_parallel, "frozen weights are multiplied in the storage type");
        Tensor dx = matmul(enter_region(context, dy), weight_.value, {}, "input gradient", kOwn);  // (rows, in / tp)
        if (adapter_.defined()) adapter_.rows_backward(context, dy, x.x, *saved, dx);
        return dx;
    }
    // Not on several ranks: either each sums its own rows, while the product reads gathered ones, or each sums all rows and must get the
    // same bits, which timed products do not give.
    const bool in_product = context.tp->size() == 1 && makes_bias_gradient(context, weight_, added_, dy, x);
    if (added_.defined() && !in_product) bias_gradient(dy, added_.gradient);
    if (in_blocks(weight_)) {
        BlockGradient cast = cast_gradient(weight_, enter_region(context, dy));
        Tensor dx = multiply_gradient(weight_, cast, kOwn);
        add_weight_gradient(context, [this, columns = std::move(cast.columns), x] {
            add_block_gradient(weight_, columns, start_columns(weight_, x, nullptr).wait(), kOwn);  // (out, in / tp)
        });
        return dx;  // (rows, in / tp)
    }
    if (weight_.fp8 != nullptr) {
        Communicator* const group = context.sequence_parallel ? context.tp : nullptr;
        Fp8Tensor whole = gradient_in_fp8(weight_, dy, group, copies_of(gathering(context)));
        whole.codes = enter_region(context, whole.codes);
        Tensor dx = multiply_fp8_gradient(weight_, whole, kOwn);
        add_weight_gradient(context, [this, whole = std::move(whole), x] {
            add_fp8_product(weight_, whole, columns_of_input(weight_, x), kOwn);  // (out, in / tp)
        });
        return dx;  // (rows, in / tp)
    }
    const Tensor whole = enter_region(context, dy);
    Tensor dx = matmul(whole, weight_.value, {}, "input gradient", kOwn);  // (rows, in / tp)
    add_weight_gradient(context, [this, &context, whole, x, in_product] {
        const Tensor part = options_.input_is_parallel ? x.x : own_columns(context, x.x);
        add_product(weight_, whole, part, kOwn, in_product ? added_.gradient : Tensor());  // (out, in / tp)
    });
    return options_.input_is_parallel ? dx : gather_columns(context, dx);
}

void DuplicatedLinear::add_copied(std::vector<CopiedWeight>& into) const {
    if (weight_.fp8 != nullptr) into.push_back({weight_.fp8, weight_.value});
}

LinearInput DuplicatedLinear::input(const Tensor& x) const {
    if (weight_.fp8 == nullptr) return x;
    if (in_blocks(weight_)) return cast_input(weight_, x, nullptr);
    return LinearInput(input_in_fp8(weight_, x, nullptr, Fp8Copies::both));
}

Tensor DuplicatedLinear::forward(const RankContext& context, const LinearInput& x, AdapterSaved* saved) const {
    const ProductAlgorithm algorithm = of_duplicates(context);
    if (weight_.fp8 == nullptr) {
        Tensor y = matmul(x.x, weight_.value, {.b = true}, "duplicated output", algorithm);  // (rows outside, out)
        if (adapter_.defined()) adapter_.add_to_whole(context, x.x, y, *saved);
        return y;
    }
    refresh_copies(weight_);
    if (in_blocks(weight_)) return multiply_input(weight_, x, nullptr, algorithm, "duplicated output");
    const Fp8Tensor own = x.in_fp8() ? rows_of(x) : input_in_fp8(weight_, x.x, nullptr, Fp8Copies::rows);
    return fp8_matmul(own, weight_.fp8->values, weight_.value.dtype(), "duplicated output", algorithm);
}

Tensor DuplicatedLinear::backward(const RankContext& context, const Tensor& dy, const LinearInput& x, AdapterSaved* saved) const {
    const ProductAlgorithm algorithm = of_duplicates(context);
    if (!weight_.trained()) {
        Tensor dx = matmul(dy, weight_.value, {}, "input gradient", algorithm);  // (rows outside, in)
        if (adapter_.defined()) adapter_.whole_backward(context, dy, x.x, *saved, dx);
        return dx;
    }
    if (in_blocks(weight_)) {
        BlockGradient cast = cast_gradient(weight_, dy);
        Tensor dx = multiply_gradient(weight_, cast, algorithm);
        add_weight_gradient(context, [this, columns = std::move(cast.columns), x, algorithm] {
            add_block_gradient(weight_, columns, start_columns(weight_, x, nullptr).wait(), algorithm);  // (out, in)
        });
        return dx;
    }
    if (weight_.fp8 != nullptr) {
        Fp8Tensor cast = gradient_in_fp8(weight_, dy, nullptr, Fp8Copies::both);
        Tensor dx = multiply_fp8_gradient(weight_, cast, algorithm);
        add_weight_gradient(context, [this, cast = std::move(cast), x, algorithm] {
            add_fp8_product(weight_, cast, columns_of_input(weight_, x), algorithm);  // (out, in)
        });
        return dx;
    }
    add_weight_gradient(context, [this, dy, x, algorithm] { add_product(weight_, dy, x.x, algorithm); });  // (out, in)
    return matmul(dy, weight_.value, {}, "input gradient", algorithm);                                     // (rows outside, in)
}

}  // namespace mgplan::model
