(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("search").textContent), c = data.columns, texts = data.texts, count = c.tp.length;
  const byId = id => document.getElementById(id);
  const make = (name, properties, ...inside) => { const made = Object.assign(document.createElement(name), properties || {}); made.append(...inside); return made; };
  const gib = mib => mib / 1024, first = c.seconds[0];
  const seconds = s => s >= 100 ? s.toFixed(1) : s >= 0.1 ? s.toFixed(3) : s.toPrecision(3);
  const percent = x => (x >= 0 ? "+" : "−") + Math.abs(100 * x).toFixed(Math.abs(x) < 0.0995 ? 2 : 0) + " %";
  const free = i => gib(data.limit - c.mib[i]);
  const cpText = i => c.cp[i] + (c.cp[i] > 1 && texts.comm[c.comm[i]] !== "p2p" ? " " + texts.comm[c.comm[i]] : "");
  const families = c.members.filter(members => members > 0).length;
  const place = i => i < families ? "#" + (i + 1) : "P" + (i - families + 1);
  const words = i => "tp" + c.tp[i] + (c.sp[i] ? "+sp" : "") + (c.cp[i] > 1 ? " cp" + cpText(i) : "") +
    (data.moe ? " ep" + c.ep[i] + " etp" + c.etp[i] : "") + " dp" + c.dp[i] + " pp" + c.pp[i] + (c.pp[i] > 1 ? " vpp" + c.vpp[i] : "") +
    " mbs" + c.mbs[i] + " " + texts.recompute[c.recompute[i]];

  // --- Columns of the table: what is the same everywhere has none, but the title says so.
  const all = [
    {name: "#", key: i => i, text: place, title: "families by the ranking, behind it by time; P: others on the Pareto line"},
    {name: "layout", key: i => i, text: words, narrow: true, words: true},
    {name: "tp", values: c.tp, text: i => c.tp[i] + (c.sp[i] ? " sp" : ""), title: "tensor parallel size; sp: with sequence parallelism"},
    {name: "cp", values: c.cp, text: cpText, title: "context parallel size"},
    {name: "ep", values: c.ep, moe: true, title: "expert parallel size"}, {name: "etp", values: c.etp, moe: true, title: "expert tensor parallel size"},
    {name: "dp", values: c.dp, title: "data parallel size"}, {name: "pp", values: c.pp, title: "pipeline parallel size"},
    {name: "vpp", values: c.vpp, title: "model chunks per pipeline rank"}, {name: "mbs", values: c.mbs, title: "micro-batch"},
    {name: "recompute", values: c.recompute, text: i => texts.recompute[c.recompute[i]], words: true},
    {name: "order", values: c.order, text: i => texts.order[c.order[i]], words: true, title: "of the axes in the rank grid"},
    {name: "s/step", key: i => c.seconds[i], text: i => seconds(c.seconds[i]), always: true, both: true, title: "seconds of an iteration"},
    {name: "vs #1", key: i => c.seconds[i], text: i => i === 0 ? "" : percent(c.seconds[i] / first - 1), always: true, title: "time against the first"},
    {name: "tok/s", key: i => -c.seconds[i], text: i => Math.round(data.tokens / c.seconds[i]).toLocaleString("en"), always: true, title: "tokens per second and GPU"},
    {name: "GiB", key: i => c.mib[i], text: i => gib(c.mib[i]).toFixed(1), always: true, both: true, title: "memory of the fullest GPU"},
    {name: "layouts", key: i => c.members[i], text: i => c.members[i] || "–", always: true, title: "layouts of the family found to fit; P: another member of a family, on the Pareto line"}];
  const same = [];
  const columns = all.filter(column => {
    if (!column.values) return true;
    column.key = column.key || (i => column.values[i]);
    column.text = column.text || (i => column.values[i]);
    if (column.moe && !data.moe) return false;
    const texts = new Set();
    for (let i = 0; i < count && texts.size < 2; ++i) texts.add(String(column.text(i)));
    if (texts.size > 1 || column.always) return true;
    same.push(column.name + " " + column.text(0));
    return false;
  });
  const onlyWide = column => !column.narrow && !column.both && column.name !== "#";

  // --- What is shown, and in which order.
  const filters = [];
  let sortBy = columns[0], up = true, chosen = 0, rows = [], made = 0, shownCells = new Uint8Array(count);
  const distinct = values => Array.from(new Set(values)).sort((a, b) => a - b);
  const form = byId("filters"), head = document.querySelector("#families thead"), body = document.querySelector("#families tbody");
  const region = byId("rows"), more = byId("more");
  const option = (value, text) => make("option", {value}, text);
  for (const column of all.filter(each => each.values && columns.includes(each) && each.name !== "order" && each.name !== "dp")) {
    const select = make("select", {name: column.name}, option("", "any"));
    for (const value of distinct(column.values)) select.append(option(value, column.words ? column.text(column.values.indexOf(value)) : value));
    form.append(make("label", {}, column.name, select));
    filters.push(() => select.value === "" ? null : (wanted => i => column.values[i] === wanted)(Number(select.value)));
  }
  const most = make("input", {type: "number", name: "gib", min: 0, step: "any", placeholder: gib(data.limit).toFixed(0)});
  form.append(make("label", {}, "at most GiB", most));
  filters.push(() => most.value === "" ? null : (wanted => i => gib(c.mib[i]) <= wanted)(Number(most.value)));
  const pareto = make("input", {type: "checkbox", name: "pareto"});
  form.append(make("label", {className: "tick"}, pareto, "Pareto line only"));
  filters.push(() => pareto.checked ? i => c.pareto[i] === 1 : null);
  const sorter = make("select", {name: "sort"});
  columns.forEach((column, at) => { if (column.name !== "layout") sorter.append(option(at, column.name)); });
  form.append(make("label", {className: "narrow"}, "sort by", sorter), make("button", {type: "reset"}, "reset"));
  form.addEventListener("submit", event => event.preventDefault());
  form.addEventListener("input", event => event.target === sorter ? sort(columns[Number(sorter.value)], true) : show());
  form.addEventListener("reset", () => setTimeout(() => sort(columns[0], true), 0));

  const headers = columns.map(column => {
    const button = make("button", {type: "button", title: column.title || ""}, column.name);
    button.addEventListener("click", () => sort(column, sortBy === column ? !up : true));
    return make("th", {scope: "col", className: (column.words ? "words " : "") + (column.narrow ? "narrow" : onlyWide(column) ? "wide" : "")}, button);
  });
  head.append(make("tr", {}, ...headers));

  function sort(column, ascending) { sortBy = column; up = ascending; show(); }

  function show() {
    const tests = filters.map(filter => filter()).filter(Boolean);
    rows = [];
    shownCells.fill(0);
    for (let i = 0; i < count; ++i) {
      if (tests.every(test => test(i))) { rows.push(i); shownCells[i] = 1; }
    }
    const keys = Float64Array.from({length: count}, (_, i) => sortBy.key(i)), sign = up ? 1 : -1;
    rows.sort((a, b) => sign * (keys[a] - keys[b]) || a - b);
    headers.forEach((header, at) => {
      if (columns[at] === sortBy) header.setAttribute("aria-sort", up ? "ascending" : "descending");
      else header.removeAttribute("aria-sort");
      header.firstChild.textContent = columns[at].name + (columns[at] === sortBy ? (up ? " ▲" : " ▼") : "");
    });
    body.replaceChildren();
    made = 0;
    region.scrollTop = 0;
    addRows(60);
    byId("shown").textContent = rows.length.toLocaleString("en") + " of " + count.toLocaleString("en") + " points" +
      (same.length ? "; the same for all: " + same.join(", ") : "");
    draw();
  }

  function addRows(number) {
    const part = document.createDocumentFragment(), end = Math.min(rows.length, made + number);
    for (; made < end; ++made) {
      const i = rows[made], row = make("tr", {className: i === chosen ? "chosen" : ""});
      row.dataset.point = i;
      columns.forEach((column, at) => {
        const cell = make("td", {className: (column.words ? "words " : "") + (column.narrow ? "narrow" : onlyWide(column) ? "wide" : "") +
          (column.name === "GiB" && free(i) < 0 ? " over" : "")});
        cell.append(at === 0 ? make("button", {type: "button", className: "pick", ariaPressed: i === chosen ? "true" : "false"}, place(i)) : String(column.text(i)));
        row.append(cell);
      });
      part.append(row);
    }
    body.append(part);
    more.hidden = made >= rows.length;
  }
  more.addEventListener("click", () => addRows(500));
  region.addEventListener("scroll", () => { if (region.scrollTop + region.clientHeight > region.scrollHeight - 200) addRows(60); });
  body.addEventListener("click", event => {
    const row = event.target.closest("tr");
    if (row) choose(Number(row.dataset.point), true);
  });

  function choose(point, near) {
    chosen = point;
    for (const row of body.children) {
      const own = Number(row.dataset.point) === chosen;
      row.classList.toggle("chosen", own);
      row.querySelector(".pick").ariaPressed = own ? "true" : "false";
    }
    tell();
    draw();
    if (near && innerWidth <= 1000) byId("detail").scrollIntoView({block: "nearest"});
  }

  // --- The terms of the chosen point beside those of the first.
  function terms(title, names, mine, others, unit, digits, total, totalOthers) {
    const table = make("table", {}), largest = Math.max(...mine, 1e-12);
    table.append(make("tr", {}, make("th", {}, title), make("th", {}), make("th", {}, unit), make("th", {}, chosen === 0 ? "" : "− #1")));
    const difference = value => chosen === 0 ? "" : Math.abs(value) < 0.5 * 10 ** -digits ? "0" : (value > 0 ? "+" : "−") + Math.abs(value).toFixed(digits);
    names.forEach(([name, style], at) => {
      if (mine[at].toFixed(digits) === (0).toFixed(digits) && others[at].toFixed(digits) === (0).toFixed(digits)) return;
      const bar = make("i", {});
      bar.style.background = "var(--" + style + ")";
      bar.style.width = Math.max(0, 100 * mine[at] / largest) + "%";
      table.append(make("tr", {}, make("td", {}, name), make("td", {className: "amount"}, bar), make("td", {}, mine[at].toFixed(digits)), make("td", {}, difference(mine[at] - others[at]))));
    });
    table.append(make("tr", {className: "sum"}, make("td", {}, "all"), make("td", {}), make("td", {}, total.toFixed(digits)), make("td", {}, difference(total - totalOthers))));
    return table;
  }

  function tell() {
    const i = chosen, box = byId("detail"), sum = list => list.reduce((a, b) => a + b, 0);
    const time = point => c.time[point].map(share => share * c.seconds[point] / 1e4), memory = point => c.memory[point].map(gib);
    const digits = c.seconds[i] >= 10 ? 2 : c.seconds[i] >= 0.1 ? 3 : 5;
    box.replaceChildren(make("h3", {}, place(i) + "  " + words(i)),
      make("p", {}, seconds(c.seconds[i]) + " s per iteration" + (i ? ", " + percent(c.seconds[i] / first - 1) + " against #1" : ", the first")),
      make("p", {className: free(i) < 0 ? "over" : ""}, gib(c.mib[i]).toFixed(1) + " of " + gib(data.limit).toFixed(1) + " GiB, " +
        (free(i) < 0 ? "does not fit with its allocator replayed" : free(i).toFixed(1) + " GiB free")),
      make("p", {className: "faint"}, (c.members[i] ? c.members[i].toLocaleString("en") + (c.members[i] === 1 ? " layout of this family was found to fit" : " layouts of this family were found to fit") : "on the Pareto line, not the fastest of its family") +
        (c.replayed[i] ? "" : "; time and memory as the search estimates them")),
      terms("time", data.timeTerms, time(i), time(0), "s", digits, c.seconds[i], c.seconds[0]),
      terms("memory", data.memoryTerms, memory(i), memory(0), "GiB", 2, sum(memory(i)), sum(memory(0))));
    if (data.moe) box.append(make("p", {className: "faint"}, "Memory terms: with even routing; the peak above at p99 of the routing skew."));
    const flags = "--tp " + c.tp[i] + " --cp " + c.cp[i] + (data.moe ? " --ep " + c.ep[i] + " --etp " + c.etp[i] : "") + " --pp " + c.pp[i] +
      (c.pp[i] > 1 ? " --vpp " + c.vpp[i] : "") + " --micro-batch " + c.mbs[i] + (c.tp[i] > 1 ? " --sequence-parallel " + (c.sp[i] ? "on" : "off") : "") +
      (c.cp[i] > 1 ? " --cp-comm-type " + texts.comm[c.comm[i]] : "") + " " + texts.flags[c.flags[i]] + " --order " + texts.order[c.order[i]] +
      texts.stages[c.stages[i]];
    box.append(make("h4", {}, "Its options, for plan or simulate"), make("code", {}, flags));
    if (c.rank[i]) box.append(make("p", {className: "faint"}, "In the ranking of all layouts: --explain " + c.rank[i] + ", --pick " + c.rank[i]));
    const whole = byId("whole-" + (i + 1));
    if (whole) {
      const button = make("button", {type: "button"}, "whole simulation ↓");
      button.addEventListener("click", () => { whole.open = true; whole.scrollIntoView({behavior: "smooth"}); });
      box.append(make("p", {}, button));
    }
  }

  // --- The picture.
  const canvas = byId("plot"), context = canvas.getContext("2d"), tip = byId("tip");
  const colourings = [["tp", c.tp], ["pp", c.pp], ["ep", c.ep], ["recompute", c.recompute]].filter(([name, values]) =>
    (name === "tp" || distinct(values).length > 1) && (name !== "ep" || data.moe));
  let colouring = colourings[0], palette = [], colourOf = [];
  colourings.forEach((each, at) => {
    const input = make("input", {type: "radio", name: "colour", checked: at === 0});
    input.addEventListener("change", () => { colouring = each; recolour(); draw(); });
    byId("colours").append(make("label", {}, input, " " + each[0]));
  });
  function recolour() {
    const [name, values] = colouring, groups = distinct(values);
    const steps = Math.max(1, groups.length - 1);
    palette = groups.map((_, at) => "hsl(" + Math.round(225 - 215 * at / steps) + " 62% " + (50 - 6 * Math.sin(Math.PI * at / steps)).toFixed(0) + "%)");
    const place = new Map(groups.map((value, at) => [value, at]));
    colourOf = values.map(value => place.get(value));
    byId("plot-legend").replaceChildren(...groups.map((value, at) => {
      const mark = make("i", {});
      mark.style.background = palette[at];
      return make("span", {}, mark, name === "recompute" ? texts.recompute[value] : name + " " + value);
    }));
  }

  const left = 58, right = 14, top = 14, bottom = 42;
  const fold = (list, pick, start) => { let found = start; for (const value of list) found = pick(found, value); return found; };
  const slowest = fold(c.seconds, Math.max, 0), fastest = fold(c.seconds, Math.min, Infinity);
  const smallest = gib(fold(c.mib, Math.min, Infinity)), largest = Math.max(gib(fold(c.mib, Math.max, 0)), gib(data.limit));
  const logarithmic = slowest / fastest > 4;
  const low = logarithmic ? fastest / 1.08 : fastest - 0.05 * (slowest - fastest) - 1e-9, high = logarithmic ? slowest * 1.08 : slowest + 0.05 * (slowest - fastest) + 1e-9;
  const from = Math.max(0, smallest - 0.06 * (largest - smallest)), to = largest + 0.03 * (largest - from) + 1e-9;
  let width = 0, height = 0;
  const x = value => left + (width - left - right) * (value - from) / (to - from);
  const y = value => height - bottom - (height - top - bottom) * (logarithmic ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low));
  function ticks(begin, end, log) {
    if (log) {
      const found = [], many = end / begin > 200;
      for (let power = Math.floor(Math.log10(begin)); 10 ** power <= end; ++power)
        for (const factor of many ? [1] : end / begin > 30 ? [1, 3] : [1, 2, 3, 5, 7]) {
          const at = factor * 10 ** power;
          if (at >= begin && at <= end) found.push(at);
        }
      return found;
    }
    let step = 10 ** Math.floor(Math.log10((end - begin) / 4));
    for (const factor of [2, 2.5, 2]) if ((end - begin) / step > 7) step *= factor;
    const found = [];
    for (let at = Math.ceil(begin / step) * step; at <= end; at += step) found.push(Number(at.toPrecision(12)));
    return found;
  }
  const line = [];
  for (let i = 0; i < count; ++i) if (c.pareto[i]) line.push(i);
  line.sort((a, b) => c.seconds[a] - c.seconds[b]);

  function draw() {
    const box = canvas.getBoundingClientRect(), scale = window.devicePixelRatio || 1;
    if (!box.width) return;
    width = box.width;
    height = box.height;
    if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale);
    if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale);
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, height);
    const style = getComputedStyle(document.documentElement), colour = name => style.getPropertyValue("--" + name).trim();
    const ink = colour("ink"), faint = colour("faint"), rule = colour("rule"), limit = colour("limit");
    const stroke = (kind, x1, y1, x2, y2) => { context.strokeStyle = kind; context.beginPath(); context.moveTo(x1, y1); context.lineTo(x2, y2); context.stroke(); };
    context.font = "12px system-ui, sans-serif";
    context.lineWidth = 1;
    context.fillStyle = faint;
    context.textAlign = "right";
    context.textBaseline = "middle";
    for (const at of ticks(low, high, logarithmic)) { stroke(rule, left, y(at), width - right, y(at)); context.fillText(Number(at.toPrecision(6)) + " s", left - 6, y(at)); }
    context.textAlign = "center";
    context.textBaseline = "top";
    for (const at of ticks(from, to, false)) { stroke(rule, x(at), height - bottom, x(at), height - bottom + 4); context.fillText(at, x(at), height - bottom + 7); }
    stroke(rule, left, height - bottom, width - right, height - bottom);
    context.fillText("GiB on the fullest GPU" + (data.moe ? ", at p99 of the routing skew" : ""), left + (width - left - right) / 2, height - 16);
    const mark = (value, text, line) => {
      context.setLineDash([7, 4]);
      stroke(limit, x(value), top, x(value), height - bottom);
      context.setLineDash([]);
      context.fillStyle = limit;
      context.textAlign = "right";
      context.fillText(text, x(value) - 5, top + 15 * line);
    };
    if (data.searched < data.limit) mark(gib(data.searched), "headroom " + gib(data.limit - data.searched).toFixed(1) + " GiB", 1);
    mark(gib(data.limit), "limit " + gib(data.limit).toFixed(1) + " GiB", 0);
    // The Pareto line in steps: what fits into less memory than a corner is at least as slow.
    if (line.length) {
      context.strokeStyle = ink;
      context.globalAlpha = 0.55;
      context.lineWidth = 1.5;
      context.beginPath();
      line.forEach((i, at) => {
        if (at === 0) context.moveTo(x(gib(data.limit)), y(c.seconds[i]));
        else context.lineTo(x(gib(c.mib[line[at - 1]])), y(c.seconds[i]));
        context.lineTo(x(gib(c.mib[i])), y(c.seconds[i]));
      });
      context.lineTo(x(gib(c.mib[line[line.length - 1]])), top);
      context.stroke();
      context.globalAlpha = 1;
    }
    const size = count > 3000 ? 1.7 : count > 600 ? 2.5 : 3.8;
    const dot = i => { const px = x(gib(c.mib[i])), py = y(c.seconds[i]); context.moveTo(px + size, py); context.arc(px, py, size, 0, 2 * Math.PI); };
    context.fillStyle = rule;
    context.beginPath();
    for (let i = 0; i < count; ++i) if (!shownCells[i]) dot(i);
    context.fill();
    palette.forEach((kind, group) => {
      context.fillStyle = context.strokeStyle = kind;
      context.lineWidth = 1.4;
      context.beginPath();
      for (let i = 0; i < count; ++i) if (shownCells[i] && colourOf[i] === group && c.members[i]) dot(i);
      context.fill();
      context.beginPath();
      for (let i = 0; i < count; ++i) if (shownCells[i] && colourOf[i] === group && !c.members[i]) dot(i);
      context.stroke();
    });
    const ring = (i, radius, wide) => {
      context.strokeStyle = ink;
      context.lineWidth = wide;
      context.beginPath();
      context.arc(x(gib(c.mib[i])), y(c.seconds[i]), radius, 0, 2 * Math.PI);
      context.stroke();
    };
    ring(0, size + 2, 1.2);
    ring(chosen, size + 5, 2);
    context.fillStyle = ink;
    context.textAlign = x(gib(c.mib[0])) > width - 60 ? "right" : "left";
    context.textBaseline = "bottom";
    context.fillText("#1", x(gib(c.mib[0])) + (context.textAlign === "right" ? -9 : 9), y(c.seconds[0]) - 3);
  }

  function nearest(event) {
    const box = canvas.getBoundingClientRect(), px = event.clientX - box.left, py = event.clientY - box.top;
    let found = -1, least = 22 * 22;
    for (const i of rows) {
      const distance = (x(gib(c.mib[i])) - px) ** 2 + (y(c.seconds[i]) - py) ** 2;
      if (distance < least) { least = distance; found = i; }
    }
    return [found, px, py];
  }
  canvas.addEventListener("pointermove", event => {
    const [i, px, py] = nearest(event);
    if (i < 0) { tip.style.visibility = "hidden"; return; }
    tip.textContent = place(i) + "  " + words(i) + "\n" + seconds(c.seconds[i]) + " s (" + percent(c.seconds[i] / first - 1) + "), " + gib(c.mib[i]).toFixed(1) + " GiB";
    tip.style.left = Math.max(0, Math.min(px + 14, width - tip.offsetWidth)) + "px";
    tip.style.top = (py + 14 + tip.offsetHeight > height ? py - 10 - tip.offsetHeight : py + 14) + "px";
    tip.style.visibility = "visible";
  });
  canvas.addEventListener("pointerleave", () => { tip.style.visibility = "hidden"; });
  canvas.addEventListener("click", event => { const [i] = nearest(event); if (i >= 0) choose(i, true); });
  canvas.addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1}[event.key];
    if (!step || !rows.length) return;
    event.preventDefault();
    choose(rows[Math.max(0, Math.min(rows.length - 1, rows.indexOf(chosen) + step))], false);
  });
  new ResizeObserver(draw).observe(canvas);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

  // --- Whole simulations, each made when it is opened.
  for (const whole of document.querySelectorAll("details.whole")) {
    whole.addEventListener("toggle", () => {
      if (!whole.open || whole.querySelector("iframe")) return;
      const frame = make("iframe", {title: whole.querySelector("summary").textContent});
      const fit = () => { const inside = frame.contentDocument; if (inside && inside.body) frame.style.height = inside.documentElement.offsetHeight + 40 + "px"; };
      frame.addEventListener("load", () => { fit(); new ResizeObserver(fit).observe(frame.contentDocument.body); });
      frame.srcdoc = JSON.parse(byId("page-" + whole.id.slice(6)).textContent);
      whole.append(frame);
    });
  }

  byId("points-text").textContent = families.toLocaleString("en") + (families === 1 ? " family" : " families") + " of layouts with equal " +
    (data.moe ? "tp, cp, ep, etp, pp" : "tp, cp, pp") + " and recompute, each by its fastest member" + (count > families ? "; hollow, P: others on the Pareto line" : "") + ". The line: no layout is both faster and smaller.";
  byId("view").hidden = false;
  recolour();
  tell();
  show();
})();
