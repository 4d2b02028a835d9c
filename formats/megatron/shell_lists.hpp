#pragma once
// The lists of words that a script keeps: arrays, and texts of flags.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "formats/megatron/shell_words.hpp"

namespace mgplan::formats {

/// "$NAME", "${NAME}", "${NAME[@]}", "${NAME[*]}", also with ":-" and a default; "$@", "$*" and "${@:2}" under the name "@".
struct ListReference {
    std::string name;
    std::string otherwise;
    bool subscript = false, has_default = false;
    std::size_t from = 1;  ///< of "@": the first argument that is taken
};
/// Nothing for any other word.
[[nodiscard]] std::optional<ListReference> list_reference(std::string_view word);

[[nodiscard]] bool has_flags(const std::vector<std::string>& words);

/// Lists by name, and the references to lists that are not known.
class FlagLists {
public:
    using Words = std::vector<std::string>;

    /// Both must outlive it.
    FlagLists(Variables& variables, const std::string& where) : variables_(variables), where_(where) {}

    /// A list of that name from here on, or with `appends` more of it; `perhaps`: the script keeps it under a condition.
    void keep(const std::string& name, bool appends, const Words& words, bool perhaps);
    /// The name is no list from here on, but for lists that are given from outside.
    void forget(const std::string& name);
    /// Fixes a list's words whatever the script assigns to it.
    void fix(const std::string& name, Words words);
    /// The script's own arguments, or those of the function that is read; nothing: they are not known.
    void set_arguments(const std::optional<Words>& words);

    /// A list's words; nothing for a list that is not known, or that the script keeps under a condition.
    [[nodiscard]] std::optional<Words> known(const std::string& name) const;

    [[nodiscard]] bool refers(const std::string& word) const;
    /// The words with the lists that they refer to in place of the references. Throws ConfigError where lists grow without end.
    [[nodiscard]] Words spliced(const Words& words);

    /// All words of lists that hold flags, each list's own once.
    [[nodiscard]] const Words& all() const { return all_; }

    /// Uncertain substitutions.
    struct Doubts {
        std::set<std::string> unknown;         ///< lists that a command refers to and that are not known
        std::set<std::string> unknown_values;  ///< those of them after a flag that takes values
        std::set<std::string> doubtful;        ///< lists that a condition fills
    };
    [[nodiscard]] const Doubts& doubts() const { return doubts_; }
    void take_back(Doubts before) { doubts_ = std::move(before); }

private:
    [[nodiscard]] bool stands_for_flags(const Words& before, const std::string& name) const;
    void put_in(Words& out, const ListReference& reference, const Words& list);

    Variables& variables_;
    const std::string& where_;
    std::map<std::string, Words> lists_;
    std::set<std::string> perhaps_;
    Words all_;
    Doubts doubts_;
};

}  // namespace mgplan::formats
