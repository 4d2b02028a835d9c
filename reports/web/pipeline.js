(() => {
  "use strict";
  const panels = JSON.parse(document.getElementById("passes").textContent);
  const names = ["forward", "backward", "input gradient", "weight gradient"];
  const seconds = s => s >= 1 ? s.toFixed(3) + " s" : s >= 1e-3 ? (s * 1e3).toFixed(3) + " ms" : (s * 1e6).toFixed(1) + " µs";
  panels.forEach((panel, number) => {
    const svg = document.getElementById("pipeline-" + number), bubble = svg.parentNode.querySelector(".bubble");
    const hide = () => { bubble.style.visibility = "hidden"; };
    svg.addEventListener("pointerleave", hide);
    svg.addEventListener("pointermove", event => {
      const box = svg.getBoundingClientRect(), scale = panel.width / box.width;
      const x = (event.clientX - box.left) * scale, y = (event.clientY - box.top) * scale;
      const at = panel.begin + (x - panel.left) / panel.plot * (panel.end - panel.begin);
      const row = panel.rows[Math.floor(y / panel.row)];
      const upper = y % panel.row < panel.row / 2;  // the forward's half of a pair
      const pass = row && row.slice(1).find(p => p[0] <= at && at < p[1] && (!p[5] || (p[2] === 0) === upper));
      if (!pass) return hide();
      bubble.textContent = "stage " + row[0] + ": " + names[pass[2]] + " of microbatch " + pass[3] + ", chunk " + pass[4] + ": " +
        seconds(pass[1] - pass[0]) + " from " + seconds(pass[0]) + (pass[5] ? ", with a " + names[1 - pass[2]] : "");
      bubble.style.left = Math.min(event.clientX - box.left + 12, Math.max(0, box.width - bubble.offsetWidth)) + "px";
      bubble.style.top = (event.clientY - box.top + 16) + "px";
      bubble.style.visibility = "visible";
    });
  });
})();
