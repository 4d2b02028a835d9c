#include "model/optimizer/parameter_groups.hpp"

#include "plan/errors.hpp"

namespace mgplan::model {
namespace {

std::size_t group_of(const Parameter& parameter) {
    return (parameter.expert ? 2U : 0U) + (parameter.no_weight_decay ? 1U : 0U);
}

}  // namespace

std::vector<ParameterGroup> parameter_groups(std::span<const std::vector<Parameter>> chunks) {
    std::vector<ParameterGroup> groups{{false, true, {}}, {false, false, {}}, {true, true, {}}, {true, false, {}}};
    for (std::size_t c = 0; c < chunks.size(); ++c) {
        for (std::size_t p = 0; p < chunks[c].size(); ++p) {
            groups[group_of(chunks[c][p])].parameters.push_back({static_cast<std::int32_t>(c), static_cast<std::int32_t>(p)});
        }
    }
    return groups;
}

std::vector<std::vector<OwnedPiece>> owned_pieces(std::span<const std::vector<Parameter>> chunks, std::span<const BufferLayouts> layouts,
                                                  std::int64_t dp_rank, std::int64_t expert_dp_rank) {
    MGPLAN_ASSERT(chunks.size() == layouts.size(), "one layout for each chunk");
    std::vector<std::vector<OwnedPiece>> groups(4);
    for (std::size_t c = 0; c < chunks.size(); ++c) {
        for (std::size_t b = 0; b < layouts[c].buffers.size(); ++b) {
            const BufferLayout& buffer = layouts[c].buffers[b];
            for (std::size_t k = 0; k < buffer.buckets.size(); ++k) {
                for (const ShardRange& range : shard_ranges(buffer, k, buffer.expert ? expert_dp_rank : dp_rank)) {
                    const Parameter& parameter = chunks[c][static_cast<std::size_t>(range.parameter)];
                    groups[group_of(parameter)].push_back(
                        {static_cast<std::int32_t>(c), {static_cast<std::int32_t>(b), static_cast<std::int32_t>(k)}, range});
                }
            }
        }
    }
    return groups;
}

}  // namespace mgplan::model
