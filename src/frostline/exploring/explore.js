"use strict";
// The setting is the address; a run is a stream of frames, kept here and played; predictions come beside it.
const at = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const SHOWN_PER_SECOND = 36, WAIT = 180;
// `run` is what is shown, `coming` the last one that was asked for: the same, unless it was refused or has just begun.
let defaults = {}, setting = {}, run = null, coming = null, view = null, playing = true, timer = 0, presets = [];

function put(name, text, attributes = {}) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
function mark(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
const few = (x, digits = 3) => x === null || x === undefined ? "–" : Number(x.toPrecision(digits)).toString();
const many = x => x.toLocaleString("en");

// ---- The setting: address, form -------------------------------------------------------------------------------------

const whole = asked => ({ ...defaults, ...Object.fromEntries(new URLSearchParams(asked)) });
function query() {
  const asked = new URLSearchParams();
  for (const [key, value] of Object.entries(setting)) if (value !== defaults[key]) asked.set(key, value);
  return asked.toString().replaceAll("%2C", ",").replaceAll("%3B", ";");
}
let writing = 0;
function remember() {
  const asked = query(), look = view ? place() : "";
  const address = `${location.pathname}${asked ? `?${asked}` : ""}${look ? `#${look}` : ""}`;
  at("link").href = address;
  at("spec").href = `spec.toml?${asked}`;
  at("zip").href = `run.zip?${asked}`;
  // Browsers refuse to have the address changed too often.
  clearTimeout(writing);
  writing = setTimeout(() => { try { history.replaceState(null, "", address); } catch { /* the link has it */ } }, 250);
}
function place() {
  // What the picture looks like beyond its setting: the layer where it was paused, and how the sphere is turned.
  const look = new URLSearchParams();
  if (new URLSearchParams(location.hash.slice(1)).has("flat")) look.set("flat", "1");
  if (run && !playing) look.set("at", run.shown);
  if (view.zoom !== 1) look.set("zoom", view.zoom.toFixed(3));
  if (view.shift.some(Boolean)) look.set("shift", view.shift.map(x => x.toFixed(3)).join(","));
  if (view.moved) look.set("turn", Array.from(view.matrix, x => x.toFixed(4)).join(","));
  return look.toString().replaceAll("%2C", ",");
}

const aside = {};
function fitted(name, d) {
  // A typed matrix in another dimension: cut, or with the usual value on the new place of its diagonal.
  const rows = setting[name].split(";").map(row => row.split(","));
  return Array.from({ length: d }, (_, i) => Array.from({ length: d }, (_, j) => rows[i]?.[j] ?? (i === j ? defaults[name].split(",")[i] || "1" : "0")).join(",")).join(";");
}
function fillMatrix(box) {
  const name = box.dataset.matrix, d = Number(setting.d), typed = setting[name].includes(";");
  const rest = [box.querySelector("legend")];
  const toggle = put("button", typed ? "use sliders" : "type it", { type: "button", class: "small" });
  toggle.addEventListener("click", async () => {
    const now = { [name]: setting[name], [`${name}turn`]: setting[`${name}turn`] }, asked = query();
    const unchanged = kept => Object.entries(kept).every(([key, value]) => setting[key] === value);
    let next = { [name]: defaults[name], [`${name}turn`]: "0,0,0" };
    // Two clicks with nothing between them change nothing.
    if (aside[name] && unchanged(aside[name].to)) next = aside[name].from;
    else if (!typed) {
      try { next = { ...now, [name]: (await (await reach(`rows/${name}?${asked}`)).json()).rows }; } catch (error) { trouble(error.message); return; }
      // A slider was moved while the server made the rows.
      if (asked !== query()) return;
    }
    aside[name] = { from: now, to: next };
    change(next);
  });
  rest.push(toggle);
  if (typed) {
    const area = put("textarea", undefined, { rows: d, "aria-label": `${name}, row by row`, spellcheck: "false" });
    area.value = setting[name].split(";").map(row => row.split(",").join("  ")).join("\n");
    area.addEventListener("input", () => {
      // As Python, Matlab or a spreadsheet would write it.
      const rows = area.value.replace(/\]\s*,/g, "\n").replace(/[[\](){}]/g, " ").split(/\n|;/).map(row => row.split(/[\s,]+/).filter(Boolean).join(",")).filter(Boolean);
      change({ [name]: rows.join(";") + (rows.length === 1 ? ";" : "") }, box);
    });
    rest.push(area);
  } else {
    const values = setting[name].split(","), turn = setting[`${name}turn`].split(",");
    const slider = (label, list, k, key, low, high, step) => {
      const line = put("label", label), pair = put("span", undefined, { class: "pair" });
      const range = put("input", undefined, { type: "range", min: low, max: high, step, "aria-label": `${name}: ${label}` });
      const box = put("input", undefined, { inputmode: "decimal", size: 6, "aria-label": `${name}: ${label}, as a number` });
      range.value = list[k] ?? 0; box.value = list[k] ?? "";
      const tell = (from, to) => from.addEventListener("input", () => { const number = from.value.trim().replace(",", "."); to.value = number; list[k] = number; change({ [key]: list.join(",") }, line.closest("fieldset")); });
      tell(range, box); tell(box, range);
      pair.append(range, box); line.append(pair);
      return line;
    };
    for (let k = 0; k < d; k++) rest.push(slider(`value ${k + 1}`, values, k, name, -2, 2, 0.01));
    const turned = (label, k, reach, meaning) => { const line = slider(label, turn, k, `${name}turn`, -reach, reach, 1); line.title = meaning; rest.push(line); };
    turned("angle °", 0, 90, "turns the first eigenvector towards the second axis");
    if (d === 3) turned("tilt °", 1, 90, "turns the first eigenvector towards the third axis");
    turned("twist °", 2, 180, "turns what goes out against what comes in: the matrix is no longer symmetric");
  }
  const held = box.contains(document.activeElement) && document.activeElement.matches("button");
  box.replaceChildren(...rest);
  if (held) toggle.focus();
}

function fillForm(but) {
  for (const input of at("setting").querySelectorAll("[name]")) {
    if (input === document.activeElement) continue;
    if (input.type === "checkbox") input.checked = setting[input.name] === "1"; else input.value = setting[input.name];
  }
  for (const range of at("setting").querySelectorAll("[data-log]")) {
    if (range !== document.activeElement) range.value = Math.log10(Number(setting[range.dataset.log]) || 1);
    range.setAttribute("aria-valuetext", setting[range.dataset.log]);
  }
  for (const box of at("setting").querySelectorAll(".matrix")) if (box !== but) fillMatrix(box);
  for (const line of at("setting").querySelectorAll("[data-for]")) line.hidden = !line.dataset.for.split(" ").includes(setting.tokens);
  at("setting").querySelector("[data-step]").hidden = setting.stepper === "adaptive";
  const known = presets.find(one => Object.entries(whole(one.setting)).every(([key, value]) => setting[key] === value));
  at("presets").value = known ? known.name : "";
  at("watch").textContent = known ? known.watch : "";
  remember();
}

function change(what, but) {
  Object.assign(setting, what);
  // What a broken link brought along was refused once; that is enough.
  for (const key of Object.keys(setting)) if (!Object.hasOwn(defaults, key)) delete setting[key];
  fillForm(but);
  clearTimeout(timer);
  // Who has paused at a time looks at that time of the next run, too.
  const moment = !playing && run?.frames.length ? { moment: run.frames[run.shown].t } : "";
  timer = setTimeout(() => start(new URLSearchParams(moment)), WAIT);
}

// ---- A run: its stream, its frames ----------------------------------------------------------------------------------

function trouble(says) {
  at("trouble").hidden = !says;
  at("trouble").textContent = says ?? "";
}

async function* messages(answer) {
  const reader = answer.body.getReader();
  let held = new Uint8Array(0);
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    if (held.length) {
      const joined = new Uint8Array(held.length + value.length);
      joined.set(held); joined.set(value, held.length); held = joined;
    } else held = value;
    for (let from = 0; ;) {
      if (held.length - from < 8) { held = held.subarray(from); break; }
      const sizes = new DataView(held.buffer, held.byteOffset + from, 8);
      const header = sizes.getUint32(0, true), block = sizes.getUint32(4, true);
      if (held.length - from < 8 + header + block) { held = held.subarray(from); break; }
      const facts = JSON.parse(new TextDecoder().decode(held.subarray(from + 8, from + 8 + header)));
      // A copy: typed arrays begin at whole words, and the stream's buffer can go.
      let inside = from + 8 + header;
      const arrays = facts.arrays.map(({ dtype, shape }) => {
        const kind = { int16: Int16Array, float32: Float32Array }[dtype], count = shape.reduce((a, b) => a * b, 1);
        const bytes = held.slice(inside, inside + count * kind.BYTES_PER_ELEMENT);
        inside += bytes.length;
        return new kind(bytes.buffer);
      });
      from += 8 + header + block;
      yield [facts, arrays];
    }
  }
}

async function reach(path, options) {
  let answer;
  try { answer = await fetch(path, options); } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is frostline explore still running? Start it again and reload this page.");
  }
  if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `The server answered ${answer.status}.`);
  return answer;
}

function begin(begun, opening, start, goals) {
  const d = opening.dimension;
  const places = distinct(goals, d, 400);
  run = begun;
  at("words").replaceChildren();
  begun.theory?.then(predicted => predicted && begun === run && theory(predicted));
  Object.assign(run, { opening, d, goals, places, colours: coloursOf(goals, start, d), frames: [], shown: 0, ready: true });
  view.setDimension(d);
  at("scrub").max = opening.times.length - 1;
  const each = Math.round(opening.tokens / opening.drawn);
  const few = places.length / d <= 12;
  at("legend").textContent = [
    places.length ? `${few ? "Rings" : "Small dark dots"}: the predicted limit. Colour: where a token is sent${opening.without_limit ? ` (grey: nowhere, ${many(opening.without_limit)} of them)` : ""}.` : "No limit to show. Colour: where a token began.",
    places.length / d === 2 ? "%: tokens within 0.3 rad." : "", d === 3 ? "Tokens on the far side are pale; drag to turn." : "", each > 1 ? `One token in ${each} is drawn.` : "",
    !run.saved && opening.tokens !== Number(setting.n) ? `${many(opening.tokens)} tokens, not ${setting.n}: quadrature and antipodes come in whole sets.` : "",
    view.renderer.name === "WebGL" ? "" : "Drawn without WebGL."].filter(Boolean).join(" ");
  at("kind").textContent = opening.exact ? "It is exact: the limit is two points." : opening.no_distance ? opening.no_distance
    : "The line pairs each token with its own limit: an upper bound. Bars: the bracket that optimal transport guarantees.";
  words({ Limit: opening.limit ? opening.limit.meaning : "A stack of layers has no single limit.",
    "Bound (eq. 11)": opening.bound.none_because ?? opening.bound.says });
}

async function start(look = new URLSearchParams()) {
  coming?.stop.abort();
  const begun = coming = newRun();
  const asked = query();
  begun.adaptive = setting.stepper === "adaptive";
  try {
    // Until it is known to be possible, the picture stays what it was.
    const answer = await reach(`run?${asked}`, { signal: begun.stop.signal });
    trouble(null);
    // What it refuses, the run refuses as well, and says so.
    begun.theory = reach(`theory?${asked}`, { signal: begun.stop.signal }).then(reply => reply.json()).catch(() => null);
    await play(answer, begun, look);
  } catch (error) {
    if (error.name !== "AbortError" && begun === coming) lost(error);
  }
}
const newRun = () => ({ stop: new AbortController(), frames: [], brackets: [], phases: null, shown: 0, ready: false, drawn: 0, since: performance.now() });

function lost(error) {
  trouble(error instanceof TypeError ? "The server has gone away. Start frostline explore again and reload this page." : error.message);
  if (coming) coming.gone = true;
  at("speed").textContent = "";
}

async function play(answer, begun, look) {
  let ended = false, last = 0;
  for await (const [facts, arrays] of messages(answer)) {
    if (begun !== coming) return;
    if (facts.kind === "error") throw new Error(facts.says);
    if (facts.kind === "preparing") at("speed").textContent = "working out the limit …";
    if (facts.kind === "working") { begun.doing = `${many(facts.steps)} steps, t = ${few(facts.t)}`; at("speed").textContent = begun.doing; }
    if (facts.kind === "opening") begin(begun, facts, ...arrays);
    if (facts.kind === "frame") {
      begun.frames.push({ ...facts, positions: arrays[0] });
      begun.speed = facts.per_second;
      const number = begun.frames.length - 1;
      const there = look.get("at") ? number === Math.min(Number(look.get("at")), last) : look.has("moment") && (facts.t >= Number(look.get("moment")) - 1e-9 || number === last);
      if (there && !begun.found) { begun.found = true; pause(true); go(number); remember(); }
    }
    if (facts.kind === "opening") last = facts.times.length - 1;
    if (facts.kind === "curve") { begun.curve = facts.times.map((t, k) => ({ t, w: facts.values[k] })); words(facts.words); }
    if (facts.kind === "phases") { begun.phases = facts; words({ Phases: facts.meaning }); }
    if (facts.kind === "bracket") begun.brackets.push(facts);
    if (facts.kind === "end") { ended = true; begun.ended = facts.says; words({ "How it ended": facts.says }); }
    begun.changed = true;
  }
  if (!ended && begun === coming) throw new Error("The stream ended early: the server was stopped. Start frostline explore again and reload this page.");
}

function theory(predicted) {
  const layer = predicted.layers[0], terminal = layer.terminal;
  const coarse = setting.stepper !== "adaptive" && Number(setting.step) > 0.5 ? ` But steps of ${setting.step} are far from the continuous time it speaks of.` : "";
  run.tube = layer.tube.times && !layer.tube.empty ? layer.tube : null;
  run.changed = true;
  words({ Regime: predicted.regime.meaning + coarse, "Tube (eq. 20)": layer.tube.none_because ?? layer.tube.meaning, Rates: layer.rates.none_because ?? layer.rates.meaning,
    "Terminal phase": terminal.none_because ?? terminal.meaning });
}

const ORDER = ["Tube (eq. 20)", "Regime", "Limit", "Phases", "Terminal phase", "Rates", "Bound (eq. 11)", "How it ended"];
function words(sentences) {
  for (const [name, text] of Object.entries(sentences)) {
    let row = [...at("words").children].find(other => other.dataset.name === name);
    if (!row) {
      row = put("div"); row.dataset.name = name;
      row.append(put("dt", name), put("dd"));
      const after = [...at("words").children].find(other => ORDER.indexOf(other.dataset.name) > ORDER.indexOf(name));
      at("words").insertBefore(row, after ?? null);
    }
    row.lastChild.replaceChildren(...text.split("\n").map(line => put("p", line.charAt(0).toUpperCase() + line.slice(1))));
  }
}

// ---- The picture ----------------------------------------------------------------------------------------------------

function paint(view, over) {
  if (!run?.ready || !run.frames.length) return;
  const frame = run.frames[run.shown], n = frame.positions.length / run.d;
  const size = Math.min(9, Math.max(2.5, 260 / Math.sqrt(n)));
  const rings = run.places.length / run.d <= 12;
  if (!rings) view.renderer.points(view, run.places, run.d, dark(run.places.length / run.d), 3);
  view.renderer.points(view, frame.positions, run.d, run.colours, size);
  if (rings) for (let k = 0; k < run.places.length / run.d; k++) view.ring(over, run.places, run.d, k, 11, css("--ink"));
  if (run.places.length / run.d <= 2) shares(view, over, frame);
  run.drawn++;
}
function shares(view, over, frame) {
  // A tight cluster is one dot, whatever its mass: say how much of the tokens is within 0.3 rad.
  const ratio = window.devicePixelRatio || 1;
  over.font = `${13 * ratio}px system-ui, sans-serif`; over.fillStyle = css("--ink"); over.textAlign = "center";
  for (let k = 0; k < run.places.length / run.d; k++) {
    const [x, y] = view.onScreen(run.places, run.d, k);
    over.fillText(near(frame, k), x, y - 17 * ratio);
  }
}
function near(frame, k) {
  let count = 0;
  const n = frame.positions.length / run.d;
  for (let j = 0; j < n; j++) {
    let dot = 0;
    for (let c = 0; c < run.d; c++) dot += frame.positions[run.d * j + c] * run.places[run.d * k + c];
    if (dot >= FINEST * Math.cos(0.3)) count++;
  }
  return `${Math.round(100 * count / n)} %`;
}
function dark(count) {
  const ink = matchMedia("(prefers-color-scheme: dark)").matches ? 235 : 20;
  return Uint8Array.from({ length: 4 * count }, (_, k) => k % 4 === 3 ? 200 : ink);
}

const LEFT = 62, RIGHT = 608, TOP = 14, BOTTOM = 282;
function axes() {
  const last = run.opening.times.at(-1) || 1, seen = (run.curve ?? run.frames).map(one => one.w).filter(w => w > 0);
  const low = Math.min(0.5, ...seen, ...run.brackets.map(one => one.lower).filter(w => w > 0));
  const least = Math.max(-9, Math.floor(Math.log10(Math.max(low, 1e-9)))), most = Math.log10(2.6);
  return { x: t => LEFT + (RIGHT - LEFT) * t / last, y: w => TOP + (BOTTOM - TOP) * Math.min(1.02, Math.max(-0.02, (most - Math.log10(Math.max(w, 1e-12))) / (most - least))), last, least };
}
function chart() {
  const { opening, frames } = run, { x, y, last, least } = axes(), made = [];
  const [ink, soft, faint, cold] = ["--ink", "--soft", "--faint", "--cold"].map(css);
  const shade = { concentration: css("--cold"), plateau: css("--good"), terminal: css("--warm") };
  // On a phone the chart is drawn at half its size.
  const letters = { fill: soft, "font-size": at("chart").clientWidth < 450 ? 21 : 13, "font-family": "system-ui, sans-serif" };
  const text = (where, words) => mark("text", { ...letters, ...where }, words);
  for (const [name, colour] of Object.entries(shade)) {
    const phase = run.phases?.[name];
    if (!phase?.seen) continue;
    const [a, b] = [x(phase.begin), x(Math.min(phase.end, last))];
    made.push(mark("rect", { x: a, y: TOP, width: Math.max(0, b - a), height: BOTTOM - TOP, fill: colour, "fill-opacity": 0.14 }));
    if (b - a > 60) made.push(text({ x: (a + b) / 2, y: BOTTOM - 6, "text-anchor": "middle" }, name));
  }
  for (let power = least; power <= 0; power++) {
    const h = y(10 ** power);
    made.push(mark("line", { x1: LEFT, x2: RIGHT, y1: h, y2: h, stroke: faint, "stroke-width": 0.6 }),
      text({ x: LEFT - 7, y: h + 4, "text-anchor": "end" }, power === 0 ? "1" : power >= -3 ? String(10 ** power) : `1e${power}`));
  }
  for (let k = 0; k <= 4; k++) made.push(text({ x: x(last * k / 4), y: BOTTOM + 18, "text-anchor": k === 4 ? "end" : "middle" }, few(last * k / 4)));
  made.push(text({ x: (LEFT + RIGHT) / 2, y: BOTTOM + 38, "text-anchor": "middle" }, "time t (layers × step)"),
    mark("text", { transform: `translate(16 ${(TOP + BOTTOM) / 2}) rotate(-90)`, "text-anchor": "middle", ...letters }, "W to the limit"));
  const line = (points, attributes) => points.length && made.push(mark("path", { d: `M${points.map(p => p.map(v => v.toFixed(1)).join(" ")).join("L")}`, fill: "none", ...attributes }));
  // A curve and its name, at the last point that is inside the chart: the bound's above it, the tube's below and beyond.
  const named = (points, name, colour, beyond, attributes) => {
    line(points, { stroke: colour, "stroke-width": 1.6, ...attributes });
    const [h, v] = points.findLast(([, v]) => v > TOP + 14 && v < BOTTOM) ?? [];
    if (h !== undefined) made.push(text(beyond && h < RIGHT - 160 ? { x: h + 6, y: v + 12, fill: colour } : { x: Math.max(h, LEFT + 80), y: v - 6, "text-anchor": "end", fill: colour }, name));
  };
  if (opening.bound.values) named(opening.times.map((t, k) => [x(t), y(opening.bound.values[k] ?? 1e9)]), "eq. 11", "#8a3ffc", false, { "stroke-dasharray": "2 4" });
  const tube = (run.tube?.times ?? []).map((t, k) => [t, run.tube.values[k]]).filter(([t]) => t <= last);
  named(tube.map(([t, w]) => [x(t), y(w)]), "tube, eq. 20", "#c2266e", true, { "stroke-dasharray": "8 3", class: "tube" });
  line((run.curve ?? frames).filter(f => f.w !== undefined).map(f => [x(f.t), y(f.w)]), { stroke: cold, "stroke-width": 2.4, class: "measured" });
  for (const one of run.brackets) made.push(mark("line", { class: "bracket", x1: x(one.t), x2: x(one.t), y1: y(Math.max(one.lower, 1e-9)), y2: y(one.upper), stroke: ink, "stroke-width": 3 }),
    mark("line", { x1: x(one.t) - 5, x2: x(one.t) + 5, y1: y(one.upper), y2: y(one.upper), stroke: ink, "stroke-width": 1.5 }),
    mark("line", { x1: x(one.t) - 5, x2: x(one.t) + 5, y1: y(Math.max(one.lower, 1e-9)), y2: y(Math.max(one.lower, 1e-9)), stroke: ink, "stroke-width": 1.5 }));
  if (opening.no_distance) made.push(text({ x: (LEFT + RIGHT) / 2, y: (TOP + BOTTOM) / 2, "text-anchor": "middle" }, "no distance: there is no limit to measure it to"));
  made.push(mark("line", { id: "now", x1: 0, x2: 0, y1: TOP, y2: BOTTOM, stroke: css("--warm"), "stroke-width": 1.5 }));
  at("chart").replaceChildren(...made);
  cursor();
}
function cursor() {
  const now = at("chart").querySelector("#now"), frame = run.frames[run.shown];
  if (!now || !frame) return;
  const place = axesX(frame.t);
  now.setAttribute("x1", place); now.setAttribute("x2", place);
  at("scrub").value = run.goal ?? run.shown;
  const parts = [`${run.saved ? "saved time" : run.adaptive ? "frame" : "layer"} ${run.shown} of ${run.opening.times.length - 1}`, `t = ${few(frame.t, 4)}`];
  if (frame.w !== undefined) parts.push(`W ${run.opening.exact ? "=" : "≤"} ${few(frame.w)}`);
  if (frame.off_cluster) parts.push(`${many(frame.off_cluster)} tokens off-cluster`);
  if (frame.imbalance > 0.0005) parts.push(`${few(100 * frame.imbalance, 2)} % of the mass at the wrong point`);
  at("where").textContent = parts.join(" · ");
}
const axesX = t => LEFT + (RIGHT - LEFT) * t / (run.opening.times.at(-1) || 1);

function go(number) {
  if (!run?.frames.length) return;
  run.shown = Math.min(run.frames.length - 1, Math.max(0, number));
  // Beyond what is computed: there as soon as it is.
  run.goal = Number.isFinite(number) && number > run.shown && !run.ended ? number : null;
  cursor(); view.draw();
}
const pause = still => { playing = !still; };

let last = 0, owed = 0, rebuilt = 0;
function tick(now) {
  // What is to be drawn is drawn first, then comes the next tick: no frame is passed over.
  try { beat(now); } finally { requestAnimationFrame(tick); }
}
const over = () => run?.ended && run.shown >= run.frames.length - 1;
function beat(now) {
  if (!run?.ready) return;
  const count = run.frames.length;
  owed = Math.min(2, owed + (now - last) / 1000 * SHOWN_PER_SECOND);
  last = now;
  if (run.goal && run.shown < Math.min(run.goal, count - 1)) { run.shown = Math.min(run.goal, count - 1); if (run.shown === run.goal) { run.goal = null; remember(); } cursor(); view.draw(); }
  else if (playing && run.shown < count - 1 && owed >= 1) { owed -= 1; run.shown++; cursor(); view.draw(); }
  else if (count && !run.first) { run.first = true; cursor(); view.draw(); }
  const label = over() ? "Again" : playing ? "Pause" : "Play";
  if (at("toggle").textContent !== label) at("toggle").textContent = label;
  if (run.changed && now - rebuilt > 200) {
    rebuilt = now; run.changed = false; chart();
    const whole = run.opening.times.length;
    if (!run.gone) at("speed").textContent = run.ended || count === whole ? (run.ended ? "" : "measuring …") : run.speed ? `computing ${few(run.speed, 2)} layers a second, ${count} of ${whole}` : "computing …";
  }
}

// ---- Take it with you -----------------------------------------------------------------------------------------------

function picture() {
  // For paper, whatever the screen is like: in light colours.
  document.documentElement.classList.add("paper");
  try { return drawing(); } finally { document.documentElement.classList.remove("paper"); chart(); }
}
function drawing() {
  chart();
  const side = 600, frame = run.frames[run.shown], [ink, faint] = [css("--ink"), css("--faint")];
  const frozen = { canvas: { width: side, height: side }, zoom: view.zoom, shift: view.shift, matrix: view.matrix };
  const spot = (positions, k) => View.prototype.onScreen.call(Object.assign(Object.create(View.prototype), frozen), positions, run.d, k);
  const n = frame.positions.length / run.d, r = Math.min(4.5, Math.max(1, 110 / Math.sqrt(n))), dots = [[], []];
  for (let k = 0; k < n; k++) {
    const [x, y, z] = spot(frame.positions, k), c = run.colours, back = run.d === 3 && z < 0;
    dots[back ? 0 : 1].push(`<circle cx="${x.toFixed(1)}" cy="${y.toFixed(1)}" r="${r.toFixed(1)}" fill="rgb(${c[4 * k]},${c[4 * k + 1]},${c[4 * k + 2]})"/>`);
  }
  const rings = [], written = (x, y, words, size = 15) => { const safe = document.createElement("i"); safe.textContent = words; return `<text x="${x}" y="${y}" text-anchor="middle" font-family="system-ui, sans-serif" font-size="${size}" fill="${ink}">${safe.innerHTML}</text>`; };
  for (let k = 0; k < run.places.length / run.d; k++) {
    const [x, y] = spot(run.places, k).map(v => v.toFixed(1));
    rings.push(run.places.length / run.d <= 12 ? `<circle cx="${x}" cy="${y}" r="11" fill="none" stroke="${ink}" stroke-width="2"/>` : `<circle cx="${x}" cy="${y}" r="1" fill="${ink}"/>`);
    if (run.places.length / run.d <= 2) rings.push(written(x, y - 17, near(frame, k), 13));
  }
  const [cx, cy] = view.shift.map(v => side / 2 + v * side);
  return `<svg xmlns="${SVG}" width="1240" height="650" viewBox="0 0 1240 650"><rect width="1240" height="650" fill="${css("--paper")}"/>` +
    `<svg width="600" height="600"><circle cx="${cx}" cy="${cy}" r="${0.45 * view.zoom * side}" fill="none" stroke="${faint}"/><g opacity="0.25">${dots[0].join("")}</g><g opacity="0.85">${dots[1].join("")}</g>${rings.join("")}</svg>` +
    written(620, 630, `${at("where").textContent} · ${many(run.opening.tokens)} tokens${run.saved ? "" : `, β = ${setting.beta}`}`) +
    `<svg x="620" y="130" width="620" height="330" viewBox="0 0 620 330">${at("chart").innerHTML}</svg></svg>`;
}
function hand(blob, name) {
  const link = put("a", undefined, { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
async function toPng(text) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = put("canvas"); canvas.width = 2480; canvas.height = 1300;
  canvas.getContext("2d").drawImage(image, 0, 0, 2480, 1300);
  return new Promise(done => canvas.toBlob(done, "image/png"));
}
async function download(event) {
  // By fetch, so that a refusal is a sentence here and not a file.
  event.preventDefault();
  const link = event.currentTarget, began = performance.now();
  const say = () => { at("exporting").textContent = `Preparing ${link.download} …${link.id === "zip" ? ` The run is run once more and its distances are measured: ${Math.round((performance.now() - began) / 1000)} s so far.` : ""}`; };
  say();
  const ticking = setInterval(say, 1000);
  try {
    const blob = await (await reach(link.href)).blob();
    clearInterval(ticking);
    hand(blob, link.download);
    at("exporting").textContent = `${link.download} is in your downloads.`;
  } catch (error) { clearInterval(ticking); at("exporting").textContent = error.message; }
}

// ---- Beginning ------------------------------------------------------------------------------------------------------

function listen() {
  at("setting").addEventListener("submit", event => event.preventDefault());
  at("setting").addEventListener("input", event => {
    const input = event.target;
    if (input.dataset.log) {
      const value = 10 ** Number(input.value);
      change({ [input.dataset.log]: input.dataset.log === "n" ? String(Math.round(Number(value.toPrecision(2)))) : String(Number(value.toPrecision(3))) });
    } else if (input.name === "d") {
      for (const name of Object.keys(aside)) delete aside[name];
      const typed = ["B", "V", "B2", "V2"].filter(name => setting[name].includes(";"));
      change({ d: input.value, ...Object.fromEntries(typed.map(name => [name, fitted(name, Number(input.value))])) });
    } else if (input.name === "n" || input.name === "seed") {
      const digits = input.value.replace(/[\s,_]/g, ""), value = Number(digits);
      change({ [input.name]: digits && Number.isInteger(value) && value <= 1e15 ? String(value) : input.value.trim() });
    } else if (input.name) change({ [input.name]: input.type === "checkbox" ? (input.checked ? "1" : "0") : input.value.trim() });
  });
  at("presets").addEventListener("change", () => {
    const chosen = presets.find(one => one.name === at("presets").value);
    if (!chosen) return;
    setting = whole(chosen.setting);
    view.home();
    pause(false); fillForm(); start();
  });
  at("toggle").addEventListener("click", () => {
    if (over()) { pause(false); go(0); } else pause(playing);
    remember();
  });
  at("back").addEventListener("click", () => { pause(true); go(run.shown - 1); remember(); });
  at("forward").addEventListener("click", () => { pause(true); go(run.shown + 1); remember(); });
  at("scrub").addEventListener("input", () => { pause(true); go(Number(at("scrub").value)); remember(); });
  const seek = event => {
    if (!run?.ready || !(event.buttons & 1)) return;
    const box = at("chart").getBoundingClientRect(), { times } = run.opening;
    const t = ((event.clientX - box.left) / box.width * 620 - LEFT) / (RIGHT - LEFT) * times.at(-1);
    pause(true); go(times.reduce((best, time, k) => Math.abs(time - t) < Math.abs(times[best] - t) ? k : best, 0)); remember();
  };
  at("chart").addEventListener("pointerdown", seek);
  at("chart").addEventListener("pointermove", seek);
  window.addEventListener("keydown", event => {
    const slider = event.target.matches("input[type=range]"), typing = event.target.matches("input:not([type=range]), select, textarea");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || (event.key === " " && event.target.matches("button, a"))) return;
    // A slider has ends of its own.
    if (slider && (event.key === "Home" || event.key === "End")) return;
    const does = { " ": () => at("toggle").click(), ",": () => at("back").click(), ".": () => at("forward").click(), Home: () => { pause(true); go(0); remember(); }, End: () => { pause(true); go(Infinity); remember(); } }[event.key];
    if (does) { does(); event.preventDefault(); }
  });
  at("globe").addEventListener("pointerup", remember);
  at("globe").addEventListener("keyup", remember);
  at("globe").addEventListener("wheel", remember);
  at("svg").addEventListener("click", () => run?.frames.length && hand(new Blob([picture()], { type: "image/svg+xml" }), "frostline.svg"));
  at("png").addEventListener("click", async () => run?.frames.length && hand(await toPng(picture()), "frostline.png"));
  at("link").addEventListener("click", event => {
    if (!navigator.clipboard) return;
    event.preventDefault();
    navigator.clipboard.writeText(at("link").href).then(() => { at("exporting").textContent = "The link is copied: whoever runs frostline explore sees this picture at it."; },
      () => { location.href = at("link").href; });
  });
  at("spec").addEventListener("click", download);
  at("zip").addEventListener("click", download);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => run?.ready && chart());
  // Another address was typed.
  window.addEventListener("popstate", () => location.reload());
}

async function opened(about, look) {
  // A run directory: played, not played with.
  document.querySelector(".presets").hidden = true;
  document.title = `${about.name} · frostline explore`;
  at("play").classList.add("saved");
  for (const part of at("setting").children) part.hidden = !part.contains(at("png"));
  for (const part of ["link", "spec", "zip"]) at(part).hidden = true;
  at("watch").textContent = `The run in ${about.name}: ${about.sentence}`;
  coming = { ...newRun(), saved: true };
  await play(await reach("opened"), coming, look);
}

async function main() {
  let about;
  try { about = await (await reach("about")).json(); } catch (error) { trouble(error.message); return; }
  if (about.opened?.what === "audit") { try { await audit(about.opened); } catch (error) { trouble(error.message); } return; }
  at("audit").remove();
  defaults = about.defaults; presets = about.presets;
  at("presets").append(put("option", "something of my own", { value: "" }), ...presets.map(one => put("option", one.title, { value: one.name })));
  const look = new URLSearchParams(location.hash.slice(1));
  view = new View(at("globe"), paint);
  if (look.has("turn")) {
    const matrix = look.get("turn").split(",").map(Number);
    if (matrix.length === 9 && [0, 3, 6].every(k => Math.abs(Math.hypot(...matrix.slice(k, k + 3)) - 1) < 0.01)) { view.matrix = Float64Array.from(matrix); view.moved = true; }
  }
  if (look.has("zoom")) view.zoom = Math.min(20, Math.max(0.5, Number(look.get("zoom")) || 1));
  const [across, down] = (look.get("shift") ?? "").split(",").map(Number);
  if (Number.isFinite(across) && Number.isFinite(down)) view.move(across, down);
  setting = whole(location.search);
  listen();
  requestAnimationFrame(tick);
  if (about.opened) { try { await opened(about.opened, look); } catch (error) { trouble(error.message); } return; }
  fillForm();
  start(look);
}
for (const kind of ["error", "unhandledrejection"]) window.addEventListener(kind, event => trouble(`This should not happen: ${(event.reason ?? event.error ?? event).message}`));
main();
