#include "formats/megatron/megatron_flags.hpp"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include <fmt/core.h>

#include "formats/megatron/flag_rows.hpp"
#include "formats/megatron/megatron_flag_groups.hpp"
#include "plan/text/text.hpp"

namespace mgplan::formats {
namespace {

using FlagTable = std::unordered_map<std::string_view, Flag>;

void add_group(FlagTable& built, const FlagGroup& group) {
    std::string_view names = group.names;
    while (!names.empty()) {
        const auto end = std::min(names.find(' '), names.size());
        if (end > 0)
            built.emplace(names.substr(0, end), Flag{group.arity, group.effect, group.feature, group.decides, !group.read_for.empty()});
        names.remove_prefix(std::min(end + 1, names.size()));
    }
}

/// The flags of a row are used where no group says otherwise.
void add_row(FlagTable& built, const FlagRow& row) {
    for (const RowFlag& flag : flags_of(row))
        built.try_emplace(flag.name, Flag{flag.arity, FlagEffect::used, "", Decides::fit, true}).first->second.read = true;
}

const FlagTable& table() {
    static const FlagTable flags = [] {
        FlagTable built;
        for (const auto groups : {used_flag_groups(), not_computed_flag_groups(), flag_groups_without_effect()}) {
            for (const auto& group : groups) add_group(built, group);
        }
        for (const FlagPart& part : flag_parts()) {
            for (const FlagTopic& topic : part.topics) {
                for (const FlagRow& row : topic.rows) add_row(built, row);
            }
        }
        return built;
    }();
    return flags;
}

bool is_flag(const std::string& word) {
    return word.size() > 2 && word.starts_with("--");
}

/// The name with hyphens where the table has it so alone: forks and ms-swift write --micro_batch_size. "" for other names.
std::string hyphened(const std::string& name) {
    if (name.find('_') == std::string::npos || find_flag(name)) return "";
    std::string other = name;
    std::replace(other.begin(), other.end(), '_', '-');
    return find_flag(other) ? other : "";
}

/// The name in the spelling that the table has, with the flag; nothing for an unknown name.
std::optional<std::pair<std::string, Flag>> flag_of(const std::string& name) {
    for (const std::string& spelling : {name, other_spelling(name), hyphened(name)}) {
        if (const auto flag = find_flag(spelling); flag && !spelling.empty()) return std::pair(spelling, *flag);
    }
    return std::nullopt;
}

/// A command with underscores in its flags gives switches a value: --sequence_parallel true.
bool switches_have_values(const std::vector<std::string>& words) {
    return std::any_of(words.begin(), words.end(), [](const std::string& word) {
        return is_flag(word) && word.find('_') != std::string::npos && !hyphened(word.substr(0, word.find('='))).empty();
    });
}

/// Index of the first flag of the training script: after its name ("torchrun --nnodes 2 pretrain_gpt.py --num-layers …"),
/// at 0 where no script is named before the first flag that counts.
std::size_t behind_launcher(const std::vector<std::string>& words) {
    for (std::size_t at = 0; at < words.size(); ++at) {
        if (words[at].ends_with(".py")) return at + 1;
        if (is_flag(words[at])) {
            const auto flag = find_flag(words[at].substr(0, words[at].find('=')));
            if (flag && flag->effect == FlagEffect::used) return 0;
        }
    }
    return 0;
}

/// Adds a text once.
void add_once(std::vector<std::string>& list, std::string text) {
    if (std::find(list.begin(), list.end(), text) == list.end()) list.push_back(std::move(text));
}

/// Words that no flag explains, each text once. A file that is no command line consists of them: after kMost of them no more are listed.
class UnknownWords {
public:
    /// True if a text is still listed; if not, it is counted.
    bool lists_more(const std::vector<std::string>& listed) {
        if (listed.size() < kMost) return true;
        ++left_out_;
        return false;
    }
    void finish(std::vector<std::string>& listed) const {
        if (left_out_ > 0) listed.push_back(fmt::format("and {} more", left_out_));
    }

private:
    static constexpr std::size_t kMost = 100;
    std::size_t left_out_ = 0;
};

std::string joined(std::string text, const std::vector<std::string>& words, std::size_t from, std::size_t to) {
    constexpr std::size_t kShown = 200;
    for (std::size_t i = from; i < to && text.size() < kShown; ++i) text += fmt::format(" {}", words[i].substr(0, kShown));
    if (text.size() > kShown) text = text.substr(0, kShown) + "...";
    return text;
}

}  // namespace

std::optional<Flag> find_flag(std::string_view name) {
    if (name.starts_with("--")) name.remove_prefix(2);
    const auto found = table().find(name);
    if (found == table().end()) return std::nullopt;
    return found->second;
}

std::string other_spelling(std::string_view name) {
    for (const auto& [from, to] : {std::pair<std::string_view, std::string_view>{"--no-", "--disable-"}, {"--disable-", "--no-"}}) {
        if (name.starts_with(from)) return fmt::format("{}{}", to, name.substr(from.size()));
    }
    return "";
}

std::vector<std::string> flag_names() {
    std::vector<std::string> names;
    for (const auto& [name, flag] : table()) names.push_back(fmt::format("--{}", name));
    std::sort(names.begin(), names.end());
    return names;
}

FlagAccount without_layout_flags(FlagAccount account) {
    const auto move_those_of = [&account](std::string_view feature, std::vector<std::string>& list) {
        const auto first = std::stable_partition(account.used.begin(), account.used.end(), [feature](const std::string& name) {
            auto flag = find_flag(name);
            if (!flag) flag = find_flag(other_spelling(name));
            return !flag || flag->feature != feature;
        });
        list.insert(list.end(), first, account.used.end());
        account.used.erase(first, account.used.end());
    };
    move_those_of("layout", account.searched);
    move_those_of("length of training", account.without_effect);
    return account;
}

ParsedFlags parse_flags(const std::vector<std::string>& words) {
    ParsedFlags parsed;
    FlagAccount& account = parsed.account;
    UnknownWords unknown, stray;
    const bool valued_switches = switches_have_values(words);
    std::size_t at = behind_launcher(words);
    while (at < words.size() && !is_flag(words[at])) ++at;  // the command before its flags
    while (at < words.size()) {
        std::string name = words[at];
        std::vector<std::string> values;
        if (const auto equals = name.find('='); equals != std::string::npos) {
            values.push_back(name.substr(equals + 1));
            name = name.substr(0, equals);
        }
        std::size_t end = at + 1;
        while (end < words.size() && !is_flag(words[end])) ++end;
        const auto found = flag_of(name);
        if (!found) {
            if (unknown.lists_more(account.unknown)) {
                static const std::vector<std::string> known = flag_names();
                const std::string hint = did_you_mean(name, known);
                add_once(account.unknown,
                         joined(words[at].substr(0, 200), words, at + 1, end) + (hint.empty() ? "" : fmt::format(" ({})", hint)));
            }
            at = end;
            continue;
        }
        const auto& [meaning, flag] = *found;
        std::size_t taken = at + 1;
        if (valued_switches && flag.arity == FlagArity::none && taken < end && (words[taken] == "true" || words[taken] == "false")) {
            if (words[taken] == "false") {
                at = end;
                continue;
            }
            ++taken;
        }
        if (values.empty() && flag.arity != FlagArity::none) {
            const std::size_t most = flag.arity == FlagArity::one ? std::min(end, at + 2) : end;
            values.assign(words.begin() + static_cast<std::ptrdiff_t>(taken), words.begin() + static_cast<std::ptrdiff_t>(most));
            taken = most;
        }
        // Words after a flag that takes none: a redirection after a command, say.
        if (taken < end && stray.lists_more(account.stray)) add_once(account.stray, joined("", words, taken, end).substr(1));
        (flag.read ? parsed.used : parsed.not_read)[meaning] = std::move(values);
        switch (flag.effect) {
            case FlagEffect::used:
                add_once(account.used, name);
                break;
            case FlagEffect::without:
                add_once(account.without_effect, name);
                break;
            case FlagEffect::not_computed:
                if (std::none_of(account.not_computed.begin(), account.not_computed.end(),
                                 [&](const auto& one) { return one.flag == name; }))
                    account.not_computed.push_back({name, std::string(flag.feature), flag.decides});
                break;
        }
        at = end;
    }
    unknown.finish(account.unknown);
    stray.finish(account.stray);
    return parsed;
}

}  // namespace mgplan::formats
