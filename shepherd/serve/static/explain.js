// The story of one URL, as /v1/explain tells it: the verdict first, then what it rests on.

import { bytes, count, element, facts, span, table, visible, web } from "./show.js";

const GOOD = /^(Gathered|Known \(|Answered|The robots file)/;

export function story(told) {
  const parts = [
    element("p", { className: "verdict" + (GOOD.test(told.verdict) ? "" : " bad"), textContent: visible(told.verdict) }),
    told.outlook ? element("p", { textContent: "If it came: " + visible(told.outlook) }) : "",
    heading("The URL"),
    facts([
      ["given", web(told.given)],
      ...told.rules.map((step) => ["by rule", join(step.rule + ": ", web(step.text))]),
      ["normalised", web(told.normalised)],
      ...told.strips.map((one) => ["by filter", join("without ", web(one.parameter), `: line ${one.line}: `, web(one.text))]),
      ["stripped", told.stripped === told.normalised ? "" : web(told.stripped)],
      ["class", join(web(told.normalised_site), told.equivalence.line ? `, by line ${told.equivalence.line} of url-equiv` : "")],
      ["footprint", web(told.footprint.norm + " " + told.footprint.path)],
    ]),
    heading(`What state ${told.state} knows`),
    told.row ? row(told.row) : element("p", { textContent: "This URL is not known." }),
    heading("Rules"),
    facts([
      ["filter", join(told.filter.accepted ? "accepted" : "rejected",
        told.filter.line ? `: line ${told.filter.line}: ` : ": no line decides ", web(told.filter.text))],
      ["section", told.section.name],
      ["robots.txt", join(`${told.robots.verdict}: `, web(told.robots.why))],
      ["its line", told.robots.line ? join(`line ${told.robots.line.number}: `, web(told.robots.line.text)) : ""],
    ]),
    heading("Limits"),
    table("Limits", [
      ["of", "", (one) => one.of],
      ["name", "", (one) => web(one.name)],
      ["rank", "n", (one) => one.rank === null ? "–" : (one.exact ? "" : "about ") + count(one.rank)],
      ["of so many", "n", (one) => count(one.count)],
      ["soft limit", "n", (one) => count(one.soft)],
      ["hard limit", "n", (one) => count(one.hard)],
    ], told.standings, "No limit is in its way."),
    heading("Site and server"),
    facts([...site(told), ...server(told.server)]),
    heading("Cycles on record"),
    table("Cycles", [
      ["state", "", (one) => one.state],
      ["made", "n", (one) => one.made?.replace("T", " ").replace("Z", "")],
      ["known as", "", (one) => one.row ? `${one.row.type}: ${one.row.reason}` : one.known === false ? "not known" : "–"],
      ["fetched", "", (one) => fetches(one)],
    ], [...told.cycles].reverse(), "None."),
    element("details", {}, element("summary", { textContent: "As JSON" }),
      element("pre", { textContent: visible(JSON.stringify(told, null, 1)).replaceAll("\\u{a}", "\n") })),
  ];
  return parts.filter((part) => part !== "");
}

function heading(text) {
  return element("h3", { textContent: text });
}

function join(...parts) {
  return element("span", {}, ...parts);
}

function row(known) {
  return facts([
    ["stored as", known.url ? web(known.url) : ""],
    ["type", known.type],
    ["reason", known.reason],
    ["flags", known.flags.join(" ")],
    ["gathered", known.gathered],
    ["checked", known.checked],
    ["changed", known.changed],
    ["answer", `status ${known.status || "none"}, ${count(known.download_ms)} ms, ${bytes(known.size)} stored`],
    ["failures since", known.retry ? count(known.retry) : ""],
    ["redirect to", known.redirect_to ? web(known.redirect_to) : ""],
    ["last plan", known.deferred ? "left it out: " + known.deferred : ""],
    ["weight", `${known.weight}, gathered ${known.frequency}x per refresh cycle`],
  ]);
}

function site(told) {
  const found = told.site_row;
  if (!found) return [["site", join(web(told.site), " is not known")]];
  return [
    ["site", join(web(found.name), `: ${count(found.documents)} documents, ${count(found.gathered)} gathered`)],
    ["address", found.qkey],
    ["Crawl-delay", found.crawl_delay_ms ? span(found.crawl_delay_ms / 1000) : ""],
  ];
}

function server(found) {
  if (!found) return [["server", "never asked"]];
  const slowed = found.backoff ? `, backed off ${2 ** found.backoff}x` : "";
  return [
    ["server", `delay ${span(found.delay_ms / 1000)}${slowed}, ${count(found.fetches)} contacts, ${count(found.errors)} failed`],
    ["next contact", !found.next_ms || Date.parse(found.next_ms) <= Date.now() ? "at any time" : "not before " + found.next_ms],
  ];
}

function fetches(one) {
  const told = [one.planned, ...(one.fetches ?? []).map((fetch) =>
    `${fetch.result === fetch.reason ? fetch.result : `${fetch.result} (${fetch.reason})`}, status ${fetch.status || "none"}, ${fetch.download_ms} ms`)];
  if (!one.fetches?.length) told.push({ none: "", "not looked through": "its journal was not looked through" }[one.journal] ?? "not fetched");
  return visible(told.filter(Boolean).join("; ")) || "–";
}
