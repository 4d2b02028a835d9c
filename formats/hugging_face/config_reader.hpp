#pragma once
// Fields of a Hugging Face config: each goes by several names, and what a file leaves out its class may state.

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "plan/text/json_reader.hpp"

namespace mgplan::formats {

using Aliases = std::initializer_list<std::string_view>;

/// Kinds of JSON values, for fields that may be one of several.
enum class JsonKind : std::uint8_t { object, list, text, number, boolean };

/// allowed: class defaults replace missing sizes that make a model what it is (layers, widths, heads, vocabulary). They do in the nested
/// part of a multimodal file, which states only its differences; a file of its own must state them.
enum class SparseSizes : std::uint8_t { refused, allowed };

/// JsonReader over fields with aliases, which looks into a file first and then into the defaults of its class. A field that the
/// file states as null is absent, whatever the class says (transformers passes null on).
class ConfigReader {
public:
    /// `defaults`: an object; all of them outlive the reader.
    ConfigReader(const nlohmann::ordered_json& file, const nlohmann::ordered_json& defaults, const std::string& where, Problems& problems,
                 SparseSizes sparse);

    /// The first of the names that the file states, or "".
    [[nodiscard]] std::string_view stated(Aliases aliases) const;
    /// Stated by the file, or left to a class default.
    [[nodiscard]] bool has(Aliases aliases) const;

    /// True if the file states the field as null.
    [[nodiscard]] bool states_null(std::string_view field) const;

    /// A size without which there is no model: its absence is a problem unless sparse sizes are allowed.
    std::int64_t size(Aliases aliases, std::int64_t high);
    std::int64_t integer(Aliases aliases, std::int64_t low, std::int64_t high);
    /// The fallback where no name is stated, and where its value is a problem.
    std::int64_t integer_or(Aliases aliases, std::int64_t fallback, std::int64_t low, std::int64_t high);
    double real_or(Aliases aliases, double fallback, double low, double high);
    bool boolean_or(Aliases aliases, bool fallback);
    std::string text_or(Aliases aliases, std::string fallback);
    std::vector<std::int64_t> integers(std::string_view field, std::int64_t low, std::int64_t high);
    std::vector<std::string> texts(std::string_view field);
    /// The file's value if it is of one of these kinds, else nullptr; counts as read. Another kind is a problem.
    const nlohmann::ordered_json* member(std::string_view field, std::initializer_list<JsonKind> kinds);
    const nlohmann::ordered_json* object(std::string_view field) { return member(field, {JsonKind::object}); }
    const nlohmann::ordered_json* list(std::string_view field) { return member(field, {JsonKind::list}); }
    /// The same where the kinds were checked or do not matter.
    const nlohmann::ordered_json* member(std::string_view field);

    template <class... Args>
    void problem(fmt::format_string<Args...> format, Args&&... args) {
        file_.problems().add("{}: {}", file_.where(), fmt::format(format, std::forward<Args>(args)...));
    }
    [[nodiscard]] Problems& problems() { return file_.problems(); }
    [[nodiscard]] const std::string& where() const { return file_.where(); }
    /// Fields of the file whose value nobody took, but for null ones and names that start with an underscore.
    [[nodiscard]] std::vector<std::string> unused() const;
    /// Sizes that a class default gave: "hidden_size = 4096".
    [[nodiscard]] const std::vector<std::string>& defaulted_sizes() const { return defaulted_sizes_; }

private:
    struct Found {
        JsonReader* reader = nullptr;  ///< nothing: stated nowhere
        std::string_view name;
    };
    Found find(Aliases aliases);
    /// Returns the result of `read`, and `otherwise` if it finds a problem. A wrong field is a problem once, however often it is read.
    template <class Value, class Read>
    Value value_of(const Found& found, Value otherwise, const Read& read);
    std::int64_t missing(Aliases aliases, std::int64_t low, std::int64_t high);  ///< adds the problem, gives `low`
    [[nodiscard]] std::string_view defaulted(Aliases aliases) const;

    const nlohmann::ordered_json& json_;
    const nlohmann::ordered_json& class_json_;
    JsonReader file_;
    JsonReader class_;
    std::set<std::string, std::less<>> wrong_;  ///< fields whose problem was said
    SparseSizes sparse_;
    std::set<std::string, std::less<>> asked_;
    std::vector<std::string> defaulted_sizes_;
};

}  // namespace mgplan::formats
