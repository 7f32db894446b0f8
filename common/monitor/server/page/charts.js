"use strict";
// The charts: what each one shows, and one uPlot per chart. A chart without any value is hidden.

// Colours that colour-blind readers can tell apart (Okabe and Ito 2008), and a dash for those who see none.
const LOOKS = [["#0072b2", []], ["#d55e00", [8, 4]], ["#009e73", [2, 3]], ["#cc79a7", [12, 3, 3, 3]], ["#e69f00", [5, 2]], ["#56b4e9", [1, 2]]];

// key: of a figure; a key that ends with ":" stands for all places of it. In the history, a latency is that of its step.
const CHARTS = [
  { title: "Latency", unit: "time", log: true, series: [["p50", "window_p50_us"], ["p90", "window_p90_us"], ["p95", "window_p95_us"], ["p99", "window_p99_us"], ["p99.9", "window_p99_9_us"]] },
  { title: "Throughput, runs/s", unit: "big", series: [["runs/s", "throughput_runs_per_s"], ["offered", "offered_runs_per_s"]] },
  { title: "Jitter (standard deviation)", unit: "time", series: [["jitter", "window_jitter_us"]] },
  { title: "Queue and batch", unit: "", series: [["waiting requests", "queue_depth_count"], ["batch size", "batch_size_count"], ["in flight", "in_flight_count"]] },
  { title: "Tokens per second", unit: "big", series: [["tokens/s", "output_tokens_per_s"]] },
  { title: "Time of a token", unit: "time", log: true, series: [["first token", "time_to_first_token_us"], ["between two tokens", "inter_token_us"]] },
  { title: "Power, W", unit: "", series: [["all domains", "total_power_w"], ["", "power_w:"]] },
  { title: "Energy per run, J", unit: "", series: [["energy", "energy_per_run_j"]] },
  { title: "Temperature, °C", unit: "", series: [["", "temperature_c:"]] },
  { title: "Processor, share", unit: "", series: [["", "cpu_utilization_share:"]] },
  { title: "Memory", unit: "bytes", series: [["", "memory_resident_bytes:"], ["GPU", "gpu_memory_used_bytes:"]] },
  { title: "GPU, share", unit: "", series: [["SM", "sm_occupancy_share:"], ["tensor cores", "tensor_activity_share:"], ["bandwidth", "dram_bandwidth_share:"], ["busy", "gpu_utilization_share:"]] },
  { title: "Operations per second", unit: "big", series: [["attained", "flop_per_s"], ["roof at this intensity", "attainable_flop_per_s"]] },
];

const PREFIXES = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

function short(value) { return Math.abs(value) >= 1000 ? value.toFixed(0) : String(+value.toPrecision(3)); }

function scaled(value) {
  const [size, letter] = PREFIXES.find(([least]) => Math.abs(value) >= least) ?? [1, ""];
  return [short(value / size), letter];
}

// A value as a reader takes it: times come in µs.
function shown(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "time") {
    const [size, name] = value >= 1e6 ? [1e6, "s"] : value >= 1e3 ? [1e3, "ms"] : [1, "µs"];
    return `${short(value / size)} ${name}`;
  }
  if (unit === "bytes") { const [text, letter] = scaled(value); return `${text} ${letter}B`; }
  if (unit === "big") { const [text, letter] = scaled(value); return `${text}${letter}`; }
  return short(value);
}

function clockTime(time_s) { return new Date(1000 * time_s).toLocaleTimeString([], { hour12: false }); }

function colour(name) { return getComputedStyle(document.documentElement).getPropertyValue(name).trim(); }

function axis(unit, more) {
  return { stroke: colour("--text"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") }, size: 64,
    values: (_, splits) => splits.map((value) => value === null ? "" : shown(value, unit)), ...more };
}

class Chart {
  constructor(parent, about, onZoom) {
    this.about = about;
    this.onZoom = onZoom;
    this.figure = document.createElement("figure");
    const caption = document.createElement("figcaption");
    caption.textContent = about.title;
    this.holder = document.createElement("div");
    this.holder.setAttribute("role", "img");
    this.figure.append(caption, this.holder);
    this.figure.hidden = true;
    parent.append(this.figure);
    this.keys = "";
    new ResizeObserver(() => this.fit()).observe(this.figure);
  }

  fit() { if (this.plot && this.figure.clientWidth) this.plot.setSize(this.size()); }

  size() { return { width: Math.max(200, this.figure.clientWidth - 20), height: 190 }; }

  // Names of the lines: those of all places where a key stands for them.
  lines(names) {
    return this.about.series.flatMap(([label, key]) => key.endsWith(":")
      ? names.filter((name) => name.startsWith(key)).map((name) => [`${label} ${name.slice(key.length)}`.trim(), name])
      : names.includes(key) ? [[label, key]] : []);
  }

  draw(points, names, zoom) {
    const lines = this.lines(names);
    const times = points.map((point) => point.time);
    const data = [times, ...lines.map(([, key]) => points.map((point) => point.figures[key] ?? null))];
    const used = data.slice(1).some((values) => values.some((value) => value !== null));
    this.figure.hidden = !used;
    if (!used) return;
    const keys = lines.map(([, key]) => key).join();
    if (!this.plot || keys !== this.keys) this.make(lines, keys);
    this.plot.setData(data, false);
    this.plot.setScale("x", zoom ? { min: zoom[0], max: zoom[1] } : { min: times[0], max: Math.max(times.at(-1), times[0] + 1) });
    const newest = lines.map(([label], index) => `${label} ${shown(data[index + 1].at(-1), this.about.unit)}`);
    this.holder.setAttribute("aria-label", `${this.about.title}: ${newest.join(", ")}`);
  }

  make(lines, keys) {
    this.plot?.destroy();
    this.keys = keys;
    const unit = this.about.unit;
    this.plot = new uPlot({
      ...this.size(), cursor: { sync: { key: "time" }, drag: { x: true, y: false, setScale: false } },
      scales: { x: { time: true }, y: this.about.log ? { distr: 3, range: (_, low, high) => [10 ** Math.floor(Math.log10(low || 1)), 10 ** Math.ceil(Math.log10((high || 1) * 1.01))] }
        : { range: (_, low, high) => [0, Math.max(high ?? 0, 1e-9) * 1.1] } },
      axes: [axis("", { values: (_, splits) => splits.map(clockTime), size: 34, space: 90 }), axis(unit)],
      series: [{ label: "time", value: (_, value) => value === null ? "–" : clockTime(value) }, ...lines.map(([label], index) => ({
        label, stroke: LOOKS[index % LOOKS.length][0], dash: LOOKS[index % LOOKS.length][1], width: 2, spanGaps: true, points: { show: false },
        value: (_, value) => shown(value, unit) }))],
      hooks: { setSelect: [(plot) => {
        if (plot.select.width > 5) this.onZoom([plot.posToVal(plot.select.left, "x"), plot.posToVal(plot.select.left + plot.select.width, "x")]);
        plot.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
      }] },
    }, [[], ...lines.map(() => [])], this.holder);
  }

  forget() { this.plot?.destroy(); this.plot = null; this.keys = ""; }
}

// The roofline of the last 10 s: both roofs of the host, and the model under them, on logarithmic axes.
class Roof extends Chart {
  draw({ peak_flop_per_s: peak, memory_bytes_per_s: bandwidth, intensity_flop_per_byte: intensity, flop_per_s: attained }) {
    this.figure.hidden = !(peak && bandwidth && intensity && attained);
    if (this.figure.hidden) return;
    const ridge = peak / bandwidth, roofAt = (at) => Math.min(peak, bandwidth * at);
    const places = [...new Set([Math.min(ridge, intensity) / 8, ridge, intensity, Math.max(ridge, intensity) * 8])].sort((one, other) => one - other);
    if (!this.plot) this.make();
    this.plot.setData([places, places.map(roofAt), places.map((at) => at === intensity ? attained : null)]);
    const bound = intensity < ridge ? "the memory" : "the processor";
    this.holder.setAttribute("aria-label", `Roofline: ${shown(attained, "big")}FLOP/s at ${short(intensity)} FLOP/byte, ${short(100 * attained / roofAt(intensity))} % of the roof, which ${bound} sets`);
  }

  make() {
    const whole = (_, low, high) => [10 ** Math.floor(Math.log10(low)), 10 ** Math.ceil(Math.log10(high * 1.01))];
    this.plot = new uPlot({
      ...this.size(), cursor: { drag: { x: false, y: false } },
      scales: { x: { time: false, distr: 3, range: (_, low, high) => [low, high] }, y: { distr: 3, range: whole } },
      axes: [axis("", { size: 34 }), axis("big")],
      series: [{ label: "FLOP/byte", value: (_, value) => shown(value, "") },
        { label: "roof, FLOP/s", stroke: LOOKS[0][0], width: 2, points: { show: false }, value: (_, value) => shown(value, "big") },
        { label: "attained, FLOP/s", stroke: LOOKS[1][0], width: 0, points: { show: true, size: 11, fill: LOOKS[1][0] }, value: (_, value) => shown(value, "big") }],
    }, [[], [], []], this.holder);
  }
}

// The histogram of the window: counts over latency, on a logarithmic axis.
class Cells extends Chart {
  draw(cells) {
    this.figure.hidden = !cells.length;
    if (!cells.length) return;
    const step = 2 ** 0.25;
    const edges = [...cells.map(([low]) => low), cells.at(-1)[0] * step];
    const counts = [...cells.map(([, count]) => count), 0];
    if (!this.plot) this.make();
    this.plot.setData([edges, counts]);
    const most = cells.reduce((best, cell) => cell[1] > best[1] ? cell : best);
    this.holder.setAttribute("aria-label", `Histogram of latency: most runs from ${shown(most[0], "time")} to ${shown(most[0] * step, "time")}`);
  }

  make() {
    this.plot = new uPlot({
      ...this.size(), cursor: { drag: { x: false, y: false } },
      scales: { x: { time: false, distr: 3, log: 2, range: (_, low, high) => [low / 1.3, high * 1.3] }, y: { range: (_, low, high) => [0, Math.max(high, 1) * 1.1] } },
      axes: [axis("time", { size: 40 }), axis("")],
      series: [{ label: "from", value: (_, value) => shown(value, "time") },
        { label: "runs", stroke: LOOKS[0][0], fill: `${LOOKS[0][0]}66`, width: 1, paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }],
    }, [[], []], this.holder);
  }
}
