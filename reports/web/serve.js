"use strict";
const start = JSON.parse(document.getElementById("start").textContent);
const byId = id => document.getElementById(id);
// Fields of a request; those of `shown` are for this page alone.
const asked = ["model", "cluster", "figures", "world", "global_batch", "sequence", "precision", "recompute", "cuda_graphs", "sharding", "restrict"];
const shown = ["tokens", "price"], fields = asked.concat(shown);
for (const [name, list] of [["model", start.models], ["cluster", start.clusters]]) {
  for (const each of list) byId(name).add(new Option(each));
}
const set = (name, value) => {
  const field = byId(name);
  if (field.options && !Array.from(field.options).some(option => option.value === value)) field.add(new Option(value || start.own[name], value), 0);
  field.value = value;
};
// The address holds all fields, and A's request: it shows the same on a server that was started with another job.
const address = new URLSearchParams(location.search);
for (const name of fields) set(name, address.has(name) ? address.get(name) : String(start.fields[name] || ""));
let kept = address.get("a");

const query = () => {
  const words = new URLSearchParams();
  for (const name of asked) if (byId(name).value.trim() !== "") words.set(name, byId(name).value.trim());
  return words;
};
const remember = () => {
  const words = new URLSearchParams();
  for (const name of fields) words.set(name, byId(name).value.trim());
  if (kept) words.set("a", kept);
  history.replaceState(null, "", "?" + words);
};
// "15T" as a number; NaN for other text.
const count = text => {
  const found = /^([0-9.]+)\s*([kMBGT]?)$/.exec(text.trim());
  return found ? Number(found[1]) * {"": 1, k: 1e3, M: 1e6, B: 1e9, G: 1e9, T: 1e12}[found[2]] : NaN;
};
// Days and cost of the first plan, from the data of the search in a frame.
const price = (frame, line, world) => {
  const data = frame.contentDocument && frame.contentDocument.getElementById("search"), tokens = count(byId("tokens").value);
  line.textContent = "";
  if (!data || !(tokens > 0)) return;
  const search = JSON.parse(data.textContent), seconds = tokens / (search.tokens * world) * search.columns.seconds[0];
  const hours = seconds * world / 3600, rate = Number(byId("price").value);
  line.textContent = "#1: " + (seconds / 86400).toFixed(1) + " days, " + Math.round(hours).toLocaleString("en-US") + " GPU-hours" +
    (rate > 0 ? ", " + Math.round(hours * rate).toLocaleString("en-US") + " at " + rate + " a GPU-hour" : "");
};
const priceAll = () => {
  price(byId("search"), byId("cost"), Number(byId("world").value));
  if (kept) price(byId("search-a"), byId("cost-a"), Number(new URLSearchParams(kept).get("world")));
};
byId("search").addEventListener("load", priceAll);
byId("search-a").addEventListener("load", priceAll);

// The answer to a request, again and again while other searches run.
const answer = async (words, signal) => {
  for (;;) {
    const found = await fetch("/plan?" + words, {signal});
    if (found.status !== 503) return {ok: found.ok, text: await found.text()};
    await new Promise(done => setTimeout(done, 500));
  }
};
const state = byId("state");
const say = (text, wrong) => {
  state.className = wrong ? "wrong" : "";
  state.textContent = text;
};
const gone = "mgplan serve does not answer any more; start it again.";
let asking = null, later = 0;
const ask = async () => {
  if (asking) asking.abort();  // the server ends a search whose reader has gone
  const mine = asking = new AbortController();
  remember();
  say("searching …", false);
  try {
    const found = await answer(query(), mine.signal);
    if (asking !== mine) return;
    say(found.ok ? "" : found.text, !found.ok);
    if (found.ok) byId("search").srcdoc = found.text;
  } catch (error) {
    if (error.name !== "AbortError") say(gone, true);
  }
};
const showKept = async () => {
  byId("side-a").hidden = byId("name-b").hidden = !kept;
  if (!kept) return;
  byId("job-a").textContent = Array.from(new URLSearchParams(kept)).map(([name, value]) => name.replace("_", " ") + " " + value).join(", ");
  try {
    const asked = kept, found = await answer(asked);
    if (asked !== kept) return;
    if (found.ok) byId("search-a").srcdoc = found.text;
    else byId("cost-a").textContent = found.text;
  } catch {
    byId("cost-a").textContent = gone;
  }
};
byId("keep").addEventListener("click", () => {
  kept = query().toString();
  remember();
  showKept();
});
byId("drop").addEventListener("click", () => {
  kept = null;
  remember();
  showKept();
});
byId("job").addEventListener("input", event => {
  if (shown.includes(event.target.id)) {
    remember();
    priceAll();
  } else {
    clearTimeout(later);
    later = setTimeout(ask, 300);
  }
});
ask().then(showKept);
