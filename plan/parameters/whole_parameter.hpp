#pragma once
// Maps a rank's shard of a parameter to the whole parameter, which is the same under every layout: one name, one shape, the vocabulary
// without padding. Used to draw initial weights and to read checkpoints under another layout.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "plan/parameters/parameters.hpp"

namespace mgplan {

/// Ranks and sizes that place a rank's shards. Experts are divided over etp, and numbered through over ep.
struct ShardPlace {
    std::int64_t tp_rank = 0;
    std::int64_t tp = 1;
    std::int64_t pp_rank = 0;
    std::int64_t ep_rank = 0;
    std::int64_t ep = 1;
    std::int64_t etp_rank = 0;
    std::int64_t etp = 1;
};

/// One shard of a matrix; a vector is a matrix of one column, and in tensors of more dimensions all after the first are columns. Elements
/// are numbered row by row, in the shard and in the whole.
struct ShardOfWhole {
    std::int64_t rows = 1, columns = 1;  ///< of the shard
    std::optional<int> axis;             ///< dimension that is divided: 0 rows, 1 columns; nothing: the shard is the whole
    std::int64_t stride = 1;             ///< equal blocks of the whole's rows of which each shard holds a share (Parameter::shard_stride)
    std::int64_t index = 0, count = 1;   ///< which shard of how many
    std::int64_t whole_rows = 1;         ///< fewer than the shards' where they are padded: rows from there on are in no whole
    std::vector<std::int64_t> blocks{};  ///< rows of each of the shard's blocks where they are unequal (Parameter::shard_blocks)
    bool operator==(const ShardOfWhole&) const = default;

    [[nodiscard]] std::int64_t whole_columns() const { return axis == 1 ? columns * count : columns; }
    [[nodiscard]] std::int64_t whole_elements() const { return whole_rows * whole_columns(); }
    /// Row of the whole that a row of the shard stands for; whole_rows or more: padding.
    [[nodiscard]] std::int64_t whole_row(std::int64_t row) const;
    /// Row after the last one of this row's block; rows of a block follow each other in the whole too.
    [[nodiscard]] std::int64_t block_end(std::int64_t row) const;
};

/// The name that a parameter has in every layout: an expert's is of its number in the whole model, and a tied table has one
/// wherever its copies live.
[[nodiscard]] std::string whole_name(const ModelSpec& model, const Parameter& parameter, const ShardPlace& place);

/// True if this is a table with a row for each token, padded to a multiple that depends on tp.
[[nodiscard]] bool has_vocabulary_rows(const Parameter& parameter);

[[nodiscard]] ShardOfWhole shard_of_whole(const ModelSpec& model, const Parameter& parameter, const ShardPlace& place);

/// Elements that lie side by side in the shard and in the whole.
struct WholeRun {
    std::int64_t in_shard = 0;
    std::int64_t in_whole = 0;
    std::int64_t size = 0;
    bool operator==(const WholeRun&) const = default;
};

/// Elements [begin, end) of the shard as runs, ascending in both coordinates; padding is in none. Runs that touch in both are
/// one. O(rows).
[[nodiscard]] std::vector<WholeRun> runs_in_whole(const ShardOfWhole& shard, std::int64_t begin, std::int64_t end);

/// Elements that two lists of runs of one whole have in common.
struct CommonRun {
    std::int64_t in_first = 0;   ///< in the first one's shard
    std::int64_t in_second = 0;  ///< in the second one's
    std::int64_t size = 0;
    bool operator==(const CommonRun&) const = default;
};

/// O(runs of both).
[[nodiscard]] std::vector<CommonRun> common_runs(const std::vector<WholeRun>& first, const std::vector<WholeRun>& second);

/// The elements [begin, end) that copy `index` of `count` equal ones saves, so that each is saved once: few are left to the
/// first, many are divided evenly.
struct ElementShare {
    std::int64_t begin = 0;
    std::int64_t end = 0;
};
[[nodiscard]] ElementShare share_of_copies(std::int64_t elements, std::int64_t index, std::int64_t count);

}  // namespace mgplan
