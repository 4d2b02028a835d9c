#include "runtime/checkpoint/slice_text.hpp"

#include <fmt/format.h>

#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "runtime/checkpoint/crc32c.hpp"

namespace mgplan::runtime {

std::string slice_text(const SavedSlice& slice) {
    const ShardOfWhole& shard = slice.shard;
    const std::string blocks = shard.blocks.empty() ? "" : fmt::format(" blocks={}", fmt::join(shard.blocks, ","));
    return fmt::format("rows={} columns={} axis={} stride={}{} index={} count={} whole_rows={} begin={} end={} crc32c={}", shard.rows,
                       shard.columns, shard.axis.value_or(-1), shard.stride, blocks, shard.index, shard.count, shard.whole_rows,
                       slice.begin, slice.end, checksum_text(slice.checksum));
}

SavedSlice parse_slice(std::string_view text, const std::string& name, const std::string& where) {
    const auto refuse = [&](std::string_view reason) {
        throw ConfigError(fmt::format("{}: tensor '{}' is described by '{}', {}", where, name.substr(0, 200), text.substr(0, 200), reason));
    };
    const std::vector<std::string> fields = split(text.substr(0, 1000), ' ');
    std::size_t next = 0;
    const auto value = [&](std::string_view field) -> std::string_view {
        if (next >= fields.size() || !fields[next].starts_with(field) || fields[next].size() <= field.size() ||
            fields[next][field.size()] != '=')
            refuse(fmt::format("where {} should come next", field));
        return std::string_view(fields[next++]).substr(field.size() + 1);
    };
    const auto number = [&](std::string_view field, std::int64_t low) {
        const auto parsed = parse_integer(value(field));
        if (!parsed || *parsed < low || *parsed > kMostWholeElements) refuse(fmt::format("whose {} is out of range", field));
        return *parsed;
    };
    SavedSlice slice;
    slice.name = name;
    ShardOfWhole& shard = slice.shard;
    shard.rows = number("rows", 1);
    shard.columns = number("columns", 1);
    const std::int64_t axis = number("axis", -1);
    if (axis > 1) refuse("whose axis is out of range");
    if (axis >= 0) shard.axis = static_cast<int>(axis);
    shard.stride = number("stride", 1);
    // Only parameters with blocks of unequal size have these.
    if (next < fields.size() && fields[next].starts_with("blocks=")) {
        std::int64_t sum = 0;
        for (const std::string& block : split(std::string(value("blocks")), ',')) {
            const auto parsed = parse_integer(block);
            if (!parsed || *parsed < 1 || *parsed > shard.rows) refuse("whose blocks are out of range");
            shard.blocks.push_back(*parsed);
            sum += *parsed;
        }
        if (sum != shard.rows || shard.stride != 1 || shard.axis != 0) refuse("whose blocks are not its rows");
    }
    shard.index = number("index", 0);
    shard.count = number("count", 1);
    shard.whole_rows = number("whole_rows", 1);
    slice.begin = number("begin", 0);
    slice.end = number("end", 0);
    const auto checksum = parse_checksum(value("crc32c"));
    if (!checksum || next != fields.size()) refuse("whose end is none");
    slice.checksum = *checksum;
    std::int64_t elements = 0, all = 0;
    if (__builtin_mul_overflow(shard.rows, shard.columns, &elements) || __builtin_mul_overflow(elements, shard.count, &all) ||
        all > kMostWholeElements)
        refuse("which is too large");
    if (slice.begin > slice.end || slice.end > elements || shard.index >= shard.count || shard.rows % shard.stride != 0 ||
        shard.whole_rows > (shard.axis == 0 ? shard.rows * shard.count : shard.rows))
        refuse("whose numbers contradict each other");
    return slice;
}

}  // namespace mgplan::runtime
