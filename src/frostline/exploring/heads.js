"use strict";
// What a head of an audit sees: the grid of heads, four tokens and a tilted cloud in the picture, bars and words.
const LAW = ["first", "last", "self", "best", "cloud"];
const LETTERS = { first: "F", last: "L", self: "S", previous: "P", next: "N", same: "=", best: "B", cloud: "C" };
// Standard deviations that an ellipse reaches, and the smallest share that a line is drawn for.
const REACH = 2, DRAWN = 0.005;

const percent = share => share < 0.005 ? "0 %" : share > 0.995 && share < 1 ? "> 99 %" : `${Math.round(100 * share)} %`;
const bare = word => word.replace(/^##|^▁|^Ġ/, "");
const colourOf = kind => css(`--kind-${kind}`);

class Sights {
  // What the tokens of one text see: blocks of numbers by layer, head, token and frame.
  constructor(names, arrays, layers, heads, tokens, frames) {
    Object.assign(this, Object.fromEntries(names.map((name, k) => [name, arrays[k]])), { heads, tokens, frames });
    if (this.law.length !== layers * heads * tokens * LAW.length) throw new Error("What heads see does not fit the text.");
  }
  // One query of one head; vectors are in the directions of one frame.
  at(layer, head, token, frame) {
    const one = (layer * this.heads + head) * this.tokens + token, every = layer * this.tokens + token;
    const part = (array, size, place) => Array.from(array.subarray(size * place, size * (place + 1)));
    const mean = part(this.mean, 3, every * this.frames + frame), from = by => mean.map((x, k) => x + by[k]);
    return {
      law: part(this.law, 5, one), paid: part(this.paid, 5, one), best: this.best[one], freezing: this.freezing[one],
      count: this.count[every], mean, covariance: part(this.covariance, 6, every * this.frames + frame),
      tilted: from(part(this.tilt, 3, one * this.frames + frame)), moved: from(part(this.moved, 3, one * this.frames + frame)),
    };
  }
}

// Places of the law's four tokens in a text of this many; −1: there is none, or it is an earlier one.
function atomsOf(seen, token, length) {
  const places = [0, length - 1, token, seen.best];
  return places.map((place, k) => places.indexOf(place) < k ? -1 : place);
}

// ---- The grid -------------------------------------------------------------------------------------------------------

class Grid {
  // A table of buttons, a row for each layer; `choose(layer, head)` is called with what was chosen.
  constructor(table, heads, kinds, choose) {
    this.heads = heads; this.choose = choose;
    const top = put("tr"), body = put("tbody");
    top.append(put("th", "layer", { scope: "col" }), ...heads[0].map((_, head) => put("th", `${head}`, { scope: "col", "aria-label": `head ${head}` })));
    this.cells = heads.map((row, layer) => {
      const line = put("tr");
      const cells = row.map((one, head) => {
        const cell = put("button", LETTERS[one.kind] ?? "·", { type: "button", tabindex: "-1", title: this.words(layer, head), "aria-label": this.words(layer, head) });
        if (one.kind) cell.dataset.kind = one.kind;
        cell.addEventListener("click", () => choose(layer, head));
        return cell;
      });
      line.append(put("th", `${layer}`, { scope: "row" }), ...cells.map(cell => { const box = put("td"); box.append(cell); return box; }));
      body.append(line);
      return cells;
    });
    const head = put("thead"); head.append(top);
    table.replaceChildren(put("caption", "Heads by layer: what each mostly looks at"), head, body);
    const found = new Set(heads.flat().map(one => one.kind));
    this.legend = Object.entries(kinds).filter(([kind]) => found.has(kind)).map(([kind, words]) => {
      const item = put("span"), key = put("i", LETTERS[kind], { "aria-hidden": "true" });
      key.dataset.kind = kind;
      item.append(key, ` ${words}`);
      return item;
    });
    table.addEventListener("keydown", event => this.walk(event));
  }
  words(layer, head) {
    const { role, explained } = this.heads[layer][head];
    return `layer ${layer}, head ${head}: ${role}${explained === null ? "" : `; ${percentOf(explained)} explained`}`;
  }
  show(layer, head) {
    this.cells.forEach((row, l) => row.forEach((cell, h) => {
      cell.setAttribute("aria-pressed", l === layer && h === head);
      // One stop for the tab key; arrows go on from there.
      cell.tabIndex = l === Math.min(layer, this.cells.length - 1) && h === head ? 0 : -1;
    }));
  }
  walk(event) {
    const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
    const layer = this.cells.findIndex(row => row.includes(event.target));
    if (!by || layer < 0 || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const next = this.cells[layer + by[0]]?.[this.cells[layer].indexOf(event.target) + by[1]];
    if (!next) return;
    next.focus(); next.click();
  }
}
const percentOf = explained => explained < 0 ? "less than nothing" : percent(explained);

// ---- The picture ----------------------------------------------------------------------------------------------------

// The outline of an ellipsoid seen from the front: an ellipse with the covariance of what is seen of it.
function ellipse(over, view, centre, covariance) {
  const [xx, xy, xz, yy, yz, zz] = covariance, m = view.matrix, { width, height } = view.canvas;
  const times = (a, b) => a[0] * (xx * b[0] + xy * b[1] + xz * b[2]) + a[1] * (xy * b[0] + yy * b[1] + yz * b[2]) + a[2] * (xz * b[0] + yz * b[1] + zz * b[2]);
  const across = m.slice(0, 3), down = m.slice(3, 6).map(v => -v);
  const a = times(across, across), b = times(across, down), c = times(down, down), half = Math.hypot((a - c) / 2, b), middle = (a + c) / 2;
  const unit = REACH * 0.45 * view.zoom * Math.min(width, height), [x, y] = view.onScreen(centre, 3, 0);
  over.beginPath();
  over.ellipse(x, y, unit * Math.sqrt(Math.max(0, middle + half)), unit * Math.sqrt(Math.max(0, middle - half)), Math.atan2(2 * b, a - c) / 2, 0, TAU);
}

function drawSight(over, view, spots, words, token, places, seen) {
  const ratio = window.devicePixelRatio || 1, ink = css("--ink"), on = centre => view.onScreen(centre, 3, 0);
  const start = view.onScreen(spots, 3, token), cloud = colourOf("cloud"), labels = [];
  const line = (from, to, colour, share) => {
    if (share < DRAWN) return;
    over.strokeStyle = colour; over.lineWidth = (0.75 + 13 * share) * ratio;
    over.beginPath(); over.moveTo(from[0], from[1]); over.lineTo(to[0], to[1]); over.stroke();
  };
  over.save();
  over.lineCap = "round";
  const middle = on(seen.tilted);
  if (seen.count > 1) {
    over.strokeStyle = cloud; over.fillStyle = cloud; over.lineWidth = 1.5 * ratio;
    over.setLineDash([5 * ratio, 4 * ratio]);
    ellipse(over, view, seen.mean, seen.covariance); over.stroke();
    over.setLineDash([]);
    ellipse(over, view, seen.tilted, seen.covariance);
    over.globalAlpha = 0.13; over.fill(); over.globalAlpha = 1; over.stroke();
    over.globalAlpha = 0.75;
    line(start, middle, cloud, seen.law[4]);
    over.globalAlpha = 1;
  }
  places.forEach((place, k) => {
    if (place < 0 || place >= words.length || seen.law[k] < DRAWN) return;
    const colour = colourOf(LAW[k]), spot = view.onScreen(spots, 3, place);
    over.globalAlpha = 0.75;
    if (place !== token) line(start, spot, colour, seen.law[k]);
    over.globalAlpha = 1;
    over.strokeStyle = colour; over.lineWidth = place === token ? (1.5 + 9 * seen.law[k]) * ratio : 3 * ratio;
    over.beginPath(); over.arc(spot[0], spot[1], 9 * ratio + (place === token ? over.lineWidth / 2 : 0), 0, TAU); over.stroke();
    if (place !== token) labels.push({ spot, words: `${LAW[k]}: ${bare(words[place])}`, colour });
  });
  view.ring(over, spots, 3, token, 7, ink);
  if (seen.count > 1) {
    // From the mean to where the tilt moves it, and a cross where the attention really paid has it.
    const plain = on(seen.mean), really = on(seen.moved), r = 4 * ratio;
    over.lineWidth = 1.5 * ratio; over.strokeStyle = ink; over.fillStyle = css("--paper");
    over.beginPath(); over.moveTo(plain[0], plain[1]); over.lineTo(middle[0], middle[1]); over.stroke();
    over.beginPath(); over.arc(plain[0], plain[1], r, 0, TAU); over.fill(); over.stroke();
    over.fillStyle = ink; over.beginPath(); over.arc(middle[0], middle[1], r, 0, TAU); over.fill();
    if (seen.paid[4] >= DRAWN) {
      over.lineWidth = 2 * ratio; over.beginPath();
      for (const [a, b] of [[-1, -1], [-1, 1]]) { over.moveTo(really[0] + 1.3 * a * r, really[1] + 1.3 * b * r); over.lineTo(really[0] - 1.3 * a * r, really[1] - 1.3 * b * r); }
      over.stroke();
    }
  }
  labels.unshift({ spot: start, words: bare(words[token]), colour: ink });
  write(over, labels, middle, ratio);
  over.restore();
}

function drawScale(over, view) {
  // A length in radii of the sphere, about a sixth of the picture long.
  const ratio = window.devicePixelRatio || 1, { width, height } = view.canvas, unit = 0.45 * view.zoom * Math.min(width, height);
  const long = [1, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01].find(one => one * unit <= width / 5) ?? 0.01, [x, y] = [14 * ratio, height - 14 * ratio];
  over.strokeStyle = over.fillStyle = css("--soft"); over.lineWidth = 2 * ratio;
  over.beginPath(); over.moveTo(x, y); over.lineTo(x + long * unit, y); over.stroke();
  over.font = `${12 * ratio}px system-ui, sans-serif`; over.textBaseline = "bottom";
  over.fillText(long === 1 ? "the sphere's radius" : `${long} of the sphere's radius`, x, y - 4 * ratio);
}

function write(over, labels, middle, ratio) {
  // Away from the cloud's middle where there is room, and none over another.
  const { width, height } = over.canvas, high = 17 * ratio, boxes = [];
  over.font = `${13 * ratio}px system-ui, sans-serif`; over.textBaseline = "middle"; over.lineJoin = "round";
  for (const { spot, words, colour } of labels) {
    const long = over.measureText(words).width, right = spot[0] >= middle[0];
    const sides = [spot[0] + 15 * ratio, spot[0] - 15 * ratio - long], x = (right ? sides : sides.reverse()).find(x => x >= 4 && x + long <= width - 4) ?? Math.max(4, width - long - 4);
    let y = Math.max(high, Math.min(height - high, spot[1]));
    const free = down => boxes.every(box => box.x > x + long || box.x + box.long < x || Math.abs(box.y - down) >= high);
    // Nearest free line, below or above.
    const steps = Array.from({ length: 13 }, (_, k) => y + (k % 2 ? 1 : -1) * Math.ceil(k / 2) * high);
    y = steps.find(down => down >= high / 2 && down <= height - high / 2 && free(down)) ?? y;
    boxes.push({ x, y, long });
    over.strokeStyle = css("--card"); over.lineWidth = 4 * ratio; over.strokeText(words, x, y);
    over.fillStyle = colour; over.fillText(words, x, y);
  }
}

// ---- Bars and words -------------------------------------------------------------------------------------------------

function bars(table, words, length, token, places, seen) {
  const named = place => place < words.length ? `“${bare(words[place])}”` : `token ${place}, not shown`;
  const rows = LAW.map((kind, k) => {
    const line = put("tr"), name = put("th", undefined, { scope: "row" }), key = put("i", LETTERS[kind], { "aria-hidden": "true" });
    key.dataset.kind = kind;
    const what = kind === "cloud" ? (seen.count > 1 ? `cloud of ${seen.count - 1} other${seen.count > 2 ? "s" : ""}` : "no cloud") :
      kind === "best" ? (seen.best < 0 ? "no best other" : `best other: ${named(seen.best)}`) :
        kind === "self" ? (places[k] < 0 ? "itself: as above" : "itself") : places[k] < 0 ? "last: as above" : `${kind}: ${named(places[k])}`;
    name.append(key, ` ${what}`);
    const pair = put("td", undefined, { class: "bars", "aria-hidden": "true" });
    for (const [how, share] of [["law", seen.law[k]], ["paid", seen.paid[k]]]) {
      const bar = put("span", undefined, { class: how });
      bar.dataset.kind = kind; bar.style.width = `${100 * Math.min(1, share)}%`;
      pair.append(bar);
    }
    line.append(name, pair, put("td", percent(seen.law[k])), put("td", percent(seen.paid[k])));
    return line;
  });
  const top = put("tr");
  top.append(put("th", `what “${bare(words[token])}” sees`, { scope: "col" }), put("td", undefined, { "aria-hidden": "true" }),
    put("th", "by the law", { scope: "col" }), put("th", "really paid", { scope: "col" }));
  table.tHead.replaceChildren(top);
  table.tBodies[0].replaceChildren(...rows);
}

function inWords(words, length, layer, head, token, places, seen) {
  const kinds = { first: "the first token", last: "the last token", self: "itself", best: seen.best < words.length && seen.best >= 0 ? `“${bare(words[seen.best])}”, the best other token` : "the best other token", cloud: "the cloud of the others" };
  const ranked = LAW.map((kind, k) => [kind, seen.law[k]]).filter(([, share]) => share >= 0.05).sort((a, b) => b[1] - a[1]).slice(0, 3);
  const far = Math.max(...seen.law.map((share, k) => Math.abs(share - seen.paid[k])));
  const said = [`Query “${bare(words[token])}” (token ${token}) in layer ${layer}, head ${head}: by the law ${ranked.map(([kind, share]) => `${percent(share)} of its attention goes to ${kinds[kind]}`).join(", ").replaceAll(/, (\d+ %|> 99 %) of its attention goes to/g, ", $1 to")}. ` +
    `The shares really paid differ by ${far < 0.01 ? "less than 1 percentage point" : `up to ${Math.round(100 * far)} percentage points`}.`];
  if (seen.count < 2) said.push("Beside these tokens there is no cloud.");
  else {
    const sigma = seen.freezing.toFixed(2);
    said.push(seen.freezing > 1 ? `σ is ${sigma} of σ_N: the cloud is frozen, a few of its tokens rule it.` : `σ is ${sigma} of σ_N: the cloud is tilted, not frozen.`);
  }
  const all = length - 2 - (token > 0 && token < length - 1 ? 1 : 0);
  if (seen.count < all) said.push(`It sees only ${seen.count} of the ${all} other inner tokens: its window is shorter than the text.`);
  return said.join(" ");
}
