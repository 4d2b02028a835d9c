#pragma once
// Settings of a training program as a flat list: "actor.optim.lr" and its text, from YAML, JSON or words of a command.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mgplan::formats {

/// Dotted names and their values. Lists are in brackets ("[core_attn, mlp]"); an absent value (null, None, ~) is "".
class Settings {
public:
    /// YAML or JSON with comments. Throws ConfigError for text that is neither, or that holds more than 20,000 values (aliases counted each
    /// time).
    [[nodiscard]] static Settings of_yaml(std::string_view text, const std::string& where);
    /// Hydra's overrides: "actor.lr=1", "+model.x=2"; other words are passed over. The last of several counts.
    [[nodiscard]] static Settings of_words(const std::vector<std::string>& words);

    /// The value with ${other.name} replaced by what that holds; nothing where the name is absent or its value is.
    [[nodiscard]] std::optional<std::string> get(std::string_view name) const;
    /// get() as a whole number; nothing for other text.
    [[nodiscard]] std::optional<std::int64_t> whole(std::string_view name) const;
    [[nodiscard]] bool is_true(std::string_view name) const;
    /// True if a name begins with `beginning`.
    [[nodiscard]] bool has_below(std::string_view beginning) const;
    /// Names right below a section ("" is the top) with their values, absent ones too.
    [[nodiscard]] std::vector<std::pair<std::string, std::string>> directly_below(std::string_view section) const;
    void set(std::string name, std::string value) { values_[std::move(name)] = std::move(value); }
    /// Takes over what is not there yet.
    void add_defaults(const Settings& defaults) { values_.insert(defaults.values_.begin(), defaults.values_.end()); }

private:
    [[nodiscard]] std::string resolved(const std::string& value, int depth) const;
    std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace mgplan::formats
