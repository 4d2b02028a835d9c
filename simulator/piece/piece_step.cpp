#include "simulator/piece/piece_step.hpp"

#include <algorithm>
#include <cmath>

namespace mgplan::simulator {
namespace {

/// Calls `grow(number of one, number of two)` for all counts of a step.
template <class Grow>
void for_each_size(PieceStep& one, const PieceStep& two, Grow grow) {
    grow(one.sent, two.sent);
    grow(one.received, two.received);
    grow(one.op.bytes_read, two.op.bytes_read);
    grow(one.op.bytes_written, two.op.bytes_written);
    const auto grow_all = [&](auto& sizes, const auto& larger, auto... members) { (grow(sizes.*members, larger.*members), ...); };
    using Product = model::ProductSizes;
    if (two.op.product.m > 0) grow_all(one.op.product, two.op.product, &Product::m, &Product::n, &Product::k);
    using Grouped = model::GroupedProductSizes;
    if (two.op.grouped.groups > 0) grow_all(one.op.grouped, two.op.grouped, &Grouped::groups, &Grouped::m, &Grouped::n, &Grouped::k);
    using Part = model::AttentionPart;
    if (two.op.part.queries > 0)
        grow_all(one.op.part, two.op.part, &Part::queries, &Part::keys, &Part::batch, &Part::heads, &Part::kv_heads, &Part::qk_dim,
                 &Part::v_dim, &Part::window);
}

}  // namespace

double share_of_different(std::int64_t copies, double places) {
    if (copies == 0) return 1;
    const double k = static_cast<double>(copies);
    return std::min(1.0, places * (1 - std::pow(1 - 1 / places, k)) / k);
}

void grow_size(std::int64_t& one, std::int64_t two, std::int64_t rows, std::int64_t rows_of_one) {
    const std::int64_t more = two - one;
    if (more == 0) return;
    const std::int64_t whole = rows / rows_of_one, rest = rows % rows_of_one;
    one += (whole - 1) * more + rest * (more / rows_of_one) + rest * (more % rows_of_one) / rows_of_one;
}

bool grow_step(PieceStep& one, const PieceStep& two, std::int64_t rows, std::int64_t rows_of_one) {
    if (one.kind != two.kind || one.pass != two.pass || one.op.name != two.op.name || one.number != two.number || one.group != two.group)
        return false;
    for_each_size(one, two, [&](std::int64_t& size, std::int64_t larger) { grow_size(size, larger, rows, rows_of_one); });
    const double share = static_cast<double>(rows) / static_cast<double>(rows_of_one);
    const auto grow_real = [&](double& size, double larger) { size += (share - 1) * (larger - size); };
    grow_real(one.op.flops, two.op.flops);
    grow_real(one.op.arithmetic.exponentials, two.op.arithmetic.exponentials);
    grow_real(one.op.arithmetic.instructions, two.op.arithmetic.instructions);
    using Own = model::OwnKernels;
    for (double Own::*const size : {&Own::bytes, &Own::product_flops, &Own::exponentials, &Own::instructions, &Own::of_a_thread})
        grow_real(one.op.own.*size, two.op.own.*size);
    // Separate GEMMs of attention run in blocks of scores, whose number grows with the rows; other launch counts change at most once (sums
    // in stages).
    if (two.op.part.queries > 0 && !two.op.part.fused)
        grow_size(one.op.launches, two.op.launches, rows, rows_of_one);
    else
        one.op.launches = two.op.launches;
    return true;
}

bool grow_steps(PieceSteps& one, const PieceSteps& two, std::int64_t rows, std::int64_t rows_of_one) {
    if (one.size() != two.size()) return false;
    for (std::size_t step = 0; step < one.size(); ++step) {
        if (!grow_step(one[step], two[step], rows, rows_of_one)) return false;
    }
    return true;
}

}  // namespace mgplan::simulator
