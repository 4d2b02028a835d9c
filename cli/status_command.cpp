#include <ostream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/options.hpp"
#include "jobs/job_folder.hpp"
#include "jobs/supervisor.hpp"
#include "plan/text/errors.hpp"
#include "plan/text/text.hpp"
#include "reports/table.hpp"

namespace mgplan::cli {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const jobs::Record& record) {
    Json json{{"id", record.id},
              {"state", to_string(record.state)},
              {"via", record.via},
              {"job", record.program},
              {"title", record.title},
              {"world", record.world},
              {"nodes", record.nodes},
              {"begun", record.begun},
              {"ended", record.ended.empty() ? Json(nullptr) : Json(record.ended)},
              {"attempt", record.attempt},
              {"max_restarts", record.max_restarts},
              {"engine_job", record.engine_job.empty() ? Json(nullptr) : Json(record.engine_job)},
              {"progress", jobs::progress(record.folder, record.attempt)},
              {"exit_code", is_over(record.state) ? Json(record.exit_code) : Json(nullptr)},
              {"reason", record.reason},
              {"failure", record.failure ? Json(*record.failure) : Json(nullptr)},
              {"folder", record.folder},
              {"logs", jobs::logs_folder(record.folder, record.attempt)}};
    return json;
}

reports::Table table_of(const std::vector<jobs::Record>& records) {
    using reports::Align;
    reports::Table table(
        {{"job", Align::left}, {"state", Align::left}, {"via", Align::left}, {"ranks"}, {"attempt"}, {"news", Align::left}});
    for (const auto& record : records) {
        std::string news = jobs::progress(record.folder, record.attempt);
        if (!record.reason.empty()) news += (news.empty() ? "" : "; ") + record.reason;
        table.add_row({record.id, std::string(to_string(record.state)), record.via, std::to_string(record.world),
                       std::to_string(record.attempt), news});
    }
    return table;
}

}  // namespace

int run_status(const std::vector<std::string>& args, Console& console) {
    Options options("status [JOB]", "Says how the jobs are that mgplan launch started, the oldest first, or one of them.");
    std::vector<std::string> wanted;
    options.positional("JOB", wanted, 1, "a job's name, as launch printed it (default: all)");
    if (!options.parse(args, console.out)) return kDone;

    std::vector<std::string> unreadable;
    const std::string folder = jobs::jobs_folder(runtime::process_environment());
    std::vector<jobs::Record> records;
    std::vector<std::string> names;
    for (auto& record : jobs::read_records(folder, unreadable)) {
        names.push_back(record.id);
        if (wanted.empty() || record.id == wanted.front()) records.push_back(seen_now(std::move(record)));
    }
    for (const auto& problem : unreadable) console.err << fmt::format("mgplan: {}\n", problem);
    if (!wanted.empty() && records.empty()) {
        const std::string hint = did_you_mean(wanted.front(), names);
        throw ConfigError(fmt::format("there is no job '{}' in {}; {}", wanted.front().substr(0, 100), folder,
                                      hint.empty() ? "mgplan status lists those there are" : hint));
    }
    if (options.format() == Format::json) {
        Json list = Json::array();
        for (const auto& record : records) list.push_back(to_json(record));
        options.write(console, Json{{"jobs", list}}.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
    } else if (records.empty()) {
        options.write(console, fmt::format("no jobs in {}\n", folder));
    } else {
        const reports::Table table = table_of(records);
        options.write(console, options.format() == Format::csv ? table.to_csv() : table.to_text());
    }
    return kDone;
}

}  // namespace mgplan::cli
