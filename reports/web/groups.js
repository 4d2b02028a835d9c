(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("groups").textContent);
  const cells = Array.from(document.querySelectorAll("#ranks .rank")), text = document.getElementById("rank-text");
  const start = text.textContent;
  const members = (axis, rank) => {
    const coordinate = Math.floor(rank / axis[2]) % axis[1], first = rank - coordinate * axis[2];
    return Array.from({length: axis[1]}, (_, i) => first + i * axis[2]);
  };
  const short = list => list.length <= 10 ? list.join(" ") : list.slice(0, 9).join(" ") + " … " + list[list.length - 1];
  let chosen = 0;
  document.querySelectorAll("input[name=axis]").forEach((input, i) => input.addEventListener("change", () => { chosen = i; }));
  const svg = document.getElementById("ranks");
  svg.addEventListener("pointerover", event => {
    const rank = cells.indexOf(event.target);
    if (rank < 0) return;
    const own = new Set(members(data[chosen], rank));
    cells.forEach((cell, i) => { cell.classList.toggle("off", !own.has(i)); cell.classList.toggle("own", i === rank); });
    text.textContent = "rank " + rank + ": " + data.map(axis => axis[0] + " " + short(members(axis, rank))).join("; ");
  });
  svg.addEventListener("pointerleave", () => {
    cells.forEach(cell => cell.classList.remove("off", "own"));
    text.textContent = start;
  });
})();
