#include "formats/hugging_face/config_text.hpp"

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"

namespace mgplan::formats {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

bool is_word_character(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

std::size_t line_of(std::string_view text, std::size_t at) {
    std::size_t line = 1;
    for (const char c : text.substr(0, at)) line += c == '\n' ? 1 : 0;
    return line;
}

/// The text with NaN and the infinities in quotes. Throws at the first comment.
std::string without_python_numbers(std::string_view text, const std::string& where) {
    std::string json;
    json.reserve(text.size());
    bool in_string = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            json += c;
            if (c == '\\' && i + 1 < text.size()) json += text[++i];
            if (c == '"') in_string = false;
            continue;
        }
        if (c == '/' && i + 1 < text.size() && (text[i + 1] == '/' || text[i + 1] == '*'))
            throw ConfigError(fmt::format("{}:{}: a comment, which JSON has none of; remove it", where, line_of(text, i)));
        const bool starts_word = i == 0 || !is_word_character(text[i - 1]);
        std::string_view found;
        for (const std::string_view word : {"-Infinity", "Infinity", "NaN"}) {
            const std::size_t end = i + word.size();
            if (starts_word && text.substr(i, word.size()) == word && (end == text.size() || !is_word_character(text[end]))) found = word;
        }
        if (!found.empty()) {
            json += '"';
            json += found;
            json += '"';
            i += found.size() - 1;
            continue;
        }
        in_string = c == '"';
        json += c;
    }
    return json;
}

/// The end of the object that begins there, one past its bracket; nothing where it stays open.
std::optional<std::size_t> end_of_object(std::string_view text, std::size_t at) {
    std::size_t depth = 0;
    bool in_string = false;
    for (; at < text.size(); ++at) {
        const char c = text[at];
        if (in_string) {
            if (c == '\\') ++at;
            in_string = c != '"';
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{') {
            ++depth;
        } else if (c == '}' && --depth == 0) {
            return at + 1;
        }
    }
    return std::nullopt;
}

/// The text with an empty object for each quantization_config, which may list every layer by name and says nothing of the network. Line
/// breaks stay, for the places that messages name.
std::string without_quantization(const std::string& text) {
    constexpr std::string_view kKey = "\"quantization_config\"";
    std::string kept;
    std::size_t from = 0;
    for (std::size_t at = text.find(kKey); at != std::string::npos; at = text.find(kKey, at + 1)) {
        const std::size_t colon = text.find_first_not_of(" \t\r\n", at + kKey.size());
        if (colon == std::string::npos || text[colon] != ':') continue;
        const std::size_t begin = text.find_first_not_of(" \t\r\n", colon + 1);
        if (begin == std::string::npos || text[begin] != '{') continue;
        const auto end = end_of_object(text, begin);
        if (!end) break;
        kept.append(text, from, begin - from);
        kept += '{';
        for (std::size_t i = begin; i < *end; ++i) {
            if (text[i] == '\n') kept += '\n';
        }
        kept += '}';
        from = *end;
        at = *end - 1;
    }
    return kept.append(text, from);
}

std::string short_dump(const Json& value) {
    const std::string text = value.is_structured() ? "…" : value.dump(-1, ' ', true, Json::error_handler_t::replace);
    return text.size() > 40 ? text.substr(0, 40) + "..." : text;
}

/// Refuses fields that appear twice in one object with different values; the parser itself keeps the last.
void refuse_double_fields(std::string_view text, const std::string& where) {
    struct Object {
        std::map<std::string, Json> values;
        std::string key;
    };
    std::vector<Object> open;
    std::string problem;
    const auto keep = [&](const Json& value) {
        if (open.empty() || open.back().key.empty()) return;
        Object& object = open.back();
        const auto [at, fresh] = object.values.emplace(object.key, value);
        if (!fresh && at->second != value && problem.empty())
            problem = fmt::format("{}: field {} stands twice, as {} and as {}; keep one of them", where, short_dump(Json(object.key)),
                                  short_dump(at->second), short_dump(value));
        object.key.clear();
    };
    const auto watch = [&](int /*depth*/, Json::parse_event_t event, Json& parsed) {
        switch (event) {
            case Json::parse_event_t::object_start:
            case Json::parse_event_t::array_start:
                open.emplace_back();
                break;
            case Json::parse_event_t::key:
                open.back().key = parsed.get<std::string>();
                break;
            case Json::parse_event_t::object_end:
            case Json::parse_event_t::array_end:
                open.pop_back();
                keep(parsed);
                break;
            case Json::parse_event_t::value:
                keep(parsed);
                break;
        }
        return true;
    };
    [[maybe_unused]] const Json watched = Json::parse(text, watch, false);
    if (!problem.empty()) throw ConfigError(problem);
}

}  // namespace

Json parse_config(std::string_view text, const std::string& where) {
    if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
        throw ConfigError(fmt::format("{}: is UTF-16, and JSON is UTF-8; save it as UTF-8", where));
    if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
    const std::string json = without_quantization(without_python_numbers(text, where));
    Json parsed = parse_json(json, where);
    refuse_double_fields(json, where);
    return parsed;
}

}  // namespace mgplan::formats
