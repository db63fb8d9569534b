// Shows the fleet, one process or one tool, as the server draws it. What processes say becomes text, never markup.
"use strict";

const TOTALS = [
  ["processes", "processes"],
  ["requests", "requests/s"],
  ["failures", "failed/s"],
  ["running", "calls running"],
  ["queued", "calls waiting"],
  ["streams", "open streams"],
  ["hints", "hints/s"],
  ["told", "told to streams/s"],
];
const TASK_NAMES = { ready: "waiting", held: "running", lapsed: "leases lapsed" };
// A chart's title, its lines with their names, and how its values are written.
const CHARTS = [
  ["calls/s", [["rate", "all"], ["failures", "failed"]], number],
  ["duration", [["p50", "p50"], ["p95", "p95"]], duration],
  ["calls waiting", [["waiting", "waiting"]], number],
];
const WIDTH = 300;
const HEIGHT = 80; // as the template's viewBox
const WORST_SILENCE = 5000;

const rowsByTable = new Map();
const page = document.title;
const query = new URLSearchParams(location.search);
const isOwn = ["process", "tool", "method"].some((name) => query.has(name));
const opened = Date.now();
let heard = 0;

const at = (id) => document.getElementById(id);

function number(value) {
  if (Number.isInteger(value) || Math.abs(value) >= 100) return Math.round(value).toLocaleString("en");
  return value.toFixed(Math.abs(value) < 0.1 ? 2 : 1);
}

function duration(seconds) {
  if (seconds === null) return "-";
  if (seconds >= 1) return `${seconds.toFixed(seconds < 10 ? 2 : 0)} s`;
  return `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
}

function element(name, content = "", className = "") {
  const made = document.createElement(name);
  made.append(content);
  if (className) made.className = className;
  return made;
}

// What has not changed is left alone, so that a selection or a focus in it stays.
function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

function tiles(id, found) {
  const list = at(id);
  for (const [key, name, value] of found) {
    let tile = [...list.children].find((each) => each.dataset.key === key);
    if (!tile) {
      tile = element("div");
      tile.dataset.key = key;
      tile.append(element("dt", name), element("dd"));
      list.append(tile);
    }
    setText(tile.lastChild, value);
  }
  const keys = new Set(found.map(([key]) => key));
  for (const tile of [...list.children]) if (!keys.has(tile.dataset.key)) tile.remove();
}

// -- tables: a row keeps its element for as long as its key is there, so that the keyboard's focus stays where it is ----

const column = (label, cell, className = "") => ({ label, cell, className });
const figure = (label, cell) => column(label, cell, "number");

function table(id, columns, found, key) {
  const made = rowsByTable.get(id) ?? begin(id, columns);
  const rows = new Map();
  for (const each of found) {
    let name = key(each);
    while (rows.has(name)) name += " ";
    const row = made.rows.get(name) ?? emptyRow(columns);
    columns.forEach((one, index) => fill(row.children[index], one.cell(each)));
    rows.set(name, row);
  }
  made.rows = rows;
  const wanted = rows.size ? [...rows.values()] : [made.none];
  wanted.forEach((row, index) => {
    if (made.body.children[index] !== row) made.body.insertBefore(row, made.body.children[index] ?? null);
  });
  while (made.body.children.length > wanted.length) made.body.lastChild.remove();
}

function begin(id, columns) {
  const head = element("tr");
  setAttribute(head, "role", "row");
  for (const { label, className } of columns) {
    const cell = element("th", label, className);
    cell.scope = "col";
    setAttribute(cell, "role", "columnheader");
    head.append(cell);
  }
  const cell = element("td", "none", "empty");
  cell.colSpan = columns.length;
  setAttribute(cell, "role", "cell");
  const none = element("tr", cell);
  setAttribute(none, "role", "row");
  const body = element("tbody");
  // A table that is shown as blocks is none to a screen reader, unless its parts say so.
  for (const part of [element("thead", head), body]) {
    setAttribute(part, "role", "rowgroup");
    at(id).append(part);
  }
  const made = { body, none, rows: new Map() };
  rowsByTable.set(id, made);
  return made;
}

function emptyRow(columns) {
  const row = element("tr");
  setAttribute(row, "role", "row");
  for (const { label, className } of columns) {
    const cell = element("td", "", className);
    cell.dataset.label = label;
    setAttribute(cell, "role", "cell");
    row.append(cell);
  }
  return row;
}

// A value is a text, or a text with a class, a link, or both.
function fill(cell, value) {
  const { text, className, href, out, code } = typeof value === "string" ? { text: value } : value;
  let inner = cell.firstElementChild;
  const wanted = href ? "A" : code ? "CODE" : "SPAN";
  if (inner?.tagName !== wanted) {
    inner = element(wanted);
    cell.replaceChildren(inner);
  }
  setText(inner, text);
  inner.className = [className ?? "", href && !out ? "own" : "", href && code ? "code" : ""].filter(Boolean).join(" ");
  cell.classList.toggle("blank", text === "");
  if (!href) return;
  setAttribute(inner, "href", href);
  if (!out) return;
  setAttribute(inner, "rel", "noreferrer");
  setAttribute(inner, "target", "_blank");
}

const STUCK = [column("who", (each) => each.who), column("what", (each) => each.what)];
// Two numbers share a line of a card, so those that belong together stand side by side.
const TOOLS = [
  column("name", (each) => ({ text: each.tool || each.method, href: addressOfTool(each) })),
  figure("calls/s", (each) => number(each.rate)),
  figure("failed/s", (each) => number(each.failures)),
  figure("p50", (each) => duration(each.p50)),
  figure("p95", (each) => duration(each.p95)),
  figure("waiting", (each) => number(each.waiting)),
];
const NODES = [
  column("process", (each) => ({ text: each.who, href: addressOfProcess(each) })),
  column("state", (each) => ({ text: stateOf(each), className: each.state.replace(" ", "-") })),
  figure("requests/s", (each) => number(each.rate)),
  figure("failed/s", (each) => number(each.failures)),
  figure("p50", (each) => duration(each.p50)),
  figure("p95", (each) => duration(each.p95)),
  figure("runs", runs),
  figure("streams", (each) => number(each.streams)),
  figure("cpu", (each) => `${Math.round(each.cpu * 100)} %`),
  figure("memory", (each) => `${Math.round(each.memory / 2 ** 20)} MiB`),
  column("version", (each) => each.version),
];
const TROUBLES = [
  column("time", (each) => moment(each.at), "fixed"),
  column("level", (each) => ({ text: each.level, className: each.level }), "fixed"),
  column("who", (each) => each.who),
  column("event", (each) => each.event),
  column("of", (each) => each.of),
  column("reference", (each) => ({ text: each.trace, href: each.link, out: true, code: true })),
];

function addressOfTool(each) {
  return `console?${new URLSearchParams(each.tool ? { tool: each.tool } : { method: each.method })}`;
}

function addressOfProcess(each) {
  const who = each.pool ? { pool: each.pool } : { role: each.role };
  return `console?${new URLSearchParams({ ...who, process: each.process })}`;
}

function runs(each) {
  return each.slots ? `${number(each.running)} of ${number(each.slots)}` : number(each.running);
}

function stateOf(each) {
  return each.silence ? `no report for ${each.silence} s` : each.state;
}

// A clock may be anything: a date that is none must not end the page.
function moment(seconds) {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? "?" : date.toLocaleString("sv");
}

// -- charts -------------------------------------------------------------------------------------------------------------

function charts(id, found) {
  const place = at(id);
  if (!place.children.length) place.append(...CHARTS.map(emptyChart));
  CHARTS.forEach(([title, lines, write], index) => {
    const chart = place.children[index];
    const values = lines.map(([key]) => found[key]);
    const top = Math.max(...values.flat().filter((value) => value !== null), 0);
    lines.forEach(([key], line) => setAttribute(chart.querySelectorAll("path")[line], "d", path(found[key], top)));
    const newest = lines.map(([key, name]) => `${name} ${write(last(found[key]))}`);
    newest.forEach((text, line) => setText(chart.querySelectorAll(".key")[line], text));
    setText(chart.querySelector(".top"), `top ${write(top)}`);
    const minutes = Math.round((found.step * found.rate.length) / 60);
    setText(chart.querySelector(".past"), `${minutes} min ago`);
    const svg = chart.querySelector("svg");
    setAttribute(svg, "aria-label", `${title} over ${minutes} minutes: ${newest.join(", ")}; top ${write(top)}`);
    svg.dataset.points = String(values[0].filter((value) => value !== null).length);
  });
}

function emptyChart([title, lines]) {
  const made = at("chart").content.firstElementChild.cloneNode(true);
  setText(made.querySelector(".title"), title);
  lines.forEach((_, index) => made.querySelector("figcaption").append(element("span", "", `key ${index ? "second" : "first"}`)));
  return made;
}

function last(values) {
  return values.findLast((value) => value !== null) ?? 0;
}

// A line with gaps where nothing was heard; a point between two gaps is a dot.
function path(values, top) {
  const step = WIDTH / Math.max(values.length - 1, 1);
  let drawn = "";
  values.forEach((value, index) => {
    if (value === null) return;
    const place = `${(index * step).toFixed(1)} ${(HEIGHT - 2 - (top ? value / top : 0) * (HEIGHT - 6)).toFixed(1)}`;
    const goesOn = index > 0 && values[index - 1] !== null;
    drawn += goesOn ? `L${place}` : `M${place}h0.01`;
  });
  return drawn;
}

// -- the page -----------------------------------------------------------------------------------------------------------

function say(state, sentence) {
  const link = at("link");
  link.dataset.state = state;
  setText(link, sentence);
}

const byWhat = (each) => `${each.who} ${each.what.replace(/\d+/g, "")}`;
const byError = (each) => `${each.at} ${each.who} ${each.trace} ${each.event} ${each.of}`;

function showOverview(found) {
  tiles("totals", [
    ...TOTALS.map(([key, name]) => [key, name, number(found.totals[key])]),
    ["slots", "slots in use", `${number(found.totals.slots_used)} of ${number(found.totals.slots)}`],
  ]);
  tiles("tasks", Object.entries(found.tasks).map(([key, value]) => [key, TASK_NAMES[key] ?? key.replaceAll("_", " "), number(value)]));
  charts("charts", found.charts);
  table("stuck", STUCK, found.stuck, byWhat);
  const things = found.stuck.length;
  at("stuck").hidden = !things;
  setText(at("stuck-count"), things ? `${things} ${things === 1 ? "thing is" : "things are"} stuck` : "nothing is stuck");
  table("tools", TOOLS, found.tools, (each) => `${each.method} ${each.tool}`);
  table("nodes", NODES, found.nodes, (each) => `${each.role} ${each.pool} ${each.process}`);
  table("troubles", TROUBLES, found.troubles, byError);
  at("unshown").hidden = !found.unshown;
  at("tools_unshown").hidden = !found.tools_unshown;
}

function showOwn(found) {
  const name = found?.who ?? (query.get("tool") || query.get("method") || `process ${query.get("process")}`);
  setText(at("own-title"), name);
  document.title = `${name} - ${page}`;
  at("own-note").hidden = found !== null && !found.silence;
  setText(at("own-note"), found === null ? missing(name) : found.silence ? `no report from ${name} for ${found.silence} s` : "");
  for (const id of ["own-figures", "own-charts", "own-stuck-section"]) at(id).hidden = found === null;
  if (found === null) return;
  const isProcess = "process" in found;
  tiles("own-figures", [
    ...(isProcess ? [["state", "state", stateOf(found)]] : []),
    ["rate", "calls/s", number(found.rate)],
    ["p50", "p50", duration(found.p50)],
    ["p95", "p95", duration(found.p95)],
    ["failures", "failed/s", number(found.failures)],
    ["waiting", "calls waiting", number(isProcess ? found.queued : found.waiting)],
    ...(isProcess ? [["running", "runs", runs(found)], ["version", "version", found.version]] : []),
  ]);
  charts("own-charts", found.charts);
  at("own-stuck-section").hidden = !found.stuck.length;
  table("own-stuck", STUCK, found.stuck, byWhat);
  table("own-troubles", TROUBLES, found.troubles, byError);
}

function missing(name) {
  return query.has("process") ? `no report from ${name} in the last minute` : `no call of ${name} in the last 15 minutes`;
}

function show(found) {
  const reports = isOwn ? found.reports : found.nodes.length;
  if (reports) say("live", "live");
  else say("waiting", "waiting for the first report");
  if (isOwn) showOwn(found.found);
  else showOverview(found);
}

// The seconds stand beside the live region: a screen reader need not hear each of them.
function showAge() {
  const silent = Date.now() - (heard || opened) >= WORST_SILENCE;
  const seconds = Math.round((Date.now() - heard) / 1000);
  if (silent && heard) say("lost", "no report from this process: what is below is old");
  setText(at("age"), heard && at("link").dataset.state === "lost" ? `for ${seconds} s` : "");
}

function listen() {
  const stream = new EventSource(`console/events${location.search}`);
  stream.onmessage = (event) => {
    heard = Date.now();
    show(JSON.parse(event.data));
    showAge();
  };
  stream.onerror = () => {
    say("lost", "no report from this process: what is below is old");
    showAge();
  };
  return stream;
}

at(isOwn ? "own" : "overview").hidden = false;
let events = listen();
setInterval(() => {
  showAge();
  // A browser opens a stream again by itself, but not after an answer that was none, such as 503.
  if (Date.now() - (heard || opened) >= WORST_SILENCE && events.readyState === EventSource.CLOSED) events = listen();
}, 1000);
