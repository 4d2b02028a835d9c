#include "reports/flag_account.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace mgplan::reports {
namespace {

using formats::Decides;
using formats::FlagAccount;

std::string with_feature(const formats::FlagNotComputed& one) {
    return fmt::format("{} ({})", one.flag, one.feature);
}

/// The flags that affect this answer, alone or with the other; Decides::nothing: all of them.
std::vector<std::string> deciding(const FlagAccount& account, Decides what) {
    std::vector<std::string> flags;
    for (const auto& one : account.not_computed) {
        const bool both = one.decides == Decides::fit_and_legal || one.decides == Decides::model;
        if (what == Decides::nothing || one.decides == what || (both && what != Decides::model)) flags.push_back(with_feature(one));
    }
    return flags;
}

/// Megatron-LM's parser stops at an unknown flag, and a fork's flag may change anything.
std::string why_open(const FlagAccount& account, Decides what) {
    std::vector<std::string> reasons;
    const std::vector<std::string> flags = deciding(account, what);
    if (!flags.empty()) reasons.push_back(fmt::format("{} {} not computed", fmt::join(flags, ", "), flags.size() == 1 ? "is" : "are"));
    const auto& unknown = account.unknown;
    if (!unknown.empty()) reasons.push_back(fmt::format("{} {} not known", fmt::join(unknown, " "), unknown.size() == 1 ? "is" : "are"));
    return fmt::format("{}", fmt::join(reasons, "; "));
}

}  // namespace

void add_flag_account(nlohmann::ordered_json& json, const FlagAccount& account) {
    json["used"] = account.used;
    json["not_computed"] = deciding(account, Decides::nothing);
    json["unknown"] = account.unknown;
    if (!account.without_a_version.empty()) json["without_a_version"] = account.without_a_version;
    if (!account.of_environment.empty()) json["of_environment"] = account.of_environment;
    if (!account.searched.empty()) json["searched"] = account.searched;
}

bool leaves_fit_open(const FlagAccount& account) {
    return !account.unknown.empty() || !deciding(account, Decides::fit).empty();
}

bool leaves_legality_open(const FlagAccount& account) {
    return !account.unknown.empty() || !deciding(account, Decides::legal).empty();
}

bool leaves_model_open(const FlagAccount& account) {
    return !deciding(account, Decides::model).empty();
}

std::string why_fit_is_open(const FlagAccount& account) {
    return why_open(account, Decides::fit);
}

std::string why_legality_is_open(const FlagAccount& account) {
    return why_open(account, Decides::legal);
}

std::string flag_account_text(const FlagAccount& account) {
    std::string text;
    if (!account.not_computed.empty()) text += fmt::format("not computed: {}\n", fmt::join(deciding(account, Decides::nothing), ", "));
    if (!account.without_a_version.empty())
        text += fmt::format("no version of Megatron-LM has all of: {}\n", fmt::join(account.without_a_version, ", "));
    for (const std::string& rule : account.of_environment) text += fmt::format("unless the launcher does: {}\n", rule);
    if (!account.unknown.empty()) text += fmt::format("unknown flags, left out: {}\n", fmt::join(account.unknown, " "));
    return text;
}

}  // namespace mgplan::reports
