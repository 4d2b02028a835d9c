"use strict";
const data = JSON.parse(document.getElementById("steps").textContent);
const svg = document.getElementById("curve"), tip = document.getElementById("tip"), pointer = document.getElementById("pointer");
const group = n => String(n).replace(/\B(?=(\d{3})+$)/g, ",");
const human = n => n >= 1073741824 ? (n / 1073741824).toFixed(2) + " GiB" : n >= 1048576 ? (n / 1048576).toFixed(2) + " MiB" :
  n >= 1024 ? (n / 1024).toFixed(1) + " KiB" : n + " bytes";
function show(event) {
  const box = svg.getBoundingClientRect(), scale = data.width / box.width, x = (event.clientX - box.left) * scale;
  const at = Math.floor((x - data.left) / data.plot * data.steps.length);
  if (at < 0 || at >= data.steps.length) return hide();
  const step = data.steps[at], middle = data.left + (at + 0.5) * data.plot / data.steps.length;
  pointer.setAttribute("x1", middle); pointer.setAttribute("x2", middle); pointer.style.visibility = "visible";
  tip.textContent = "";
  const add = text => { const line = document.createElement("div"); line.textContent = text; tip.appendChild(line); };
  add("op " + group(step[0]) + ": " + data.texts[step[1]].replace("#", step[3]));
  if (data.tensors[step[2]] !== "") add("fullest while taking: " + data.tensors[step[2]]);
  const table = document.createElement("table");
  const row = (name, bytes) => {
    const line = table.insertRow();
    for (const text of [name, human(bytes), group(bytes)]) line.insertCell().textContent = text;
  };
  row("all", step.slice(4).reduce((a, b) => a + b, 0));
  for (let i = data.areas.length - 1; i >= 0; --i) row(data.areas[i], step[4 + i]);
  tip.appendChild(table);
  tip.style.visibility = "visible";
  const left = middle / scale;
  tip.style.left = (left > box.width / 2 ? Math.max(0, left - tip.offsetWidth - 14) : left + 14) + "px";
}
function hide() { tip.style.visibility = "hidden"; pointer.style.visibility = "hidden"; }
svg.addEventListener("pointermove", show);
svg.addEventListener("pointerleave", hide);
