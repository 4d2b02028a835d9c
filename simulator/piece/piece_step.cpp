#include "simulator/piece/piece_step.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace mgplan::simulator {
namespace {

/// `rows` rows of what `one` has in rows_of_one and `two` in twice as many; in two steps, for rows · bytes may leave 64 bits.
void grow_size(std::int64_t& one, std::int64_t two, std::int64_t rows, std::int64_t rows_of_one) {
    const std::int64_t more = two - one, whole = rows / rows_of_one, rest = rows % rows_of_one;
    one += (whole - 1) * more + rest * (more / rows_of_one) + rest * (more % rows_of_one) / rows_of_one;
}

/// All numbers of a step that count things.
std::array<std::int64_t*, 25> sizes_of(PieceStep& step) {
    model::ProductSizes& product = step.op.product;
    model::GroupedProductSizes& grouped = step.op.grouped;
    model::AttentionExtent& whole = step.op.attention;
    model::AttentionPart& part = step.op.part;
    return {&step.sent,   &step.received, &step.op.bytes_read, &step.op.bytes_written,
            &product.m,   &product.n,     &product.k,          &grouped.groups,
            &grouped.m,   &grouped.n,     &grouped.k,          &whole.sequence,
            &whole.batch, &whole.heads,   &whole.kv_heads,     &whole.qk_dim,
            &whole.v_dim, &part.queries,  &part.keys,          &part.batch,
            &part.heads,  &part.kv_heads, &part.qk_dim,        &part.v_dim,
            &part.window};
}

}  // namespace

double share_of_different(std::int64_t copies, double places) {
    if (copies == 0) return 1;
    const double k = static_cast<double>(copies);
    return std::min(1.0, places * (1 - std::pow(1 - 1 / places, k)) / k);
}

bool grow_step(PieceStep& one, const PieceStep& two, std::int64_t rows, std::int64_t rows_of_one) {
    if (one.kind != two.kind || one.pass != two.pass || one.op.name != two.op.name || one.number != two.number || one.group != two.group)
        return false;
    PieceStep larger = two;
    const auto small = sizes_of(one), large = sizes_of(larger);
    for (std::size_t i = 0; i < small.size(); ++i) grow_size(*small[i], *large[i], rows, rows_of_one);
    const double share = static_cast<double>(rows) / static_cast<double>(rows_of_one);
    one.op.flops += (share - 1) * (two.op.flops - one.op.flops);
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
