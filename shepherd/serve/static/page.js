// The status page: asks the server for figures, again and again while somebody looks, and shows them.
//
// The token comes with the address (#token=...) or from the field, and is kept for this tab alone.

import { columns, line, rows } from "./chart.js";
import { story } from "./explain.js";
import { bytes, count, data, element, facts, fill, rate, span, table, time, visible, web } from "./show.js";

const TOKEN = "shepherd-token";
const STATUS_MS = 2000, HISTORY_MS = 15000, TABLES_MS = 60000;
const GAP_S = 200; // a line of db/log/minutes.jsonl comes every minute
const MOST_LIVE = 1800;
const KINDS = { feedback: "h", plan: "d", reap: "b", cork: "a", merge: "e", equiv: "g", select: "f", record: "i", cleanup: "c", recover: "j" };
const OF_CYCLE = [["planned", "a"], ["pages", "b"], ["errors", "c"], ["new", "d"], ["forgotten", "e"]];
const CYCLE_WORDS = { pages: "gathered", new: "new URLs" };

const at = (id) => document.getElementById(id);
let token = null;
let history = null;
const live = []; // what /v1/status said of the speed since the page is open: [time, pages/s, bytes/s]

// --- asking ---------------------------------------------------------------------------------------------------

class Refused extends Error {
  constructor(status, text) {
    super(text);
    this.status = status;
  }
}

async function get(path, parameters = {}) {
  const query = new URLSearchParams(parameters).toString();
  const answer = await fetch(path + (query ? "?" + query : ""), { headers: { Authorization: "Bearer " + token }, cache: "no-store" });
  if (answer.ok) return answer.json();
  let text = `the server answered with status ${answer.status}`;
  try {
    text = (await answer.json()).error ?? text;
  } catch {
    // not one of its own answers
  }
  throw new Refused(answer.status, text);
}

/** Ask for it now and every so often, but only while the page is seen. */
function watch(every, ask) {
  let timer = null, running = false, again = false;
  const turn = async () => {
    clearTimeout(timer);
    again = running; // what is wanted may be another by now
    if (token === null || document.hidden || running) return;
    running = true;
    const asked = token;
    try {
      await ask();
      connected(true, "Connected.");
    } catch (error) {
      if (asked === token) failed(error);
    } finally {
      running = false;
    }
    timer = setTimeout(turn, again ? 0 : every);
  };
  document.addEventListener("visibilitychange", turn);
  watches.push(turn);
  return turn;
}
const watches = [];

function connected(well, text) {
  if (at("link").textContent !== text) at("link").textContent = text;
  at("link").className = well ? "" : "fault";
}

function failed(error) {
  if (error.status === 401 || error.status === 403) {
    leave(visible(error.message));
  } else {
    connected(false, error instanceof Refused ? visible(error.message) : "The server does not answer; trying again.");
  }
}

// --- the token ------------------------------------------------------------------------------------------------

function enter(given) {
  token = given;
  sessionStorage.setItem(TOKEN, token);
  at("entry").hidden = true;
  at("main").hidden = false;
  at("refusal").textContent = "";
  watches.forEach((turn) => turn());
}

function leave(why = "") {
  token = null;
  sessionStorage.removeItem(TOKEN);
  at("main").hidden = true;
  at("entry").hidden = false;
  at("refusal").textContent = why;
  connected(true, "Not connected.");
}

function begin() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given !== null) globalThis.history.replaceState(null, "", location.pathname); // nobody is to copy it with the address
  const known = given || sessionStorage.getItem(TOKEN);
  if (known) enter(known);
  else leave();
}

// --- now ------------------------------------------------------------------------------------------------------

async function showStatus() {
  const told = await get("/v1/status");
  showPhase(told);
  const totals = told.totals ?? {};
  const tiles = [
    ["URLs known", "rows", totals.rows], ["documents gathered", "gathered", totals.gathered], ["sites", "sites", totals.sites],
    ["servers", "servers", totals.servers], ["backing off", "backing-off", totals.backing_off], ["newest state", "state", totals.state],
  ];
  if (told.reap) {
    tiles.unshift(["pages", "reap-pages", told.reap.pages], ["errors", "reap-errors", told.reap.errors], ["servers active", "active", told.reap.active]);
  }
  const shown = tiles.map(([name, id, value]) => tile(name, id, value ?? null, count(value)));
  if (told.speed) {
    shown.unshift(tile("pages/s", "pages-per-s", told.speed.pages_per_s, rate(told.speed.pages_per_s)),
      tile("MB/s", "bytes-per-s", told.speed.bytes_per_s, rate(told.speed.bytes_per_s / 1e6)));
    live.push([told.time, told.speed.pages_per_s, told.speed.bytes_per_s]);
    live.splice(0, live.length - MOST_LIVE);
    drawSpeed();
  }
  fill("tiles", ...shown);
  showDisk(told);
  showLeases(told);
}

function tile(name, id, value, text) {
  const shown = data(value, text);
  shown.id = "figure-" + id;
  return element("div", {}, element("dt", { textContent: name }), element("dd", {}, shown));
}

function showPhase(told) {
  const now = told.running && told.now;
  let text = "Nothing runs.";
  if (now) text = `${now.program}: ${now.phase}, for ${span(Math.max(Math.round(told.time - now.since), 0))}`;
  else if (told.running) text = `${told.running.who || "A program"} runs, for ${span(Math.max(Math.round(told.time - told.running.since), 0))}`;
  at("phase").textContent = visible(text);
  at("bar-line").hidden = !(now && now.total);
  if (now && now.total) {
    at("bar").value = Math.min(now.done / now.total, 1);
    at("bar-text").textContent = `${count(now.done)} of ${count(now.total)} ${now.unit}s (${Math.floor(100 * now.done / now.total)} %)`;
  }
  at("fault").hidden = !told.fault;
  at("fault").textContent = visible(told.fault);
}

function showDisk({ disk, cleaned, states, inbox, configuration }) {
  const other = Math.max(disk.states_bytes - disk.segments_bytes, 0);
  fill("disk",
    rows("Disk", [
      ["buckets", [["a", disk.segments_bytes]], data(disk.segments_bytes, bytes(disk.segments_bytes))],
      ["all else of states", [["b", other]], data(other, bytes(other))],
      ["free", [["d", disk.free_bytes]], data(disk.free_bytes, bytes(disk.free_bytes))],
    ]),
    facts([
      ["states", states.join(", ")],
      ["cleaned up", time(cleaned)],
      ["inbox", Object.entries(inbox).map(([kind, number]) => `${count(number)} ${kind}`).join(", ") || "empty"],
      ["configuration", web(configuration.place) + (configuration.is_last === false ? ", which is not that of the last run" : "")],
    ]));
}

function showLeases({ leases, time: now }) {
  fill("leases", table("Leases", [
    ["state", "n", (one) => String(one.state)],
    ["held by", "", (one) => web(one.owner)],
    ["for", "", (one) => web(one.purpose)],
    ["for so long", "n", (one) => span(Math.max(Math.round(now - one.since), 0))],
    ["ends", "n", (one) => one.expired ? "is over" : "in " + span(Math.max(Math.round(one.expires - now), 0))],
  ], leases, "Nobody holds a state."));
}

// --- what was -------------------------------------------------------------------------------------------------

async function showHistory() {
  history = await get("/v1/history", { cycles: 100, hours: 24 });
  drawSpeed();
  drawCycles();
  const classes = Object.entries(history.errors);
  at("errors-of").textContent = classes.length ? `In the last ${count(history.cycles.length)} cycles.` : "";
  fill("errors", classes.length ? rows("Errors by class", classes.map(([name, value]) => [name, [["c", value]], data(value)]))
    : element("p", { className: "quiet", textContent: "No error is on record." }));
}

function drawSpeed() {
  const rates = (history?.rates ?? []).filter((one) => one.seconds > 0);
  const since = rates.at(-1)?.time ?? 0; // from there on, what was seen here
  const series = (recorded, seen) => [...rates.map((one) => [one.time, recorded(one) / one.seconds]),
    ...live.filter((one) => one[0] > since).map((one) => [one[0], seen(one)])];
  line(at("pages-plot"), { label: "Pages a second", kind: "b", gap: GAP_S, format: rate,
    points: series((one) => one.pages, (one) => one[1]) });
  line(at("bytes-plot"), { label: "Megabytes a second", kind: "a", gap: GAP_S, format: rate,
    points: series((one) => one.wire_bytes / 1e6, (one) => one[2] / 1e6) });
  fill("speed-table", table("Speed", [
    ["until", "", (one) => time(one.time)],
    ["seconds", "n", (one) => rate(one.seconds)],
    ["pages", "n", (one) => data(one.pages)],
    ["pages/s", "n", (one) => rate(one.pages / one.seconds)],
    ["MB/s", "n", (one) => rate(one.wire_bytes / 1e6 / one.seconds)],
    ["errors", "n", (one) => data(one.errors)],
  ], [...rates].reverse(), "Nothing was reaped in the last day."));
}

function drawCycles() {
  const cycles = history.cycles;
  if (at("cycle-plots").childElementCount === 0) {
    fill("cycle-plots", ...OF_CYCLE.map(([name]) => element("div", {},
      element("h3", {}, CYCLE_WORDS[name] ?? name, element("span", { id: "last-" + name })), element("div", { id: "plot-" + name }))));
  }
  for (const [name, kind] of OF_CYCLE) {
    const last = cycles.at(-1)?.[name];
    fill("last-" + name, last === null || last === undefined ? "–" : data(last));
    columns(at("plot-" + name), { label: `${CYCLE_WORDS[name] ?? name} by cycle`, axis: false,
      bars: cycles.map((one) => ({ title: `${time(one.start)}: ${count(one[name])}`, parts: [[kind, one[name] ?? 0]] })) });
  }
  const names = [...new Set(cycles.flatMap((one) => one.steps.map((step) => step[0])))];
  const kind = (name) => KINDS[name] ?? "j";
  columns(at("duration-plot"), { label: "Duration by cycle", height: 120, format: span, bars: cycles.map((one) => ({
    title: `${time(one.start)}: ${span(one.seconds)} (${one.steps.map((step) => `${step[0]} ${span(step[1])}`).join(", ")})`,
    parts: one.steps.map(([name, seconds]) => [kind(name), seconds]) })) });
  fill("steps", ...names.map((name) => element("li", {}, element("i", { className: kind(name) }), visible(name))));
  fill("cycle-table", table("Cycles", [
    ["begun", "", (one) => time(one.start)],
    ["took", "n", (one) => span(one.seconds)],
    ["state", "", (one) => web(one.state)],
    ...OF_CYCLE.map(([name]) => [CYCLE_WORDS[name] ?? name, "n", (one) => one[name] === null ? null : data(one[name])]),
    ["received", "n", (one) => bytes(one.wire_bytes)],
    ["status", "n", (one) => String(one.status) + (one.stopped ? " stopped" : "")],
  ], [...cycles].reverse(), "No cycle is on record."));
}

// --- servers and sites ----------------------------------------------------------------------------------------

async function showServers() {
  const told = await get("/v1/servers", { sort: at("server-sort").value, backing_off: at("server-slowed").checked ? 1 : 0, limit: 20 });
  at("servers-of").textContent = `${count(told.servers)} servers, ${count(told.backing_off)} of them back off since they failed (red).`;
  const last = told.delays.findLastIndex((one) => one.servers) + 1;
  fill("delays", rows("Servers by delay", told.delays.slice(0, last).map((one) => [
    one.below_ms === null ? `${span(one.from_ms / 1000)} and more` : `under ${span(one.below_ms / 1000)}`,
    [["c", one.backing_off], ["b", one.servers - one.backing_off]], data(one.servers)])));
  fill("servers", table("Servers", [
    ["address", "", (one) => web(one.address)],
    ["delay", "n", (one) => span(one.delay_ms / 1000)],
    ["back-off", "n", (one) => one.backoff ? "x" + count(2 ** one.backoff) : "–"],
    ["next contact", "", (one) => !one.next_contact || Date.parse(one.next_contact) <= Date.now() ? "at once"
      : "in " + span(Math.ceil((Date.parse(one.next_contact) - Date.now()) / 1000))],
    ["sites", "n", (one) => data(one.sites)],
    ["pages", "n", (one) => data(one.pages)],
    ["contacts", "n", (one) => data(one.fetches)],
    ["errors", "n", (one) => data(one.errors)],
    ["average", "n", (one) => one.average_ms === null ? null : count(one.average_ms) + " ms"],
  ], told.top, "No server matches."));
}

async function showSites() {
  const told = await get("/v1/sites", { sort: at("site-sort").value, limit: 20 });
  fill("sites", table("Top sites", [
    ["site", "", (one) => web(one.site)],
    ["gathered", "n", (one) => data(one.gathered)],
    ["URLs", "n", (one) => data(one.urls)],
    ["robots.txt", "", (one) => one.robots + (one.robots_status ? ` ${one.robots_status}` : "")],
    ["delay", "n", (one) => one.server_delay_ms === null ? null : span(one.server_delay_ms / 1000)],
    ["average", "n", (one) => one.average_ms === null ? null : count(one.average_ms) + " ms"],
    ["address", "", (one) => one.address === null ? null : web(one.address)],
  ], told.top, "No site is known."));
}

async function showStory(event) {
  event.preventDefault();
  fill("story", element("p", { className: "quiet", textContent: "Looking …" }));
  try {
    fill("story", ...story(await get("/v1/explain", { url: at("url").value })));
  } catch (error) {
    if (error.status === 401 || error.status === 403) failed(error);
    fill("story", element("p", { className: "note", textContent: error instanceof Refused ? visible(error.message) : "The server does not answer." }));
  }
}

// --- the page -------------------------------------------------------------------------------------------------

watch(STATUS_MS, showStatus);
watch(HISTORY_MS, showHistory);
const servers = watch(TABLES_MS, showServers), sites = watch(TABLES_MS, showSites);
at("server-sort").addEventListener("change", servers);
at("server-slowed").addEventListener("change", servers);
at("site-sort").addEventListener("change", sites);
at("asking").addEventListener("submit", showStory);
at("leave").addEventListener("click", () => leave());
at("entry").addEventListener("submit", (event) => {
  event.preventDefault();
  const given = at("token").value.trim();
  at("token").value = "";
  if (given) enter(given);
});
addEventListener("hashchange", begin);
addEventListener("resize", () => {
  if (history !== null && !at("main").hidden) {
    drawSpeed();
    drawCycles();
  }
});
begin();
