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
