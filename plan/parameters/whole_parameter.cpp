#include "plan/parameters/whole_parameter.hpp"

#include <algorithm>

#include "plan/text/errors.hpp"

namespace mgplan {
namespace {

/// A tied table has one name wherever its copies live.
constexpr const char* kTiedTable = "embedding.word_embeddings.weight";

}  // namespace

std::int64_t ShardOfWhole::whole_row(std::int64_t row) const {
    if (axis != 0) return row;
    if (!blocks.empty()) {
        std::int64_t in_shard = row, before = 0;
        for (const std::int64_t block : blocks) {
            if (in_shard < block) return before + index * block + in_shard;
            in_shard -= block;
            before += block * count;
        }
        MGPLAN_ASSERT(false, "the row is in one of the shard's blocks");
    }
    // The whole is `stride` blocks, and so is each shard.
    const std::int64_t block = rows / stride;
    return row / block * block * count + index * block + row % block;
}

std::int64_t ShardOfWhole::block_end(std::int64_t row) const {
    if (axis != 0) return rows;
    if (blocks.empty()) return (row / (rows / stride) + 1) * (rows / stride);
    std::int64_t end = 0;
    for (const std::int64_t block : blocks) {
        end += block;
        if (row < end) break;
    }
    return end;
}

std::string whole_name(const ModelSpec& model, const Parameter& parameter, const ShardPlace& place) {
    if (parameter.shared_embedding) return kTiedTable;
    if (!parameter.expert) return parameter.name;
    const std::string local = std::to_string(parameter.local_expert);
    MGPLAN_ASSERT(parameter.name.ends_with(local), "an expert's name ends with its number");
    return parameter.name.substr(0, parameter.name.size() - local.size()) +
           std::to_string(place.ep_rank * (model.moe->experts / place.ep) + parameter.local_expert);
}

bool has_vocabulary_rows(const Parameter& parameter) {
    return parameter.name.ends_with("word_embeddings.weight") || parameter.name.starts_with("output_layer.");
}

ShardOfWhole shard_of_whole(const ModelSpec& model, const Parameter& parameter, const ShardPlace& place) {
    ShardOfWhole shard;
    shard.rows = parameter.shape.at(0);
    shard.columns = parameter.count() / shard.rows;
    shard.axis = parameter.shard_axis;
    if (shard.axis) {
        shard.stride = parameter.shard_stride;
        shard.blocks = parameter.shard_blocks;
        shard.index = parameter.expert ? place.etp_rank : place.tp_rank;
        shard.count = parameter.expert ? place.etp : place.tp;
    }
    shard.whole_rows = shard.axis == 0 ? shard.rows * shard.count : shard.rows;
    if (has_vocabulary_rows(parameter)) shard.whole_rows = std::min(shard.whole_rows, model.vocab);
    return shard;
}

std::vector<WholeRun> runs_in_whole(const ShardOfWhole& shard, std::int64_t begin, std::int64_t end) {
    MGPLAN_ASSERT(begin >= 0 && begin <= end && end <= shard.rows * shard.columns, "elements of the shard");
    const std::int64_t whole_columns = shard.whole_columns();
    const std::int64_t first_column = shard.axis == 1 ? shard.index * shard.columns : 0;
    std::vector<WholeRun> runs;
    while (begin < end) {
        const std::int64_t row = begin / shard.columns, column = begin % shard.columns;
        const std::int64_t stretch_end = std::min(end, (shard.axis == 1 ? row + 1 : shard.block_end(row)) * shard.columns);
        const std::int64_t whole_row = shard.whole_row(row);
        const std::int64_t in_whole = whole_row * whole_columns + first_column + column;
        // Elements after the last row of the whole are padding; rows ascend, so nothing but padding follows.
        const std::int64_t size = std::min(stretch_end - begin, shard.whole_elements() - in_whole);
        if (size <= 0) break;
        if (!runs.empty() && runs.back().in_shard + runs.back().size == begin && runs.back().in_whole + runs.back().size == in_whole)
            runs.back().size += size;
        else
            runs.push_back({begin, in_whole, size});
        begin = stretch_end;
    }
    return runs;
}

std::vector<CommonRun> common_runs(const std::vector<WholeRun>& first, const std::vector<WholeRun>& second) {
    std::vector<CommonRun> common;
    auto a = first.begin();
    auto b = second.begin();
    while (a != first.end() && b != second.end()) {
        const std::int64_t begin = std::max(a->in_whole, b->in_whole);
        const std::int64_t end = std::min(a->in_whole + a->size, b->in_whole + b->size);
        if (begin < end) common.push_back({a->in_shard + begin - a->in_whole, b->in_shard + begin - b->in_whole, end - begin});
        if (a->in_whole + a->size < b->in_whole + b->size)
            ++a;
        else
            ++b;
    }
    return common;
}

ElementShare share_of_copies(std::int64_t elements, std::int64_t index, std::int64_t count) {
    constexpr std::int64_t kWorthDividing = 1 << 16;
    if (elements < kWorthDividing) return index == 0 ? ElementShare{0, elements} : ElementShare{};
    return {elements / count * index + std::min(index, elements % count),
            elements / count * (index + 1) + std::min(index + 1, elements % count)};
}

}  // namespace mgplan
