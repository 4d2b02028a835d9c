#pragma once
// Metadata of each tensor in a checkpoint's file: its elements, their shard, and their checksum.

#include <cstdint>
#include <string>
#include <string_view>

#include "plan/parameters/whole_parameter.hpp"

namespace mgplan::runtime {

/// Part of a shard of a tensor that all layouts have.
struct SavedSlice {
    std::string name;  ///< of the whole
    ShardOfWhole shard;
    std::int64_t begin = 0;  ///< elements of the flattened shard
    std::int64_t end = 0;
    std::uint32_t checksum = 0;  ///< CRC-32C of the values' bytes
};

/// Elements of the largest whole that is read: sizes computed from it stay within 64 bits.
inline constexpr std::int64_t kMostWholeElements = std::int64_t{1} << 60;

/// The slice without its name, always equally long for the same numbers whatever the checksum:
/// "rows=8 columns=4 axis=0 stride=1 index=0 count=2 whole_rows=16 begin=0 end=32 crc32c=0123abcd".
[[nodiscard]] std::string slice_text(const SavedSlice& slice);
/// Reads it back. Throws ConfigError naming `where` and the tensor for anything else, and for sizes that contradict each other.
[[nodiscard]] SavedSlice parse_slice(std::string_view text, const std::string& name, const std::string& where);

}  // namespace mgplan::runtime
