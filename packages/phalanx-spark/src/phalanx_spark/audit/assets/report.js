"use strict";
const report = JSON.parse(document.getElementById("report").textContent);
const charts = report.charts;
const root = document.documentElement;
const make = (tag, attributes = {}, ...inside) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
};
const count = (n, what, plural = what + "s") => `${n.toLocaleString("en")} ${n === 1 ? what : plural}`;
const isSimulated = report.ends < 1e12; // simulated time counts from 0
const clock = (at) => isSimulated ? `${(at / 1000).toFixed(3)} s`
  : new Date(at).toLocaleString("sv") + "." + String(Math.floor(at) % 1000).padStart(3, "0");
const lasted = (ms) => ms < 1000 ? `${Math.round(ms)} ms` : ms < 120000 ? `${(ms / 1000).toFixed(1)} s`
  : ms < 7200000 ? `${(ms / 60000).toFixed(0)} min` : `${(ms / 3600000).toFixed(1)} h`;
const statusClass = (status) => status === "cannot be told" ? "untold" : status;
const icon = { holds: "✓ holds", broken: "✗ broken", "cannot be told": "? cannot be told" };

// --- verdicts ---------------------------------------------------------------------------------------------------------

function showVerdicts() {
  const broken = report.verdicts.filter((v) => v.status === "broken");
  const untold = report.verdicts.filter((v) => v.status === "cannot be told");
  const headline = document.getElementById("headline");
  headline.textContent = broken.length ? `${count(broken.length, "property", "properties")} broken: ${broken.map((v) => v.title).join(", ")}`
    : untold.length ? `Nothing is broken; ${count(untold.length, "property", "properties")} cannot be told`
    : `All ${report.verdicts.length} properties hold`;
  headline.className = broken.length ? "broken" : untold.length ? "untold" : "holds";
  document.getElementById("summary").textContent =
    `${count(report.events, "event")} of ${count(report.members, "member")} in ${count(report.files, "file")}`
    + (report.histories > 1 ? `, ${count(report.histories, "history", "histories")}` : "")
    + `, ${clock(report.begins)} to ${clock(report.ends)} (${lasted(report.ends - report.begins)})`
    + (report.bad_lines ? `; ${count(report.bad_lines, "line is", "lines are")} no event` : "") + `. ${report.folder}`;
  for (const { question, answer, status } of report.answers)
    document.getElementById("answers").append(make("dt", {}, question), make("dd", { class: statusClass(status) }, answer));
  const order = { broken: 0, "cannot be told": 1, holds: 2 };
  const sorted = [...report.verdicts].sort((a, b) => order[a.status] - order[b.status]);
  for (const verdict of sorted) document.getElementById("verdicts").append(verdictCard(verdict));
}

function verdictCard(verdict) {
  const kind = statusClass(verdict.status);
  const card = make("details", { class: `verdict ${kind}` },
    make("summary", {}, make("span", { class: "chip" }, icon[verdict.status]),
      make("span", {}, make("b", {}, verdict.title), make("span", { class: "rows" }, `(${verdict.rule.replaceAll(" ", ", ")})`)),
      make("span", { class: "said" }, verdict.said)));
  const inside = make("div", { class: "inside" }, make("p", { class: "dim" }, `By the protocol: ${verdict.rules}.`));
  for (const finding of verdict.findings) {
    const lines = make("table", {}, make("tr", {}, ...["log", "line", "time", "member", "event"].map((h) => make("th", {}, h))));
    for (const line of finding.lines)
      lines.append(make("tr", {}, make("td", {}, make("code", {}, line.log)), make("td", { class: "n" }, String(line.line)),
        make("td", { class: "at" }, clock(line.at)), make("td", {}, make("code", {}, line.member)),
        make("td", {}, make("b", {}, line.event), ` ${line.told}`)));
    inside.append(make("div", { class: "finding" }, make("p", {}, (report.histories > 1 ? `${finding.history}: ` : "") + finding.what), lines));
  }
  if (verdict.found > verdict.findings.length) inside.append(make("p", { class: "dim" }, `and ${verdict.found - verdict.findings.length} more`));
  for (const missing of verdict.missing) inside.append(make("p", {}, `Missing: ${missing}`));
  const figures = make("dl", {});
  for (const [name, value] of Object.entries(verdict.figures)) {
    if (value === null || typeof value === "object") continue;
    figures.append(make("dt", {}, name.replace(/_ms$/, "").replaceAll("_", " ")),
      make("dd", {}, name.endsWith("_ms") ? lasted(value) : name === "available" ? `${(value * 100).toFixed(4)} %` : value.toLocaleString("en")));
  }
  if (figures.childElementCount) inside.append(figures);
  if (verdict.figures.kinds && verdict.figures.kinds.length) inside.append(qualityTable(verdict.figures.kinds));
  inside.append(make("p", { class: "dim" }, `Clocks that differ: ${verdict.with_skew}`));
  card.append(inside);
  card.open = verdict.status === "broken";
  return card;
}

function qualityTable(kinds) {
  const table = make("table", {}, make("tr", {}, ...["", "the other had", "times", "members", "taken back", "median", "99 %", "longest"].map((h) => make("th", {}, h))));
  const ms = (value, row) => value === null ? "" : (row.bounds ? "≤ " : "") + lasted(value);
  for (const row of kinds)
    table.append(make("tr", {}, ...[row.did, row.kind, row.count, row.members, row.taken_back, ms(row.median_ms, row), ms(row.p99_ms, row), ms(row.max_ms, row)]
      .map((cell) => make("td", {}, String(cell)))));
  return table;
}

function showBad() {
  const section = document.getElementById("bad");
  const notes = [...report.notes, ...report.empty_logs.map((log) => `${log} is empty`)];
  if (!report.bad_lines && !notes.length) return;
  section.hidden = false;
  section.append(make("h2", {}, "Lines that are no events", make("small", {}, `${report.bad_lines.toLocaleString("en")} of them`)));
  for (const note of notes) section.append(make("p", {}, note));
  if (!report.bad.length) return;
  const table = make("table", {}, make("tr", {}, ...["log", "line", "why", "text"].map((h) => make("th", {}, h))));
  for (const line of report.bad)
    table.append(make("tr", {}, make("td", {}, make("code", {}, line.log)), make("td", { class: "n" }, String(line.line)), make("td", {}, line.why), make("td", {}, make("code", {}, line.text))));
  section.append(table);
}

// --- charts -----------------------------------------------------------------------------------------------------------

const span = charts.history === undefined ? 0 : charts.ends - charts.begins;
const format = span < 6e5 ? "%H:%M:%S" : span < 1.7e8 ? "%d %H:%M" : "%b %d";
const time = isSimulated ? { type: "quantitative", axis: { title: null, labelExpr: "datum.value / 1000 + ' s'", grid: true } }
  : { type: "temporal", axis: { title: null, grid: true, format, labelOverlap: true } };
const at = (field) => ({ field, ...time, scale: { domainMin: { expr: "from" }, domainMax: { expr: "to" }, nice: false, ...(isSimulated ? { zero: false } : {}) } });
const until = (field) => ({ field });
const told = (fields) => Object.entries(fields).map(([field, title]) => ({ field, title, ...(/^(at|since|until|ended_at)$/.test(field) && !isSimulated ? { type: "temporal", format: "%Y-%m-%d %H:%M:%S.%L" } : {}) }));
const seconds = { field: "seconds", type: "quantitative" };
const good = { light: "#3a8f63", dark: "#5cc894" }, bad = { light: "#c3362c", dark: "#ff8a80" }, dim = { light: "#8a929c", dark: "#7d8792" }, warm = { light: "#c77d0a", dark: "#f0bd5b" };
const long = (rows, begin, end) => rows.map((row) => ({ ...row, lasted: lasted(row[end] - row[begin]), seconds: (row[end] - row[begin]) / 1000 }));
// Those that overlap in time stand below each other, in at most so many tracks of their lane.
const packed = (rows, field, most) => {
  const free = new Map();
  return [...rows].sort((a, b) => a.since - b.since).map((row) => {
    const ends = free.get(row[field]) ?? free.set(row[field], []).get(row[field]);
    let track = ends.findIndex((end) => end <= row.since);
    if (track < 0) track = ends.length < most ? ends.length : ends.indexOf(Math.min(...ends));
    ends[track] = row.until;
    return { ...row, track };
  });
};
// What was last goes on until the logs end.
const untilTheEnd = (rows) => rows.length ? [...rows, { ...rows[rows.length - 1], at: charts.ends }] : rows;
const rowsOf = (rows, field) => new Set(rows.map((row) => row[field])).size;
const wide = { minExtent: 190, maxExtent: 190 }; // so that one moment stands in one place in all of them
const lane = (field) => ({ field, type: "nominal", sort: null, axis: { title: null, labelLimit: 185, grid: false, ...wide } });

function plots(theme) {
  const bins = { maxbins: 40, extent: [0, Math.max(...detections().map((row) => row.seconds), .1)] }; // nothing is quick or slow but from zero
  const c = charts, hue = (pair) => pair[theme];
  const color = (names, pairs, title) => ({ type: "nominal", title, scale: { domain: names, range: pairs.map(hue) }, legend: { orient: "top" } });
  const masters = [...new Set(c.members.map((row) => row.master))];
  const ends = [...new Map(c.members.map((row) => [row.member, row])).values()]
    .map((row) => ({ member: row.member, at: row.crashed_at ?? row.ended_at, how: row.crashed_at ? "crashed" : row.left_at ? "left" : row.ended_at ? "was removed" : null })).filter((row) => row.how);
  return [
    {
      title: "Whom each member followed", about: `${count(rowsOf(c.members, "member"), "member")}; a colour is a master. Two colours at one time are two sides.`, left: "members",
      rows: c.members, steps: rowsOf(c.members, "member"),
      spec: { layer: [
        { data: { values: long(c.members, "since", "until") }, mark: { type: "bar", height: { band: .7 }, clip: true, cornerRadius: 2, minBandSize: 3 }, encoding: {
          x: at("since"), x2: until("until"), y: lane("member"),
          color: { field: "master", type: "nominal", title: "master", scale: { domain: masters, scheme: masters.length > 10 ? "tableau20" : "observable10" }, legend: { orient: "top", columns: 5, labelLimit: 190, symbolLimit: 15 } },
          tooltip: told({ member: "member", master: "follows", since: "since", until: "until", lasted: "for", lists: "lists installed", first_version: "first version", last_version: "last version", size: "members in the last" }) } },
        { data: { values: ends }, mark: { type: "point", filled: true, size: 70, clip: true, opacity: 1 }, encoding: {
          x: at("at"), y: lane("member"), shape: { field: "how", type: "nominal", title: "ended", scale: { domain: ["crashed", "was removed", "left"], range: ["cross", "triangle-up", "circle"] }, legend: { orient: "top" } },
          color: { value: theme === "dark" ? "#fff" : "#111" }, tooltip: told({ member: "member", how: "", at: "at" }) } },
      ], resolve: { scale: { color: "independent", shape: "independent" } } },
    },
    {
      title: "Members in the list", about: "Of the cluster that went on; each step is a list of its master.", left: "lists", rows: c.lists, height: 110,
      spec: { layer: [
        ...["area", "line"].map((type) => ({ data: { values: untilTheEnd(c.lists) }, mark: { type, interpolate: "step-after", opacity: type === "area" ? .18 : 1, clip: true },
          encoding: { x: at("at"), y: { field: "size", type: "quantitative", axis: { title: null, tickMinStep: 1, ...wide } } } })),
        { data: { values: c.lists }, mark: { type: "point", filled: true, size: 18, opacity: .9, clip: true }, encoding: { x: at("at"), y: { field: "size", type: "quantitative" },
          tooltip: told({ at: "at", size: "members", version: "version", master: "master", lists: "lists in this piece of time" }) } }] },
    },
    {
      title: "Partitions by available replicas", about: "Red: none, its data is away; the line is the most at any moment of a piece of time.", left: "replicas",
      rows: c.replicas, height: 180, spec: replicasSpec(hue),
    },
    {
      title: "Migrations", about: `${count(c.pieces.reduce((sum, row) => sum + row.migrations, 0), "order")}` + (c.left_out.migrations ? `; the bars are the ${c.migrations.length} that took longest or had no result` : "") + ".", left: null,
      rows: c.migrations, steps: rowsOf(c.migrations, "destination"),
      spec: { data: { values: packed(long(c.migrations, "since", "until"), "destination", 8) }, mark: { type: "bar", clip: true, strokeWidth: 1.5, cornerRadius: 1 }, encoding: {
        x: at("since"), x2: until("until"), y: lane("destination"), yOffset: { field: "track", type: "ordinal", scale: { paddingOuter: .2, paddingInner: .1 } },
        stroke: { field: "result", type: "nominal", legend: null, scale: { domain: ["committed", "rolled back", "no result"], range: [good, bad, warm].map(hue) } },
        color: { field: "result", ...color(["committed", "rolled back", "no result"], [good, bad, warm], null) },
        tooltip: told({ partition: "partition", kind: "kind", source: "from", destination: "to", master: "ordered by", since: "ordered", lasted: "took", result: "result", reason: "because" }) } },
      laneHeight: 44,
    },
    {
      title: "Migrations in each piece of time", about: "How many were ordered for whom; darker is more. A frame: some were rolled back.", left: "pieces of migrations",
      rows: c.migrations.length && c.left_out.migrations ? c.pieces : [], steps: rowsOf(c.pieces, "destination"), optional: true,
      spec: { data: { values: c.pieces.map((row) => ({ ...row, until: row.at + piece() })) }, mark: { type: "rect", clip: true, strokeWidth: 1 }, encoding: {
        x: at("at"), x2: until("until"), y: lane("destination"), color: { field: "migrations", type: "quantitative", scale: { scheme: theme === "dark" ? "darkblue" : "blues" }, legend: { orient: "top", gradientLength: 160, title: "migrations" } },
        stroke: { condition: { test: "datum.rolled_back > 0", value: bad[theme] }, value: null },
        tooltip: told({ at: "from", destination: "to", migrations: "migrations", rolled_back: "rolled back", without_result: "without result", median_ms: "median ms", max_ms: "longest ms" }) } },
    },
    {
      title: "Suspicions and removals", about: "By what the suspect's own log says of that time.", left: "suspicions", rows: c.suspicions, steps: rowsOf(c.suspicions, "suspect"),
      spec: { data: { values: c.suspicions.map((row) => ({ ...row, took: row.took_ms === null ? "not known" : (row.is_bound ? "at most " : "") + lasted(row.took_ms) })) },
        mark: { type: "point", filled: true, size: 60, opacity: .8, clip: true }, encoding: { x: at("at"), y: lane("suspect"),
          color: { field: "kind", ...color(["crashed", "hung", "cut off", "no log", "false"], [good, { light: "#2f6fde", dark: "#7aa7ff" }, warm, dim, bad], "the suspect had") },
          shape: { field: "did", type: "nominal", title: "was", scale: { domain: ["suspected", "removed"], range: ["circle", "square"] }, legend: { orient: "top" } },
          tooltip: told({ suspect: "suspect", did: "was", by: "by", at: "at", kind: "had", took: "detected after", taken_back: "taken back", reason: "because" }) } },
    },
    {
      title: "How long detection took", about: "From the end, or the beginning of a hang, until the first who noticed.", left: null, rows: detections(), height: 120, apart: true,
      spec: { data: { values: detections() }, mark: { type: "bar", opacity: .85 }, encoding: {
        x: { field: "seconds", type: "quantitative", bin: bins, title: "seconds" }, y: { aggregate: "count", type: "quantitative", title: "ends", axis: { tickMinStep: 1 } },
        color: { field: "kind", ...color(["crashed", "hung"], [good, { light: "#2f6fde", dark: "#7aa7ff" }], null) },
        tooltip: [{ field: "seconds", bin: bins, title: "seconds" }, { aggregate: "count", title: "ends" }, { field: "kind", title: "the other had" }] } },
    },
    {
      title: "Where writes waited", about: "Partitions whose owner was gone until others owned them, and maps that were refused for want of members.", left: "outages",
      rows: [...c.outages, ...c.refusals], steps: rowsOf([...c.outages, ...c.refusals], "member"),
      spec: { data: { values: long([...c.outages.map((row) => ({ ...row, what: `${count(row.partitions, "partition")} of an owner that ${row.cause === "no log" ? "left no log" : row.cause === "hung" ? "hung" : row.cause === "crashed" ? "crashed" : "was " + row.cause}`, kind: "owner gone" })),
        ...c.refusals.map((row) => ({ ...row, what: `refuses ${row.map}`, kind: "refused" }))], "since", "until") },
        mark: { type: "bar", clip: true, height: { band: .7 }, minBandSize: 3, cornerRadius: 2 }, encoding: { x: at("since"), x2: until("until"), y: lane("member"),
          color: { field: "kind", ...color(["owner gone", "refused"], [warm, { light: "#7a4fc0", dark: "#b794f6" }], null) }, tooltip: told({ member: "member", what: "", since: "from", until: "until", lasted: "for" }) } },
    },
    {
      title: "Partitions lost", about: "All who held them had left; grey: until a member that came back had brought the data.", left: "lost", rows: c.lost, steps: Math.max(c.lost.length, 1), laneHeight: 20,
      spec: { data: { values: long(c.lost.map((row, n) => ({ ...row, lane: `${n + 1}: ${count(row.partitions, "partition")}`, how: row.came_back ? "came back" : "lost for good" })), "at", "until") },
        mark: { type: "bar", clip: true, height: { band: .6 }, cornerRadius: 2 }, encoding: { x: at("at"), x2: until("until"), y: lane("lane"),
          color: { field: "how", ...color(["came back", "lost for good"], [dim, bad], null) }, tooltip: told({ partitions: "partitions", which: "which", master: "told by", at: "from", until: "until", lasted: "for", how: "" }) } },
    },
  ];
}

const piece = () => Math.max(Math.floor((charts.ends - charts.begins) / 240), 1);
const detections = () => {
  const first = new Map();
  for (const row of [...charts.suspicions].sort((a, b) => a.at - b.at))
    if (row.took_ms !== null && !first.has(row.suspect + row.kind)) first.set(row.suspect + row.kind, { kind: row.kind, seconds: row.took_ms / 1000 });
  return [...first.values()];
};

function replicasSpec(hue) {
  // Levels hold until they change: every piece of time gets the last value before it.
  const kinds = [...new Set(charts.replicas.map((row) => row.replicas))].sort((a, b) => a - b);
  const times = [...new Set(charts.replicas.map((row) => row.at))].sort((a, b) => a - b);
  const byTime = new Map();
  for (const row of charts.replicas) byTime.set(`${row.at} ${row.replicas}`, row);
  const values = [];
  for (const kind of kinds) {
    let partitions = 0;
    for (const at of [...times, charts.ends]) {
      const row = byTime.get(`${at} ${kind}`);
      const most = row ? Math.max(row.most, partitions) : partitions;
      if (row) partitions = row.partitions;
      values.push({ at, replicas: String(kind), partitions, most });
    }
  }
  const blues = kinds.map((kind) => kind === 0 ? hue(bad) : kind === 1 ? hue(warm) : hue({ light: ["#9fd3b8", "#5fb389", "#3a8f63", "#256b48", "#174d33"][Math.min(kind - 2, 4)], dark: ["#2c5f47", "#3f8a66", "#5cc894", "#8be0b6", "#b9f0d3"][Math.min(kind - 2, 4)] }));
  const color = { field: "replicas", type: "nominal", title: "replicas", scale: { domain: kinds.map(String), range: blues }, legend: { orient: "top" } };
  return { layer: [
    { data: { values }, mark: { type: "area", interpolate: "step-after", clip: true, opacity: .85 }, encoding: { x: at("at"), y: { field: "partitions", type: "quantitative", stack: "zero", axis: { title: null, ...wide } }, color, order: { field: "replicas", type: "quantitative" },
      tooltip: told({ at: "at", replicas: "replicas", partitions: "partitions", most: "at most in this piece of time" }) } },
    ...(!kinds.includes(0) ? [] : [{ data: { values: values.filter((row) => row.replicas === "0") }, mark: { type: "line", interpolate: "step-before", clip: true, strokeWidth: 1.5, color: hue(bad) }, encoding: { x: at("at"), y: { field: "most", type: "quantitative" } } }]),
  ] };
}

// --- one time window for all of them ----------------------------------------------------------------------------------

let shown = charts.history === undefined ? [0, 1] : [charts.begins, Math.max(charts.ends, charts.begins + 1)];
const everything = [...shown];
let views = [];

function look(from, to) {
  const least = 5, whole = everything[1] - everything[0];
  let width = Math.min(Math.max(to - from, Math.min(least, whole)), whole);
  from = Math.min(Math.max(from, everything[0]), everything[1] - width);
  shown = [from, from + width];
  for (const { view, apart } of views) if (!apart) view.signal("from", shown[0]).signal("to", shown[1]).runAsync();
  document.getElementById("shown").textContent = `${clock(shown[0])} – ${clock(shown[1])} (${lasted(width)})`;
}

const moves = {
  in: ([a, b]) => [a + (b - a) / 4, b - (b - a) / 4], out: ([a, b]) => [a - (b - a) / 2, b + (b - a) / 2],
  earlier: ([a, b]) => [a - (b - a) / 4, b - (b - a) / 4], later: ([a, b]) => [a + (b - a) / 4, b + (b - a) / 4], all: () => everything,
};
const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "earlier", ArrowRight: "later", 0: "all" };

function watch(plot, view) {
  let start = null, brush = null;
  const place = (event) => event.clientX - plot.getBoundingClientRect().left;
  const timeAt = (x) => +view.scale("x").invert(x - view.origin()[0]);
  plot.addEventListener("pointerdown", (event) => { if (event.button === 0) start = place(event); });
  plot.addEventListener("pointermove", (event) => {
    if (start === null || Math.abs(place(event) - start) < 4) return;
    if (brush === null) { brush = make("div", { class: "brush" }); plot.append(brush); plot.setPointerCapture(event.pointerId); }
    brush.style.left = `${Math.min(start, place(event))}px`; brush.style.width = `${Math.abs(place(event) - start)}px`;
  });
  plot.addEventListener("pointerup", (event) => {
    if (brush !== null) { brush.remove(); const [a, b] = [timeAt(start), timeAt(place(event))].sort((x, y) => x - y); look(a, b); }
    start = brush = null;
  });
  plot.addEventListener("dblclick", () => look(...everything));
}

async function draw() {
  const theme = root.dataset.theme === "dark" ? "dark" : "light";
  const ink = theme === "dark" ? "#c4ccd5" : "#3b424b", faint = theme === "dark" ? "#2a3038" : "#e9ebee";
  const config = { background: "transparent", font: "system-ui, sans-serif", view: { stroke: faint }, axis: { labelColor: ink, titleColor: ink, gridColor: faint, domainColor: faint, tickColor: faint, titleFontWeight: 500 },
    legend: { labelColor: ink, titleColor: ink, titleFontWeight: 500, offset: 6 }, line: { color: theme === "dark" ? "#7aa7ff" : "#2f6fde" }, area: { color: theme === "dark" ? "#7aa7ff" : "#2f6fde" }, point: { color: theme === "dark" ? "#7aa7ff" : "#2f6fde" } };
  for (const { view } of views) view.finalize();
  views = [];
  const place = document.getElementById("plots");
  place.replaceChildren();
  for (const each of plots(theme)) {
    if (each.optional && !each.rows.length) continue;
    const left = each.left && charts.left_out[each.left] ? ` ${charts.left_out[each.left].toLocaleString("en")} more are not shown.` : "";
    const plot = make("div", { class: "plot", tabindex: "0", role: "group", "aria-label": each.title });
    const figure = make("figure", {}, make("figcaption", {}, make("h3", {}, each.title, make("small", {}, each.about + left))), plot);
    place.append(figure);
    if (!each.rows.length) { plot.replaceWith(make("p", { class: "nothing" }, "Nothing of that kind happened, as far as the logs tell.")); continue; }
    const height = each.height ?? Math.min(Math.max(each.steps, 1) * (each.laneHeight ?? 22) + 10, 900);
    const spec = { $schema: "https://vega.github.io/schema/vega-lite/v6.json", width: "container", height, autosize: { type: "fit-x", contains: "padding" },
      params: each.apart ? [] : [{ name: "from", value: shown[0] }, { name: "to", value: shown[1] }], config, ...each.spec };
    const drawn = await vegaEmbed(plot, spec, { actions: false, renderer: "svg", tooltip: { theme: "custom" } });
    views.push({ view: drawn.view, apart: each.apart });
    if (!each.apart) watch(plot, drawn.view);
  }
  look(...shown);
}

// --- the page ---------------------------------------------------------------------------------------------------------

root.dataset.theme = matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
showVerdicts();
showBad();
if (charts.history !== undefined) {
  document.getElementById("charts").hidden = false;
  document.getElementById("which").textContent = report.histories > 1 ? `${charts.history}, one of ${report.histories.toLocaleString("en")}` : charts.history;
  document.getElementById("window").addEventListener("click", (event) => { const what = event.target.dataset.do; if (what) look(...moves[what](shown)); });
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    const what = keys[event.key];
    if (what && (event.target.closest("#charts"))) { look(...moves[what](shown)); event.preventDefault(); }
  });
  draw();
}
const retheme = (theme) => { root.dataset.theme = theme; if (charts.history !== undefined) draw(); };
document.getElementById("theme").addEventListener("click", () => retheme(root.dataset.theme === "dark" ? "light" : "dark"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", (event) => retheme(event.matches ? "dark" : "light"));
