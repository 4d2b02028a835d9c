#pragma once
// Values of Megatron-LM flags, checked as they are read.

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "formats/input/job.hpp"
#include "formats/megatron/megatron_arguments.hpp"
#include "formats/megatron/megatron_flags.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

// Defaults and rules: megatron/training/arguments.py (parsers and validate_args) of Megatron-LM.

namespace mgplan::formats {

inline constexpr std::int64_t kSizeLimit = std::int64_t{1} << 30;  ///< of parallel sizes and counts

template <class Value>
using Choices = std::vector<std::pair<std::string_view, Value>>;

/// A number as Python's int() and float() take it from argparse: underscores may group its digits, "5_000_000".
[[nodiscard]] std::string without_grouping(std::string number);

/// Values of the flags that are interpreted; what is wrong with them becomes problems.
class FlagReader {
public:
    /// `account`: lists the flags as they were parsed; they move to other lists as their values are read.
    FlagReader(const ParsedFlags& parsed, const std::string& where, Problems& problems, FlagAccount& account,
               const MegatronSurroundings& surroundings)
        : parsed_(parsed), where_(where), problems_(problems), account_(account), surroundings_(surroundings) {}

    [[nodiscard]] bool has(std::string_view flag) const { return values_of(flag) != nullptr; }
    [[nodiscard]] Problems& problems() { return problems_; }
    [[nodiscard]] const std::string& where() const { return where_; }
    [[nodiscard]] const MegatronSurroundings& surroundings() const { return surroundings_; }

    template <class... Args>
    void problem(fmt::format_string<Args...> format, Args&&... args) {
        problems_.add("{}: {}", where_, fmt::format(format, std::forward<Args>(args)...));
    }

    /// The command does not hold a fact that somebody has to give.
    template <class... Args>
    void missing_fact(fmt::format_string<Args...> format, Args&&... args) {
        problems_.add_missing_fact("{}: {}", where_, fmt::format(format, std::forward<Args>(args)...));
    }

    /// The command needs a kind of job that no plan describes. It breaks no rule by that, so that a gate leaves it open.
    template <class... Args>
    void cannot_plan(fmt::format_string<Args...> format, Args&&... args) {
        missing_fact(format, std::forward<Args>(args)...);
    }

    /// The value of a flag, "" (and a problem) when it is given without one; nothing when it is absent.
    std::optional<std::string> text(std::string_view flag) {
        const auto* const given = values_of(flag);
        if (given == nullptr) return std::nullopt;
        if (given->empty() || given->front().empty()) {
            problem("{} needs a value", flag);
            return std::nullopt;
        }
        return checked(flag, given->front());
    }

    std::vector<std::string> texts(std::string_view flag) {
        std::vector<std::string> values;
        const auto* const given = values_of(flag);
        if (given == nullptr) return values;
        for (const auto& value : *given) {
            // Some write lists with commas or brackets.
            std::string plain = value;
            std::replace_if(
                plain.begin(), plain.end(), [](char c) { return c == ',' || c == '[' || c == ']' || c == '"'; }, ' ');
            for (const auto& word : split(plain, ' ')) {
                if (word.empty()) continue;
                if (const auto kept = checked(flag, word)) values.push_back(*kept);
            }
        }
        return values;
    }

    std::optional<std::int64_t> integer(std::string_view flag, std::int64_t low, std::int64_t high) {
        const auto value = text(flag);
        if (!value) return std::nullopt;
        const std::size_t before = problems_.list().size();
        const std::int64_t number = read_integer(problems_, fmt::format("{}: {}", where_, flag), without_grouping(*value), low, high);
        if (problems_.list().size() != before) return std::nullopt;
        return number;
    }

    std::int64_t integer_or(std::string_view flag, std::int64_t fallback, std::int64_t low, std::int64_t high) {
        return integer(flag, low, high).value_or(fallback);
    }

    double real_or(std::string_view flag, double fallback, double low, double high) {
        const auto value = text(flag);
        if (!value) return fallback;
        const auto number = parse_real(without_grouping(*value));
        if (!number || !(*number >= low && *number <= high)) {
            problem("{} = '{}' is no number from {} to {}", flag, shown(*value), low, high);
            return fallback;
        }
        return *number;
    }

    template <class Value>
    Value choice(std::string_view flag, Value fallback, const Choices<Value>& choices) {
        const auto value = text(flag);
        return value ? named(flag, *value, fallback, choices) : fallback;
    }

    /// Words that are not among the choices map to the fallback.
    template <class Value>
    Value choice_or_other(std::string_view flag, Value fallback, const Choices<Value>& choices) {
        const auto value = text(flag);
        const auto found = std::find_if(choices.begin(), choices.end(), [&](const auto& one) { return value && one.first == *value; });
        return found == choices.end() ? fallback : found->second;
    }

    template <class Value>
    Value named(std::string_view flag, const std::string& value, Value fallback, const Choices<Value>& choices) {
        std::vector<std::string> names;
        for (const auto& [name, meaning] : choices) {
            if (name == value) return meaning;
            names.emplace_back(name);
        }
        problem("{} = '{}' is not known; use {}", flag, shown(value), any_of_text(names));
        return fallback;
    }

    /// The first flag that is not known and begins so; "" where there is none.
    [[nodiscard]] std::string unknown_beginning_with(std::string_view prefix) const {
        for (const auto& text : account_.unknown) {
            if (text.starts_with(prefix)) return shown(text.substr(0, text.find_first_of(" =")));
        }
        return "";
    }

    /// The flag as it is given, known or not; "" when it is absent.
    [[nodiscard]] std::string raw(std::string_view flag) const {
        const auto found = parsed_.used.find(flag);
        return found == parsed_.used.end() || found->second.empty() ? std::string() : found->second.front();
    }

    /// The feature that this value of the flag switches on is not part of the prediction.
    void not_computed(std::string_view flag, std::string feature, Decides decides) {
        const std::string spelled = take_from_used(flag);
        if (!spelled.empty()) account_.not_computed.push_back({spelled, std::move(feature), decides});
    }

    /// The flag changes nothing, given the other flags.
    void idle(std::string_view flag) {
        std::string spelled = take_from_used(flag);
        if (!spelled.empty()) account_.without_effect.push_back(std::move(spelled));
    }

    static std::string shown(const std::string& value) { return value.size() > 60 ? value.substr(0, 57) + "..." : value; }

private:
    [[nodiscard]] const std::vector<std::string>* values_of(std::string_view flag) const {
        const auto found = parsed_.used.find(flag);
        return found == parsed_.used.end() ? nullptr : &found->second;
    }

    std::string take_from_used(std::string_view flag) {
        const auto found = std::find_if(account_.used.begin(), account_.used.end(),
                                        [&](const std::string& name) { return name == flag || other_spelling(name) == flag; });
        if (found == account_.used.end()) return "";
        std::string spelled = std::move(*found);
        account_.used.erase(found);
        return spelled;
    }

    std::optional<std::string> checked(std::string_view flag, const std::string& value) {
        if (value.find('$') == std::string::npos && value.find('`') == std::string::npos) return value;
        problem(
            "{} = {} holds a variable or a command whose value the file does not tell; write its value, or give it by --set NAME=VALUE (of "
            "$1 and so on by "
            "--script-args)",
            flag, shown(value));
        return std::nullopt;
    }

    const ParsedFlags& parsed_;
    const std::string& where_;
    Problems& problems_;
    FlagAccount& account_;
    const MegatronSurroundings& surroundings_;
};

/// Models that cannot be planned, and flags at which Megatron-LM stops, become problems.
void refuse_other_models(FlagReader& flags);

/// The model, layout and training options of the flags, in this order; problems go to the reader. One file each, with the topics of
/// flag_rows.hpp in files of their own.
void read_model(FlagReader& flags, Job& job);
void read_layout(FlagReader& flags, Job& job);
void read_training(FlagReader& flags, Job& job);

// Topics with rules between their flags.
void read_attention(FlagReader& flags, Job& job);
void read_mlp(FlagReader& flags, Job& job);
void read_lengths(FlagReader& flags, Job& job);
void read_mixture(FlagReader& flags, Job& job);
void read_recompute(FlagReader& flags, Job& job);
void read_precision(FlagReader& flags, Job& job);
void read_moments(FlagReader& flags, Job& job);        ///< how the optimizer's state is kept
void read_fully_sharded(FlagReader& flags, Job& job);  ///< after the optimizer
void read_offloading(FlagReader& flags, Job& job);
void read_adapters(FlagReader& flags, Job& job);  ///< after the model is whole

}  // namespace mgplan::formats
