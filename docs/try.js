// Runs the blocks of a page in the reader's browser: Python as WebAssembly (Pyodide), and lowwater
// from the wheel that this site carries. Nothing is loaded before the reader presses a button.
// A page opts in by the mark `<!-- try -->`, which docs/tools/wheel.py fills in.
(() => {
  "use strict";

  const here = document.currentScript.src;
  let starting; // the promise of Python; one for the page
  let turn = Promise.resolve(); // blocks run one after the other

  async function start(place, say) {
    const base = new URL(place.dataset.pyodide, location.href).href;
    say("Loading Python, some 40 MB the first time …");
    const { loadPyodide } = await import(base + "pyodide.mjs");
    const python = await loadPyodide({ indexURL: base });
    say("Installing lowwater …");
    await python.loadPackage("micropip");
    await python.pyimport("micropip").install(new URL(place.dataset.wheel, location.href).href);
    for (const name of ["numpy", "pyarrow"]) python.pyimport(name); // fails here, not in a block
    const answer = await fetch(new URL("try.py", here));
    if (!answer.ok) throw new Error(`try.py: ${answer.status} ${answer.statusText}`);
    const module = python.toPy({ __name__: "try" });
    python.runPython(await answer.text(), { globals: module });
    const names = python.toPy({ __name__: "page" });
    const run = module.get("run_block");
    return (code) => run(code, names).toJs({ dict_converter: Object.fromEntries });
  }

  function add(parent, tag, kind, text) {
    const made = document.createElement(tag);
    made.className = kind;
    if (text !== undefined) made.textContent = text;
    parent.append(made);
    return made;
  }

  // Scripts that come in by innerHTML never run: sliders and diagrams would be dead.
  function revive(script) {
    const made = document.createElement("script");
    made.textContent = script.textContent;
    script.replaceWith(made);
  }

  function show(output, found) {
    output.replaceChildren();
    if (found.text) add(output, "pre", "try-text", found.text);
    if (found.value) add(output, "pre", "try-text", found.value);
    if (found.html) {
      const made = add(output, "div", "try-html");
      made.innerHTML = found.html;
      made.querySelectorAll("script").forEach(revive);
    }
    if (found.error) add(output, "pre", "try-error", found.error);
    if (!output.childNodes.length) add(output, "p", "try-note", "It ran, and printed nothing.");
  }

  // A block: what its code is now, a button, and a place for what comes of it.
  function block(place, code, parent) {
    const bar = add(parent, "div", "try-bar");
    const button = add(bar, "button", "md-button md-button--primary try-run", "Run");
    button.type = "button";
    const output = add(parent, "div", "try-output");
    output.setAttribute("role", "status"); // read out when it changes
    return { place, code, button, output, done: false };
  }

  async function run(one) {
    one.button.disabled = true;
    const say = (text) => one.output.replaceChildren() || add(one.output, "p", "try-note", text);
    try {
      starting ??= start(one.place, say);
      say("Waiting for Python …");
      const call = await starting;
      say("Running …");
      await new Promise((then) => setTimeout(then)); // so that it is drawn
      const found = call(one.code());
      one.done = !found.error;
      show(one.output, found);
    } catch (error) {
      starting = undefined; // so that the next press tries again
      one.done = false;
      show(one.output, { error: String((error && error.stack) || error) });
    } finally {
      one.button.disabled = false;
    }
  }

  function setUp() {
    const place = document.querySelector(".try[data-wheel]");
    if (!place || place.dataset.ready) return;
    place.dataset.ready = "true";
    const editor = place.parentElement.querySelector("textarea.try-editor");
    const blocks = [];
    if (editor) {
      const area = document.createElement("div");
      editor.after(area);
      const one = block(place, () => editor.value, area);
      editor.addEventListener("keydown", (event) => {
        if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) one.button.click();
      });
      blocks.push(one);
    } else {
      for (const made of document.querySelectorAll(".language-python.highlight")) {
        const code = made.querySelector("code").textContent;
        const area = document.createElement("div");
        made.after(area);
        blocks.push(block(place, () => code, area));
      }
    }
    blocks.forEach((one, at) => {
      // A block needs the names of those before it: what has not run yet runs first.
      one.button.addEventListener("click", () => {
        turn = turn.then(async () => {
          for (const before of blocks.slice(0, at)) {
            if (!before.done) await run(before);
            if (!before.done) return;
          }
          await run(one);
        });
      });
    });
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", setUp);
  else setUp();
})();
