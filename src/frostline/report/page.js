"use strict";
// Scrubbers: tokens on the circle or the sphere through depth. Sliders move them; so do arrow keys and Play.
for (const figure of document.querySelectorAll(".scrubber")) {
  const data = JSON.parse(figure.querySelector("script").textContent);
  const bytes = Uint8Array.from(atob(data.tokens), (c) => c.charCodeAt(0));
  const tokens = new Int16Array(bytes.buffer);
  const [frames, count, dimension] = data.shape;
  const canvas = figure.querySelector("canvas");
  const time = figure.querySelector(".time");
  const turn = figure.querySelector(".turn");
  const output = figure.querySelector("output");
  const play = figure.querySelector(".play");
  const pen = canvas.getContext("2d");
  const middle = canvas.width / 2;
  const radius = 0.9 * middle;
  let timer = null;

  // Seen from the side, a little from above: the limit's axis lies across, and "turn" walks around the upright one.
  function place(x, y, z) {
    if (dimension === 2) return [x, y, 1];
    const angle = (turn.value * Math.PI) / 180;
    const across = x * Math.cos(angle) - y * Math.sin(angle);
    const away = x * Math.sin(angle) + y * Math.cos(angle);
    const tilt = 0.35;
    return [across, z * Math.cos(tilt) + away * Math.sin(tilt), z * Math.sin(tilt) - away * Math.cos(tilt)];
  }

  function dot(x, y, size) {
    pen.beginPath();
    pen.arc(middle + radius * x, middle - radius * y, size, 0, 2 * Math.PI);
  }

  function draw() {
    const style = getComputedStyle(document.documentElement);
    const colour = (name) => style.getPropertyValue(name).trim();
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.strokeStyle = colour("--faint");
    pen.lineWidth = 2;
    dot(0, 0, radius);
    pen.stroke();
    const frame = Number(time.value);
    const start = frame * count * dimension;
    const points = [];
    for (let i = 0; i < count; i++) {
      const at = start + i * dimension;
      const z = dimension === 3 ? tokens[at + 2] / 32767 : 0;
      points.push([...place(tokens[at] / 32767, tokens[at + 1] / 32767, z), data.groups[i]]);
    }
    points.sort((a, b) => a[2] - b[2]);
    for (const [x, y, depth, group] of points) {
      pen.globalAlpha = depth < 0 ? 0.25 : 0.8;
      pen.fillStyle = colour(group ? "--warm" : "--cold");
      dot(x, y, 5);
      pen.fill();
    }
    pen.globalAlpha = 1;
    pen.strokeStyle = colour("--ink");
    for (const mark of data.marks) {
      const [x, y] = place(mark[0], mark[1], dimension === 3 ? mark[2] : 0);
      dot(x, y, 14);
      pen.stroke();
    }
    const words = `t = ${data.times[frame].toFixed(2)}, ${data.level_name}: ${data.level[frame].toPrecision(3)}`;
    output.textContent = words;
    time.setAttribute("aria-valuetext", words);
  }

  function stop() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }

  play.addEventListener("click", () => {
    if (timer !== null) return stop();
    if (Number(time.value) === frames - 1) time.value = 0;
    play.textContent = "Pause";
    timer = setInterval(() => {
      if (Number(time.value) >= frames - 1) return stop();
      time.value = Number(time.value) + 1;
      draw();
    }, 60);
  });
  time.addEventListener("input", draw);
  if (turn) turn.addEventListener("input", draw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
}
