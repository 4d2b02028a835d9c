#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <ostream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/job_source.hpp"
#include "cli/local_server.hpp"
#include "cli/options.hpp"
#include "cli/workload_options.hpp"
#include "formats/model_source.hpp"
#include "plan/json/cluster_json.hpp"
#include "plan/text/text.hpp"
#include "reports/html_page.hpp"

namespace mgplan::cli {
namespace {

template <class Names>
bool names(const Names& list, std::string_view name) {
    return std::find(list.begin(), list.end(), name) != list.end();
}

using Json = nlohmann::ordered_json;

/// The page of a job. Every change requests /plan?model=…&world=…&… for the page of a search and shows it in a frame; a request that is
/// given up closes its connection. Fields without a value follow the command, or the assumptions of plan. `own`: model and cluster of the
/// command where they are no presets.
std::string serve_page(const Workload& workload, const Options& options, const WorkloadOptions& values) {
    Json fields = {{"world", workload.world}, {"precision", precision_text(workload.training)}};
    if (options.given("global-batch") || options.given("global-batch-tokens")) fields["global_batch"] = workload.batch.global_batch;
    if (options.given("seq")) fields["sequence"] = workload.batch.sequence;
    const auto models = formats::preset_names(), clusters = cluster_preset_names();
    const bool takes_model = values.model && source_options(values).size() == 1;
    if (takes_model && names(models, *values.model)) fields["model"] = *values.model;
    const std::string cluster = values.cluster.substr(0, values.cluster.find(','));
    if (names(clusters, cluster)) {
        fields["cluster"] = cluster;
        if (cluster.size() < values.cluster.size()) fields["figures"] = values.cluster.substr(cluster.size() + 1);
    }
    const Json start = {{"fields", fields},
                        {"models", takes_model ? Json(models) : Json::array()},
                        {"clusters", clusters},
                        {"own", {{"model", workload.model.name}, {"cluster", workload.cluster.name}}}};
    return reports::html_page(
        fmt::format("{} on {}", workload.model.name, workload.cluster.name),
        {"Every change searches again. The address holds what was chosen: whoever opens it sees the same."},
        fmt::format("{}<script type=\"application/json\" id=\"start\">{}</script>\n{}", reports::web_file("serve.html"),
                    reports::json_inside_script(start), reports::page_script("serve.js")),
        reports::web_file("serve.css"));
}

/// Options of `serve` that are not plan's.
constexpr std::array kOwnOptions{"port", "format", "output"};

/// A field of the page, the option that it becomes, and another option of the command that it replaces.
struct Field {
    std::string_view name, option, replaces;
};
constexpr std::array kFields{Field{"model", "model", ""},         Field{"cluster", "cluster", ""},
                             Field{"world", "world", ""},         Field{"global_batch", "global-batch", "global-batch-tokens"},
                             Field{"sequence", "seq", ""},        Field{"precision", "precision", ""},
                             Field{"recompute", "recompute", ""}, Field{"cuda_graphs", "cuda-graphs", ""},
                             Field{"sharding", "sharding", ""}};

/// Options with which a reader of the page may restrict a search: those of plan that neither read nor write a file.
constexpr std::array kRestrictions{"tp",
                                   "cp",
                                   "ep",
                                   "etp",
                                   "pp",
                                   "vpp",
                                   "micro-batch",
                                   "recompute",
                                   "recompute-modules",
                                   "recompute-method",
                                   "recompute-num-layers",
                                   "sequence-parallel",
                                   "cp-comm-type",
                                   "group-size",
                                   "order",
                                   "cuda-graphs",
                                   "headroom",
                                   "max-memory",
                                   "overlap",
                                   "no-overlap",
                                   "engine",
                                   "schedule",
                                   "search",
                                   "dispatcher",
                                   "sharding",
                                   "optimizer",
                                   "grad-dtype",
                                   "offload",
                                   "exhaustive",
                                   "pipeline-layout"};

/// "--tp=2" and "--tp" name "tp"; "" where the word is no option.
std::string option_name(std::string_view word) {
    if (!word.starts_with("--")) return {};
    return std::string(word.substr(2, word.find('=') - 2));
}

/// The command line of `serve` without these options, each of which has a value.
std::vector<std::string> without(const std::vector<std::string>& args, const std::vector<std::string_view>& options) {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < args.size(); ++i) {
        if (!names(options, option_name(args[i])))
            words.push_back(args[i]);
        else if (args[i].find('=') == std::string::npos)
            ++i;
    }
    return words;
}

/// Returns arguments of plan: those of a request, which replace the command's. A request names presets, never files. Throws ConfigError for
/// others.
std::vector<std::string> asked_words(const std::vector<std::string>& args, const PageRequest& request) {
    const auto value_of = [&](std::string_view field) {
        const auto at = request.fields.find(std::string(field));
        return at == request.fields.end() ? std::string() : at->second;
    };
    std::vector<std::string> asked;
    std::vector<std::string_view> replaced(kOwnOptions.begin(), kOwnOptions.end());
    Problems problems;
    const auto need_preset = [&](std::string_view field, const std::string& name, const std::vector<std::string>& presets) {
        if (!names(presets, name))
            problems.add("{} = '{}' is no preset; choose one of the menu, or start mgplan serve with it", field, name.substr(0, 60));
    };
    for (const Field& field : kFields) {
        std::string value = value_of(field.name);
        if (value.empty()) continue;
        if (field.name == "model") need_preset("model", value, formats::preset_names());
        if (field.name == "cluster") {
            need_preset("cluster", value, cluster_preset_names());
            if (const std::string figures = value_of("figures"); !figures.empty()) value += "," + figures;
        }
        asked.push_back(fmt::format("--{}={}", field.option, value));
        replaced.push_back(field.option);
        if (!field.replaces.empty()) replaced.push_back(field.replaces);
    }
    std::vector<std::string> words = without(args, replaced);
    words.insert(words.end(), asked.begin(), asked.end());
    std::istringstream given(value_of("restrict"));
    bool takes_value = false;
    for (std::string word; given >> word;) {
        const std::string name = option_name(word);
        if (names(kRestrictions, name)) {
            takes_value = word.find('=') == std::string::npos;
        } else if (name.empty() && takes_value) {
            takes_value = false;
        } else {
            problems.add("restricted to = '{}' is no option that restricts a search; use --{}", word.substr(0, 60),
                         fmt::join(kRestrictions, ", --"));
        }
        words.push_back(word);
    }
    problems.throw_if_any();
    return words;
}

/// Ends a search whose client has gone.
struct ReaderHasGone {};

/// Answers by the words of plan that lead to them: the latest of them. May be used from any thread.
class AnswerMemo {
public:
    std::optional<PageAnswer> find(const std::vector<std::string>& words) {
        const std::scoped_lock lock(mutex_);
        for (const auto& [known, answer] : answers_) {
            if (known == words) return answer;
        }
        return std::nullopt;
    }
    void add(std::vector<std::string> words, PageAnswer answer) {
        const std::scoped_lock lock(mutex_);
        answers_.emplace_front(std::move(words), std::move(answer));
        if (answers_.size() > kMost) answers_.pop_back();
    }

private:
    static constexpr std::size_t kMost = 32;  ///< a page takes up to 2 MB
    std::mutex mutex_;
    std::deque<std::pair<std::vector<std::string>, PageAnswer>> answers_;
};

PageAnswer search_answer(const std::vector<std::string>& args, const PageRequest& request, AnswerMemo& memo,
                         const std::function<bool()>& closed) {
    constexpr unsigned kCannotBeAnswered = 422;
    const auto refused = [](std::string_view text) {
        return PageAnswer{kCannotBeAnswered, std::string(text), "text/plain; charset=utf-8"};
    };
    try {
        const std::vector<std::string> words = asked_words(args, request);
        if (auto known = memo.find(words)) return *std::move(known);
        PageAnswer answer;
        std::ostringstream out, err;
        Console console{out, err};
        console.waiting = [&closed] {
            if (closed()) throw ReaderHasGone{};
        };
        console.page = [&answer](std::string page) { answer.body = std::move(page); };
        (void)run_plan(words, console);
        memo.add(words, answer);
        return answer;
    } catch (const ReaderHasGone&) {
        return {};
    } catch (const ConfigError& error) {
        return refused(fmt::format("{}", fmt::join(error.problems(), "\n")));
    } catch (const RunError& error) {
        return refused(error.what());
    }
}

}  // namespace

int run_serve(const std::vector<std::string>& args, Console& console) {
    Options options(
        "serve --world N --model CFG [options]",
        "Shows a search in the browser: a page on this machine alone (127.0.0.1), whose fields for model, cluster, world, batch, "
        "precision and features search again. Ctrl-C ends it.");
    WorkloadOptions values;
    std::int64_t port = 8765;
    declare_workload_options(options, values, false);
    options.group("The page");
    options.integer("port", port, 0, 65535, "port on 127.0.0.1; 0: any free port");
    if (!options.parse(args, console.out)) return kDone;
    const ResolvedWorkload resolved = resolve_workload(options, values);
    for (const auto& warning : resolved.warnings) console.err << "mgplan: " << warning << "\n";

    const Workload& workload = resolved.workload;
    const std::string page = serve_page(workload, options, values);
    const auto quick = [&page](const PageRequest& request) -> std::optional<PageAnswer> {
        if (request.path == "/") return PageAnswer{200, page};
        if (request.path == "/plan") return std::nullopt;
        return PageAnswer{404, "There is no such page; the search is at /.", "text/plain; charset=utf-8"};
    };
    AnswerMemo memo;
    LocalServer server(static_cast<std::uint16_t>(port), quick, [&](const PageRequest& request, const std::function<bool()>& closed) {
        return search_answer(args, request, memo, closed);
    });
    const std::string address = fmt::format("http://127.0.0.1:{}/", server.port());
    if (options.format() == Format::table)
        options.write(console, fmt::format("{} on {}: {}\n", workload.model.name, workload.cluster.name, address));
    else
        options.write(console, nlohmann::ordered_json{{"url", address}, {"port", server.port()}}.dump() + "\n");
    console.out.flush();
    server.run();
    return kDone;
}

}  // namespace mgplan::cli
