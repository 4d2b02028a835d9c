#include "cli/serve_page.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "reports/html_page.hpp"

namespace mgplan::cli {
std::string serve_page(const ServedJob& job) {
    const nlohmann::ordered_json start = {
        {"world", job.world}, {"global_batch", job.global_batch}, {"sequence", job.sequence}, {"precision", job.precision}};
    return reports::html_page(
        fmt::format("{} on {}", job.model, job.cluster), {"Every change of a slider searches again."},
        fmt::format("{}<script type=\"application/json\" id=\"start\">{}</script>\n{}", reports::web_file("serve.html"),
                    reports::json_inside_script(start), reports::page_script("serve.js")),
        reports::web_file("serve.css"));
}

}  // namespace mgplan::cli
