// Shows the fleet as the server draws it. What processes say becomes text, never markup.
"use strict";

const TOTALS = [
  ["processes", "processes"],
  ["requests", "requests a second"],
  ["failures", "failed a second"],
  ["running", "calls running"],
  ["queued", "calls waiting"],
  ["streams", "open streams"],
  ["hints", "hints a second"],
  ["told", "told to streams a second"],
];
const TASK_NAMES = { ready: "waiting", held: "running", lapsed: "leases lapsed" };
const WORST_SILENCE = 5000;

const shown = new Map();
let heard = 0;

function number(value) {
  return Number.isInteger(value) || Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : value.toFixed(1);
}

function element(name, content, className) {
  const made = document.createElement(name);
  made.append(content);
  if (className) made.className = className;
  return made;
}

function row(...cells) {
  const made = document.createElement("tr");
  made.append(...cells);
  return made;
}

const text = (content, className) => element("td", content, className);
const figure = (content) => text(content, "number");

function tile(key, name, value) {
  const made = document.createElement("div");
  made.dataset.key = key;
  made.append(element("dt", name), element("dd", value));
  return made;
}

function totals(found) {
  const tiles = TOTALS.map(([key, name]) => tile(key, name, number(found[key])));
  return [...tiles, tile("slots", "slots in use", `${number(found.slots_used)} of ${number(found.slots)}`)];
}

function tasks(found) {
  return Object.entries(found).map(([key, value]) => tile(key, TASK_NAMES[key] ?? key.replaceAll("_", " "), number(value)));
}

function stuck(found) {
  return found.map((each) => row(text(each.who), text(each.what)));
}

function nodes(found) {
  return found.map((each) => {
    const made = row(
      text(each.role),
      text(each.pool),
      text(element("code", each.process)),
      text(each.state, each.state.replace(" ", "-")),
      text(each.version),
      figure(each.slots ? `${number(each.running)} of ${number(each.slots)}` : number(each.running)),
      figure(number(each.rate)),
      figure(number(each.failures)),
      figure(number(each.streams)),
      figure(`${Math.round(each.cpu * 100)} %`),
      figure(`${Math.round(each.memory / 2 ** 20)} MiB`),
    );
    made.dataset.role = each.role;
    return made;
  });
}

function trace(each) {
  const id = element("code", each.trace.slice(0, 16));
  if (!each.link) return id;
  const link = element("a", id);
  link.href = each.link;
  link.rel = "noreferrer";
  link.target = "_blank";
  return link;
}

function troubles(found) {
  return found.map((each) =>
    row(
      text(moment(each.at), "fixed"),
      text(each.level, `fixed ${each.level}`),
      text(each.who),
      text(each.event),
      text(each.of),
      text(trace(each), "fixed"),
    ),
  );
}

// A clock may be anything: a date that is none must not end the page.
function moment(seconds) {
  const date = new Date(seconds * 1000);
  return Number.isNaN(date.getTime()) ? "?" : date.toLocaleString("sv");
}

// What has not changed is left alone, so that a selection or a focus in it stays.
function replace(id, found, draw, columns) {
  const drawn = JSON.stringify(found);
  if (shown.get(id) === drawn) return;
  shown.set(id, drawn);
  const parts = draw(found);
  if (!parts.length && columns) {
    const none = text("none", "empty");
    none.colSpan = columns;
    parts.push(row(none));
  }
  document.getElementById(id).replaceChildren(...parts);
}

function say(state, sentence) {
  const link = document.getElementById("link");
  if (link.dataset.state === state) return;
  link.dataset.state = state;
  link.textContent = sentence;
}

function show(picture) {
  replace("totals", picture.totals, totals);
  replace("tasks", picture.tasks, tasks);
  replace("stuck", picture.stuck, stuck, 2);
  replace("nodes", picture.nodes, nodes, 11);
  replace("troubles", picture.troubles, troubles, 6);
  document.getElementById("unshown").hidden = !picture.unshown;
}

function lose() {
  say("lost", "this process does not answer; what is below is old");
}

function listen() {
  const opened = new EventSource("console/events");
  opened.onmessage = (event) => {
    heard = Date.now();
    say("live", "live");
    show(JSON.parse(event.data));
  };
  opened.onerror = lose;
  return opened;
}

let events = listen();
setInterval(() => {
  if (Date.now() - heard < WORST_SILENCE) return;
  if (heard) lose();
  // A browser opens a stream again by itself, but not after an answer that was none, such as 503.
  if (events.readyState === EventSource.CLOSED) events = listen();
}, WORST_SILENCE / 2);
