#include "formats/megatron/shell_lists.hpp"

#include <algorithm>
#include <cctype>
#include <utility>

#include <fmt/core.h>

#include "formats/megatron/megatron_flags.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {

bool has_flags(const std::vector<std::string>& words) {
    return std::any_of(words.begin(), words.end(), [](const std::string& word) { return word.starts_with("--"); });
}

std::optional<ListReference> list_reference(std::string_view word) {
    if (!word.starts_with('$')) return std::nullopt;
    word.remove_prefix(1);
    if (word.starts_with('{')) {
        if (!word.ends_with('}')) return std::nullopt;
        word = word.substr(1, word.size() - 2);
    }
    if (word == "@" || word == "*") return ListReference{"@", "", true, true};
    if (word.starts_with("@:")) {
        const auto from = parse_integer(word.substr(2));
        if (!from || *from < 1) return std::nullopt;
        return ListReference{"@", "", true, true, static_cast<std::size_t>(*from)};
    }
    std::size_t at = 0;
    while (at < word.size() && is_name(word[at])) ++at;
    ListReference found{std::string(word.substr(0, at)), "", false, false};
    word.remove_prefix(at);
    if (word.starts_with("[@]") || word.starts_with("[*]")) {
        found.subscript = true;
        word.remove_prefix(3);
    }
    if (word.starts_with(":-") || word.starts_with(":=")) {
        found.otherwise = word.substr(2);
        found.has_default = true;
        word = {};
    }
    return word.empty() && !found.name.empty() ? std::optional(found) : std::nullopt;
}

void FlagLists::keep(const std::string& name, bool appends, const Words& words, bool perhaps) {
    if (variables_.fixed(name)) return;
    variables_.forget(name);
    Words own = words;
    std::erase_if(own, [&](const std::string& word) {
        const auto reference = list_reference(word);
        return reference && (reference->subscript || lists_.contains(reference->name));  // another list counts by itself
    });
    if (has_flags(own)) all_.insert(all_.end(), own.begin(), own.end());
    const Words whole = spliced(words);
    Words& kept = lists_[name];
    if (!appends) {
        kept.clear();
        perhaps_.erase(name);
    }
    kept.insert(kept.end(), whole.begin(), whole.end());
    if (perhaps) perhaps_.insert(name);
}

void FlagLists::forget(const std::string& name) {
    if (!variables_.fixed(name)) lists_.erase(name);
}

void FlagLists::fix(const std::string& name, Words words) {
    all_.insert(all_.end(), words.begin(), words.end());
    lists_[name] = std::move(words);
}

void FlagLists::set_arguments(const std::optional<Words>& words) {
    variables_.set_arguments(words);
    if (words)
        lists_["@"] = *words;
    else
        lists_.erase("@");
}

std::optional<FlagLists::Words> FlagLists::known(const std::string& name) const {
    const auto found = lists_.find(name);
    return found == lists_.end() || perhaps_.contains(name) ? std::nullopt : std::optional(found->second);
}

bool FlagLists::refers(const std::string& word) const {
    const auto reference = list_reference(word);
    return reference && lists_.contains(reference->name);
}

void FlagLists::put_in(Words& out, const ListReference& reference, const Words& list) {
    const std::size_t from = std::min(reference.from - 1, list.size());
    for (std::size_t i = from; i < list.size(); ++i) variables_.put_in(list[i].size() + 1);
    if (variables_.overflowed())
        throw ConfigError(fmt::format("{}: its lists, put in, are more than 1 MiB; give a command with fewer or shorter ones", where_));
    out.insert(out.end(), list.begin() + static_cast<std::ptrdiff_t>(from), list.end());
    if (perhaps_.contains(reference.name)) {
        doubts_.doubtful.insert(reference.name);
        variables_.count_doubtful_use();
    }
    variables_.count_doubtful_use(reference.name);
}

FlagLists::Words FlagLists::spliced(const Words& words) {
    Words out;
    for (const std::string& word : words) {
        const auto reference = list_reference(word);
        const auto list = reference ? lists_.find(reference->name) : lists_.end();
        if (list != lists_.end()) {
            put_in(out, *reference, list->second);
        } else if (reference && !reference->otherwise.empty() && !variables_.why_unknown(reference->name)) {
            Variables none;
            add_words(out, reference->otherwise, none, where_);
        } else if (!reference || (!reference->subscript && !stands_for_flags(out, reference->name))) {
            out.push_back(word);
        } else if (!reference->has_default || variables_.why_unknown(reference->name)) {
            // After a flag that takes values it holds those, and no flags.
            (stands_for_flags(out, reference->name) ? doubts_.unknown : doubts_.unknown_values).insert(reference->name);
        }
    }
    return out;
}

/// True if a bare $NAME after these words, of a variable that is not known, is no flag's value.
bool FlagLists::stands_for_flags(const Words& before, const std::string& name) const {
    if (variables_.known(name) || (!name.empty() && std::isdigit(static_cast<unsigned char>(name[0])) != 0)) return false;
    std::size_t values = 0;
    for (auto word = before.rbegin(); word != before.rend(); ++word, ++values) {
        if (!word->starts_with("--")) continue;
        if (word->find('=') != std::string::npos) return true;
        const auto flag = find_flag(*word);
        return flag && (flag->arity == FlagArity::none || (flag->arity == FlagArity::one && values > 0));
    }
    return true;
}

}  // namespace mgplan::formats
