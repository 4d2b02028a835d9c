#include "plan/cluster/adverse_conditions.hpp"

#include <algorithm>
#include <array>

#include <nlohmann/json.hpp>

#include "plan/text/embedded_files.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"

namespace mgplan {
namespace {

struct Condition {
    std::string_view name;
    double AdverseConditions::*value;
    double low, high;
};

constexpr std::array kConditions{
    Condition{"network", &AdverseConditions::network, 0.01, 10},
    Condition{"host", &AdverseConditions::host, 0.1, 10},
    Condition{"routing", &AdverseConditions::routing, 0, 10},
};

}  // namespace

const AdverseConditions& published_adverse_conditions() {
    static const AdverseConditions published = [] {
        const EmbeddedFile& file = *std::ranges::find(embedded_accuracy(), "adverse", &EmbeddedFile::name);
        const auto json = parse_json(file.text, "configs/accuracy/adverse.json");
        AdverseConditions conditions;
        for (const Condition& one : kConditions) conditions.*one.value = json.at(one.name).at("value");
        return conditions;
    }();
    return published;
}

AdverseConditions parse_adverse_conditions(std::string_view text) {
    AdverseConditions conditions = published_adverse_conditions();
    Problems problems;
    for (const std::string& word : split(text, ',')) {
        const std::size_t equals = std::min(word.find('='), word.size());
        const auto found = std::ranges::find(kConditions, std::string_view(word).substr(0, equals), &Condition::name);
        if (found == kConditions.end() || equals == word.size()) {
            problems.add("--adverse: '{}' is no condition; write network=SHARE, host=FACTOR or routing=EXPONENT", word.substr(0, 60));
            continue;
        }
        const auto value = parse_real(std::string_view(word).substr(equals + 1));
        if (value && *value >= found->low && *value <= found->high)
            conditions.*found->value = *value;
        else
            problems.add("--adverse: {} = '{}' is no number from {} to {}; write one, as in {}=0.7", found->name,
                         word.substr(equals + 1, 60), found->low, found->high, found->name);
    }
    problems.throw_if_any();
    return conditions;
}

}  // namespace mgplan
