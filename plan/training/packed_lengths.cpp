#include "plan/training/packed_lengths.hpp"

#include <cmath>
#include <map>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/text/errors.hpp"

namespace mgplan {

using Json = nlohmann::ordered_json;

PackedLengths packed_lengths_from_json(const Json& json, const std::string& where) {
    constexpr std::int64_t kMostTokens = std::int64_t{1} << 27;
    const auto refuse = [&](const std::string& what) {
        throw ConfigError(
            fmt::format("{} {}; write a list of pairs, each a length in tokens and how many documents have it, as in "
                        "[[512, 900], [4096, 35]]",
                        where, what));
    };
    if (!json.is_array() || json.empty() || json.size() > static_cast<std::size_t>(PackedLengths::most_kinds))
        refuse(fmt::format("is no list of 1 to {} lengths", PackedLengths::most_kinds));
    std::map<std::int64_t, double> by_length;
    double sum = 0;
    for (const Json& pair : json) {
        if (!pair.is_array() || pair.size() != 2) refuse(fmt::format("has an entry {} that is no pair", by_length.size()));
        const std::int64_t tokens = pair[0].is_number_integer() ? pair[0].get<std::int64_t>() : 0;
        if (tokens < 1 || tokens > kMostTokens) refuse(fmt::format("has a length that is no whole number from 1 to {}", kMostTokens));
        const double count = pair[1].is_number() ? pair[1].get<double>() : -1;
        if (!(count >= 0 && count <= PackedLengths::most_count))
            refuse(
                fmt::format("has a count of documents of {} tokens that is no number from 0 to {:.0g}", tokens, PackedLengths::most_count));
        if (!by_length.emplace(tokens, count).second) refuse(fmt::format("has documents of {} tokens twice", tokens));
        sum += count;
    }
    if (sum == 0) refuse("has no document: all counts are 0");
    PackedLengths lengths;
    for (const auto& [tokens, count] : by_length) {
        lengths.tokens.push_back(tokens);
        lengths.counts.push_back(count);
    }
    return lengths;
}

Json packed_lengths_to_json(const PackedLengths& lengths) {
    Json json = Json::array();
    for (std::size_t i = 0; i < lengths.tokens.size(); ++i) {
        const double count = lengths.counts[i];
        if (count == std::floor(count))
            json.push_back({lengths.tokens[i], static_cast<std::int64_t>(count)});
        else
            json.push_back({lengths.tokens[i], count});
    }
    return json;
}

}  // namespace mgplan
