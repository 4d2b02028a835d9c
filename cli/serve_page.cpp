#include "cli/serve_page.hpp"

#include <string_view>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "reports/html_page.hpp"

namespace mgplan::cli {
namespace {

constexpr std::string_view kServeStyle = R"(
body { max-width: none; }
form { display: flex; flex-wrap: wrap; gap: .5rem 1.4rem; align-items: end; margin: .6rem 0; }
form label { display: flex; flex-direction: column; color: var(--faint); font-size: 13px; }
form output { color: var(--ink); font-weight: 600; font-variant-numeric: tabular-nums; }
form select, form input[type=text] { font: inherit; color: var(--ink); background: var(--ground); border: 1px solid var(--rule); border-radius: 4px;
  padding: .2rem .4rem; }
form input[type=range] { width: 12rem; max-width: 80vw; } form input[type=text] { width: 18rem; max-width: 80vw; }
form :focus-visible { outline: 2px solid var(--forward); outline-offset: 2px; }
#state { min-height: 1.4em; } #state.wrong { color: var(--limit); white-space: pre-line; }
iframe { width: 100%; height: 78vh; border: 1px solid var(--rule); border-radius: 6px; }
)";

constexpr std::string_view kServeBody = R"(
<form id="job" onsubmit="return false">
<label>GPUs <output for="world"></output><input type="range" id="world"></label>
<label>global batch, sequences <output for="global_batch"></output><input type="range" id="global_batch"></label>
<label>sequence, tokens <output for="sequence"></output><input type="range" id="sequence"></label>
<label>precision <select id="precision"><option>bf16</option><option>fp8-current</option><option>fp8-blockwise</option><option>fp8-delayed</option><option>mxfp8</option><option>nvfp4</option><option>fp16</option><option>fp32</option></select></label>
<label>restricted to <input type="text" id="restrict" placeholder="--tp 1,2 --pp 4 --recompute none" spellcheck="false"></label>
</form>
<p id="state" role="status"></p>
<iframe id="search" title="The layouts that fit, by time and memory"></iframe>
)";

constexpr std::string_view kServeScript = R"(
"use strict";
const start = JSON.parse(document.getElementById("start").textContent);
const byId = id => document.getElementById(id);
// A slider moves by factors of two around the value at the start: 16 times less to 64 times more.
const sliders = ["world", "global_batch", "sequence"].map(name => {
  const values = [], first = start[name];
  for (let k = -4; k <= 6; ++k) {
    const value = first * 2 ** k;
    if (Number.isInteger(value)) values.push(value);
  }
  const slider = byId(name), shown = document.querySelector("output[for=" + name + "]");
  slider.min = 0;
  slider.max = values.length - 1;
  slider.value = values.indexOf(first);
  const say = () => {
    shown.textContent = values[slider.value].toLocaleString("en-US");
    slider.setAttribute("aria-valuetext", shown.textContent);
  };
  slider.addEventListener("input", say);
  say();
  return {name, value: () => values[slider.value]};
});
const precisions = byId("precision");
if (!Array.from(precisions.options).some(option => option.value === start.precision)) precisions.add(new Option(start.precision));
precisions.value = start.precision;
const frame = byId("search"), state = byId("state");
let asking = null, later = 0;
const ask = async () => {
  if (asking) asking.abort();  // the server ends a search whose reader has gone
  const mine = asking = new AbortController(), query = new URLSearchParams();
  for (const slider of sliders) query.set(slider.name, slider.value());
  query.set("precision", byId("precision").value);
  query.set("restrict", byId("restrict").value.trim());
  state.className = "";
  state.textContent = "searching …";
  try {
    let answer = await fetch("/plan?" + query, {signal: mine.signal});
    while (answer.status === 503) {
      await new Promise(done => setTimeout(done, 500));
      answer = await fetch("/plan?" + query, {signal: mine.signal});
    }
    const text = await answer.text();
    if (asking !== mine) return;
    state.className = answer.ok ? "" : "wrong";
    state.textContent = answer.ok ? "" : text;
    if (answer.ok) frame.srcdoc = text;
  } catch (error) {
    if (error.name === "AbortError") return;
    state.className = "wrong";
    state.textContent = "mgplan serve does not answer any more; start it again.";
  }
};
byId("job").addEventListener("input", () => {
  clearTimeout(later);
  later = setTimeout(ask, 300);
});
ask();
)";

}  // namespace

std::string serve_page(const ServedJob& job) {
    const nlohmann::ordered_json start = {
        {"world", job.world}, {"global_batch", job.global_batch}, {"sequence", job.sequence}, {"precision", job.precision}};
    return reports::html_page(fmt::format("{} on {}", job.model, job.cluster), {"Every change of a slider searches again."},
                              fmt::format("{}<script type=\"application/json\" id=\"start\">{}</script>\n<script>{}</script>\n", kServeBody,
                                          reports::json_inside_script(start), kServeScript),
                              kServeStyle);
}

}  // namespace mgplan::cli
