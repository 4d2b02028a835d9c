#include "reports/html_page.hpp"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace mgplan::reports {
namespace {

constexpr std::string_view kStyle = R"(
:root { color-scheme: light dark; --ground: #ffffff; --ink: #1c1c1c; --faint: #6a6a6a; --rule: #d8d8d8; --limit: #c00000;
  --other: #9c9c9c; --parameters: #4e79a7; --gradients: #f28e2b; --optimizer: #76b7b2; --communication: #59a14f;
  --workspace: #edc948; --activations: #e15759; --forward: #4e79a7; --forward2: #7fa3c9; --backward: #3f8f5b; --backward2: #74b88c;
  --weight: #b98a1f; --idle: #f1f1f1; --dp: #5b4b9a; --bubble: #c9c9c9; --tp: #e15759; --cp: #f28e2b; --ep: #b07aa1; --pp: #76b7b2; }
@media (prefers-color-scheme: dark) { :root { --ground: #16181c; --ink: #e6e6e6; --faint: #a0a0a0; --rule: #3a3d44; --limit: #ff6b6b;
  --other: #707070; --parameters: #5b8ec4; --gradients: #d97d26; --optimizer: #5f9f9a; --communication: #4f9146;
  --workspace: #c9a93a; --activations: #c94a4d; --forward: #41699a; --forward2: #5f8dc0; --backward: #2f7a4b; --backward2: #4f9a6c;
  --weight: #a07a20; --idle: #22252b; --dp: #7f72d6; --bubble: #4a4d55; --tp: #c94a4d; --cp: #d97d26; --ep: #9a6a92; --pp: #5f9f9a; } }
body { margin: 2rem auto; max-width: 1240px; padding: 0 1rem; background: var(--ground); color: var(--ink);
  font: 15px/1.45 system-ui, sans-serif; }
h1 { font-size: 1.3rem; margin: 0 0 .3rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
p { margin: .2rem 0; } .faint { color: var(--faint); }
svg { width: 100%; height: auto; display: block; } svg text { fill: var(--ink); font-size: 13px; }
svg .rule { stroke: var(--rule); } svg .limit { stroke: var(--limit); stroke-dasharray: 7 4; stroke-width: 1.5; }
svg .cut { stroke: var(--ink); stroke-dasharray: 1 4; } svg .limit-text { fill: var(--limit); } svg .peak { fill: none; stroke: var(--ink); stroke-width: 2; }
svg #pointer { stroke: var(--ink); visibility: hidden; }
.picture { position: relative; }
#tip { position: absolute; top: 2.5rem; visibility: hidden; pointer-events: none; background: var(--ground); color: var(--ink);
  border: 1px solid var(--rule); border-radius: 4px; padding: .4rem .6rem; font-size: 13px; max-width: 22rem; }
#tip td { padding: 0 0 0 1rem; border: 0; } #tip td:first-child { padding-left: 0; text-align: left; }
.legend span { white-space: nowrap; margin-right: 1rem; } .legend i { display: inline-block; width: .8em; height: .8em; margin-right: .35em; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid var(--rule); white-space: nowrap; }
th { font-weight: 600; } th:last-child, td:last-child { text-align: left; } tr.fullest td { font-weight: 600; }
.cards { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; }
.cards div { border: 1px solid var(--rule); border-radius: 6px; padding: .45rem .8rem; min-width: 7.5rem; }
.cards b { display: block; font-size: 1.15rem; font-variant-numeric: tabular-nums; } .cards span { color: var(--faint); font-size: 13px; }
svg .label { font-size: 12px; } svg .number { font-size: 10px; fill: #ffffff; pointer-events: none; } svg .idle { fill: var(--idle); }
svg .rank { cursor: default; } svg .rank.off { opacity: .18; } svg .rank.own { stroke: var(--ink); stroke-width: 2; }
.bars td:first-child, .bars th:first-child { text-align: left; } .bars td:last-child, .bars th:last-child { text-align: right; }
.bars td:nth-child(3) { text-align: left; padding: 0 .6rem; } .bars i { display: inline-block; height: .8em; vertical-align: middle; }
table.stack { font-size: 13px; } table.stack th, table.stack td { padding: .2rem .35rem; } table.stack th { white-space: normal; vertical-align: bottom; }
table.stack td:last-child { white-space: normal; min-width: 9rem; } table.members td:last-child { white-space: normal; }
@media (max-width: 1300px) { table.stack { font-size: 12px; } table.stack th, table.stack td { padding: .2rem .2rem; } table.stack td:last-child { min-width: 7rem; } }
@media (max-width: 1100px) { table.stack, table.stack tbody, table.stack tr, table.stack td { display: block; } table.stack thead { display: none; }
  table.stack tr { border-bottom: 1px solid var(--rule); padding: .4rem 0; } table.stack td { border: 0; text-align: right; padding: .05rem 0; }
  table.stack td:last-child { text-align: right; } table.stack td::before { content: attr(data-label); float: left; font-weight: 400; color: var(--faint); padding-right: 1rem; } }
@media (max-width: 700px) { .narrow-cells, .bars, .members { font-size: 12px; } .narrow-cells th, .narrow-cells td, .bars th, .bars td, .members th, .members td { padding: .15rem .2rem; }
  .narrow-cells th:first-child { white-space: normal; } }
.narrow-cells th:last-child, .narrow-cells td:last-child { text-align: right; }
.choice label { margin-right: .9rem; white-space: nowrap; }
.bubble { position: absolute; top: 0; left: 0; visibility: hidden; pointer-events: none; background: var(--ground);
  border: 1px solid var(--rule); border-radius: 4px; padding: .2rem .5rem; font-size: 13px; white-space: nowrap; }
)";

}  // namespace

std::string html_escaped(std::string_view text) {
    std::string out;
    for (const char c : text) {
        switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            case '\'':
                out += "&#39;";
                break;
            default:
                out += c;
        }
    }
    return out;
}

std::string json_inside_script(const nlohmann::ordered_json& json) {
    std::string out;
    for (const char c : json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace))
        out += c == '<' ? "\\u003c" : std::string(1, c);
    return out;
}

std::string svg_text(double x, double y, std::string_view anchor, std::string_view text, std::string_view style) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor,
                       style.empty() ? std::string() : fmt::format(" class=\"{}\"", style), html_escaped(text));
}

std::string html_page(std::string_view title, const std::vector<std::string>& details, std::string_view body, std::string_view style) {
    std::string html = fmt::format(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, "
        "initial-scale=1\">\n<title>{0}</title>\n<style>{1}{2}</style>\n</head>\n<body>\n<h1>{0}</h1>\n",
        html_escaped(title), kStyle, style);
    for (const auto& line : details) html += fmt::format("<p class=\"faint\">{}</p>\n", html_escaped(line));
    html += body;
    return html + "</body>\n</html>\n";
}

}  // namespace mgplan::reports
