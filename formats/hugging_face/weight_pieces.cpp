#include "formats/hugging_face/weight_pieces.hpp"

#include <utility>

namespace mgplan::formats {

std::size_t WeightPieces::tensor(std::string name, std::vector<std::int64_t> shape) {
    const auto [found, is_new] = numbers_.try_emplace(name, tensors_.size());
    if (is_new) tensors_.push_back({std::move(name), std::move(shape)});
    return found->second;
}

void WeightPieces::append(PublishedParameter& to, PublishedRows rows) {
    rows.first_row = to.pieces.empty() ? 0 : to.pieces.back().first_row + to.pieces.back().rows;
    to.pieces.push_back(rows);
}

void WeightPieces::is(PublishedParameter& entry, std::string name, std::vector<std::int64_t> shape) {
    if (shape.empty()) shape = entry.columns == 1 ? std::vector{entry.rows} : std::vector{entry.rows, entry.columns};
    append(entry, {tensor(std::move(name), std::move(shape)), 0, entry.columns, 1, 0, entry.rows});
}

WeightPieces::Linear WeightPieces::linear(const std::string& module, std::int64_t all_rows, std::int64_t columns, bool is_bias) {
    if (is_bias) return {tensor(module + ".bias", {all_rows}), 1, 1};
    if (names_.transposed) return {tensor(module + ".weight", {columns, all_rows}), 1, all_rows};
    return {tensor(module + ".weight", {all_rows, columns}), columns, 1};
}

void WeightPieces::append_rows(PublishedParameter& to, const Linear& from, std::int64_t first, std::int64_t rows, std::int64_t every) {
    append(to, {from.tensor, first * from.row_step, every * from.row_step, from.column_step, 0, rows});
}

void WeightPieces::is_linear(PublishedParameter& entry, const std::string& module, bool is_bias) {
    append_rows(entry, linear(module, entry.rows, entry.columns, is_bias), 0, entry.rows);
}

void WeightPieces::append_head(PublishedParameter& to, const Linear& from, std::int64_t first, std::int64_t width,
                               std::int64_t rotated) const {
    if (!model_.rotary_interleaved || rotated == 0) return append_rows(to, from, first, width);
    append_rows(to, from, first, rotated / 2, 2);
    append_rows(to, from, first + 1, rotated / 2, 2);
    if (rotated < width) append_rows(to, from, first + rotated, width - rotated);
}

}  // namespace mgplan::formats
