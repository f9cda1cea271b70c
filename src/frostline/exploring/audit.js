"use strict";
// A saved audit: the token clouds of a few texts through the layers, and what every head sees of them.
async function audit(about) {
  at("play").hidden = true; at("audit").hidden = false;
  document.querySelector(".presets").hidden = true;
  document.title = `${about.model} · frostline explore`;
  at("watch").textContent = `Tokens of ${about.model} through its layers.`;
  at("sentence").textContent = about.sentence;
  const scenes = [];
  for await (const [facts, arrays] of messages(await reach("opened"))) {
    scenes.push({ ...facts, places: Object.fromEntries(facts.frames.map((name, k) => [name, arrays[k]])) });
  }
  at("texts").append(...about.texts.map((text, k) => put("option", `${k + 1}: ${text}`, { value: k })));
  at("frame").append(...Object.keys(about.frames).map(name => put("option", name === "tokens" ? "of the tokens" : "of the layer's heads", { value: name })));
  // `hot` is pointed at, `chosen` stays when nothing is; `head` is looked through.
  let hot = -1, chosen = 0, head = 0, waiting = 0;
  const scene = () => scenes[Number(at("texts").value)], depth = () => Number(at("layer").value), layers = () => scene().clusters.length - 1;
  const asking = () => hot >= 0 ? hot : about.heads ? chosen : -1;
  const sight = () => {
    if (!scene().sights || depth() >= layers() || asking() < 0) return null;
    const seen = scene().sights.at(depth(), head, asking(), scene().frames.indexOf(at("frame").value));
    return { seen, places: atomsOf(seen, asking(), scene().length) };
  };

  const colours = () => {
    const { words, clusters } = scene(), paint = new Uint8Array(4 * words.length), kinds = [...new Set(words)];
    words.forEach((word, k) => {
      const turn = at("colour").value === "token" ? kinds.indexOf(word) / kinds.length : clusters[depth()][k] * 0.381966;
      paint.set([...hue(turn), k === hot ? 255 : 215], 4 * k);
    });
    return paint;
  };
  const cloud = view = new View(at("cloud"), (view, over) => {
    const n = scene().words.length, now = sight();
    view.spots = scene().places[at("frame").value].subarray(3 * n * depth(), 3 * n * (depth() + 1));
    // The cloud may be small: zoom is up to the reader, depth is not dimmed, for tokens lie inside the ball.
    view.renderer.points(view, view.spots, 3, colours(), 11, false);
    if (now) drawSight(over, view, view.spots, scene().words, asking(), now.places, now.seen);
    else if (asking() >= 0) view.ring(over, view.spots, 3, asking(), 11, css("--ink"));
    drawScale(over, view);
  });
  // The zoom that `fit` chose: while it is kept, every layer is fitted anew.
  let fitted = cloud.zoom;
  const fit = () => {
    const n = scene().words.length, spots = scene().places[at("frame").value].subarray(3 * n * depth(), 3 * n * (depth() + 1));
    const turned = Array.from({ length: n }, (_, k) => cloud.turned(...spots.subarray(3 * k, 3 * k + 3)));
    const ends = [0, 1].map(axis => { const on = turned.map(place => place[axis]); return [Math.min(...on), Math.max(...on)]; });
    const [[left, right], [low, high]] = ends;
    // Room for the names of tokens at the sides.
    cloud.zoom = fitted = Math.min(20, Math.max(1, 1.45 / Math.max(right - left, high - low, 0.01)));
    cloud.shift = [-0.45 * fitted * (left + right) / 2, 0.45 * fitted * (low + high) / 2];
    cloud.draw();
  };

  const tell = () => {
    // What depends on the token pointed at.
    const now = sight(), { words, length } = scene();
    [...at("text").children].forEach((word, k) => {
      word.classList.toggle("hot", k === asking());
      word.classList.toggle("best", now !== null && k === now.seen.best);
      word.setAttribute("aria-selected", k === chosen);
      word.tabIndex = k === chosen ? 0 : -1;
    });
    cloud.draw();
    at("shares").hidden = at("drawn").hidden = !now;
    if (!about.heads) return;
    if (!now) { at("looks").textContent = depth() >= layers() ? "These tokens have left the last layer: no head looks at them any more. Choose an earlier layer, or a head." : "…"; return; }
    bars(at("shares"), words, length, asking(), now.places, now.seen);
    const said = inWords(words, length, depth(), head, asking(), now.places, now.seen).split("σ_N");
    at("looks").replaceChildren(...said.flatMap((part, k) => k ? ["σ", put("sub", "N"), part] : [part]));
  };
  const show = () => {
    const { words, clusters, length } = scene(), now = colours(), count = new Set(clusters[depth()]).size;
    [...at("text").children].forEach((word, k) => { word.style.setProperty("--own", `rgb(${now[4 * k]},${now[4 * k + 1]},${now[4 * k + 2]})`); });
    at("layername").textContent = depth() < layers() ? `entering layer ${depth()} of 0 to ${layers() - 1}` : `after layer ${layers() - 1}, the last`;
    at("seen").textContent = `${length > words.length ? `The first ${words.length} of ${length}` : words.length} tokens in ${count === 1 ? "one cluster" : `${count} clusters`} (linked by angles below 0.3 rad). Directions: ${about.frames[at("frame").value]}. ` +
      (about.frost !== null ? `The audit sees the cloud frozen from layer ${about.frost} on.` : "");
    if (about.heads) {
      grid.show(depth(), head);
      const one = about.heads[depth()]?.[head];
      at("role").textContent = one ? `Layer ${depth()}, head ${head}, in the mean over texts: ${one.role}. ` +
        (one.explained === null ? "There is nothing to explain in it." : `Four tokens and a tilted cloud explain ${percentOf(one.explained)} of what it does.`) : "";
    }
    if (cloud.zoom === fitted) fit();
    tell();
    // A link to this picture, too.
    clearTimeout(writing);
    const place = ["texts", "layer", "colour", "frame"].map(id => [id, at(id).value]);
    if (about.heads) place.push(["head", head], ["token", chosen]);
    writing = setTimeout(() => history.replaceState(null, "", `#${new URLSearchParams(place)}`), 250);
  };
  const point = number => { if (number !== hot) { hot = number; tell(); } };
  const choose = number => { chosen = number; show(); reveal(number); };
  const reveal = number => {
    // In a long text, without moving the page.
    const box = at("text"), word = box.children[number];
    if (word && (word.offsetTop < box.scrollTop || word.offsetTop + word.offsetHeight > box.scrollTop + box.clientHeight)) box.scrollTop = word.offsetTop - box.clientHeight / 2;
  };
  const look = async () => {
    const one = scene(), asked = ++waiting;
    if (!about.heads || one.sights) return;
    for await (const [facts, arrays] of messages(await reach(`opened/${at("texts").value}`))) {
      one.sights = new Sights(facts.names, arrays, one.clusters.length - 1, about.heads[0].length, one.words.length, one.frames.length);
    }
    if (asked === waiting) show();
  };
  const open = () => {
    at("text").replaceChildren(...scene().words.flatMap((word, k) => {
      const span = put("span", bare(word), { role: "option" });
      span.addEventListener("pointerenter", () => point(k)); span.addEventListener("focus", () => point(k));
      span.addEventListener("pointerleave", () => point(-1)); span.addEventListener("blur", () => point(-1));
      span.addEventListener("click", () => choose(k));
      return k === 0 || word.startsWith("##") ? [span] : [" ", span];
    }));
    at("layer").max = layers();
    hot = -1;
    look().catch(error => trouble(error.message));
    show();
  };
  const grid = about.heads && new Grid(at("heads"), about.heads, about.kinds, (layer, number) => { head = number; at("layer").value = layer; show(); });
  if (grid) at("kinds").append(...grid.legend);
  else { at("looking").hidden = true; at("without").textContent = about.without; at("without").hidden = false; }

  cloud.hover = event => {
    const box = cloud.canvas.getBoundingClientRect(), ratio = window.devicePixelRatio || 1;
    let best = -1, nearest = (16 * ratio) ** 2;
    for (let k = 0; k < scene().words.length; k++) {
      const [x, y] = cloud.onScreen(cloud.spots, 3, k), far = (x - (event.clientX - box.left) * ratio) ** 2 + (y - (event.clientY - box.top) * ratio) ** 2;
      if (far < nearest) { nearest = far; best = k; }
    }
    point(best);
    reveal(best);
  };
  // A press that does not turn the picture chooses the token under it.
  let pressed = null;
  cloud.canvas.addEventListener("pointerdown", event => { cloud.hover(event); pressed = [event.clientX, event.clientY]; });
  cloud.canvas.addEventListener("pointerup", event => {
    if (pressed && hot >= 0 && Math.hypot(event.clientX - pressed[0], event.clientY - pressed[1]) < 5) choose(hot);
    pressed = null;
  });
  cloud.canvas.addEventListener("pointerleave", () => point(-1));
  at("text").addEventListener("keydown", event => {
    const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
    if (!by || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    choose(Math.min(scene().words.length - 1, Math.max(0, asking() + by)));
    at("text").children[chosen].focus();
  });
  at("fit").addEventListener("click", fit);
  at("whole").addEventListener("click", () => { cloud.home(); fitted = null; });
  at("texts").addEventListener("change", () => { chosen = middle(); open(); });
  for (const id of ["layer", "colour", "frame"]) at(id).addEventListener("input", show);
  window.addEventListener("keydown", event => {
    if (event.target.matches("select") || (event.target.matches("input") && event.key.length > 1)) return;
    const to = { ",": depth() - 1, ".": depth() + 1, Home: 0, End: at("layer").max }[event.key];
    if (to !== undefined) { at("layer").value = to; show(); event.preventDefault(); }
  });
  at("space").hidden = true; at("walking").hidden = false;

  const asked = new URLSearchParams(location.hash.slice(1)), middle = () => Math.floor((scene().words.length - 1) / 2);
  const take = id => { const value = asked.get(id); if (value !== null && (id === "layer" || [...at(id).options].some(one => one.value === value))) at(id).value = value; };
  const number = (id, most, otherwise) => { const value = asked.has(id) ? Number(asked.get(id)) : NaN; return Number.isInteger(value) && value >= 0 && value < most ? value : otherwise; };
  take("texts");
  at("layer").max = layers();
  for (const id of ["layer", "colour", "frame"]) take(id);
  chosen = number("token", scene().words.length, middle());
  if (about.heads) head = number("head", about.heads[0].length, 0);
  open();
}
