#include "cli/flag_list.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "formats/megatron/megatron_flags.hpp"
#include "plan/text/text.hpp"

namespace mgplan::cli {
namespace {

struct ListedFlag {
    std::string name;
    std::string_view effect, asks_for, leaves_open;
};

std::string_view open_text(formats::Decides decides) {
    switch (decides) {
        case formats::Decides::nothing:
            return "time alone";
        case formats::Decides::fit:
            return "fits";
        case formats::Decides::legal:
            return "legal";
        case formats::Decides::model:
            return "model, legal and fits";
        case formats::Decides::fit_and_legal:
            break;
    }
    return "legal and fits";
}

std::vector<ListedFlag> listed_flags() {
    std::vector<ListedFlag> list;
    for (const std::string& name : formats::flag_names()) {
        const formats::Flag flag = *formats::find_flag(name);
        ListedFlag listed{name, "used", "", ""};
        if (flag.effect == formats::FlagEffect::without) listed.effect = "without effect";
        if (flag.effect == formats::FlagEffect::not_computed) {
            listed.effect = "not computed";
            listed.asks_for = flag.feature;
            listed.leaves_open = open_text(flag.decides);
        }
        list.push_back(std::move(listed));
    }
    std::sort(list.begin(), list.end(), [](const ListedFlag& a, const ListedFlag& b) { return a.name < b.name; });
    return list;
}

}  // namespace

reports::Table flag_list() {
    using reports::Align;
    reports::Table table({{"flag", Align::left}, {"effect", Align::left}, {"asks for", Align::left}, {"leaves open", Align::left}});
    for (const ListedFlag& flag : listed_flags())
        table.add_row({flag.name, std::string(flag.effect), std::string(flag.asks_for), std::string(flag.leaves_open)});
    return table;
}

std::string flag_list_text() {
    std::map<std::string_view, std::int64_t> counts;
    for (const ListedFlag& flag : listed_flags()) ++counts[flag.effect];
    return flag_list().to_text() +
           fmt::format("\n{} of Megatron-LM, its older releases and known forks: {} used, {} without effect, {} not computed\n",
                       counted(std::ssize(listed_flags()), "flag"), counts["used"], counts["without effect"], counts["not computed"]);
}

std::string flag_list_json() {
    using Json = nlohmann::ordered_json;
    const auto text = [](std::string_view words) { return words.empty() ? Json() : Json(words); };
    Json json = Json::array();
    for (const ListedFlag& flag : listed_flags())
        json.push_back(
            {{"flag", flag.name}, {"effect", flag.effect}, {"asks_for", text(flag.asks_for)}, {"leaves_open", text(flag.leaves_open)}});
    return json.dump(1) + "\n";
}

}  // namespace mgplan::cli
