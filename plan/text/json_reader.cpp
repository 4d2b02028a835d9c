#include "plan/text/json_reader.hpp"

#include <cmath>

#include <fmt/core.h>

#include "plan/text/text.hpp"

namespace mgplan {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kDeepestJson = 64;
constexpr std::size_t kMemberLimit = 4096;

/// Position of a byte as "line:column", both from 1.
std::string line_and_column(std::string_view text, std::size_t byte) {
    std::size_t line = 1, column = 1;
    for (std::size_t i = 0; i < byte && i < text.size(); ++i) {
        ++column;
        if (text[i] == '\n') {
            ++line;
            column = 1;
        }
    }
    return fmt::format("{}:{}", line, column);
}

/// Sizes found from brackets and colons alone.
struct Extent {
    std::size_t depth = 0;    ///< deepest nesting
    std::size_t members = 0;  ///< most members of one object
};

/// Looks before the parser runs: its values recurse on destruction, and an object that keeps the order of its members looks each
/// new one up among all before it.
Extent extent_of(std::string_view text) {
    Extent extent;
    std::vector<std::size_t> members;  // of the objects and lists that are open
    bool in_string = false;
    for (std::size_t i = 0; i < text.size() && extent.depth <= kDeepestJson; ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\')
                ++i;
            else if (c == '"')
                in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '[' || c == '{') {
            members.push_back(0);
            extent.depth = std::max(extent.depth, members.size());
        } else if ((c == ']' || c == '}') && !members.empty()) {
            members.pop_back();
        } else if (c == ':' && !members.empty()) {
            extent.members = std::max(extent.members, ++members.back());
        }
    }
    return extent;
}

void refuse_deep(const Extent& extent, const std::string& where) {
    if (extent.depth > kDeepestJson)
        throw ConfigError(fmt::format("{}: nested deeper than {} levels; this is no configuration", where, kDeepestJson));
}

template <class AnyJson>
AnyJson parse_as(std::string_view text, const std::string& where) {
    try {
        return AnyJson::parse(text);
    } catch (const Json::parse_error& error) {
        std::string reason = json_reason(error);
        // "parse error at line 1, column 2: syntax error …"
        if (const auto at = reason.find(": "); at != std::string::npos) reason = reason.substr(at + 2);
        throw ConfigError(
            fmt::format("{}:{}: not valid JSON: {}", where, line_and_column(text, error.byte > 0 ? error.byte - 1 : 0), reason));
    } catch (const Json::exception& error) {
        // One alone is left: "number overflow parsing '1e400'".
        const std::string reason = json_reason(error);
        const auto begin = reason.find('\''), end = reason.rfind('\'');
        const std::string number = begin < end ? reason.substr(begin + 1, end - begin - 1) : "";
        const auto at = number.empty() ? std::string_view::npos : text.find(number);
        throw ConfigError(fmt::format("{}:{}: not valid JSON: the number '{}' is beyond 64-bit floating point; write a smaller one", where,
                                      line_and_column(text, at == std::string_view::npos ? 0 : at), number.substr(0, 60)));
    }
}

}  // namespace

std::string json_reason(const std::exception& error) {
    const std::string text = error.what();
    const auto code = text.starts_with("[json.exception.") ? text.find("] ") : std::string::npos;
    return code == std::string::npos ? text : text.substr(code + 2);
}

std::string shown_json(const Json& value) {
    if (value.is_structured()) return value.is_object() ? "an object" : "a list";
    std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return text.size() > 40 ? text.substr(0, 40) + "..." : text;
}

Json parse_json(std::string_view text, const std::string& where) {
    const Extent extent = extent_of(text);
    refuse_deep(extent, where);
    if (extent.members > kMemberLimit)
        throw ConfigError(
            fmt::format("{}: an object of more than {} members; leave out what is no part of a configuration (such as names of labels)",
                        where, kMemberLimit));
    return parse_as<Json>(text, where);
}

nlohmann::json parse_sorted_json(std::string_view text, const std::string& where) {
    refuse_deep(extent_of(text), where);
    return parse_as<nlohmann::json>(text, where);
}

JsonReader::JsonReader(const Json& object, std::string where, Problems& problems)
    : object_(object), where_(std::move(where)), problems_(problems) {
    if (!object_.is_object()) problems_.add("{} is {}; it must be an object", where_, shown_json(object_));
}

bool JsonReader::has(std::string_view field) const {
    if (!object_.is_object()) return false;
    const auto found = object_.find(std::string(field));
    return found != object_.end() && !found->is_null();
}

const Json* JsonReader::member(std::string_view field) {
    asked_.emplace(field);
    return has(field) ? &object_.at(std::string(field)) : nullptr;
}

void JsonReader::ignore(std::string_view field) {
    asked_.emplace(field);
}

std::int64_t JsonReader::integer(std::string_view field, std::int64_t low, std::int64_t high) {
    const Json* value = member(field);
    if (value == nullptr) {
        if (object_.is_object()) problems_.add("{}: field '{}' is missing; give a whole number from {} to {}", where_, field, low, high);
        return low;
    }
    const bool whole = value->is_number_integer() || (value->is_number_float() && std::floor(value->get<double>()) == value->get<double>());
    if (!whole) {
        problems_.add("{}: {} = {} is not a whole number; give one from {} to {}", where_, field, shown_json(*value), low, high);
        return low;
    }
    // Compared as reals first: 2^63 and 1e30 do not fit into 64 bits.
    const double real = value->get<double>();
    if (!(real >= static_cast<double>(low) && real <= static_cast<double>(high))) {
        problems_.add("{}: {} = {} is out of range; give a whole number from {} to {}", where_, field, shown_json(*value), low, high);
        return low;
    }
    return value->is_number_integer() ? value->get<std::int64_t>() : static_cast<std::int64_t>(real);
}

std::int64_t JsonReader::integer_or(std::string_view field, std::int64_t fallback, std::int64_t low, std::int64_t high) {
    asked_.emplace(field);
    return has(field) ? integer(field, low, high) : fallback;
}

double JsonReader::real(std::string_view field, double low, double high) {
    const Json* value = member(field);
    if (value == nullptr) {
        if (object_.is_object()) problems_.add("{}: field '{}' is missing; give a number from {} to {}", where_, field, low, high);
        return low;
    }
    if (!value->is_number()) {
        problems_.add("{}: {} = {} is not a number; give one from {} to {}", where_, field, shown_json(*value), low, high);
        return low;
    }
    const double number = value->get<double>();
    if (!(number >= low && number <= high)) {
        problems_.add("{}: {} = {} is out of range; give a number from {} to {}", where_, field, shown_json(*value), low, high);
        return low;
    }
    return number;
}

double JsonReader::real_or(std::string_view field, double fallback, double low, double high) {
    asked_.emplace(field);
    return has(field) ? real(field, low, high) : fallback;
}

bool JsonReader::boolean(std::string_view field) {
    const Json* value = member(field);
    if (value == nullptr) {
        if (object_.is_object()) problems_.add("{}: field '{}' is missing; give true or false", where_, field);
        return false;
    }
    if (!value->is_boolean()) {
        problems_.add("{}: {} = {} is not true or false", where_, field, shown_json(*value));
        return false;
    }
    return value->get<bool>();
}

bool JsonReader::boolean_or(std::string_view field, bool fallback) {
    asked_.emplace(field);
    return has(field) ? boolean(field) : fallback;
}

std::string JsonReader::text(std::string_view field) {
    const Json* value = member(field);
    if (value == nullptr) {
        if (object_.is_object()) problems_.add("{}: field '{}' is missing; give a text", where_, field);
        return {};
    }
    if (!value->is_string()) {
        problems_.add("{}: {} = {} is not a text; write it in quotes", where_, field, shown_json(*value));
        return {};
    }
    return value->get<std::string>();
}

std::string JsonReader::text_or(std::string_view field, std::string fallback) {
    asked_.emplace(field);
    return has(field) ? text(field) : std::move(fallback);
}

std::vector<std::int64_t> JsonReader::integers(std::string_view field, std::int64_t low, std::int64_t high) {
    std::vector<std::int64_t> values;
    const Json* list = member(field);
    if (list == nullptr) return values;
    if (!list->is_array()) {
        problems_.add("{}: {} = {} is not a list; write [1, 2]", where_, field, shown_json(*list));
        return values;
    }
    for (const auto& value : *list) {
        if (!value.is_number_integer() || value.get<double>() < static_cast<double>(low) ||
            value.get<double>() > static_cast<double>(high)) {
            problems_.add("{}: {} holds {}; give whole numbers from {} to {}", where_, field, shown_json(value), low, high);
            return values;
        }
        values.push_back(value.get<std::int64_t>());
    }
    return values;
}

std::vector<std::string> JsonReader::texts(std::string_view field) {
    std::vector<std::string> values;
    const Json* list = member(field);
    if (list == nullptr) return values;
    if (!list->is_array()) {
        problems_.add("{}: {} = {} is not a list of texts", where_, field, shown_json(*list));
        return values;
    }
    for (const auto& value : *list) {
        if (!value.is_string()) {
            problems_.add("{}: {} holds {}; give texts in quotes", where_, field, shown_json(value));
            return values;
        }
        values.push_back(value.get<std::string>());
    }
    return values;
}

void JsonReader::finish() {
    if (!object_.is_object()) return;
    const std::vector<std::string> known(asked_.begin(), asked_.end());
    for (const auto& item : object_.items()) {
        if (asked_.contains(item.key()) || item.key().starts_with('_')) continue;
        const std::string hint = did_you_mean(item.key(), known);
        problems_.add("{}: unknown field '{}'; {}", where_, item.key().substr(0, 60), hint.empty() ? "remove it" : hint);
    }
}

}  // namespace mgplan
