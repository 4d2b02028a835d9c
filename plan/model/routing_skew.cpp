#include "plan/model/routing_skew.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "plan/text/enum_reader.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/json_reader.hpp"
#include "plan/text/text.hpp"

namespace mgplan {
namespace {

using Json = nlohmann::ordered_json;

const std::vector<std::string> kKindNames{"balanced", "uniform", "zipf", "histogram", "worst"};

std::optional<RoutingKind> parse_kind(std::string_view text) {
    const auto found = std::find(kKindNames.begin(), kKindNames.end(), text);
    if (found == kKindNames.end()) return std::nullopt;
    return static_cast<RoutingKind>(found - kKindNames.begin());
}

const std::string& name_of(RoutingKind kind) {
    return kKindNames.at(static_cast<std::size_t>(kind));
}

/// One list of counts; the first problem in it is reported.
std::vector<double> read_counts(const Json& list, const std::string& where, Problems& problems) {
    std::vector<double> counts;
    if (!list.is_array() || list.empty() || list.size() > static_cast<std::size_t>(ModelLimits::experts)) {
        problems.add("{} is no list of 1 to {} counts; write one for each expert, as in [120, 80]", where, ModelLimits::experts);
        return counts;
    }
    double sum = 0;
    for (const auto& value : list) {
        const double count = value.is_number() ? value.get<double>() : -1;
        if (!(count >= 0 && count <= RoutingSkew::most_count)) {
            problems.add("{}: the count of expert {} is no number from 0 to {:.0g}; write how many copies it took", where, counts.size(),
                         RoutingSkew::most_count);
            return counts;
        }
        sum += count;
        counts.push_back(count);
    }
    if (sum == 0) problems.add("{}: all counts are 0; a router that chose at all gave some expert a copy", where);
    return counts;
}

std::vector<std::vector<double>> read_layers(const Json& json, const std::string& where, Problems& problems) {
    std::vector<std::vector<double>> layers;
    if (!json.is_array() || json.empty() || json.size() > static_cast<std::size_t>(ModelLimits::experts)) {
        problems.add("{} is no histogram; write a list of counts, one for each expert, or a list of such lists, one for each mixture layer",
                     where);
        return layers;
    }
    if (!json.front().is_array()) {
        layers.push_back(read_counts(json, where, problems));
        return layers;
    }
    for (const auto& list : json) {
        const std::size_t before = problems.list().size();
        layers.push_back(read_counts(list, fmt::format("{}: layer {}", where, layers.size()), problems));
        if (problems.list().size() > before) return layers;  // one broken list is enough to report
        if (layers.back().size() != layers.front().size()) {
            problems.add("{}: layer {} has counts of {} experts, layer 0 of {}; give each layer one for each expert", where,
                         layers.size() - 1, layers.back().size(), layers.front().size());
            return layers;
        }
    }
    return layers;
}

/// Whole counts as integers.
Json counts_to_json(const std::vector<double>& counts) {
    Json list = Json::array();
    for (const double count : counts) {
        if (count == std::floor(count))
            list.push_back(static_cast<std::int64_t>(count));
        else
            list.push_back(count);
    }
    return list;
}

}  // namespace

std::optional<RoutingSkew> parse_routing_skew(std::string_view text) {
    RoutingSkew skew;
    constexpr std::string_view kZipf = "zipf:";
    if (text.starts_with(kZipf)) {
        const auto exponent = parse_real(text.substr(kZipf.size()));
        if (!exponent || *exponent < 0 || *exponent > RoutingSkew::most_exponent)
            throw ConfigError(fmt::format("'{}': the exponent is no number from 0 to {}; write one, as in zipf:1", text.substr(0, 60),
                                          RoutingSkew::most_exponent));
        skew.kind = RoutingKind::zipf;
        skew.exponent = *exponent;
        return skew;
    }
    const auto kind = parse_kind(text);
    if (!kind || *kind == RoutingKind::histogram) return std::nullopt;
    skew.kind = *kind;
    return skew;
}

RoutingSkew routing_histogram(const Json& json, const std::string& where) {
    Problems problems;
    RoutingSkew skew;
    skew.kind = RoutingKind::histogram;
    skew.counts = read_layers(json, where, problems);
    problems.throw_if_any();
    return skew;
}

Json routing_skew_to_json(const RoutingSkew& skew) {
    Json json{{"kind", name_of(skew.kind)}};
    if (skew.kind == RoutingKind::zipf) json["exponent"] = skew.exponent;
    if (skew.kind == RoutingKind::histogram) {
        json["counts"] = Json::array();
        for (const auto& layer : skew.counts) json["counts"].push_back(counts_to_json(layer));
    }
    return json;
}

RoutingSkew routing_skew_from_json(const Json& json, const std::string& where) {
    Problems problems;
    JsonReader reader(json, where, problems);
    RoutingSkew skew;
    skew.kind = read_enum(reader, "kind", parse_kind, kKindNames, RoutingKind::uniform);
    const RoutingSkew defaults;
    if (skew.kind == RoutingKind::zipf) skew.exponent = reader.real_or("exponent", defaults.exponent, 0, RoutingSkew::most_exponent);
    if (skew.kind == RoutingKind::histogram) {
        const Json* counts = reader.member("counts");
        if (counts == nullptr)
            problems.add("{}: field 'counts' is missing; a histogram has a list of counts for each mixture layer, or one for all", where);
        else
            skew.counts = read_layers(*counts, where + ".counts", problems);
    }
    reader.finish();
    problems.throw_if_any();
    return skew;
}

void validate(const RoutingSkew& skew, const ModelSpec& model, const std::string& where) {
    if (skew.kind != RoutingKind::histogram || !model.moe) return;
    Problems problems;
    const auto layers = std::count(model.moe_layers.begin(), model.moe_layers.end(), true);
    if (std::ssize(skew.counts.front()) != model.moe->experts)
        problems.add("{} has counts of {} experts, {} has {}; give one for each expert", where, skew.counts.front().size(), model.name,
                     model.moe->experts);
    if (skew.counts.size() > 1 && std::ssize(skew.counts) != layers)
        problems.add("{} has lists of {} layers, {} has {} mixture layers; give one list for each, or one list for all", where,
                     skew.counts.size(), model.name, layers);
    problems.throw_if_any();
}

std::string to_text(const RoutingSkew& skew) {
    if (skew.kind == RoutingKind::zipf) return fmt::format("zipf:{}", skew.exponent);
    if (skew.kind != RoutingKind::histogram) return name_of(skew.kind);
    const std::size_t experts = skew.counts.front().size();
    if (skew.counts.size() == 1) return fmt::format("histogram of {} experts", experts);
    return fmt::format("histogram of {} layers x {} experts", skew.counts.size(), experts);
}

}  // namespace mgplan
