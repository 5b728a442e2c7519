"use strict";
// Shows what the server tells (or what was written into the page): curves over runs, and ranks.
const EVERY = 1500; // milliseconds between looks
const COLOURS = ["#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2",
  "#7f7f7f", "#bcbd22", "#17becf"];
const KEPT = 1200; // looks at memory that are drawn
const MANY = 20000; // points of a plot that are worth a graphics processor
const $ = (id) => document.getElementById(id);
const runs = new Map(); // name -> {about, colour, shown, at, curves, resumes, counters, memory}
let looking = false;

async function ask(what) {
  if (SNAPSHOT !== null) return null;
  const answer = await fetch(what, { credentials: "same-origin" });
  if (!answer.ok) throw new Error(answer.status === 403 ? "the board was restarted: open the address that it printed" : `the board answers ${answer.status}`);
  return answer.json();
}

const runsNow = async () => (SNAPSHOT ? SNAPSHOT : ask("api/runs"));
const metricsOf = async (name, at) => (SNAPSHOT ? { ...SNAPSHOT.metrics[name] } : ask(`api/metrics?run=${encodeURIComponent(name)}&at=${at}`));
const ranksOf = async (name) => (SNAPSHOT ? SNAPSHOT.ranks[name] : ask(`api/ranks?run=${encodeURIComponent(name)}`));

function take(told) {
  $("root").textContent = told.root;
  const names = new Set(told.runs.map((r) => r.name));
  for (const name of [...runs.keys()]) if (!names.has(name)) runs.delete(name);
  for (const about of told.runs) {
    const known = runs.get(about.name);
    if (known) known.about = about;
    else runs.set(about.name, { about, colour: COLOURS[runs.size % COLOURS.length], shown: runs.size < 10, at: 0, curves: {}, resumes: [], counters: new Set(), memory: new Map() });
  }
}

function merge(run, told) {
  if (told.whole) { run.curves = {}; run.resumes = []; run.counters = new Set(told.counters); }
  run.resumes.push(...told.resumes);
  for (const step of told.whole ? [] : told.resumes) {
    for (const curve of Object.values(run.curves)) {
      const keep = curve[0].filter((s) => s <= step).length;
      curve[0].length = curve[1].length = keep;
    }
  }
  for (const [name, [steps, values]] of Object.entries(told.curves)) {
    if (run.counters.has(name)) continue;
    const curve = (run.curves[name] ??= [[], []]);
    for (let i = 0; i < steps.length; i++) { curve[0].push(steps[i]); curve[1].push(values[i]); }
  }
  run.at = told.at;
}

// While a run is short all of it is asked for: only of a curve with some points it is known that it merely counts.
const SHORT = 50;
const placeIn = (run) => (Object.values(run.curves).every((curve) => curve[0].length < SHORT) ? 0 : run.at);

function smoothed(values, weight) {
  let last = 0, norm = 0;
  return values.map((v) => {
    if (v === null) return null;
    last = last * weight + v * (1 - weight);
    norm = norm * weight + (1 - weight);
    return last / norm;
  });
}

function look(title, extra) {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  return { title: { text: title, font: { size: 13 } }, margin: { l: 56, r: 32, t: 34, b: 44 },
    modebar: { orientation: "v", bgcolor: "rgba(0,0,0,0)" },
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", font: { color: dark ? "#ddd" : "#222", size: 11 },
    showlegend: false, uirevision: title, ...extra };
}
const OPTIONS = { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["select2d", "lasso2d"] };
const draw = (where, data, layout) => Plotly.react(where, data, layout, OPTIONS);

function drawList() {
  const wanted = $("filter").value.toLowerCase(), list = $("runs");
  list.replaceChildren(...[...runs.values()].filter((r) => r.about.name.toLowerCase().includes(wanted)).map((run) => {
    const item = document.createElement("li"), label = document.createElement("label");
    const box = Object.assign(document.createElement("input"), { type: "checkbox", checked: run.shown });
    box.addEventListener("change", () => { run.shown = box.checked; step(); });
    const dot = Object.assign(document.createElement("span"), { className: "dot" });
    dot.style.background = run.colour;
    const name = Object.assign(document.createElement("span"), { className: "name", textContent: run.about.name });
    label.append(box, dot, name);
    item.append(label);
    item.classList.toggle("live", run.about.fresh && SNAPSHOT === null);
    return item;
  }));
}

function drawCurves() {
  const shown = [...runs.values()].filter((r) => r.shown), weight = Number($("smooth").value);
  const names = [...new Set(shown.flatMap((r) => Object.keys(r.curves)))].sort(byWeight);
  const area = $("curves");
  for (const old of [...area.children]) if (!names.includes(old.dataset.name)) { Plotly.purge(old); old.remove(); }
  for (const name of names) {
    let place = [...area.children].find((c) => c.dataset.name === name);
    if (!place) {
      place = Object.assign(document.createElement("div"), { className: "plot" });
      place.dataset.name = name;
      const next = [...area.children].find((c) => byWeight(name, c.dataset.name) < 0);
      area.insertBefore(place, next ?? null);
    }
    const those = shown.filter((r) => r.curves[name]);
    const type = those.reduce((n, r) => n + r.curves[name][0].length, 0) > MANY && webgl() ? "scattergl" : "scatter";
    const data = those.map((r) => ({
      type, mode: r.curves[name][0].length < 40 ? "lines+markers" : "lines", name: r.about.name,
      x: [...r.curves[name][0]], y: weight ? smoothed(r.curves[name][1], weight) : [...r.curves[name][1]],
      line: { color: r.colour, width: 1.6 }, connectgaps: false }));
    const shapes = those.flatMap((r) => r.resumes.map((x) => ({ type: "line", x0: x, x1: x, y0: 0, y1: 1, yref: "paper",
      line: { color: r.colour, width: 1, dash: "dot" }, label: { text: "resumed", font: { size: 9 }, textposition: "end" } })));
    draw(place, data, look(name, { shapes, xaxis: { title: { text: "step", standoff: 2 }, automargin: true }, yaxis: { type: $("log").checked ? "log" : "linear" } }));
  }
}
// Is there a graphics processor? Without one a context is drawn by the processor, slower than none, or draws nothing.
let hasWebgl = null;
function webgl() {
  const context = () => document.createElement("canvas").getContext("webgl", { failIfMajorPerformanceCaveat: true });
  try { return (hasWebgl ??= Boolean(context())); } catch { return (hasWebgl = false); }
}
const WEIGHTS = [/loss/, /accuracy/, /samples_per_second|throughput|tokens/, /memory/];
const weightOf = (name) => { const i = WEIGHTS.findIndex((w) => w.test(name)); return i < 0 ? WEIGHTS.length : i; };
const byWeight = (a, b) => weightOf(a) - weightOf(b) || (a < b ? -1 : a > b ? 1 : 0);

function chosenRun() {
  const those = [...runs.values()].filter((r) => r.about.ranks || r.about.report), select = $("run");
  const names = those.map((r) => r.about.name);
  if ([...select.options].map((o) => o.value).join("\n") !== names.join("\n")) {
    const before = select.value;
    select.replaceChildren(...names.map((n) => new Option(n, n)));
    if (names.includes(before)) select.value = before;
  }
  $("ranks").hidden = !names.length;
  return runs.get(select.value);
}

function drawRanks(run, told) {
  const rows = told.ranks, report = told.report, failed = report && report.root_cause;
  $("failure").hidden = !failed;
  if (failed) $("failure").textContent = `rank ${failed.rank}: ${failed.cause}\n\n${failed.traceback ?? ""}`;
  const names = rows.map((r) => `rank ${r.rank}`);
  draw($("lateness"), [{ type: "bar", x: names, y: rows.map((r) => r.late_ms ?? 0),
    marker: { color: "#d62728" }, text: rows.map((r) => (r.waited === null ? "" : `waits ${Math.round(r.waited * 100)} %`)) }],
  look("lateness at collectives (ms after the first)", { yaxis: { rangemode: "tozero" } }));
  const now = Date.now();
  for (const r of rows) {
    if (!r.memory) continue;
    const kept = run.memory.get(r.rank) ?? run.memory.set(r.rank, []).get(r.rank);
    kept.push([now, r.memory / 2 ** 20]);
    if (kept.length > KEPT) kept.shift();
  }
  $("memory").hidden = run.memory.size === 0;
  if (run.memory.size) draw($("memory"), [...run.memory].map(([rank, kept], i) => ({ type: "scatter", mode: "lines+markers", marker: { size: 3 }, name: `rank ${rank}`,
    x: kept.map((k) => new Date(k[0])), y: kept.map((k) => k[1]), line: { color: COLOURS[i % COLOURS.length] } })),
  look("memory (MiB resident, since this page is open)", { yaxis: { rangemode: "tozero" } }));
  drawTimeline(told.spans, rows);
  drawTable(rows);
}

function drawTimeline(spans, rows) {
  const start = Math.min(...spans.map((s) => s.begun)), verbs = [...new Set(spans.map((s) => s.verb))].sort();
  const data = verbs.map((verb, i) => {
    const those = spans.filter((s) => s.verb === verb);
    return { type: "bar", orientation: "h", name: verb, y: those.map((s) => `rank ${s.rank}`), base: those.map((s) => s.begun - start),
      x: those.map((s) => Math.max(s.ms, 0.001)), marker: { color: COLOURS[i % COLOURS.length] },
      customdata: those.map((s) => [plain(s.text), s.ms, s.state, plain(s.group)]),
      hovertemplate: "%{customdata[0]}<br>%{customdata[1]:.3f} ms, %{customdata[2]}, group %{customdata[3]}<extra>%{y}</extra>" };
  });
  const height = Math.min(900, 120 + 26 * Math.max(1, rows.length));
  draw($("timeline"), data, look("last collectives (ms)", { barmode: "overlay", height, showlegend: true,
    yaxis: { autorange: "reversed", categoryorder: "array", categoryarray: rows.map((r) => `rank ${r.rank}`) } }));
}
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").slice(0, 300);

const COLUMNS = [["rank", (r) => r.rank], ["host", (r) => r.host], ["pid", (r) => r.pid || ""], ["state", (r) => r.state], ["step", (r) => r.step],
  ["steps/s", (r) => number(r.steps_per_second)], ["samples/s", (r) => number(r.samples_per_second)], ["late ms", (r) => number(r.late_ms)],
  ["waits %", (r) => (r.waited === null ? "" : Math.round(r.waited * 100))], ["CPU %", (r) => (r.cpu === null ? "" : Math.round(r.cpu * 100))],
  ["memory MiB", (r) => (r.memory ? Math.round(r.memory / 2 ** 20) : "")], ["doing", (r) => r.doing]];
const number = (v) => (v === null || v === undefined ? "" : v >= 100 ? Math.round(v).toLocaleString() : v.toPrecision(3));
function drawTable(rows) {
  const line = (kind, cells) => { const tr = document.createElement("tr"); tr.append(...cells.map((c) => Object.assign(document.createElement(kind), { textContent: c }))); return tr; };
  $("table").replaceChildren(line("th", COLUMNS.map((c) => c[0])), ...rows.map((r) => line("td", COLUMNS.map((c) => c[1](r)))));
}

async function step() {
  if (looking) return;
  looking = true;
  try {
    take(await runsNow());
    drawList();
    const shown = [...runs.values()].filter((r) => r.shown && r.about.metrics);
    await Promise.all(shown.map(async (run) => merge(run, await metricsOf(run.about.name, placeIn(run)))));
    drawCurves();
    const run = chosenRun();
    $("views").classList.toggle("running", Boolean(run && run.about.fresh && SNAPSHOT === null));
    if (run) drawRanks(run, await ranksOf(run.about.name));
    $("empty").hidden = runs.size > 0;
    $("empty").textContent = "No runs yet. A run is a folder with metrics.jsonl (disttrain.metrics.JsonLines), or a dtrun --log-dir.";
    $("state").textContent = SNAPSHOT ? "a snapshot" : `live, ${new Date().toLocaleTimeString()}`;
    document.body.dataset.ready = "yes";
  } catch (error) {
    $("state").textContent = `not live: ${error.message}`;
  } finally {
    looking = false;
  }
}

$("filter").addEventListener("input", drawList);
for (const id of ["log", "smooth"]) $(id).addEventListener("input", drawCurves);
$("run").addEventListener("change", step);
step();
if (SNAPSHOT === null) setInterval(() => { if (!document.hidden) step(); }, EVERY);
