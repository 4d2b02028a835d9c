#pragma once
// Lengths of the documents that packed sequences are filled with.

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace mgplan {

/// A plain value: a histogram, as --lengths gives it; empty where a sequence is one document.
struct PackedLengths {
    static constexpr std::int64_t most_kinds = 1 << 16;
    static constexpr double most_count = 1e15;

    std::vector<std::int64_t> tokens{};  ///< of a document, each length once, ascending
    std::vector<double> counts{};        ///< number of documents of each length

    [[nodiscard]] bool empty() const { return tokens.empty(); }
    bool operator==(const PackedLengths&) const = default;
};

/// [[tokens, count], …] in any order. Throws ConfigError with the first problem: no such list, a length below 1, one that is there twice, a
/// count that is negative or no number, no document at all.
[[nodiscard]] PackedLengths packed_lengths_from_json(const nlohmann::ordered_json& json, const std::string& where);
[[nodiscard]] nlohmann::ordered_json packed_lengths_to_json(const PackedLengths& lengths);

}  // namespace mgplan
