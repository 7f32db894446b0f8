"use strict";
// The page: it connects, keeps the points that are shown, and redraws. Nothing is loaded from elsewhere.

const NUMBERS = [
  ["p50", "window_p50_us", "time"], ["p90", "window_p90_us", "time"], ["p95", "window_p95_us", "time"], ["p99", "window_p99_us", "time"], ["p99.9", "window_p99_9_us", "time"],
  ["p50, all", "whole_p50_us", "time"], ["p99, all", "whole_p99_us", "time"], ["p99.9, all", "whole_p99_9_us", "time"],
  ["Jitter", "window_jitter_us", "time"], ["Longest, all", "whole_max_us", "time"],
  ["Runs/s", "throughput_runs_per_s", ""], ["Runs", "whole_run_count", "big"], ["Failed runs", "failed_run_count", ""],
  ["Waiting requests", "queue_depth_count", ""], ["Batch size", "batch_size_count", ""],
  ["Offered/s", "offered_runs_per_s", "", "load"], ["In flight", "in_flight_count", "", "load"],
  ["Tokens/s", "output_tokens_per_s", "", "load"], ["First token", "time_to_first_token_us", "time", "load"], ["Between tokens", "inter_token_us", "time", "load"],
  ["Power, W", "total_power_w", ""], ["Energy per run, J", "energy_per_run_j", ""],
  ["Processor, host", "cpu_utilization_share:host", "share"], ["Memory, process", "memory_resident_bytes:process", "bytes"],
];
const EFFICIENCY = [
  ["FLOP/s", "flop_per_s", "big", "operations that can be counted, and runs"],
  ["Share of the peak", "peak_share", "share", "ceilings of this host"],
  ["FLOP/s per watt", "flop_per_s_per_w", "big", "a power sensor, or a given power"],
  ["gCO2e of a million runs", "million_runs_gco2e", "", "a power sensor, or a given power"],
  ["Runs per dollar", "runs_per_usd", "big", "the price of this host"],
];
const EVERY_S = { 60: 0.05, 600: 1, 3600: 10 }; // least distance of two points that are kept
const STEP_S = { 60: 1, 600: 1, 3600: 10 }; // step of the history that fills the time before
const SPOKEN_MS = 15000;
const NODES_MS = 10000, MOST_NODES = 12;
const WRONG_TOKEN = 4401;
const at = (id) => document.getElementById(id);

let token = "", socket = null, retry_ms = 500, paused = false, connected = false, zoom = null, newest = null, points = [], spoken_ms = 0, nodes_ms = -Infinity;
let charts = [], cells = null, roof = null;

function takeToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem("token", given);
    history.replaceState(null, "", location.pathname);
  }
  token = sessionStorage.getItem("token") ?? "";
}

function say(text) { if (at("state").textContent !== text) at("state").textContent = text; }

function askForToken(reason) {
  at("login").hidden = false;
  at("refused").textContent = reason;
  at("token").focus();
  say("a token is needed");
}

async function ask(path) {
  const answer = await fetch(path, { headers: { Authorization: `Bearer ${token}` } });
  return answer.ok ? answer.json() : null;
}

async function fill() {
  const range = Number(at("range").value);
  points = [];
  const past = await ask(`api/metrics/history?duration=${range}&step=${STEP_S[range]}`);
  if (!past) return;
  const older = past.points.map(([time, , figures]) => ({ time, figures: inWindows(figures) }));
  points = [...older.filter((point) => !points.length || point.time < points[0].time), ...points];
}

// In the history a latency has no window: it is that of its step.
function inWindows(figures) {
  const latency = /^(p\d+(_\d)?|mean|jitter|max)_us$/;
  return Object.fromEntries(Object.entries(figures).map(([name, value]) => [latency.test(name) ? `window_${name}` : name, value]));
}

function connect() {
  socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/metrics`);
  socket.onopen = () => { socket.send(JSON.stringify({ token })); };
  socket.onmessage = (message) => take(JSON.parse(message.data));
  socket.onclose = (event) => {
    connected = false;
    if (event.code === WRONG_TOKEN) { sessionStorage.removeItem("token"); askForToken("This token is not the server's."); return; }
    say(`no connection; next try in ${(retry_ms / 1000).toFixed(1)} s`);
    setTimeout(start, retry_ms);
    retry_ms = Math.min(2 * retry_ms, 5000);
  };
}

function take(tick) {
  if (!connected) { connected = true; retry_ms = 500; fill().catch(() => {}); }
  at("login").hidden = true;
  newest = tick;
  keep(tick);
  const state = tick.problem || (tick.is_ready ? "live" : "waiting for the first run");
  say(paused ? `${state}; the page is paused` : state);
  showAlarms(tick.alarms);
  speak(tick);
  if (paused) return;
  draw();
  if (tick.is_ready && performance.now() - nodes_ms > NODES_MS) {
    nodes_ms = performance.now();
    ask("api/nodes").then(showNodes, () => {});
  }
}

function keep(tick) {
  if (paused) return;
  const range = Number(at("range").value), last = points.at(-1);
  if (!last || tick.time_s - last.time >= EVERY_S[range]) points.push({ time: tick.time_s, figures: tick.figures });
  const first = points.findIndex((point) => point.time >= tick.time_s - range);
  if (first > 0) points.splice(0, first);
}

function showAlarms(names) {
  const text = names.length ? `Alarm: ${names.join(", ")}` : "";
  if (at("alarms").textContent !== text) at("alarms").textContent = text;
}

// A screen reader hears a sentence now and then, not ten numbers a second.
function speak(tick) {
  if (paused || performance.now() - spoken_ms < SPOKEN_MS) return;
  spoken_ms = performance.now();
  const figures = tick.figures;
  at("spoken").textContent = `median ${shown(figures.window_p50_us, "time")}, ${shown(figures.throughput_runs_per_s, "")} runs per second`;
}

function text(value, unit) { return unit === "share" && value !== null && value !== undefined ? `${short(100 * value)} %` : shown(value, unit); }

function fillOnce() {
  for (const [label] of NUMBERS) {
    const box = document.createElement("div"), name = document.createElement("dt"), value = document.createElement("dd");
    name.textContent = label;
    box.append(name, value);
    at("numbers").append(box);
  }
  for (const [label, , , needs] of EFFICIENCY) row(at("efficiency"), [label, "", needs]);
  cells = new Cells(at("charts"), { title: "Histogram of the last 10 s", unit: "time", series: [] });
  charts = CHARTS.map((about) => new Chart(at("charts"), about, (range) => { zoom = range; draw(); }));
  roof = new Roof(at("charts"), { title: "Roofline of the last 10 s", unit: "big", series: [] });
}

function row(table, texts) {
  const line = table.tBodies[0].insertRow();
  for (const content of texts) line.insertCell().textContent = content;
  return line;
}

function draw() {
  if (!newest) return;
  at("model").textContent = newest.model;
  [...at("numbers").querySelectorAll("dd")].forEach((cell, index) => {
    const [, key, unit] = NUMBERS[index], value = newest.figures[key] ?? null;
    cell.textContent = value === null ? "unavailable" : text(value, unit);
    cell.classList.toggle("unknown", value === null);
    cell.parentElement.hidden = value === null && NUMBERS[index][3] === "load";
  });
  [...at("efficiency").tBodies[0].rows].forEach((line, index) => {
    const [, key, unit] = EFFICIENCY[index], value = newest.figures[key] ?? null;
    line.cells[1].textContent = value === null ? "unavailable" : text(value, unit);
  });
  showSlow(newest.slow_runs);
  if (at("every").closest("details").open) listEvery();
  const names = [...new Set([...Object.keys(points[0]?.figures ?? {}), ...Object.keys(newest.figures)])];
  const seen = zoom ? points.filter((point) => point.time >= zoom[0] && point.time <= zoom[1]) : points;
  if (seen.length) for (const chart of charts) chart.draw(seen, names, zoom);
  cells.draw(newest.cells);
  roof.draw(newest.figures);
}

// The longest nodes, each with a bar, and the others in one row.
function showNodes(nodes) {
  if (!nodes) return;
  const others = nodes.slice(MOST_NODES);
  const rows = nodes.slice(0, MOST_NODES);
  if (others.length) rows.push({ node: `${others.length} others`, op_type: "", share: others.reduce((sum, one) => sum + one.share, 0) });
  at("nodes").tBodies[0].replaceChildren();
  for (const { node, op_type, share } of rows) {
    const bar = Object.assign(document.createElement("meter"), { max: 1, value: share, ariaLabel: `${short(100 * share)} %` });
    row(at("nodes"), [node, op_type, `${short(100 * share)} %`, ""]).lastElementChild.append(bar);
  }
  at("nodes").closest("section").hidden = !nodes.length;
}

function showSlow(lines) {
  const text = lines.length ? lines : ["none was seen"];
  if ([...at("slow").children].map((line) => line.textContent).join("\n") === text.join("\n")) return;
  at("slow").replaceChildren(...text.map((line) => Object.assign(document.createElement("li"), { textContent: line })));
}

function listEvery() {
  at("every").tBodies[0].replaceChildren();
  for (const [name, value] of Object.entries(newest.figures)) row(at("every"), [name, value === null ? "unavailable" : String(value)]);
}

function zoomBy(factor) {
  if (points.length < 2) return;
  const [low, high] = zoom ?? [points[0].time, points.at(-1).time];
  const middle = (low + high) / 2, half = (high - low) / 2 * factor;
  zoom = factor > 1 && (middle - half <= points[0].time) ? null : [middle - half, middle + half];
  draw();
}

// A share of what is seen, towards earlier or later times; what is newest goes on to be shown where nothing is zoomed.
function moveBy(share) {
  if (!zoom || points.length < 2) return;
  const width = zoom[1] - zoom[0], first = points[0].time, last = points.at(-1).time;
  const low = Math.max(first, Math.min(zoom[0] + share * width, last - width));
  zoom = [low, low + width];
  draw();
}

function save(content, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

function csv() {
  const seen = zoom ? points.filter((point) => point.time >= zoom[0] && point.time <= zoom[1]) : points;
  const names = [...new Set(seen.flatMap((point) => Object.keys(point.figures)))];
  const lines = seen.map((point) => [point.time, ...names.map((name) => point.figures[name] ?? "")].join());
  return [["time_s", ...names].join(), ...lines].join("\n") + "\n";
}

// All charts that are seen, below each other, with their titles and the names of their lines.
function png(then) {
  const seen = [cells, ...charts, roof].filter((chart) => chart.plot && !chart.figure.hidden);
  const scale = devicePixelRatio, head = 44 * scale;
  const sizes = seen.map((chart) => chart.plot.ctx.canvas);
  const canvas = document.createElement("canvas");
  canvas.width = Math.max(...sizes.map((size) => size.width));
  canvas.height = sizes.reduce((sum, size) => sum + size.height + head, 0);
  const pen = canvas.getContext("2d");
  pen.fillStyle = colour("--page");
  pen.fillRect(0, 0, canvas.width, canvas.height);
  let top = 0;
  for (const chart of seen) {
    pen.fillStyle = colour("--text");
    pen.font = `bold ${14 * scale}px sans-serif`;
    pen.fillText(chart.about.title, 8 * scale, top + 18 * scale);
    pen.font = `${12 * scale}px sans-serif`;
    let left = 8 * scale;
    for (const series of chart.plot.series.slice(1)) {
      pen.fillStyle = typeof series.stroke === "function" ? series.stroke() : series.stroke;
      pen.fillText(series.label, left, top + 36 * scale);
      left += pen.measureText(series.label).width + 16 * scale;
    }
    pen.drawImage(chart.plot.ctx.canvas, 0, top + head);
    top += chart.plot.ctx.canvas.height + head;
  }
  canvas.toBlob(then);
}

function start() {
  if (!token) { askForToken(""); return; }
  connect();
}

at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value.trim();
  sessionStorage.setItem("token", token);
  start();
});
at("pause").addEventListener("click", () => {
  paused = !paused;
  at("pause").setAttribute("aria-pressed", String(paused));  // its name stays, as that of every toggle button
  if (!paused) fill().then(draw, () => {});
});
at("range").addEventListener("change", () => { zoom = null; fill().then(draw, () => {}); });
at("zoom-in").addEventListener("click", () => zoomBy(0.5));
at("zoom-out").addEventListener("click", () => zoomBy(2));
at("earlier").addEventListener("click", () => moveBy(-0.5));
at("later").addEventListener("click", () => moveBy(0.5));
at("zoom-all").addEventListener("click", () => { zoom = null; draw(); });
at("csv").addEventListener("click", () => save(new Blob([csv()], { type: "text/csv" }), "dashboard.csv"));
at("png").addEventListener("click", () => png((blob) => save(blob, "dashboard.png")));
at("charts").addEventListener("dblclick", () => { zoom = null; draw(); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { for (const chart of [roof, cells, ...charts]) chart.forget(); draw(); });
fillOnce();
takeToken();
start();
