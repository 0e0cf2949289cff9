// Elements, tables and numbers as text. Whatever is shown goes through textContent: nothing is ever read as markup.

const COUNT = new Intl.NumberFormat("en");
// What could steer the text around it: controls, and marks that turn the direction of writing.
const STEERING = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

export function element(name, properties = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

export function fill(id, ...children) {
  document.getElementById(id).replaceChildren(...children);
}

export function visible(text) {
  return String(text).replace(STEERING, (c) => "\\u{" + c.codePointAt(0).toString(16) + "}");
}

/** Text that comes from the web. */
export function web(text) {
  return element("span", { className: "web", textContent: visible(text) });
}

/** A number for people, and as it is for programs. */
export function data(value, text = count(value)) {
  return element("data", { value: String(value), textContent: text });
}

export function count(value) {
  return value === null || value === undefined ? "–" : COUNT.format(value);
}

export function rate(value) {
  return COUNT.format(value >= 100 ? Math.round(value) : Math.round(value * 100) / 100);
}

export function bytes(value) {
  let unit = 0;
  while (value >= 1000 && unit < 4) {
    value /= 1000;
    unit += 1;
  }
  return (unit ? value.toFixed(1) : String(value)) + " " + ["B", "kB", "MB", "GB", "TB"][unit];
}

export function span(seconds) {
  for (const [least, unit, name] of [[172800, 86400, "days"], [7200, 3600, "h"], [120, 60, "min"]]) {
    if (seconds >= least) return Math.floor(seconds / unit) + " " + name;
  }
  if (seconds > 0 && seconds < 1) return Math.round(seconds * 1000) + " ms";
  return (seconds >= 10 || Number.isInteger(seconds) ? Math.round(seconds) : seconds.toFixed(1)) + " s";
}

export function time(seconds) {
  if (!seconds) return "never";
  const text = new Date(Math.min(seconds, 4294967295) * 1000).toISOString();
  return text.slice(0, 10) + " " + text.slice(11, 19);
}

/** Columns are [title, class, cell of a row]; a cell is a text or an element. */
export function table(label, columns, rows, nothing) {
  if (!rows.length) return element("p", { className: "quiet", textContent: nothing });
  const head = element("tr", {}, ...columns.map(([title, kind]) =>
    element("th", { scope: "col", className: kind, textContent: title })));
  const body = rows.map((row) => element("tr", {}, ...columns.map(([, kind, cell]) =>
    element("td", { className: kind }, cell(row) ?? "–"))));
  const made = element("table", { className: "list" }, element("thead", {}, head), element("tbody", {}, ...body));
  // What is wider than a phone scrolls by itself, also by the keys.
  return element("div", { className: "scroll", tabIndex: 0, role: "region", "aria-label": label }, made);
}

/** Pairs of a label and what is told under it; those without are left out. */
export function facts(pairs) {
  const told = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return element("dl", { className: "facts" }, ...told.flatMap(([label, value]) =>
    [element("dt", { textContent: label }), element("dd", {}, value instanceof Node ? value : visible(value))]));
}
