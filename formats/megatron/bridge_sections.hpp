#pragma once
// The sections of Megatron-Bridge's ConfigContainer as its YAML has them, each field where Megatron-Bridge would find it.

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <yaml-cpp/yaml.h>

#include "plan/text/errors.hpp"

namespace mgplan::formats {

/// A field's value as a flag would have it.
struct FieldValue {
    enum class Kind : std::uint8_t { none, truth, text, list, other };
    Kind kind = Kind::none;
    bool truth = false;
    std::vector<std::string> words;  ///< of a text one

    [[nodiscard]] std::string text() const;
    /// True if it is given and switches something on: not false, 0, none or empty.
    [[nodiscard]] bool set() const;
};

/// The last name of a dotted path: "silu" of torch.nn.functional.silu.
[[nodiscard]] std::string last_name(const std::string& dotted);

/// Sections by name, with what mixed_precision and comm_overlap say applied to the others (training/mixed_precision.py,
/// training/comm_overlap.py).
class BridgeSections {
public:
    using Fields = std::map<std::string, FieldValue, std::less<>>;

    /// Adds problems for recipes of precision that are not known. Throws ConfigError for a section of more than 4,096 fields.
    BridgeSections(const YAML::Node& root, const std::string& where, Problems& problems);

    /// Its kind is none where the file has no such field.
    [[nodiscard]] FieldValue get(std::string_view section, std::string_view field) const;
    [[nodiscard]] const Fields& of(const std::string& section) { return sections_[section]; }
    [[nodiscard]] std::string text(std::string_view section, std::string_view field) const { return get(section, field).text(); }
    [[nodiscard]] bool on(std::string_view section, std::string_view field) const { return get(section, field).set(); }
    /// A whole number; 1 where there is none.
    [[nodiscard]] std::int64_t count(std::string_view section, std::string_view field) const;

private:
    void add(const std::string& section, const YAML::Node& node, bool inner = false);
    void apply(const Fields& fields);
    void read_precision(const YAML::Node& node, const std::string& where, Problems& problems);
    void read_overlaps();

    std::map<std::string, Fields, std::less<>> sections_;
};

}  // namespace mgplan::formats
