"use strict";
// The stream is read with fetch, not EventSource: only fetch can send a token.
const at = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
let token = "", paused = false, wait = 500, last = null, operating = false;

function make(name, attributes, text) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

function put(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

const ago = (now, then) => {
  const seconds = Math.max(0, Math.round(now - then));
  if (seconds < 90) return `${seconds} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 172800) return `${Math.round(seconds / 3600)} h ago`;
  return new Date(then * 1000).toISOString().slice(0, 16).replace("T", " ");
};

const narrow = () => matchMedia("(max-width: 42rem)").matches;

function drawPoints(picture) {
  const left = narrow() ? 110 : 64, right = 792, top = 12, bottom = 206, least = 1e-4;
  const y = p => top + (bottom - top) * (1 - Math.log(Math.max(p, least)) / Math.log(least));
  const marks = [1, 0.1, 0.01, 0.001, 0.0001].flatMap(p => [
    make("line", { x1: left, x2: right, y1: y(p), y2: y(p) }),
    make("text", { x: left - 8, y: y(p) + 5, "text-anchor": "end" }, String(p))]);
  marks.push(make("line", { class: "least", x1: left, x2: right, y1: y(picture.least), y2: y(picture.least) }));
  marks.push(make("line", { class: "alpha", x1: left, x2: right, y1: y(picture.alpha), y2: y(picture.alpha) }));
  const count = picture.points.length, room = Math.max(count, 100);
  const dots = picture.points.map((p, number) => make("circle", {
    cx: right - 6 - (count - 1 - number) / room * (right - left - 12), cy: y(p),
    r: narrow() ? 6 : 3, class: p <= picture.alpha ? "odd" : "" }));
  at("points").replaceChildren(...marks, ...dots);
}

function drawLayers(picture) {
  at("layers").replaceChildren(...picture.layers.map(row => {
    const track = document.createElement("div");
    track.className = "track";
    const svg = make("svg", { role: "img", "aria-label": `layer ${row.layer}` });
    const place = value => `${(100 * value).toFixed(2)}%`;
    svg.append(make("rect", { x: 0, y: "45%", width: "100%", height: "10%", rx: 2 }),
      make("circle", { class: "observed", cx: place(row.observed), cy: "50%", r: 6 }),
      make("circle", { class: "expected", cx: place(row.expected), cy: "50%", r: 9 }));
    track.append(put("span", `layer ${row.layer}`), svg,
      put("output", `${row.observed.toFixed(3)}, ` + (row.spread === undefined ? `usually ${row.expected.toFixed(3)}`
        : `expected ${row.expected.toFixed(3)} ± ${row.spread.toFixed(3)}`)));
    return track;
  }), ...(picture.layers.length ? [] : [put("p", "Nothing to show before the first text.")]));
}

function drawEvents(picture) {
  const words = { strange: "strange text", alarm: "ALARM", critical: "ALARM, critical", clear: "alarm over", start: "service started",
    stop: "service stopped", acknowledged: "acknowledged", reset: "alarm reset", maintenance: "maintenance" };
  const rows = picture.events.map(event => {
    const row = document.createElement("tr"), why = document.createElement("td"), list = document.createElement("ul");
    row.className = event.kind;
    const operator = event.details.who ? `${event.details.who}: ${event.details.why}` : event.details.ended ? "its time is over" : "";
    const said = { alarm: `evidence reached ${picture.threshold.toFixed(1)}`, critical: "it has lasted for ten minutes",
      clear: `${event.details.quiet_texts} texts without ringing`, acknowledged: operator, reset: operator, maintenance: operator }[event.kind];
    const whose = event.source ? ` · ${event.source}` : "";
    for (const reason of (event.details.reasons ?? []).slice(0, 2)) list.append(put("li", `${reason.part} (${reason.sigma.toFixed(1)} σ): ${reason.says} ${reason.picture ?? ""}`));
    if (said) why.append(said); else if (list.childElementCount) why.append(list);
    const when = put("th", ago(picture.now, event.time)), p = put("td", event.p_value === null ? "" : Number(event.p_value.toPrecision(2)));
    when.scope = "row";
    if (event.p_value !== null) p.dataset.label = "p = ";
    row.append(when, put("td", `${words[event.kind] ?? event.kind}${whose} (${event.text_id || `event ${event.id}`})`), p, why);
    return row;
  });
  at("events").replaceChildren(...(rows.length ? rows : [put("tr", "")]));
}

function drawSources(picture) {
  const listed = [picture.all, ...picture.sources];
  at("whose-texts").hidden = !picture.sources.length;
  at("sources").replaceChildren(...listed.map(source => {
    const row = document.createElement("tr"), name = put("th", source.source || "all together");
    name.scope = "row";
    const ringing = source.severity !== "none";
    row.className = ringing ? "alarm" : "";
    const alarm = ringing ? `${source.severity}, since ${ago(picture.now, source.since)}${source.acknowledged ? `, seen by ${source.acknowledged.who}` : ""}` : "none";
    const why = ringing ? [source.why, ...(source.examples.length ? [`for example ${source.examples.join(", ")}`] : [])].filter(Boolean).join("; ") : "";
    const cells = { "alarm: ": alarm, "texts: ": source.texts.toLocaleString("en"), "strange: ": `${source.recent_strange} of ${source.recent}`, "": why };
    row.append(name, ...Object.entries(cells).map(([label, text]) => {
      const cell = put("td", text);
      if (label) cell.dataset.label = label;
      return cell;
    }));
    return row;
  }));
  if (picture.sources_known > picture.sources.length) {
    const row = document.createElement("tr"), rest = put("td", `… and ${picture.sources_known - picture.sources.length} more sources`);
    rest.colSpan = 5;
    row.append(rest);
    at("sources").append(row);
  }
}

function drawControl(picture) {
  const ringing = [picture.all, ...picture.sources].filter(source => source.severity !== "none");
  // Open where there is something to do; before a planned import an operator opens it.
  const busy = ringing.length > 0 || Boolean(picture.maintenance);
  at("operate").hidden = false;
  if (busy !== operating) at("operate").open = operating = busy;
  at("operations").textContent = ringing.length ? "Acknowledge, reset or silence" : "Silence the alarms";
  for (const each of document.querySelectorAll("#control .ringing")) each.hidden = !ringing.length;
  at("unsilence").hidden = !picture.maintenance;
  const choices = ["every alarm", ...ringing.map(source => source.source || "all together")];
  if (choices.join("\n") !== [...at("whose").options].map(option => option.text).join("\n")) {
    at("whose").replaceChildren(...choices.map((text, number) => {
      const option = put("option", text);
      option.value = number ? ringing[number - 1].source : "*";
      return option;
    }));
  }
}

function draw(picture) {
  last = picture;
  if (paused) return;
  if (at("state").textContent !== picture.headline) at("state").textContent = picture.headline;
  at("state").className = picture.alarm ? "alarm" : "calm";
  at("says").textContent = picture.says;
  document.title = picture.alarm ? "ALARM · frostline" : "frostline";
  at("advice").textContent = picture.advice;
  at("model").textContent = picture.model;
  at("texts").textContent = picture.texts.toLocaleString("en");
  at("strange").textContent = picture.strange_of.toLocaleString("en");
  at("of").textContent = picture.of ? `of the last ${picture.of.toLocaleString("en")}` : "";
  at("chance").textContent = `about ${Number((picture.alpha * picture.of).toPrecision(2))}`;
  at("evidence").textContent = `${picture.level.toFixed(1)} of ${picture.threshold.toFixed(1)}`;
  at("level").value = picture.level / picture.threshold;
  at("promise").textContent = picture.promise;
  at("baseline").textContent = `${picture.baseline} (${picture.baseline_hash})`;
  at("degraded").hidden = !picture.degraded.length;
  at("degraded").replaceChildren(...picture.degraded.map(text => put("li", text)));
  const known = { good: ["good", "holds"], low: ["p-values too low", "fails"], high: ["p-values too high", "fails"], unknown: ["too early to tell", "undecided"] };
  [at("verdict").textContent] = known[picture.health.verdict];
  at("verdict").className = `badge ${known[picture.health.verdict][1]}`;
  at("health").textContent = picture.health.says;
  drawControl(picture);
  drawSources(picture);
  drawPoints(picture);
  drawLayers(picture);
  drawEvents(picture);
}

function lost(why) {
  at("state").textContent = "No connection";
  at("state").className = "lost";
  at("says").textContent = `${why} What is shown below is old; trying again.`;
}

async function listen() {
  try {
    const answer = await fetch("stream", { headers: token ? { Authorization: `Bearer ${token}` } : {} });
    if (answer.status === 401) {
      at("state").textContent = token ? "That is not the token" : "Token, please";
      at("says").textContent = "";
      at("advice").textContent = "Type the token that the service was started with.";
      at("login").hidden = false;
      at("token").focus();
      return;
    }
    if (!answer.ok) throw new Error((await answer.json()).error);
    wait = 500;
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ;) {
      const { value, done } = await reader.read();
      if (done) throw new Error("The service has stopped.");
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts) draw(JSON.parse(part.slice(6)));
    }
  } catch (error) {
    lost(error instanceof TypeError ? "The service cannot be reached." : error.message);
    setTimeout(listen, wait);
    wait = Math.min(2 * wait, 10000);
  }
}

at("login").addEventListener("submit", event => {
  event.preventDefault();
  token = at("token").value;
  at("token").value = "";
  at("login").hidden = true;
  listen();
});
at("control").addEventListener("submit", async event => {
  event.preventDefault();
  const button = event.submitter, whose = at("whose").value;
  const asked = { action: button.value, who: at("who").value, why: at("why").value };
  if (button.dataset.seconds !== undefined) asked.seconds = Number(button.dataset.seconds);
  else if (whose !== "*") asked.source = whose;
  try {
    const answer = await fetch("alarm", { method: "POST", body: JSON.stringify(asked),
      headers: { "Content-Type": "application/json", ...(token ? { Authorization: `Bearer ${token}` } : {}) } });
    const said = await answer.json();
    at("controlled").textContent = answer.ok ? `Done (event ${said.id}).` : said.error;
  } catch {
    at("controlled").textContent = "The service cannot be reached.";
  }
});
at("pause").addEventListener("click", () => {
  paused = !paused;
  at("pause").textContent = paused ? "Go on" : "Pause";
  at("pause").setAttribute("aria-pressed", paused);
  if (!paused && last) draw(last);
});
listen();
