// What the page of a run asks its server: the keys of a traced stage, the diagram of a key, explanations.

const REFRESH_MS = 5000; // a diagram is drawn by the run's own processor

// The token of the link, if there is one, goes along.
function url(path, query = {}) {
  const all = new URLSearchParams(query);
  const token = new URLSearchParams(location.search).get("token");
  if (token) all.set("token", token);
  return all.size ? `./${path}?${all}` : `./${path}`;
}

async function ask(path, query) {
  const answer = await fetch(url(path, query)).catch(() => {
    throw new Error("The server does not answer.");
  });
  const value = await answer.json().catch(() => ({ error: `the server answered ${answer.status}` }));
  if (!answer.ok) throw new Error(value.error ?? `the server answered ${answer.status}`);
  return value;
}

// Whether somebody zooms, or reads an answer: a diagram that is replaced would lose that, and the focus.
const isUsed = () => document.activeElement?.tagName === "IFRAME";
const stageOf = () => $("trace-stage").value;
const keyOf = () => $("trace-key").value;
let drawnAt = -Infinity;
let drawn = ""; // what the diagram shows: the stage, the key, the colours, and up to which record
let isInView = false;

function options(list, items, value, text) {
  keep(list, items, value, (item) => {
    const option = make("option");
    option.value = value(item);
    return option;
  }, (option, item) => put(option, text(item)));
}

function trace() {
  hide($("untraced"), snapshot.traced || Boolean($("diagrams").firstElementChild));
  hide($("traced"), !snapshot.traced || Boolean(report));
  hide($("trace"), Boolean(report) && snapshot.traced && !$("diagrams").firstElementChild);
  if (!snapshot.traced || report) return;
  const stages = snapshot.parts.filter((part) => part.kind !== "source");
  const isNew = !$("trace-stage").options.length;
  options($("trace-stage"), stages, (part) => part.name, (part) => part.name);
  if (isNew && stages.length) chooseStage(stages.at(-1).name);
}

function chooseStage(name) {
  if (![...$("trace-stage").options].some((option) => option.value === name)) return;
  $("trace-stage").value = name;
  const part = snapshot.parts.find((one) => one.name === name);
  if (/^\d{4}-/.test(part?.output)) $("explain-at").value = part.output;
  hide($("answer"), true);
  $("frame").replaceChildren(); // the diagram of another stage
  drawn = "";
  refresh(true);
}

// Loads the keys, and the diagram of the chosen one if anything has changed.
let isLoading = false;
async function refresh(isAsked = false) {
  if (report || !snapshot?.traced || !isInView || (isLoading && !isAsked)) return;
  isLoading = true;
  drawnAt = performance.now();
  const stage = stageOf();
  try {
    const keys = await ask("keys", { stage });
    if (stage !== stageOf()) return; // another one has been chosen meanwhile
    if (document.activeElement !== $("trace-key") || isAsked) {
      options($("trace-key"), keys, (one) => one.key, (one) => `${one.key} (${several(one.count, "event")})`);
    }
    $("explain-go").disabled = !keys.length;
    hide($("frame"), !keys.length);
    put($("trace-note"), keys.length ? "" : "Nothing has arrived at this stage yet.");
    if (keys.length) diagram(stage, keyOf());
  } catch (error) {
    put($("trace-note"), error.message);
  } finally {
    isLoading = false;
  }
}

// The next diagram loads behind the one that is seen, so that nothing flickers.
function diagram(stage, key) {
  const records = snapshot.parts.find((part) => part.name === stage)?.records;
  const next = JSON.stringify([stage, key, theme(), records, snapshot.state]);
  if (next === drawn) return;
  drawn = next;
  const frame = make("iframe", "coming");
  frame.sandbox = "allow-scripts";
  frame.title = printable(`Diagram of the key ${key} at ${stage}`);
  frame.addEventListener("load", () => {
    if (!frame.isConnected) return;
    if (isUsed()) {
      drawn = "";
      frame.remove();
      return;
    }
    frame.className = "";
    for (const other of [...$("frame").children]) if (other !== frame) other.remove();
  });
  for (const other of $("frame").querySelectorAll(".coming")) other.remove();
  frame.src = url("diagram", { stage, key, theme: theme() });
  $("frame").append(frame);
}

function follow() {
  if (isUsed()) put($("trace-note"), "The diagram stays as it is while you use it; click elsewhere to follow the run.");
  if (paused || isUsed() || !$("trace-follow").checked || document.hidden) return;
  if (performance.now() - drawnAt >= REFRESH_MS) refresh();
}

async function explain(event) {
  event.preventDefault();
  const answer = $("answer");
  hide(answer, false);
  put(answer, "asking …");
  try {
    put(answer, (await ask("explain", { stage: stageOf(), key: keyOf(), at: $("explain-at").value })).text);
  } catch (error) {
    put(answer, error.message);
  }
}

$("trace-stage").addEventListener("change", () => chooseStage(stageOf()));
$("trace-key").addEventListener("change", () => diagram(stageOf(), keyOf()));
$("explain").addEventListener("submit", explain);
new IntersectionObserver((entries) => {
  isInView = entries.at(-1).isIntersecting;
  if (isInView) follow();
}).observe($("trace"));
