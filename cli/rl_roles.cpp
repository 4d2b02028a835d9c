#include "cli/rl_roles.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "cli/workload_options.hpp"
#include "plan/text/text.hpp"

namespace mgplan::cli {
namespace {

using planner::RlOffload;
using planner::RlRole;

template <class Enum>
std::optional<Enum> enumerator_of(std::string_view word) {
    constexpr auto words = words_of(Enum{});
    const auto found = std::ranges::find(words, word);
    if (found == words.end()) return {};
    return static_cast<Enum>(found - words.begin());
}

template <class Enum>
std::vector<std::string> all_words() {
    std::vector<std::string> words;
    for (const std::string_view word : words_of(Enum{})) words.emplace_back(word);
    return words;
}

/// Sets `target` to the enumerator of a word; otherwise a problem of `field`.
template <class Enum>
void read_word(Enum& target, const std::string& field, const std::string& value, Problems& problems) {
    if (const auto found = enumerator_of<Enum>(value)) {
        target = *found;
    } else {
        problems.add("{} = '{}' is not known; use {}", field, value.substr(0, 40), any_of_text(all_words<Enum>()));
    }
}

constexpr std::int64_t kMostOfAxis = std::int64_t{1} << 20;

/// One key of --role: the roles that take it, and how it is read.
struct Key {
    std::string_view name;
    std::vector<RlRole> roles;
    std::function<void(RoleOption& role, const std::string& field, const std::string& value, Problems& problems)> read;
};

Key size_key(std::string_view name, std::vector<RlRole> roles, std::optional<std::int64_t> RoleOption::*member) {
    return {name, std::move(roles), [member](RoleOption& role, const std::string& field, const std::string& value, Problems& problems) {
                role.*member = read_integer(problems, field, value, 1, kMostOfAxis);
            }};
}

const std::vector<Key>& keys() {
    using enum RlRole;
    const std::vector<RlRole> all{actor, reference, critic, reward, rollout}, models{actor, reference, critic, reward},
        trained{actor, critic}, readers{reference, reward}, engine{rollout};
    static const std::vector<Key> kKeys{
        {"model", models, [](RoleOption& role, const auto&, const std::string& value, Problems&) { role.model = value; }},
        size_key("gpus", all, &RoleOption::gpus),
        {"shared", all,
         [](RoleOption& role, const std::string& field, const std::string& value, Problems& problems) {
             if (value != "yes" && value != "no")
                 problems.add("{} = '{}' is neither yes nor no; use one of these", field, value.substr(0, 40));
             role.shared = value == "yes";
         }},
        size_key("tp", all, &RoleOption::tp),
        size_key("cp", trained, &RoleOption::cp),
        size_key("ep", {actor, critic, rollout}, &RoleOption::ep),
        size_key("etp", trained, &RoleOption::etp),
        size_key("pp", trained, &RoleOption::pp),
        size_key("vpp", trained, &RoleOption::vpp),
        size_key("micro_batch", trained, &RoleOption::micro_batch),
        {"recompute", trained,
         [](RoleOption& role, const std::string& field, const std::string& value, Problems& problems) {
             role.recompute = parse_recompute(value);
             if (!role.recompute) problems.add("{} = '{}' is not known; use none, selective or full", field, value.substr(0, 40));
         }},
        size_key("dp", engine, &RoleOption::dp),
        {"precision",
         {actor, critic, rollout},
         [](RoleOption& role, const std::string& field, const std::string& value, Problems& problems) {
             if (role.role == rollout) {
                 if (value != "bf16" && value != "fp8")
                     problems.add("{} = '{}' is not known of an engine; use bf16 or fp8", field, value.substr(0, 40));
             } else {
                 check_precision(field, value, problems);
             }
             role.precision = value;
         }},
        {"offload", models,
         [](RoleOption& role, const std::string& field, const std::string& value, Problems& problems) {
             read_word(role.offload, field, value, problems);
         }},
        {"sleep", engine,
         [](RoleOption& role, const std::string& field, const std::string& value, Problems& problems) {
             if (value != "1" && value != "2")
                 problems.add("{} = '{}' is no level; use 1 (weights to the host) or 2 (dropped)", field, value.substr(0, 40));
             role.keeps_weights = value == "1";
         }},
        {"engine", engine,
         [](RoleOption& role, const std::string& field, const std::string& value, Problems& problems) {
             read_word(role.engine, field, value, problems);
         }},
        {"graphs", engine,
         [](RoleOption& role, const std::string& field, const std::string& value, Problems& problems) {
             read_word(role.graphs, field, value, problems);
         }},
        {"sampler", engine,
         [](RoleOption& role, const std::string& field, const std::string& value, Problems& problems) {
             read_word(role.sampler, field, value, problems);
         }},
        {"utilization", engine,
         [](RoleOption& role, const std::string& field, const std::string& value, Problems& problems) {
             role.utilization = parse_real(value);
             if (!role.utilization || *role.utilization <= 0 || *role.utilization > 1)
                 problems.add("{} = '{}' is no share of a card; use a number above 0 and up to 1, such as 0.6", field, value.substr(0, 40));
         }},
        {"kv_bytes", engine,
         [](RoleOption& role, const std::string& field, const std::string& value, Problems& problems) {
             role.cache_bytes = parse_size(value);
             if (!role.cache_bytes || *role.cache_bytes < 1) problems.add("{} = '{}' is no size; write 20GiB", field, value.substr(0, 40));
         }},
        {"kv_precision", engine,
         [](RoleOption& role, const std::string& field, const std::string& value, Problems& problems) {
             if (value != "bf16" && value != "fp8") problems.add("{} = '{}' is not known; use bf16 or fp8", field, value.substr(0, 40));
             role.fp8_cache = value == "fp8";
         }},
        {"async_scheduling", engine,
         [](RoleOption& role, const std::string& field, const std::string& value, Problems& problems) {
             if (value != "yes" && value != "no")
                 problems.add("{} = '{}' is neither yes nor no; use one of these", field, value.substr(0, 40));
             role.schedules_ahead = value == "yes";
         }},
        size_key("batched_tokens", engine, &RoleOption::batched_tokens),
        size_key("sequences", engine, &RoleOption::sequences),
    };
    return kKeys;
}

void read_key(RoleOption& role, const std::string& prefix, const std::string& word, Problems& problems) {
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals);
    std::vector<std::string> known;
    for (const Key& key : keys()) {
        if (std::ranges::find(key.roles, role.role) != key.roles.end()) known.emplace_back(key.name);
    }
    if (name == "shared" && equals == std::string::npos) {
        role.shared = true;
        return;
    }
    if (std::ranges::find(known, name) == known.end()) {
        const std::string hint = did_you_mean(name, known);
        problems.add("{}: unknown key '{}'; {}its keys are {}", prefix, name.substr(0, 40), hint.empty() ? "" : hint + " ",
                     fmt::join(known, ", "));
        return;
    }
    if (equals == std::string::npos || equals + 1 == word.size()) {
        problems.add("{}: {} needs a value; write {}=VALUE", prefix, name, name);
        return;
    }
    const Key& key = *std::ranges::find(keys(), name, &Key::name);
    key.read(role, fmt::format("{}: {}", prefix, name), word.substr(equals + 1), problems);
}

void check_role(const RoleOption& role, const std::string& prefix, Problems& problems) {
    if (role.absent && role.role != RlRole::reference) problems.add("{}: only the reference can be none; leave the role out", prefix);
    const bool needs_model = role.role == RlRole::critic || role.role == RlRole::reward;
    if (needs_model && !role.model && !role.absent)
        problems.add("{}: the role has no model; write --role {}=MODEL, such as {}=qwen3-8b", prefix, prefix.substr(7), prefix.substr(7));
    if (role.shared && role.gpus && role.role != RlRole::actor)
        problems.add("{}: gpus = {} are GPUs of its own, and shared takes the trainer's; drop one of them", prefix, *role.gpus);
    if (role.utilization && role.cache_bytes) problems.add("{}: utilization and kv_bytes both set the cache; drop one of them", prefix);
    if (role.role == RlRole::rollout && role.ep && *role.ep > 1 && *role.ep != role.tp.value_or(1) * role.dp.value_or(1))
        problems.add("{}: ep = {} is not tp x dp = {}, over which an engine divides its experts; use ep={}, or leave it out", prefix,
                     *role.ep, role.tp.value_or(1) * role.dp.value_or(1), role.tp.value_or(1) * role.dp.value_or(1));
}

}  // namespace

std::vector<RoleOption> read_roles(const std::vector<std::string>& given, Problems& problems) {
    std::vector<RoleOption> roles;
    for (const std::string& text : given) {
        const auto equals = text.find('=');
        const std::string name = text.substr(0, equals);
        const auto role_of = enumerator_of<RlRole>(name);
        if (!role_of || equals == std::string::npos || equals + 1 == text.size()) {
            problems.add("--role = '{}' is no ROLE=MODEL[,KEY=VALUE…]; the roles are {}, such as --role critic=qwen3-8b,gpus=8",
                         text.substr(0, 60), any_of_text(all_words<RlRole>()));
            continue;
        }
        const std::string prefix = fmt::format("--role {}", name);
        if (std::ranges::find(roles, *role_of, &RoleOption::role) != roles.end()) {
            problems.add("{} is given twice; give it once", prefix);
            continue;
        }
        RoleOption role;
        role.role = *role_of;
        std::set<std::string> keys_given;
        bool first = true;
        for (const std::string& word : split(text.substr(equals + 1), ',')) {
            if (first && word == "none") {
                role.absent = true;
            } else if (first && word.find('=') == std::string::npos && word != "shared") {
                if (role.role == RlRole::rollout)
                    problems.add("{}: the engine generates with the actor's weights, not with '{}'; leave the model out", prefix,
                                 word.substr(0, 40));
                role.model = word;
            } else {
                const std::string key = word.substr(0, word.find('='));
                if (!keys_given.insert(key).second) problems.add("{}: {} is given twice; give it once", prefix, key.substr(0, 40));
                read_key(role, prefix, word, problems);
            }
            first = false;
        }
        if (role.absent && !keys_given.empty())
            problems.add("{}: none has no keys; write --role reference=none, or leave none out", prefix);
        check_role(role, prefix, problems);
        roles.push_back(std::move(role));
    }
    return roles;
}

}  // namespace mgplan::cli
