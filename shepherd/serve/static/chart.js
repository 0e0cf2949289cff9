// Plots in a few lines of SVG. Each has its figures in words for those who do not see it; a table stands beside it.

import { count, element, time } from "./show.js";

const SPACE = "http://www.w3.org/2000/svg";
const LEFT = 46, BELOW = 18, ABOVE = 8;

function shape(name, attributes, ...children) {
  const made = document.createElementNS(SPACE, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function text(x, y, what, anchor = "start") {
  return shape("text", { x, y, "text-anchor": anchor }, what);
}

function canvas(place, height, label) {
  const width = Math.max(place.clientWidth, 160);
  return [shape("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": label }), width];
}

/** The next number that is 1, 2 or 5 times a power of ten. */
function ceiling(value) {
  const power = 10 ** Math.floor(Math.log10(value || 1));
  return [1, 2, 5, 10].map((times) => times * power).find((top) => top >= value) ?? value;
}

/** Points are [seconds, value]; where they are more than `gap` seconds apart there is no line between them. */
export function line(place, { label, points, kind, gap, format }) {
  const height = 170;
  if (!points.length) {
    place.replaceChildren(element("p", { className: "quiet", textContent: "Nothing was reaped in the last day." }));
    return;
  }
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const top = ceiling(Math.max(...points.map((point) => point[1])));
  const largest = format(Math.max(...points.map((point) => point[1])));
  const [svg, width] = canvas(place, height,
    `${label}, from ${time(first)} to ${time(last)} UTC: at most ${largest}, last ${format(points.at(-1)[1])}`);
  const x = (at) => LEFT + (width - LEFT - 8) * (last > first ? (at - first) / (last - first) : 0.5);
  const y = (value) => height - BELOW - (height - BELOW - ABOVE) * (top ? value / top : 0);
  for (const part of [0, 0.5, 1]) {
    svg.append(shape("line", { class: "axis", x1: LEFT, x2: width - 8, y1: y(part * top), y2: y(part * top) }),
      text(LEFT - 6, y(part * top) + 4, format(part * top), "end"));
  }
  let path = "", before = null;
  for (const [at, value] of points) {
    const joined = before !== null && at - before <= gap;
    path += `${joined ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`;
    if (!joined) svg.append(shape("circle", { class: `mark ${kind}`, cx: x(at), cy: y(value), r: 2.5 }));
    before = at;
  }
  svg.append(shape("path", { class: `line ${kind}`, d: path }));
  svg.append(text(LEFT, height - 4, time(first)));
  if (last > first) svg.append(text(width - 8, height - 4, time(last), "end"));
  place.replaceChildren(svg);
}

/** Bars side by side, each of one or more parts: `bars` are {title, parts: [[class, value]]}. */
export function columns(place, { label, bars, height = 74, format = count, axis = true }) {
  const sums = bars.map((bar) => bar.parts.reduce((sum, part) => sum + part[1], 0));
  const top = Math.max(...sums, 0);
  const [svg, width] = canvas(place, height, `${label}: at most ${format(top)}, last ${format(sums.at(-1) ?? 0)}`);
  const left = axis ? LEFT : 0, floor = height - 2;
  const step = Math.min((width - left) / Math.max(bars.length, 1), 44);
  if (axis) {
    svg.append(text(left - 6, ABOVE + 6, format(top), "end"), text(left - 6, floor, "0", "end"));
  }
  svg.append(shape("line", { class: "axis", x1: left, x2: width, y1: floor, y2: floor }));
  bars.forEach((bar, place) => {
    const group = shape("g", {}, shape("title", {}, bar.title));
    let y = floor;
    for (const [kind, value] of bar.parts) {
      const tall = top ? Math.max((floor - ABOVE) * value / top, value ? 1 : 0) : 0;
      y -= tall;
      group.append(shape("rect", { class: `mark ${kind}`, x: left + place * step, y, width: Math.max(step - 1, 0.6), height: tall }));
    }
    svg.append(group);
  });
  place.replaceChildren(svg);
}

/** A table whose rows are bars: [name, parts, shown], parts as [class, value]. */
export function rows(caption, found) {
  const top = Math.max(...found.map(([, parts]) => parts.reduce((sum, part) => sum + part[1], 0)), 1);
  const body = found.map(([name, parts, shown]) => {
    const svg = shape("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" });
    let x = 0;
    for (const [kind, value] of parts) {
      const wide = Math.max(100 * value / top, value ? 0.6 : 0);
      svg.append(shape("rect", { class: `mark ${kind}`, x, y: 0, width: wide, height: 10 }));
      x += wide;
    }
    return element("tr", {}, element("th", { scope: "row", textContent: name }), element("td", {}, svg), element("td", {}, shown));
  });
  return element("table", { className: "bars", "aria-label": caption }, element("tbody", {}, ...body));
}
