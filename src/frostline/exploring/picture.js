"use strict";
// Points on a sphere: WebGL where there is any, a 2D canvas where there is none, SVG for export. All three show the same.
const TAU = 2 * Math.PI, FINEST = 32767;
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function mat3(a, b) {
  const c = new Float64Array(9);
  for (let i = 0; i < 3; i++) for (let j = 0; j < 3; j++) for (let k = 0; k < 3; k++) c[3 * i + j] += a[3 * i + k] * b[3 * k + j];
  return c;
}
const turnX = a => [1, 0, 0, 0, Math.cos(a), -Math.sin(a), 0, Math.sin(a), Math.cos(a)];
const turnY = a => [Math.cos(a), 0, Math.sin(a), 0, 1, 0, -Math.sin(a), 0, Math.cos(a)];
const HOME = () => mat3(turnX(0.45), turnY(-0.5));
const FLAT = () => Float64Array.from([1, 0, 0, 0, 1, 0, 0, 0, 1]);

const VERTEX = `attribute vec3 place; attribute vec4 colour; uniform mat3 turn; uniform vec2 scale; uniform vec2 shift; uniform float size;
  uniform float deep; varying vec4 shown;
  void main() { vec3 p = turn * place; gl_Position = vec4(p.xy * scale + shift, -0.5 * p.z, 1.0);
    float front = mix(1.0, smoothstep(-0.15, 0.15, p.z), deep);
    shown = vec4(colour.rgb, colour.a * mix(0.25, 1.0, front)); gl_PointSize = size * mix(0.75, 1.0, front); }`;
const FRAGMENT = `precision mediump float; varying vec4 shown;
  void main() { vec2 q = gl_PointCoord - 0.5; float r = dot(q, q); if (r > 0.25) discard;
    gl_FragColor = vec4(shown.rgb, 1.0) * shown.a * smoothstep(0.25, 0.18, r); }`;

class Glass {
  // WebGL. Throws where there is none.
  constructor(canvas) {
    const gl = canvas.getContext("webgl", { antialias: true, premultipliedAlpha: true, preserveDrawingBuffer: true });
    if (!gl) throw new Error("no WebGL");
    const program = gl.createProgram();
    for (const [kind, text] of [[gl.VERTEX_SHADER, VERTEX], [gl.FRAGMENT_SHADER, FRAGMENT]]) {
      const shader = gl.createShader(kind);
      gl.shaderSource(shader, text); gl.compileShader(shader);
      if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader));
      gl.attachShader(program, shader);
    }
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program));
    gl.useProgram(program);
    gl.enable(gl.BLEND); gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    this.gl = gl;
    this.at = name => gl.getUniformLocation(program, name);
    this.place = gl.getAttribLocation(program, "place"); this.colour = gl.getAttribLocation(program, "colour");
    this.places = gl.createBuffer(); this.colours = gl.createBuffer();
    for (const [buffer, attribute] of [[this.places, this.place], [this.colours, this.colour]]) {
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer); gl.enableVertexAttribArray(attribute);
    }
    this.name = "WebGL";
  }
  clear(canvas) { this.gl.viewport(0, 0, canvas.width, canvas.height); this.gl.clearColor(0, 0, 0, 0); this.gl.clear(this.gl.COLOR_BUFFER_BIT); }
  points(view, positions, d, colours, size, deep = d === 3) {
    const gl = this.gl;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.places); gl.bufferData(gl.ARRAY_BUFFER, positions, gl.DYNAMIC_DRAW);
    const short = positions instanceof Int16Array;
    // Two of 16 bits begin at multiples of four; three do not, and drivers may mind: the stride is said.
    gl.vertexAttribPointer(this.place, d, short ? gl.SHORT : gl.FLOAT, short, (short ? 2 : 4) * d, 0);
    gl.bindBuffer(gl.ARRAY_BUFFER, this.colours); gl.bufferData(gl.ARRAY_BUFFER, colours, gl.DYNAMIC_DRAW);
    gl.vertexAttribPointer(this.colour, 4, gl.UNSIGNED_BYTE, true, 0, 0);
    const m = view.matrix, { width, height } = view.canvas, least = Math.min(width, height);
    // GL wants columns.
    gl.uniformMatrix3fv(this.at("turn"), false, [m[0], m[3], m[6], m[1], m[4], m[7], m[2], m[5], m[8]]);
    gl.uniform2f(this.at("scale"), 0.9 * view.zoom * least / width, 0.9 * view.zoom * least / height);
    gl.uniform2f(this.at("shift"), 2 * view.shift[0] * least / width, -2 * view.shift[1] * least / height);
    gl.uniform1f(this.at("size"), size * (window.devicePixelRatio || 1));
    gl.uniform1f(this.at("deep"), deep ? 1 : 0);
    gl.drawArrays(gl.POINTS, 0, positions.length / d);
  }
}

class Flat {
  // The same on a 2D canvas.
  constructor(canvas) { this.context = canvas.getContext("2d"); this.name = "2D canvas"; }
  clear(canvas) { this.context.clearRect(0, 0, canvas.width, canvas.height); }
  points(view, positions, d, colours, size, deep = d === 3) {
    const step = Math.max(1, Math.ceil(positions.length / d / 4000)), r = 0.5 * size * (window.devicePixelRatio || 1);
    for (let k = 0; k < positions.length / d; k += step) {
      const [x, y, z] = view.onScreen(positions, d, k);
      this.context.fillStyle = `rgba(${colours[4 * k]},${colours[4 * k + 1]},${colours[4 * k + 2]},${colours[4 * k + 3] / 255 * (deep && z < 0 ? 0.25 : 1)})`;
      this.context.beginPath(); this.context.arc(x, y, r, 0, TAU); this.context.fill();
    }
  }
}

class View {
  // A canvas with a sphere in it that can be turned and zoomed; `paint(view)` draws what is on it.
  constructor(canvas, paint) {
    this.canvas = canvas; this.paint = paint; this.zoom = 1; this.shift = [0, 0]; this.matrix = HOME(); this.turnable = true;
    // The overlay has outlines and rings: lines are not WebGL's strength.
    this.over = document.createElement("canvas"); this.over.className = "over"; this.over.setAttribute("aria-hidden", "true");
    const frame = document.createElement("div"); frame.className = "globe";
    canvas.replaceWith(frame); frame.append(canvas, this.over);
    try {
      if (new URLSearchParams(location.hash.slice(1)).has("flat")) throw new Error("asked for");
      // On another canvas first: one that has begun with WebGL cannot go on without.
      new Glass(document.createElement("canvas")).gl.getExtension("WEBGL_lose_context")?.loseContext();
      this.renderer = new Glass(canvas);
      canvas.addEventListener("webglcontextlost", event => event.preventDefault());
      canvas.addEventListener("webglcontextrestored", () => { this.renderer = new Glass(canvas); this.draw(); });
    } catch { this.renderer = new Flat(canvas); }
    this.listen();
    new ResizeObserver(() => this.draw()).observe(frame);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }
  listen() {
    const held = new Map();
    let apart = 0;
    const { canvas } = this;
    canvas.addEventListener("pointerdown", e => { canvas.setPointerCapture(e.pointerId); held.set(e.pointerId, e); });
    canvas.addEventListener("pointerup", e => { held.delete(e.pointerId); apart = 0; });
    canvas.addEventListener("pointercancel", e => { held.delete(e.pointerId); apart = 0; });
    canvas.addEventListener("pointermove", e => {
      const before = held.get(e.pointerId);
      if (!before) { this.hover?.(e); return; }
      held.set(e.pointerId, e);
      const across = e.clientX - before.clientX, down = e.clientY - before.clientY;
      if (held.size === 2) {
        const [a, b] = [...held.values()], now = Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY);
        if (apart) this.zoomBy(now / apart, this.away({ clientX: (a.clientX + b.clientX) / 2, clientY: (a.clientY + b.clientY) / 2 }));
        apart = now;
      } else if (this.turnable && !e.shiftKey) this.turn(across / 150, down / 150);
      else { const side = this.side(); this.move(across / side, down / side); }
    });
    canvas.addEventListener("wheel", e => { e.preventDefault(); this.zoomBy(Math.exp(-e.deltaY / 500), this.away(e)); }, { passive: false });
    canvas.addEventListener("keydown", e => {
      if (e.ctrlKey || e.metaKey || e.altKey) return;
      const by = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[e.key];
      if (by) { if (this.turnable && !e.shiftKey) this.turn(...by); else this.move(-by[0] / 2, -by[1] / 2); e.preventDefault(); }
      if (e.key === "+" || e.key === "=") this.zoomBy(1.15);
      if (e.key === "-") this.zoomBy(1 / 1.15);
      if (e.key === "0") this.home();
    });
  }
  turn(across, down) {
    this.matrix = mat3(mat3(turnX(down), turnY(across)), this.matrix); this.moved = true; this.draw();
  }
  side() { const box = this.canvas.getBoundingClientRect(); return Math.min(box.width, box.height); }
  away(e) {
    // From the middle of the canvas, in its shorter side.
    const box = this.canvas.getBoundingClientRect(), side = this.side();
    return [(e.clientX - box.left - box.width / 2) / side, (e.clientY - box.top - box.height / 2) / side];
  }
  move(across, down) {
    // Something of the sphere stays in sight.
    const most = 0.45 * this.zoom + 0.4, within = v => Math.min(most, Math.max(-most, v));
    this.shift = [within(this.shift[0] + across), within(this.shift[1] + down)]; this.draw();
  }
  home() { this.zoom = 1; this.shift = [0, 0]; this.moved = false; this.matrix = this.turnable ? HOME() : FLAT(); this.draw(); }
  zoomBy(factor, [x, y] = [0, 0]) {
    // What is under the pointer stays there.
    const zoom = Math.min(20, Math.max(0.5, this.zoom * factor)), by = zoom / this.zoom;
    this.zoom = zoom;
    this.shift = zoom <= 1 ? [0, 0] : [x - by * (x - this.shift[0]), y - by * (y - this.shift[1])];
    this.move(0, 0);
  }
  setDimension(d) { if (this.turnable !== (d === 3)) { this.turnable = d === 3; this.matrix = d === 3 ? HOME() : FLAT(); } }
  turned(x, y, z) {
    const m = this.matrix;
    return [m[0] * x + m[1] * y + m[2] * z, m[3] * x + m[4] * y + m[5] * z, m[6] * x + m[7] * y + m[8] * z];
  }
  onScreen(positions, d, k) {
    const unit = positions instanceof Int16Array ? FINEST : 1;
    const [x, y, z] = this.turned(positions[d * k] / unit, positions[d * k + 1] / unit, d === 3 ? positions[d * k + 2] / unit : 0);
    const { width, height } = this.canvas, least = Math.min(width, height), reach = 0.45 * this.zoom * least;
    return [width / 2 + this.shift[0] * least + reach * x, height / 2 + this.shift[1] * least - reach * y, z];
  }
  draw() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      const ratio = window.devicePixelRatio || 1, box = this.canvas.getBoundingClientRect();
      for (const one of [this.canvas, this.over]) {
        const [w, h] = [Math.max(1, Math.round(box.width * ratio)), Math.max(1, Math.round(box.height * ratio))];
        if (one.width !== w || one.height !== h) { one.width = w; one.height = h; }
      }
      this.renderer.clear(this.canvas);
      const over = this.over.getContext("2d");
      over.clearRect(0, 0, this.over.width, this.over.height);
      this.outline(over);
      this.paint(this, over);
    });
  }
  outline(over) {
    const { width, height } = this.over, least = Math.min(width, height);
    over.strokeStyle = css("--faint"); over.lineWidth = window.devicePixelRatio || 1;
    over.beginPath(); over.arc(width / 2 + this.shift[0] * least, height / 2 + this.shift[1] * least, 0.45 * this.zoom * least, 0, TAU); over.stroke();
  }
  ring(over, positions, d, k, radius, colour) {
    const [x, y, z] = this.onScreen(positions, d, k), ratio = window.devicePixelRatio || 1;
    over.globalAlpha = d === 3 && z < -0.05 ? 0.35 : 1;
    over.strokeStyle = colour; over.lineWidth = 2 * ratio;
    over.beginPath(); over.arc(x, y, radius * ratio, 0, TAU); over.stroke();
    over.globalAlpha = 1;
  }
}

function hue(turn) {
  // A colour wheel of even lightness: readable on light and on dark.
  const c = shift => Math.round(255 * (0.52 + 0.4 * Math.cos(TAU * (turn + shift))));
  return [c(0), c(-1 / 3), c(1 / 3)];
}

const placeOf = (goals, d, k) => Array.from(goals.subarray(d * k, d * k + d), v => Math.round(1000 * v) + 0).join();

function coloursOf(goals, start, d) {
  // By where a token is sent: two colours for two points, a wheel for a circle; grey: nowhere. Without a limit: by start.
  const n = start.length / d, found = new Uint8Array(4 * n), known = goals.some(value => !Number.isNaN(value));
  const places = new Set();
  if (known) for (let k = 0; k < n && places.size < 3; k++) if (!Number.isNaN(goals[d * k])) places.add(placeOf(goals, d, k));
  const two = known && places.size <= 2, first = [...places][0], [across, up] = widest(known ? goals : start, d);
  for (let k = 0; k < n; k++) {
    let colour = [150, 150, 150];
    if (known && !Number.isNaN(goals[d * k])) {
      if (two) colour = placeOf(goals, d, k) === first ? [218, 106, 30] : [38, 126, 200];
      else colour = hue(Math.atan2(goals[d * k + up], goals[d * k + across]) / TAU);
    } else if (!known) colour = hue(Math.atan2(start[d * k + up], start[d * k + across]) / TAU);
    found.set([...colour, 210], 4 * k);
  }
  return found;
}

function widest(places, d) {
  // The two coordinates in which places differ most: a wheel of colours goes round in their plane.
  const sizes = Array.from({ length: d }, (_, c) => { let sum = 0; for (let k = c; k < places.length; k += d) sum += (places[k] || 0) ** 2; return sum; });
  return sizes.map((size, c) => [size, c]).sort((a, b) => b[0] - a[0]).slice(0, 2).map(pair => pair[1]).sort();
}

function distinct(goals, d, most) {
  // The different places tokens are sent to; more than `most`: a sample of them.
  const found = new Map();
  for (let k = 0; k < goals.length / d; k++) {
    if (Number.isNaN(goals[d * k])) continue;
    const place = goals.subarray(d * k, d * k + d), key = placeOf(goals, d, k);
    if (!found.has(key)) { found.set(key, place); if (found.size >= most) break; }
  }
  return Float32Array.from([...found.values()].flatMap(place => [...place]));
}
