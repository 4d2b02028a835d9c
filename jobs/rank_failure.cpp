#include "jobs/rank_failure.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "jobs/regular_file.hpp"
#include "runtime/launch/published_file.hpp"

namespace mgplan::jobs {
namespace {

using Json = nlohmann::ordered_json;

std::string failure_file(const std::string& logs) {
    return logs + "/first_failure.json";
}

}  // namespace

void to_json(Json& json, const RankFailure& failure) {
    json = {{"rank", failure.rank}, {"node", failure.node}, {"code", failure.code}, {"reason", failure.reason}, {"log", failure.log}};
}

void from_json(const Json& json, RankFailure& failure) {
    failure = {json.at("rank"), json.at("node"), json.at("code"), json.at("reason"), json.at("log")};
}

std::string text_of(const RankFailure& failure) {
    if (failure.log.empty()) return fmt::format("rank {} on {}: {}", failure.rank, failure.node, failure.reason);
    return fmt::format("rank {} on {} {}; its log: {}", failure.rank, failure.node, failure.reason, failure.log);
}

std::optional<RankFailure> first_failure(const std::string& logs) {
    constexpr std::size_t kMostBytes = 1 << 20;
    const auto text = end_of_regular_file(failure_file(logs), kMostBytes);
    if (!text) return std::nullopt;
    const Json json = Json::parse(*text, nullptr, false);
    if (!json.is_object()) return std::nullopt;
    try {
        RankFailure failure;
        from_json(json, failure);
        return failure;
    } catch (const Json::exception&) {
        return std::nullopt;
    }
}

void leave_word(const std::string& logs, const RankFailure& failure) {
    Json json;
    to_json(json, failure);
    runtime::publish_once(failure_file(logs), json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace mgplan::jobs
