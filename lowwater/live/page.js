// The page of a run: receives its snapshots, and draws them. It is one script with page_drawing.js and
// page_trace.js, which stand before it.

const REOPEN_MS = 2000;
const SPEAK_MS = 10000; // a screen reader is not to talk all the time
const QUIET_S = 3;
const MANY = 50;
const MANY_MS = 2000; // a table of hundreds of rows takes a tenth of a second, of the run's own machine
const STATES = {
  running: "running",
  ended: "ended",
  stopped: "stopped",
  available: "has read what was there; windows stay open for the next run",
  failed: "failed",
};
const REASONS = {
  expired: "the window had expired",
  closed: "the trigger of the window had finished",
  unwindowed: "no window contains the event time",
  too_late: "later than the stage allows",
  refused: "the process refused it",
};
const TIMINGS = ["EARLY", "ON_TIME", "LATE"];

const root = document.documentElement;
const report = $("data");
const dark = matchMedia("(prefers-color-scheme: dark)");

let snapshot = null; // the latest one
let shown = null; // the one that is drawn
let waited = 0; // seconds since the run last finished a bundle or a poll
let paused = false;
let scheduled = false;
let chosen = null; // the name of a source or stage
let isOver = Boolean(report); // nothing more comes
let link = report ? "" : "connecting …";

// -- the parts of the page ---------------------------------------------------------------------

const NONE_KNOWN = () => true;
// Counts of late records and dead letters as rates: from each point to the next.
const growth = (column) => (point, at, points) => {
  const before = points[at - 1];
  if (!before || point[0] <= before[0]) return null;
  return Math.max(0, point[column] - before[column]) / (point[0] - before[0]);
};
const CHARTS = [
  { title: "Records per second", format: perSecond, isKnown: NONE_KNOWN,
    series: [{ name: "", style: "rate", value: (point) => point[2] }] },
  { title: "Behind the clock", format: gap, isKnown: NONE_KNOWN,
    series: [{ name: "", style: "behind", value: (point) => point[5] }] },
  { title: "Late and dead records per second", format: perSecond, isKnown: (value) => value > 0,
    series: [
      { name: "late ", style: "late", value: growth(3) },
      { name: "dead ", style: "dead", value: growth(4) },
    ] },
];

function charts() {
  const points = snapshot.history;
  const long = points.length < 2 ? 0 : points.at(-1)[0] - points[0][0];
  put($("time-span"), long ? `${duration(long)}, from ${instant(points[0][0])} to ${clock(points.at(-1)[0])}` : "");
  keep($("charts"), CHARTS, (one) => one.title, () => make("div", "chart"),
    (node, one) => chart(node, one, points));
}

function head() {
  const { totals, parts, state, error, workers } = snapshot;
  const end = parts.at(-1);
  $("title").title = put($("title"), snapshot.title).textContent;
  document.title = printable(`${state}: ${snapshot.title}`);
  put($("state"), STATES[state] ?? state);
  $("state").dataset.state = state;
  hide($("error"), !error);
  put($("error"), error ?? "");
  const hasEnded = state !== "running";
  facts($("tiles"), [
    ["Read", totals.share === null ? null : percent(totals.share),
      !hasEnded && totals.seconds_left !== null ? `about ${duration(totals.seconds_left)} left` : ""],
    ["Records", count(totals.events), `in ${several(totals.bundles, "bundle")}`],
    ["Records per second", hasEnded ? null : perSecond(totals.rate)],
    ["Watermark", end ? end.output : totals.watermark, end ? "of the last stage" : ""],
    ["Behind the clock", !end || end.behind === null ? null : gap(end.behind)],
    ["Open windows", totals.open_windows ? count(totals.open_windows) : null],
    ["Late", sum(totals.late) ? count(sum(totals.late)) : null],
    ["Dead letters", sum(totals.errors) ? count(sum(totals.errors)) : null],
    [hasEnded ? "Ran for" : "Running for", duration(snapshot.elapsed),
      hasEnded ? `until ${instant(snapshot.at)}` : `as of ${clock(snapshot.at)}`],
    ["Worker processes", workers ? count(workers) : null],
  ]);
  const held = end && !end.ended && end.held_by;
  hide($("holder"), !held);
  put($("holder"), held ? `The watermark of ${end.name} ${hasEnded ? "was" : "is"} held by ${held}.` : "");
}

function wait() {
  const isQuiet = waited > QUIET_S && snapshot?.state === "running" && link === "connected";
  hide($("waiting"), !isQuiet);
  if (isQuiet) {
    put($("waiting"), `No bundle for ${duration(waited)}: the run waits for its source, or is busy with one bundle.`);
  }
  speak(isQuiet);
}

let spokenAt = -Infinity;
let spokenState = "";
function speak(isQuiet) {
  const parts = [$("state").textContent, isQuiet && "no bundle for some time", $("error").textContent];
  const state = parts.filter(Boolean).join(". ");
  const now = performance.now();
  if (state === spokenState && now - spokenAt < SPEAK_MS) return;
  spokenAt = now;
  spokenState = state;
  put($("spoken"), `${state}. ${$("holder").textContent}`);
}

function connection() {
  const news = snapshot && snapshot !== shown;
  put($("link"), paused ? `drawing is paused${news ? ", there is news" : ""}` : link);
  $("link").classList.toggle("lost", link.includes("lost"));
  hide($("pause"), isOver && !paused);
}

function badges(place, counts) {
  const pairs = Object.entries(counts).filter(([, n]) => n > 0);
  place.classList.add("badges");
  keep(place, pairs, ([name]) => name, ([name]) => make("span", "badge"),
    (node, [name, n]) => {
      node.className = `badge ${TIMINGS.includes(name) || name === "retractions" ? name : ""}`;
      put(node, `${count(n)} ${name}`);
    });
}

const panesOf = (part) => ({ ...part.panes, retractions: part.retractions });
const reasonsOf = (part) => Object.entries(part.late).filter(([, n]) => n > 0)
  .map(([reason, n]) => `${count(n)} ${reason}`).join(", ");
const dash = (n) => (n ? count(n) : "–");
const progress = (part) => {
  if (part.ended) return "ended";
  return part.share === null ? "" : `${percent(part.share)} read`;
};
const COLUMNS = [
  ["Name", "", null],
  ["Per second", "number", (part) => perSecond(part.rate)],
  ["Records", "number", (part) => count(part.records)],
  ["Watermark", "nowrap", (part) => part.output],
  ["Behind", "nowrap", (part) => gap(part.behind)],
  ["Held by", "held", (part) => (part.ended ? "" : part.held_by)],
  ["Due next", "nowrap", (part) => [part.due, part.due_at_clock && `${part.due_at_clock} by the clock`]
    .filter(Boolean).join(", or ") || "–"],
  ["Open", "nowrap", (part) => (part.open_windows ? `${count(part.open_windows)} ${part.open_noun}` : "–")],
  ["Panes", "panes", null],
  ["Late", "why", (part) => reasonsOf(part) || "–"],
  ["Dead", "number", (part) => dash(part.dead)],
  ["Idle", "nowrap", (part) => (part.idle_seconds ? duration(part.idle_seconds) : "–")],
  ["Progress", "nowrap", progress],
];

function newRow(part) {
  const row = make("tr");
  const name = make("th");
  name.scope = "row";
  const button = make("button", "name");
  button.type = "button";
  name.append(button, make("small"));
  row.append(name);
  for (const [, style] of COLUMNS.slice(1)) row.append(make("td", style));
  for (const style of ["panes", "held"]) row.querySelector(`.${style}`).append(make("div"));
  row.name = part.name;
  return row;
}

function updateRow(row, part) {
  const [button, kind] = row.cells[0].children;
  put(button, part.name);
  button.title = button.textContent;
  set(button, { "aria-pressed": part.name === chosen });
  put(kind, part.kind);
  row.classList.toggle("chosen", part.name === chosen);
  COLUMNS.forEach(([, style, text], at) => {
    const cell = row.cells[at];
    if (style === "panes") badges(cell.firstChild, panesOf(part));
    else if (style === "held") cell.firstChild.title = put(cell.firstChild, text(part)).textContent;
    else if (text) put(cell, text(part));
  });
}

let tableAt = -Infinity;
let tableTimer = 0;
function tableInTime() {
  const isLong = snapshot.parts.length > MANY && snapshot.state === "running";
  const rest = isLong ? tableAt + MANY_MS - performance.now() : 0;
  if (rest <= 0) {
    table();
  } else {
    tableTimer ||= setTimeout(() => {
      tableTimer = 0;
      if (!paused) table();
    }, rest);
  }
}

function table() {
  tableAt = performance.now();
  const { tHead, tBodies } = $("parts");
  if (!tHead.rows.length) {
    const row = tHead.insertRow();
    for (const [text, style] of COLUMNS) {
      const cell = make("th", style, text);
      cell.scope = "col";
      row.append(cell);
    }
  }
  const wanted = $("filter").value.trim().toLowerCase();
  const found = snapshot.parts.filter(
    (part) => !wanted || `${part.name} ${part.held_by}`.toLowerCase().includes(wanted),
  );
  keep(tBodies[0], found, (part) => part.name, newRow, updateRow);
  const all = snapshot.parts.length;
  put($("parts-count"), wanted ? `${count(found.length)} of ${count(all)}` : count(all));
  hide($("none-found"), found.length > 0);
}

function detail() {
  const part = snapshot.parts.find(({ name }) => name === chosen) ?? snapshot.parts.at(-1);
  hide($("detail"), !part);
  if (!part) return;
  put($("detail-kind"), { source: "Source", table: "Table" }[part.kind] ?? "Stage");
  put($("detail-name"), part.name);
  keep($("detail-lines"), part.lines, (_, at) => at, () => make("li"), put);
  const isSource = part.kind === "source";
  facts($("detail-facts"), [
    ["Reads", part.inputs.join(", "), "", part.inputs.join().length > 60],
    ["Records", count(part.records), `${perSecond(part.rate)} per second`],
    ["Admitted", isSource ? null : count(part.admitted)],
    ["Waiting for the watermark", part.waiting ? count(part.waiting) : null],
    ["Dropped as late", part.dropped ? count(part.dropped) : null, reasonsOf(part)],
    ["Duplicates", part.duplicates ? count(part.duplicates) : null],
    ["Superseded upserts", part.superseded ? count(part.superseded) : null],
    ["Dead letters", part.dead ? count(part.dead) : null],
    ["Watermark of its input", part.watermark === part.output ? null : part.watermark],
    ["Watermark", part.output, part.behind === null ? "" : `${gap(part.behind)}${part.behind < 0 ? " of" : " behind"} the clock`],
    ["Due next", part.due, "in event time"],
    ["Due by the clock", part.due_at_clock],
    ["Kept in state", part.rows ? several(part.rows, "row") : null],
    ["Panes", sum(panesOf(part)) ? (place) => badges(place, panesOf(part)) : null],
    ["Emitted", Object.entries(part.emitted).map(([tag, n]) => `${count(n)} ${tag}`).join(", ")],
    ["Nothing arrived for", part.idle_seconds && !part.ended ? duration(part.idle_seconds) : null],
    ["Read", part.share === null ? null : percent(part.share)],
    ["Held by", part.ended ? null : part.held_by, "", true],
  ]);
  windows(part);
}

function windows(part) {
  const items = part.windows;
  const [low, high] = [items[0]?.upto, items.at(-1)?.upto];
  const noun = part.open_noun;
  const when = (item) => {
    if (part.watermark === UNKNOWN) return item.text; // then `upto` is no distance
    return `${item.text}, ${duration(item.upto)} ${item.upto < 0 ? "before" : "after"} the watermark`;
  };
  bars($("detail-windows"), {
    title: `${count(part.open_windows)} ${noun} by when they are due`,
    style: "windows",
    items,
    heads: [["Due up to"], [noun, "number"]],
    cells: (item) => [when(item), count(item.count)],
    size: (item) => item.count,
    place: (item) => (high > low ? (item.upto - low) / (high - low) : 0),
    first: items.length ? when(items[0]) : "",
    last: items.length > 1 ? when(items.at(-1)) : "",
  });
}

function late() {
  const { totals, lateness } = snapshot;
  hide($("late"), !sum(totals.late));
  reasons($("late-reasons"), totals.late, REASONS);
  hide($("late-needed"), !lateness);
  put($("late-needed"), `A lateness of ${lateness} would have admitted 99 % of those that came too late.`);
  const items = snapshot.late;
  bars($("late-bars"), {
    title: "By the lateness that would have admitted them",
    style: "late",
    items,
    heads: [["Lateness up to"], ["records", "number"]],
    cells: (item) => [item.text, count(item.count)],
    size: (item) => item.count,
    first: items.length ? `up to ${items[0].text}` : "",
    last: items.length > 1 ? `up to ${items.at(-1).text}` : "",
  });
}

function dead() {
  const letters = [...snapshot.dead_letters].reverse();
  hide($("dead"), !sum(snapshot.totals.errors) && !letters.length);
  reasons($("dead-reasons"), snapshot.totals.errors, {});
  hide($("dead-scroll"), !letters.length);
  rows($("letters"), [["Reason"], ["What was wrong"], ["Where"], ["Record", "code"]], letters, (_, at) => at,
    (letter) => [letter.reason, letter.detail, letter.where ?? "–", letter.record]);
}

function commits() {
  const of = snapshot.commits;
  hide($("durable"), !of);
  if (!of) return;
  const items = of.last.map(([seconds, size], at) => ({ seconds, size, epoch: of.epoch - of.last.length + 1 + at }));
  const end = items.at(-1);
  facts($("commit-facts"), [
    ["Epoch", of.count || of.epoch ? count(of.epoch) : "no commit yet", of.count ? `${several(of.count, "commit")} of this process` : ""],
    ["Last commit", of.ago === null ? null : `${duration(of.ago)} ago`],
    ["Took", end ? duration(end.seconds) : null, of.count ? `${duration(of.seconds / of.count)} on average` : ""],
    ["Wrote", end ? bytes(end.size) : null],
    ["State", of.state_bytes === null ? null : bytes(of.state_bytes)],
  ]);
  bars($("commit-bars"), {
    title: "Seconds that the last commits took",
    style: "commits",
    items,
    heads: [["Epoch", "number"], ["took", "number"], ["wrote", "number"]],
    cells: (item) => [count(item.epoch), duration(item.seconds), bytes(item.size)],
    size: (item) => item.seconds,
    first: items.length ? `longest ${duration(Math.max(...items.map((item) => item.seconds)))}` : "",
    last: items.length > 1 ? `${several(items.length, "commit")}, newest on the right` : "",
  });
}

function outputs() {
  hide($("outputs-part"), !snapshot.outputs.length);
  rows($("outputs"), [["Output"], ["Sinks"], ["Deliveries", "number"], ["Rows", "number"]], snapshot.outputs,
    (_, at) => at,
    (output) => [output.name, output.sinks.join(", "), count(output.deliveries), count(output.rows)]);
}

const theme = () => (root.dataset.theme === "auto" ? (dark.matches ? "dark" : "light") : root.dataset.theme);

function graph() {
  if (report) {
    hide($("graph-part"), !$("graph").firstElementChild);
    return;
  }
  let picture = $("graph").querySelector("img");
  if (!picture) {
    picture = make("img");
    picture.alt = "The graph of the pipeline. The table below lists its sources and stages.";
    picture.addEventListener("error", () => put($("graph"), "The graph could not be drawn."));
    $("graph").append(picture);
  }
  const source = url("graph.svg", { theme: theme() });
  if (picture.getAttribute("src") !== source) picture.src = source;
}

// -- drawing, and what the reader does ---------------------------------------------------------

function schedule() {
  if (scheduled) return;
  scheduled = true;
  requestAnimationFrame(() => {
    scheduled = false;
    if (snapshot && !paused) render();
    connection();
  });
}

function render() {
  shown = snapshot;
  if (chosen === null || !snapshot.parts.some(({ name }) => name === chosen)) chosen = snapshot.parts.at(-1)?.name ?? null;
  hide($("main"), false);
  for (const part of [head, charts, graph, tableInTime, detail, late, dead, commits, outputs, trace, wait, follow]) part();
}

function choose(name) {
  chosen = name;
  if (!snapshot) return;
  table();
  detail();
  if (snapshot.traced && !report) chooseStage(name);
}

$("parts").tBodies[0].addEventListener("click", (event) => {
  const row = event.target.closest("tr");
  if (row && getSelection().isCollapsed) choose(row.name); // not where somebody selects text
});
$("parts").tBodies[0].addEventListener("keydown", (event) => {
  const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  const row = step && event.target.closest("tr")?.[step];
  if (!row) return;
  event.preventDefault();
  row.querySelector("button").focus();
});
$("filter").addEventListener("input", () => snapshot && table());

$("pause").addEventListener("click", () => {
  paused = !paused;
  set($("pause"), { "aria-pressed": paused });
  put($("pause"), paused ? "Resume" : "Pause");
  schedule();
});

function paint() {
  // The class is what the colours of pictures inside the page go by.
  root.className = root.dataset.theme === "auto" ? "" : root.dataset.theme;
  put($("theme"), `Theme: ${root.dataset.theme}`);
  if (snapshot) graph();
  refresh(true);
}
$("theme").addEventListener("click", () => {
  const all = ["auto", "light", "dark"];
  root.dataset.theme = all[(all.indexOf(root.dataset.theme) + 1) % 3];
  paint();
});
dark.addEventListener("change", paint);
paint();

// -- what the run sends ------------------------------------------------------------------------

function open() {
  const events = new EventSource(url("events"));
  const say = (text) => {
    link = text;
    schedule();
  };
  events.addEventListener("open", () => say("connected"));
  events.addEventListener("snapshot", (event) => {
    snapshot = JSON.parse(event.data);
    waited = 0;
    schedule();
  });
  events.addEventListener("alive", (event) => {
    waited = JSON.parse(event.data).waited;
    schedule();
  });
  events.addEventListener("end", () => {
    events.close();
    isOver = true;
    say("");
  });
  events.addEventListener("error", () => {
    say("connection lost, trying again");
    // It tries again by itself, except after an answer that is no stream: of a proxy, for example.
    if (events.readyState === EventSource.CLOSED) setTimeout(open, REOPEN_MS);
  });
}

if (report) {
  snapshot = JSON.parse(report.textContent);
  schedule();
} else {
  open();
}
