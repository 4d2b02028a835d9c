#pragma once
// Reading an enumerator's name out of JSON.

#include <optional>
#include <string>
#include <vector>

#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"

namespace mgplan {

/// The enumerator that `parse` finds for `name`; otherwise one problem that lists `names`, and `fallback`.
template <class Enum>
Enum enum_of(JsonReader& reader, std::string_view field, const std::string& name, std::optional<Enum> (*parse)(std::string_view),
             const std::vector<std::string>& names, Enum fallback) {
    if (const auto value = parse(name)) return *value;
    reader.problems().add("{}: {} = '{}' is not known; use {}", reader.where(), field, name.substr(0, 60), any_of_text(names));
    return fallback;
}

/// The same for a text member. A missing or ill-typed member is reported once, as such.
template <class Enum>
Enum read_enum(JsonReader& reader, std::string_view field, std::optional<Enum> (*parse)(std::string_view),
               const std::vector<std::string>& names, Enum fallback) {
    const std::size_t before = reader.problems().list().size();
    const std::string name = reader.text(field);
    return reader.problems().list().size() > before ? fallback : enum_of(reader, field, name, parse, names, fallback);
}

}  // namespace mgplan
