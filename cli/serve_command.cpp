#include <algorithm>
#include <array>
#include <cstdint>
#include <ostream>
#include <sstream>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/command.hpp"
#include "cli/local_server.hpp"
#include "cli/options.hpp"
#include "cli/workload_options.hpp"
#include "plan/text/text.hpp"
#include "reports/html_page.hpp"

namespace mgplan::cli {
namespace {

/// Values of the sliders at the start.
struct ServedJob {
    std::string model, cluster, precision;
    std::int64_t world = 1;         ///< GPUs
    std::int64_t global_batch = 1;  ///< sequences
    std::int64_t sequence = 1;      ///< tokens
};

/// The page with sliders. Every change requests /plan?world=…&global_batch=…&sequence=…&precision=…&restrict=… for the page of a search and
/// shows it in a frame; a request that is given up closes its connection.
std::string serve_page(const ServedJob& job) {
    const nlohmann::ordered_json start = {
        {"world", job.world}, {"global_batch", job.global_batch}, {"sequence", job.sequence}, {"precision", job.precision}};
    return reports::html_page(
        fmt::format("{} on {}", job.model, job.cluster), {"Every change of a slider searches again."},
        fmt::format("{}<script type=\"application/json\" id=\"start\">{}</script>\n{}", reports::web_file("serve.html"),
                    reports::json_inside_script(start), reports::page_script("serve.js")),
        reports::web_file("serve.css"));
}

/// Options of `serve` that the page's own fields take the place of, and those that are not plan's.
constexpr std::array kOwnOptions{"world", "global-batch", "global-batch-tokens", "seq", "precision", "port", "format", "output"};

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
                                   "exhaustive",
                                   "pipeline-layout"};

/// "--tp=2" and "--tp" name "tp"; "" where the word is no option.
std::string option_name(std::string_view word) {
    if (!word.starts_with("--")) return {};
    return std::string(word.substr(2, word.find('=') - 2));
}

template <class Names>
bool names(const Names& list, std::string_view name) {
    return std::find(list.begin(), list.end(), name) != list.end();
}

/// The command line of `serve` without its own options, each of which has a value.
std::vector<std::string> words_for_plan(const std::vector<std::string>& args) {
    std::vector<std::string> words;
    for (std::size_t i = 0; i < args.size(); ++i) {
        if (!names(kOwnOptions, option_name(args[i])))
            words.push_back(args[i]);
        else if (args[i].find('=') == std::string::npos)
            ++i;
    }
    return words;
}

/// Returns arguments of plan from a request, which follow those of serve's own start. Throws ConfigError for other options.
std::vector<std::string> asked_words(const PageRequest& request) {
    std::vector<std::string> words;
    Problems problems;
    for (const auto& [field, option] :
         {std::pair{"world", "--world"}, {"global_batch", "--global-batch"}, {"sequence", "--seq"}, {"precision", "--precision"}}) {
        const auto at = request.fields.find(field);
        if (at != request.fields.end()) words.push_back(fmt::format("{}={}", option, at->second));
    }
    const auto restriction = request.fields.find("restrict");
    if (restriction == request.fields.end()) return words;
    std::istringstream given(restriction->second);
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

PageAnswer search_answer(std::vector<std::string> words, const PageRequest& request, const std::function<bool()>& closed) {
    constexpr unsigned kCannotBeAnswered = 422;
    const auto refused = [](std::string_view text) {
        return PageAnswer{kCannotBeAnswered, std::string(text), "text/plain; charset=utf-8"};
    };
    try {
        const auto asked = asked_words(request);
        words.insert(words.end(), asked.begin(), asked.end());
        PageAnswer answer;
        std::ostringstream out, err;
        Console console{out, err};
        console.waiting = [&closed] {
            if (closed()) throw ReaderHasGone{};
        };
        console.page = [&answer](std::string page) { answer.body = std::move(page); };
        (void)run_plan(words, console);
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
    Options options("serve --world N --model CFG [options]",
                    "Shows a search in the browser: a page on this machine alone (127.0.0.1), whose sliders for world, batch, sequence and "
                    "precision search again. Ctrl-C ends it.");
    WorkloadOptions values;
    std::int64_t port = 8765;
    declare_workload_options(options, values, false);
    options.group("The page");
    options.integer("port", port, 0, 65535, "port on 127.0.0.1; 0: any free port");
    if (!options.parse(args, console.out)) return kDone;
    const ResolvedWorkload resolved = resolve_workload(options, values);
    for (const auto& warning : resolved.warnings) console.err << "mgplan: " << warning << "\n";

    const Workload& workload = resolved.workload;
    const std::string page = serve_page({workload.model.name, workload.cluster.name, std::string(precision_text(workload.training)),
                                         workload.world, workload.batch.global_batch, workload.batch.sequence});
    const auto quick = [&page](const PageRequest& request) -> std::optional<PageAnswer> {
        if (request.path == "/") return PageAnswer{200, page};
        if (request.path == "/plan") return std::nullopt;
        return PageAnswer{404, "There is no such page; the search is at /.", "text/plain; charset=utf-8"};
    };
    const std::vector<std::string> words = words_for_plan(args);
    LocalServer server(static_cast<std::uint16_t>(port), quick, [&words](const PageRequest& request, const std::function<bool()>& closed) {
        return search_answer(words, request, closed);
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
