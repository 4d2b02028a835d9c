#include "formats/hugging_face/config_reader.hpp"

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
    for (const auto alias : aliases) asked_.emplace(alias);
    if (const auto name = stated(aliases); !name.empty()) return {&file_, name};
    if (const auto name = defaulted(aliases); !name.empty()) return {&class_, name};
    return {};
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
    if (!json_.is_object()) return low;
    std::string others;
    for (const auto* other = aliases.begin() + 1; other != aliases.end(); ++other)
        others += fmt::format("{}{}", others.empty() ? "" : " or ", *other);
    problem("field '{}'{} is missing; give a whole number from {} to {}", *aliases.begin(),
            others.empty() ? "" : fmt::format(" (or {})", others), low, high);
    return low;
}

std::int64_t ConfigReader::integer(Aliases aliases, std::int64_t low, std::int64_t high) {
    const Found found = find(aliases);
    return found.reader != nullptr ? found.reader->integer(found.name, low, high) : missing(aliases, low, high);
}

std::int64_t ConfigReader::integer_or(Aliases aliases, std::int64_t fallback, std::int64_t low, std::int64_t high) {
    const Found found = find(aliases);
    return found.reader == nullptr ? fallback : found.reader->integer(found.name, low, high);
}

double ConfigReader::real_or(Aliases aliases, double fallback, double low, double high) {
    const Found found = find(aliases);
    return found.reader == nullptr ? fallback : found.reader->real(found.name, low, high);
}

bool ConfigReader::boolean_or(Aliases aliases, bool fallback) {
    const Found found = find(aliases);
    return found.reader == nullptr ? fallback : found.reader->boolean(found.name);
}

std::string ConfigReader::text_or(Aliases aliases, std::string fallback) {
    const Found found = find(aliases);
    return found.reader == nullptr ? std::move(fallback) : found.reader->text(found.name);
}

std::vector<std::int64_t> ConfigReader::integers(std::string_view field, std::int64_t low, std::int64_t high) {
    asked_.emplace(field);
    return file_.integers(field, low, high);
}

std::vector<std::string> ConfigReader::texts(std::string_view field) {
    asked_.emplace(field);
    return file_.texts(field);
}

const nlohmann::ordered_json* ConfigReader::member(std::string_view field) {
    asked_.emplace(field);
    return file_.member(field);
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
