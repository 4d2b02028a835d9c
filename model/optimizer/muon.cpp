#include "model/optimizer/muon.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "model/device/device.hpp"
#include "model/ops/elementwise.hpp"
#include "model/ops/matmul.hpp"
#include "plan/parameters/model_adapter.hpp"
#include "plan/text/errors.hpp"

namespace mgplan::model {
namespace {

/// x becomes a x + b (x x') x + c (x x')² x.
struct QuinticStep {
    double a, b, c;
};

/// Emerging-Optimizers, muon_utils.py, "quintic" (from KellerJordan/modded-nanogpt).
constexpr std::array kQuinticSteps{QuinticStep{4.0848, -6.8946, 2.9270}, QuinticStep{3.9505, -6.3029, 2.6377},
                                   QuinticStep{3.7418, -5.5913, 2.3037}, QuinticStep{2.8769, -3.1427, 1.2046},
                                   QuinticStep{2.8366, -3.0525, 1.2012}};
constexpr double kSmallestNorm = 1e-7;  ///< a smaller one counts as this

/// Divides x by its Frobenius norm, so that no singular value is above 1.
void normalise(const Tensor& x, Communicator* ranks) {
    Device& device = x.device();
    const Tensor sum = device.empty({1}, Dtype::fp64, MemoryCategory::communication, "sum of squares of a matrix");
    sums_of_squares({&x, 1}, sum);
    if (ranks != nullptr) ranks->all_reduce(sum, Reduction::sum);
    double squares = 0;
    device.read(sum, &squares);
    scale(x, 1 / std::max(std::sqrt(squares), kSmallestNorm));
}

double muon_scale(MuonScale mode, double rows, double columns) {
    switch (mode) {
        case MuonScale::spectral:
            return std::sqrt(std::max(rows, columns));
        case MuonScale::unit_rms_norm:
            return std::sqrt(rows / columns);
        case MuonScale::shape_scaling:
            return std::sqrt(std::max(1.0, rows / columns));
    }
    return 1;
}

}  // namespace

std::vector<std::int64_t> qkv_rows(const ModelSpec& described) {
    const ModelSpec model = with_stated_fields(described);
    if (model.mla || model.kv_heads == 0) return {};
    const std::int64_t queries = model.heads / model.kv_heads * model.head_dim;
    if (model.attention_output_gate) return {queries, queries, model.head_dim, model.head_dim};
    return {queries, model.head_dim, model.head_dim};
}

bool is_muon_matrix(const Parameter& parameter) {
    const auto is_of = [&](std::string_view part) { return parameter.name.find(part) != std::string::npos; };
    return parameter.shape.size() == 2 && !is_of("word_embeddings") && !is_of("output_layer") && !is_of("mixer.in_proj");
}

Tensor orthogonalised(Tensor x, std::optional<int> axis, Communicator* ranks, int steps) {
    MGPLAN_ASSERT(axis.has_value() == (ranks != nullptr), "ranks divide a matrix along an axis");
    Device& device = x.device();
    normalise(x, ranks);
    const std::int64_t rows = x.shape()[0], columns = x.shape()[1];
    // Either Gram matrix gives the same polynomial. If x is divided, that of the undivided dimension, a sum over ranks; else the smaller.
    const bool of_rows = axis ? *axis == 1 : rows <= columns;
    const std::int64_t side = of_rows ? rows : columns;
    const auto temporary = [&](const Shape& shape, std::string_view name) {
        return device.empty(shape, x.dtype(), MemoryCategory::optimizer, name);
    };
    const Tensor gram = temporary({side, side}, "Gram matrix"), polynomial = temporary({side, side}, "polynomial of the Gram matrix");
    Tensor next = temporary(x.shape(), "next Newton-Schulz step");
    for (int i = 0; i < steps; ++i) {
        const QuinticStep& step = kQuinticSteps[static_cast<std::size_t>(i) % kQuinticSteps.size()];
        fill(gram, 0);
        matmul_accumulate(x, x, {.a = !of_rows, .b = of_rows}, gram);
        if (ranks != nullptr) ranks->all_reduce(gram, Reduction::sum);
        // c (b / c gram + gram²)
        copy(gram, polynomial);
        scale(polynomial, step.b / step.c);
        matmul_accumulate(gram, gram, {}, polynomial);
        scale(polynomial, step.c);
        copy(x, next);
        scale(next, step.a);
        if (of_rows)
            matmul_accumulate(polynomial, x, {}, next);
        else
            matmul_accumulate(x, polynomial, {}, next);
        std::swap(x, next);
    }
    return x;
}

void orthogonalise_update(const Tensor& update, const MuonMatrix& matrix, const MuonOptions& options, double factor) {
    const Parameter& parameter = *matrix.description;
    const bool whole = options.shards == MuonShards::blockwise || matrix.ranks == nullptr || matrix.ranks->size() == 1;
    const std::optional<int> axis = whole ? std::nullopt : parameter.shard_axis;
    Communicator* ranks = axis ? matrix.ranks : nullptr;
    const auto factor_of = [&](const Shape& shape) {
        const double parts = axis ? static_cast<double>(ranks->size()) : 1;
        return factor * options.extra_scale *
               muon_scale(options.scale, static_cast<double>(shape[0]) * (axis == 0 ? parts : 1),
                          static_cast<double>(shape[1]) * (axis == 1 ? parts : 1));
    };
    const auto in_products_type = [&](const Tensor& part) {
        Tensor narrow = update.device().empty(part.shape(), matrix.products, MemoryCategory::optimizer, "matrix to orthogonalise");
        copy(part, narrow);
        return narrow;
    };
    const bool packed = options.split_qkv && !options.qkv_rows.empty() && parameter.name.ends_with("linear_qkv.weight");
    if (!packed) {
        copy(orthogonalised(in_products_type(update), axis, ranks, options.steps), update);
        scale(update, factor_of(update.shape()));
        return;
    }
    const std::int64_t width = update.shape()[1];
    const std::int64_t group = std::accumulate(options.qkv_rows.begin(), options.qkv_rows.end(), std::int64_t{0});
    MGPLAN_ASSERT(update.shape()[0] % group == 0, "a rank holds whole kv heads");
    const std::int64_t groups = update.shape()[0] / group;
    const Tensor by_group = update.view({groups, group * width});
    std::int64_t begin = 0;
    for (const std::int64_t rows : options.qkv_rows) {
        const Tensor part = columns(by_group, begin * width, (begin + rows) * width, MemoryCategory::optimizer);
        const Tensor one = part.view({groups * rows, width});
        copy(orthogonalised(in_products_type(one), axis, ranks, options.steps), one);
        scale(one, factor_of(one.shape()));
        set_columns(part, by_group, begin * width);
        begin += rows;
    }
}

void muon_step(const MuonMatrix& matrix, const MuonOptions& options, const MuonStep& step) {
    const std::vector<std::int64_t>& shape = matrix.description->shape;
    MGPLAN_ASSERT(is_muon_matrix(*matrix.description), "Muon moves matrices");
    scale(matrix.momentum, options.momentum);
    scale(matrix.gradient, (1 - options.momentum) * step.gradient_factor);
    add(matrix.gradient, matrix.momentum);
    const Tensor update =
        matrix.main.device().empty({shape[0], shape[1]}, matrix.main.dtype(), MemoryCategory::optimizer, "update of a matrix");
    copy(matrix.momentum, update);
    if (options.nesterov) {
        scale(update, options.momentum);
        add(matrix.gradient, update);
    }
    orthogonalise_update(update, matrix, options, -step.learning_rate);
    if (step.weight_decay != 0) scale(matrix.main, 1 - step.learning_rate * step.weight_decay);
    add(update, matrix.main);
}

}  // namespace mgplan::model
