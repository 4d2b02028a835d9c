#include "formats/hugging_face/config_reader.hpp"

#include <algorithm>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace mgplan::formats {
namespace {

bool is_stated(const nlohmann::ordered_json& json, std::string_view field) {
    if (!json.is_object()) return false;
    const auto found = json.find(std::string(field));
    return found != json.end() && !found->is_null();
}

bool is_a(const nlohmann::ordered_json& value, JsonKind kind) {
    switch (kind) {
        case JsonKind::object:
            return value.is_object();
        case JsonKind::list:
            return value.is_array();
        case JsonKind::text:
            return value.is_string();
        case JsonKind::number:
            return value.is_number();
        case JsonKind::boolean:
            return value.is_boolean();
    }
    return false;
}

std::string_view words_for(JsonKind kind) {
    switch (kind) {
        case JsonKind::object:
            return "an object";
        case JsonKind::list:
            return "a list";
        case JsonKind::text:
            return "a text";
        case JsonKind::number:
            return "a number";
        case JsonKind::boolean:
            return "true or false";
    }
    return "";
}

}  // namespace

ConfigReader::ConfigReader(const nlohmann::ordered_json& file, const nlohmann::ordered_json& defaults, const std::string& where,
                           Problems& problems, SparseSizes sparse)
    : json_(file),
      class_json_(defaults),
      file_(file, where, problems),
      class_(defaults, where + ": class default", problems),
      sparse_(sparse) {}

std::string_view ConfigReader::stated(Aliases aliases) const {
    for (const auto alias : aliases) {
        if (is_stated(json_, alias)) return alias;
    }
    return {};
}

std::string_view ConfigReader::defaulted(Aliases aliases) const {
    for (const auto alias : aliases) {
        if (json_.is_object() && json_.contains(std::string(alias))) return {};  // null
    }
    for (const auto alias : aliases) {
        if (is_stated(class_json_, alias)) return alias;
    }
    return {};
}

bool ConfigReader::has(Aliases aliases) const {
    return !stated(aliases).empty() || !defaulted(aliases).empty();
}

ConfigReader::Found ConfigReader::find(Aliases aliases) {
    if (const auto name = stated(aliases); !name.empty()) {
        asked_.emplace(name);  // of two names that a file states one is read, and the other is listed as unused
        return {&file_, name};
    }
    for (const auto alias : aliases) asked_.emplace(alias);
    if (const auto name = defaulted(aliases); !name.empty()) return {&class_, name};
    return {};
}

template <class Value, class Read>
Value ConfigReader::value_of(const Found& found, Value otherwise, const Read& read) {
    if (found.reader == nullptr || wrong_.contains(found.name)) return otherwise;
    const std::size_t before = problems().list().size();
    Value value = read(*found.reader);
    if (problems().list().size() == before) return value;
    wrong_.emplace(found.name);
    return otherwise;
}

std::int64_t ConfigReader::size(Aliases aliases, std::int64_t high) {
    const Found found = find(aliases);
    if (found.reader != &class_) return integer(aliases, 1, high);
    if (sparse_ == SparseSizes::refused) return missing(aliases, 1, high);
    const std::int64_t value = class_.integer(found.name, 1, high);
    defaulted_sizes_.push_back(fmt::format("{} = {}", found.name, value));
    return value;
}

std::int64_t ConfigReader::missing(Aliases aliases, std::int64_t low, std::int64_t high) {
    if (!json_.is_object() || !wrong_.emplace(*aliases.begin()).second) return low;
    std::string others;
    for (const auto* other = aliases.begin() + 1; other != aliases.end(); ++other)
        others += fmt::format("{}{}", others.empty() ? "" : " or ", *other);
    problem("field '{}'{} is missing; give a whole number from {} to {}", *aliases.begin(),
            others.empty() ? "" : fmt::format(" (or {})", others), low, high);
    return low;
}

std::int64_t ConfigReader::integer(Aliases aliases, std::int64_t low, std::int64_t high) {
    const Found found = find(aliases);
    if (found.reader == nullptr) return missing(aliases, low, high);
    return value_of(found, low, [&](JsonReader& reader) { return reader.integer(found.name, low, high); });
}

std::int64_t ConfigReader::integer_or(Aliases aliases, std::int64_t fallback, std::int64_t low, std::int64_t high) {
    const Found found = find(aliases);
    return value_of(found, fallback, [&](JsonReader& reader) { return reader.integer(found.name, low, high); });
}

double ConfigReader::real_or(Aliases aliases, double fallback, double low, double high) {
    const Found found = find(aliases);
    return value_of(found, fallback, [&](JsonReader& reader) { return reader.real(found.name, low, high); });
}

bool ConfigReader::boolean_or(Aliases aliases, bool fallback) {
    const Found found = find(aliases);
    return value_of(found, fallback, [&](JsonReader& reader) { return reader.boolean(found.name); });
}

std::string ConfigReader::text_or(Aliases aliases, std::string fallback) {
    const Found found = find(aliases);
    return value_of(found, std::move(fallback), [&](JsonReader& reader) { return reader.text(found.name); });
}

std::vector<std::int64_t> ConfigReader::integers(std::string_view field, std::int64_t low, std::int64_t high) {
    asked_.emplace(field);
    return value_of(Found{&file_, field}, std::vector<std::int64_t>{},
                    [&](JsonReader& reader) { return reader.integers(field, low, high); });
}

std::vector<std::string> ConfigReader::texts(std::string_view field) {
    asked_.emplace(field);
    return value_of(Found{&file_, field}, std::vector<std::string>{}, [&](JsonReader& reader) { return reader.texts(field); });
}

const nlohmann::ordered_json* ConfigReader::member(std::string_view field, std::initializer_list<JsonKind> kinds) {
    const auto* const value = member(field);
    if (value == nullptr || std::any_of(kinds.begin(), kinds.end(), [&](JsonKind kind) { return is_a(*value, kind); })) return value;
    if (!wrong_.emplace(field).second) return nullptr;
    std::string may_be;
    for (const JsonKind kind : kinds) may_be += fmt::format("{}{}", may_be.empty() ? "" : " or ", words_for(kind));
    problem("{} = {} is not {}; give one, or leave it out", field, shown_json(*value), may_be);
    return nullptr;
}

const nlohmann::ordered_json* ConfigReader::member(std::string_view field) {
    asked_.emplace(field);
    return file_.member(field);
}

bool ConfigReader::states_null(std::string_view field) const {
    const auto found = json_.is_object() ? json_.find(field) : json_.end();
    return found != json_.end() && found->is_null();
}

std::vector<std::string> ConfigReader::unused() const {
    std::vector<std::string> fields;
    if (!json_.is_object()) return fields;
    for (const auto& item : json_.items()) {
        if (!asked_.contains(item.key()) && !item.value().is_null() && !item.key().starts_with('_')) fields.push_back(item.key());
    }
    return fields;
}

}  // namespace mgplan::formats
