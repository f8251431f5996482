// Words, nodes and charts of the page of a run; page.js, later in the same script, says what they show. Nodes are changed in place, and kept by the name of what they show: so focus, selection
// and scroll positions stay while numbers change twice a second.

const SVG = "http://www.w3.org/2000/svg";
const UNKNOWN = "not known yet";
const $ = (id) => document.getElementById(id);

// -- words -------------------------------------------------------------------------------------

const whole = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });
const tenth = new Intl.NumberFormat("en-US", { maximumFractionDigits: 1 });
const always = new Intl.NumberFormat("en-US", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const count = (n) => whole.format(n);
const perSecond = (n) => (Math.abs(n) < 100 ? tenth : whole).format(n);
const percent = (share) => `${tenth.format(Math.floor(share * 1000) / 10)} %`;
const sum = (counts) => Object.values(counts).reduce((total, n) => total + n, 0);
const several = (n, noun) => `${count(n)} ${noun}${n === 1 ? "" : "s"}`;

function duration(seconds) {
  const s = Math.abs(seconds);
  if (s === 0) return "0 s";
  if (s < 0.00995) return `${always.format(s * 1000)} ms`;
  if (s < 0.9995) return `${count(s * 1000)} ms`;
  if (s < 9.95) return `${always.format(s)} s`;
  if (s < 59.5) return `${count(s)} s`;
  const units = [["y", 31536000], ["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  let left = Math.round(s);
  const at = units.findIndex(([, size]) => left >= size);
  const [unit, size] = units[at];
  const [smaller, least] = units[at + 1];
  const rest = Math.floor((left % size) / least);
  return `${count(Math.floor(left / size))} ${unit}${rest ? ` ${rest} ${smaller}` : ""}`;
}

function bytes(n) {
  const units = ["bytes", "kB", "MB", "GB", "TB"];
  const at = n < 1000 ? 0 : Math.min(4, Math.floor(Math.log10(n) / 3));
  return `${(at ? tenth : whole).format(n / 1000 ** at)} ${units[at]}`;
}

// As the run writes times: in UTC.
const instant = (at) => `${new Date(at * 1000).toISOString().slice(0, 19)}Z`;
const clock = (at) => instant(at).slice(11);

function gap(seconds) {
  if (seconds === null) return "–";
  return seconds < 0 ? `${duration(seconds)} ahead` : duration(seconds);
}

// Marks that turn the direction of text could make a name read as another one: they are spelled.
function printable(text) {
  return String(text).replace(
    /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g,
    (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

// -- nodes -------------------------------------------------------------------------------------

function put(node, text) {
  const next = printable(text);
  if (node.textContent !== next) node.textContent = next;
  return node;
}

function make(tag, style, text) {
  const node = document.createElement(tag);
  if (style) node.className = style;
  if (text !== undefined) put(node, text);
  return node;
}

function draw(tag, attributes) {
  const node = document.createElementNS(SVG, tag);
  set(node, attributes);
  return node;
}

function set(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
}

function hide(node, isHidden) {
  if (node.hidden !== isHidden) node.hidden = isHidden;
}

// Makes the children of a node those of `items`. The node of a key stays as long as the key does.
function keep(parent, items, key, create, update) {
  const nodes = (parent.kept ??= new Map());
  const names = items.map(key);
  const wanted = new Set(names);
  for (const [name, node] of nodes) {
    if (wanted.has(name)) continue;
    node.remove();
    nodes.delete(name);
  }
  let next = parent.firstElementChild;
  items.forEach((item, at) => {
    let node = nodes.get(names[at]);
    if (!node) nodes.set(names[at], (node = create(item)));
    // A node that is in its place is not touched: to move it would take the focus from it.
    if (node === next) next = next.nextElementSibling;
    else parent.insertBefore(node, next);
    update(node, item);
  });
}

// Pairs of a term and a text, or a node to fill; those without a text are left out.
function facts(list, pairs) {
  keep(
    list,
    pairs.filter(([, value]) => value !== null && value !== undefined && value !== ""),
    ([term]) => term,
    ([term]) => {
      const node = make("div");
      node.append(make("dt", "", term), make("dd"));
      return node;
    },
    (node, [, value, small, isWide]) => {
      node.classList.toggle("wide", Boolean(isWide));
      const place = node.lastElementChild;
      if (typeof value === "function") {
        value(place);
        return;
      }
      if (!place.firstChild) place.append(make("span"), make("small"));
      put(place.firstChild, value);
      put(place.lastChild, small ?? "");
    },
  );
}

function rows(table, heads, items, key, cells) {
  if (!table.tHead.rows.length) {
    const row = table.tHead.insertRow();
    for (const [text, style] of heads) {
      const head = make("th", style, text);
      head.scope = "col";
      row.append(head);
    }
  }
  keep(
    table.tBodies[0], items, key,
    () => {
      const row = make("tr");
      for (const [, style] of heads) row.append(make("td", style));
      return row;
    },
    (row, item) => cells(item).forEach((text, at) => put(row.cells[at], text)),
  );
}

function reasons(list, counts, words) {
  keep(
    list,
    Object.entries(counts).filter(([, n]) => n > 0).sort((one, two) => two[1] - one[1]),
    ([reason]) => reason,
    ([reason]) => {
      const node = make("li");
      const meaning = words[reason];
      node.append(make("b"), make("span", "", meaning ? `${reason}: ${meaning}` : reason));
      return node;
    },
    (node, [, n]) => put(node.firstChild, count(n)),
  );
}

// -- charts ------------------------------------------------------------------------------------

// A line over time for each series, 100 wide and 100 high; texts stand around it, as HTML.
function chart(place, { title, series, format, isKnown }, points) {
  if (!place.firstChild) {
    const picture = draw("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" });
    for (const one of series) picture.append(draw("path", { class: one.style }));
    picture.append(draw("path", { class: "cursor" }));
    const top = make("p", "ends");
    const values = make("span", "values");
    top.append(values, make("span"));
    for (const one of series) {
      const value = make("span");
      if (series.length > 1) {
        const key = draw("svg", { class: "key", viewBox: "0 0 22 8", "aria-hidden": "true" });
        key.append(draw("path", { class: one.style, d: "M0 4H22" }));
        value.append(key);
      }
      value.append(make("span"));
      values.append(value, " ");
    }
    place.append(make("h3", "", title), top, picture, make("p", "quiet"));
    picture.addEventListener("pointermove", (event) => {
      place.at = (event.clientX - picture.getBoundingClientRect().left) / picture.clientWidth;
      place.redraw();
    });
    picture.addEventListener("pointerleave", () => {
      place.at = null;
      place.redraw();
    });
  }
  const [, top, picture, empty] = place.children;
  const columns = series.map((one) => points.map(one.value));
  const all = columns.flat().filter((value) => value !== null);
  const isEmpty = points.length < 2 || !all.some(isKnown);
  for (const node of [top, picture]) node.toggleAttribute("hidden", isEmpty);
  hide(empty, !isEmpty);
  put(empty, points.length < 2 || !all.length ? UNKNOWN : "none so far");
  if (isEmpty) return;
  const high = all.reduce((one, two) => Math.max(one, two), 0);
  const low = all.reduce((one, two) => Math.min(one, two), 0);
  const first = points[0][0];
  const span = points.at(-1)[0] - first || 1;
  const x = (at) => (100 * (points[at][0] - first)) / span;
  const y = (value) => 100 - (100 * (value - low)) / (high - low || 1);
  columns.forEach((column, number) => {
    let path = "";
    let isBroken = true; // after what is not known, the line begins again
    column.forEach((value, at) => {
      if (value !== null) path += `${isBroken ? "M" : "L"}${x(at).toFixed(2)} ${y(value).toFixed(2)}`;
      isBroken = value === null;
    });
    set(picture.children[number], { d: path });
  });
  place.redraw = () => {
    const isAt = typeof place.at === "number";
    const wanted = first + span * (place.at ?? 1);
    const after = points.findIndex((point) => point[0] >= wanted);
    const at = isAt && after >= 0 ? after : points.length - 1;
    set(picture.lastChild, { d: isAt ? `M${x(at).toFixed(2)} 0V100` : "" });
    series.forEach((one, number) => {
      const value = columns[number][at];
      const text = value === null ? "–" : format(value);
      const when = isAt ? ` at ${clock(points[at][0])}` : "";
      put(top.firstChild.children[number].lastChild, `${one.name}${text}${when}`);
    });
  };
  place.redraw();
  put(top.lastChild, `highest ${format(high)}${low < 0 ? `, lowest ${format(low)}` : ""}`);
}

// Bars, and the same numbers as a table, which is what a keyboard or a screen reader reads.
// `place` says where a bar begins, from 0 to 1; without it they stand side by side.
function bars(host, { title, style, items, heads, cells, size, first, last, place }) {
  hide(host, !items.length);
  if (!items.length) return;
  if (!host.firstChild) {
    host.className = `bars ${style}`;
    const ends = make("p", "ends");
    ends.append(make("span"), make("span"));
    const more = make("details");
    const table = make("table");
    table.append(make("thead"), make("tbody"));
    more.append(make("summary", "", "as numbers"), table);
    const picture = draw("svg", { viewBox: "0 0 100 100", preserveAspectRatio: "none", "aria-hidden": "true" });
    host.append(make("h3"), picture, ends, more);
  }
  const [head, picture, ends, more] = host.children;
  const high = items.reduce((most, item) => Math.max(most, size(item)), 0) || 1;
  const wide = place ? 100 / 40 : 100 / Math.max(items.length, 12);
  put(head, title);
  keep(
    picture, items, (_, at) => at,
    () => {
      const bar = draw("rect", {});
      bar.append(draw("title", {}));
      return bar;
    },
    (bar, item) => {
      // What is there is seen, however small.
      const tall = size(item) > 0 ? Math.max(2, (100 * size(item)) / high) : 0;
      const x = place ? place(item) * (100 - wide) : items.indexOf(item) * wide;
      set(bar, {
        x: x.toFixed(2), y: (100 - tall).toFixed(2), height: tall.toFixed(2), width: (wide * 0.86).toFixed(2),
      });
      put(bar.firstChild, cells(item).join(", "));
    },
  );
  put(ends.firstChild, first);
  put(ends.lastChild, last);
  rows(more.lastChild, heads, items, (_, at) => at, cells);
}
