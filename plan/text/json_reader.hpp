#pragma once
// Reading JSON that people wrote: every problem found is reported with its field, and nothing unbounded is built.

#include <cstdint>
#include <exception>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "plan/text/errors.hpp"

namespace mgplan {

/// Parses text of at most 64 levels with at most 4,096 members in one object; throws ConfigError "where:line:column: reason".
[[nodiscard]] nlohmann::ordered_json parse_json(std::string_view text, const std::string& where);

/// Parses text of at most 64 levels whose objects may hold a million members, as programs write them: members are sorted by name and found
/// in logarithmic time. Throws as parse_json() does.
[[nodiscard]] nlohmann::json parse_sorted_json(std::string_view text, const std::string& where);

/// The text of an exception of the JSON library without its code "[json.exception.type_error.302]".
[[nodiscard]] std::string json_reason(const std::exception& error);

/// A value as a message shows it: at most 40 bytes of a number or a text, "an object", "a list".
[[nodiscard]] std::string shown_json(const nlohmann::ordered_json& value);

/// Takes fields out of one JSON object. Missing or ill-typed fields become problems (with the field's path) and a default is returned so
/// that reading goes on; finish() adds a problem for every field that was not read.
class JsonReader {
public:
    JsonReader(const nlohmann::ordered_json& object, std::string where, Problems& problems);

    [[nodiscard]] bool has(std::string_view field) const;  ///< present and not null
    std::int64_t integer(std::string_view field, std::int64_t low, std::int64_t high);
    std::int64_t integer_or(std::string_view field, std::int64_t fallback, std::int64_t low, std::int64_t high);
    double real(std::string_view field, double low, double high);
    double real_or(std::string_view field, double fallback, double low, double high);
    bool boolean(std::string_view field);
    bool boolean_or(std::string_view field, bool fallback);
    std::string text(std::string_view field);
    std::string text_or(std::string_view field, std::string fallback);
    std::vector<std::int64_t> integers(std::string_view field, std::int64_t low, std::int64_t high);
    std::vector<std::string> texts(std::string_view field);
    /// The raw member, or nullptr when absent or null; counts as read.
    const nlohmann::ordered_json* member(std::string_view field);
    void ignore(std::string_view field);  ///< counts as read
    /// Reports unknown fields with the nearest known name.
    void finish();
    [[nodiscard]] const std::string& where() const { return where_; }
    Problems& problems() { return problems_; }

private:
    const nlohmann::ordered_json& object_;
    std::string where_;
    Problems& problems_;
    std::set<std::string, std::less<>> asked_;
};

}  // namespace mgplan
