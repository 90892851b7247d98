"use strict";
// The page of `certus review`. Names from outside reach the page as text only, never as HTML.

const KEYS = "1234567890abcdefghijklmopqrtvwxy"; // n, s, u and z have another meaning
const PAGE = 40, GRID = 20, AHEAD = 10;
const $ = (id) => document.getElementById(id);
const view = { name: "", of: "", items: new Map(), total: 0, at: -1, cells: [] };
let state = null, work = Promise.resolve(), pending = 0, broken = false, poll = 0;

// ---- talking to the server

const GONE = "The server does not answer: this picture may not be saved, everything before it is. " +
  "Start certus review again, and open the address that it prints.";

async function ask(path, body) {
  const how = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  let answer, text;
  try {
    answer = await fetch(path, how);
    text = await answer.text();
  } catch {
    broken = true;
    throw new Error(GONE);
  }
  let found = null;
  try { found = JSON.parse(text); } catch { /* a refusal is plain text */ }
  if (!answer.ok) throw new Error((found && found.error) || text || "The server refused this.");
  return found;
}

// One change after the other, in the order of the keys. What fails is shown again.
function save(path, body, then, failed) {
  pending += 1;
  work = work.then(async () => {
    if (broken) return;
    try {
      const answer = await ask(path, body);
      state = answer.state;
      for (const known of answer.changed || []) remember(known);
      alarm("");
      if (then) await then(answer);
    } catch (error) {
      alarm(error.message);
      if (failed) await failed();
    }
    pending -= 1;
    paint();
  });
  return work;
}

function remember(known) {
  for (const item of view.items.values()) {
    if (item.picture !== known.picture) continue;
    Object.assign(item, known);
    item.done = known.touched && known.note !== "refused";
  }
}

function alarm(text) {
  $("alert").textContent = text;
  $("alert").hidden = !text;
}

function say(text) { $("live").textContent = text; }

// ---- building elements

function element(kind, attributes = {}, ...inside) {
  const made = document.createElement(kind);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "click") made.addEventListener("click", value);
    else if (value !== false && value !== null) made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...inside);
  return made;
}

function thumb(picture, alt) {
  const image = element("img", { src: `thumb/${picture}`, alt, loading: "lazy" });
  image.addEventListener("load", () => image.classList.toggle("tiny", image.naturalWidth <= 96));
  return image;
}

const percent = (p) => `${Math.round(100 * p)}\u00a0%`; // a space at which no line is broken

// Class -> key: a class whose name is a key has that key, the others have the rest in order.
function keysOf(classes) {
  const own = classes.filter((name) => name.length === 1 && KEYS.includes(name));
  const rest = [...KEYS].filter((key) => !own.includes(key) && (key !== "0" || own.length));
  return new Map(classes.map((name) => [name, own.includes(name) ? name : rest.shift() || ""]));
}

const end = (path, parts) => path.split("/").slice(-parts).join("/");
const many = (n, word) => `${n.toLocaleString("en")} ${word}${n === 1 ? "" : "s"}`;

// ---- one picture at a time

const current = () => view.items.get(view.at);

async function load(start, anew = false) {
  const of = encodeURIComponent(view.of);
  const found = await ask(`queue/${view.name}?start=${start}&count=${PAGE}&class=${of}`);
  view.total = found.total;
  if (anew) view.items = new Map();
  for (const item of found.items) if (!view.items.has(item.at)) view.items.set(item.at, item);
  return found;
}

async function show(name) {
  await work;
  Object.assign(view, { name, items: new Map(), total: 0, at: -1 });
  location.replace(`#${name}`);
  alarm("");
  try {
    state = await ask("state");
    if (name === "accept") await fill();
    else if (name !== "train") {
      const found = await load(-1);
      view.at = found.first < found.total ? found.first : -1;
    }
  } catch (error) { alarm(error.message); }
  paint();
  attend();
}

// Keys go to what is looked at, not to the button that was pressed last.
function attend() {
  const to = { next: $("stage"), suspects: $("stage"), accept: $("cells").firstElementChild }[view.name];
  if (to) to.focus({ preventScroll: true });
}

async function go(at) {
  if (at < 0 || at >= view.total) return;
  if (!view.items.has(at)) await load(Math.max(0, at - 5));
  view.at = at;
  zoom(false);
  paint();
  if (!document.activeElement.closest(".find, #strip")) attend();
  if (view.items.size && !view.items.has(at + AHEAD) && at + AHEAD < view.total) load(at + 1).then(paint, () => {});
}

async function advance() {
  for (let at = view.at + 1; at < view.total; at += 1) {
    if (!view.items.has(at)) await load(at);
    if (!view.items.get(at).done) return go(at);
  }
  const found = await load(-1);
  for (let at = found.first; at < view.total; at += 1) {
    if (!view.items.has(at)) await load(at);
    if (!view.items.get(at).done) return go(at);
  }
  view.at = -1;
  paint();
}

function give(label, by) {
  const item = current();
  if (!item || broken) return;
  const from = view.at, mine = { picture: item.picture, label, version: item.version };
  Object.assign(item, { done: true, label });
  say(label === null ? "Label taken away." : `Labelled ${label}, ${Math.max(0, left() - 1)} left.`);
  save("label", { marks: [mine], by: by || (view.name === "suspects" ? "checked" : "person") }, null, () => again(from));
  advance().catch((error) => alarm(error.message));
}

function skip() {
  const item = current();
  if (!item || broken) return;
  const from = view.at;
  Object.assign(item, { done: true });
  say("Skipped.");
  save("skip", { picture: item.picture, version: item.version }, null, () => again(from));
  advance().catch((error) => alarm(error.message));
}

// After a failure: the picture as it is now.
async function again(at) {
  const item = view.items.get(at);
  if (!item) return;
  Object.assign(item, { done: false });
  view.at = at;
  if (!broken) Object.assign(item, await ask(`one/${item.picture}`).catch(() => ({})));
}

function undo() {
  if (broken) return;
  save("undo", {}, async (answer) => {
    if (!answer.changed.length) return say("Nothing to undo.");
    say(`Undone: ${answer.changed[0].name}.`);
    if (view.name === "accept") return fill();
    const pictures = new Set(answer.changed.map((known) => known.picture));
    const found = await load(-1, true);
    const back = [...view.items.values()].find((item) => pictures.has(item.picture) && !item.done);
    view.at = back ? back.at : found.first < found.total ? found.first : -1;
    zoom(false);
  });
}

const left = () => (state && state.counts[view.name] ? state.counts[view.name].left : 0);

function zoom(on, event) {
  const stage = $("stage");
  stage.classList.toggle("zoomed", on);
  if (on && event && event.clientX) move(event); else $("large").style.transformOrigin = "50% 50%";
}

function move(event) {
  if (!$("stage").classList.contains("zoomed")) return;
  const box = $("stage").getBoundingClientRect();
  const x = (100 * (event.clientX - box.left)) / box.width, y = (100 * (event.clientY - box.top)) / box.height;
  $("large").style.transformOrigin = `${x}% ${y}%`;
}

function paintFocus() {
  const item = current(), suspects = view.name === "suspects";
  $("place").textContent = `${view.at + 1} of ${view.total.toLocaleString("en")}`;
  $("progress").value = view.total ? 1 - left() / Math.max(1, state.counts[view.name].total) : 1;
  paintFilter();
  const large = $("large"), address = `picture/${item.picture}`;
  if (large.getAttribute("src") !== address) large.src = address;
  large.alt = `${item.name}, picture ${view.at + 1} of ${view.total}`;
  $("stage").setAttribute("aria-label", `${large.alt}. ${item.reason}. Zoom with z.`);
  $("reason").textContent = item.reason.charAt(0).toUpperCase() + item.reason.slice(1);
  const has = item.done && item.label ? ` · labelled ${item.label}` : item.note ? ` · ${item.note}` : "";
  $("name").textContent = item.name + has;
  const sure = item.sure ? ` (${percent(item.sure)})` : "";
  $("take").replaceChildren(`${suspects ? "Change to" : "Take"} ${item.answer} `, element("kbd", {}, "Enter"));
  $("keep").hidden = $("none").hidden = $("alike").hidden = !suspects;
  if (suspects) {
    $("keep").replaceChildren(`Keep ${item.given} `, element("kbd", {}, "Space"));
    $("given-title").textContent = `Labelled ${item.given}`;
    $("answer-title").textContent = `Suggested ${item.answer}${sure}`;
    const of = (list, name) => list.map((picture) => thumb(picture, `labelled ${name}, similar`));
    $("like-given").replaceChildren(...of(item.likeGiven, item.given));
    $("like-answer").replaceChildren(...of(item.likeAnswer, item.answer));
  }
  $("undo").disabled = !state.canUndo;
  $("new").hidden = !state.canAdd;
  paintClasses(item);
  paintStrip();
  for (const ahead of [1, 2]) {
    const next = view.items.get(view.at + ahead);
    if (next) new Image().src = `picture/${next.picture}`;
  }
}

function paintFilter() {
  const filter = $("filter"), wanted = ["", ...state.classes];
  if (filter.options.length !== wanted.length) {
    filter.replaceChildren(...wanted.map((name) => element("option", { value: name }, name || "all classes")));
  }
  filter.value = view.of;
}

function paintClasses(item) {
  const word = $("find").value.trim().toLowerCase();
  const shown = [...keysOf(state.classes)].filter(([name]) => name.toLowerCase().includes(word));
  $("classes").replaceChildren(...shown.map(([name, key]) => {
    const kinds = [name === item.answer ? "suggested" : "", item.label === name ? "has" : ""].join(" ").trim();
    const made = element("button", { type: "button", class: kinds || null, click: () => choose(name) });
    if (key) made.append(element("kbd", {}, key));
    made.append(element("span", {}, name));
    return made;
  }));
  if (!shown.length) $("classes").append(element("p", { class: "muted" }, "No class has such a name."));
}

function choose(name) {
  $("find").value = "";
  $("find").blur();
  give(name);
}

function paintStrip() {
  const some = [];
  for (let at = Math.max(0, view.at - 2); at < view.total && some.length < 12; at += 1) {
    const item = view.items.get(at);
    if (!item) break;
    const made = element("button", {
      type: "button", "aria-current": at === view.at ? "true" : null, class: item.done ? "done" : null,
      "aria-label": `${item.name}${item.done ? ", done" : ""}`, tabindex: "-1", click: () => go(at),
    }, thumb(item.picture, ""));
    some.push(made);
  }
  $("strip").replaceChildren(...some);
}

// ---- a grid of twenty

async function fill() {
  const counts = state.counts.accept.classes;
  const open = state.classes.filter((name) => counts[name] > 0);
  if (!open.includes(view.of)) view.of = open[0] || "";
  const of = encodeURIComponent(view.of);
  view.cells = view.of ? (await ask(`queue/accept?grid=1&count=${GRID}&class=${of}`)).items : [];
  for (const cell of view.cells) cell.wrong = false;
}

function paintGrid() {
  const counts = state.counts.accept.classes;
  $("chips").replaceChildren(...state.classes.filter((name) => counts[name] > 0).map((name) => element("button", {
    type: "button", "aria-pressed": String(name === view.of),
    click: async () => { view.of = name; await fill(); paint(); },
  }, `${name} `, element("span", { class: "muted" }, counts[name].toLocaleString("en")))));
  $("grid-text").textContent = `Are these all ${view.of}? Click those that are not.`;
  const focused = document.activeElement && document.activeElement.dataset.cell;
  $("cells").replaceChildren(...view.cells.map((cell, i) => element("button", {
    type: "button", "data-cell": i, "aria-pressed": String(cell.wrong), title: cell.reason,
    "aria-label": `${cell.name}, ${percent(cell.sure)}${cell.wrong ? `, not ${view.of}` : ""}`,
    click: () => { cell.wrong = !cell.wrong; paintGrid(); },
  }, thumb(cell.picture, ""), element("span", {}, cell.wrong ? `not ${view.of}` : percent(cell.sure)))));
  if (focused !== undefined && focused !== null && $("cells").children[focused]) $("cells").children[focused].focus();
  const wrong = view.cells.filter((cell) => cell.wrong).length, right = view.cells.length - wrong;
  const refuse = wrong ? `, refuse ${wrong}` : "";
  $("accept").replaceChildren(`Accept ${right} as ${view.of}${refuse} `, element("kbd", {}, "Enter"));
  $("grid-undo").disabled = !state.canUndo;
}

function acceptGrid() {
  if (broken || !view.cells.length || pending) return;
  const plain = ({ picture, version }) => ({ picture, version, label: view.of });
  const marks = view.cells.filter((cell) => !cell.wrong).map(plain);
  const refused = view.cells.filter((cell) => cell.wrong).map(plain);
  save("label", { marks, refused, by: "accepted" }, async () => {
    say(`${marks.length} accepted as ${view.of}, ${refused.length} refused.`);
    await fill();
  }, fill);
}

function walk(step) {
  const cells = [...$("cells").children], at = cells.indexOf(document.activeElement);
  const to = cells[Math.min(cells.length - 1, Math.max(0, at + (at < 0 ? 1 : step)))];
  if (to) to.focus();
}

const columns = () => getComputedStyle($("cells")).gridTemplateColumns.split(" ").length;

// ---- training

function paintTrain() {
  const training = state.training, busy = ["training", "looking"].includes(training.step);
  const given = state.given;
  $("train-text").textContent = `${many(given, "label")} given since the page was opened. A new run starts from the ` +
    "weights of this one and learns from all labels. This run stays as it is.";
  $("command").textContent = state.command;
  $("start").disabled = busy;
  $("stop").hidden = $("training").hidden = !busy;
  if (training.step === "looking" || !training.steps) $("training").removeAttribute("value");
  else $("training").value = training.done / training.steps;
  const error = training.validation === null ? "" : `, validation error ${training.validation.toFixed(1)} %`;
  $("training-text").textContent = {
    none: "", done: `Finished: ${training.out}. The queues are those of the new run.`,
    failed: `It failed: ${training.error}`, looking: "Looking at the new answers …",
    training: training.steps ? `Step ${training.done} of ${training.steps}${error}` : "Preparing …",
  }[training.step];
  paintOutcome(training.outcome);
  paintChart(state.rounds.filter((known) => known.error !== null));
  clearTimeout(poll);
  if (busy) poll = setTimeout(async () => {
    try { state = await ask("state"); } catch (e) { return alarm(e.message); }
    if (state.training.step === "done") say("Training has finished.");
    paint();
  }, 700);
}

function paintOutcome(outcome) {
  $("outcome").hidden = !outcome.errors;
  if (!outcome.errors) return;
  const error = (e) => (e === null ? "not measured" : `${e.toFixed(2)} %`);
  const rows = [["labels", ...outcome.labels], ["error on validation pictures", ...outcome.errors.map(error)],
    ["answers under 90 %", ...outcome.unsure]];
  $("outcome-rows").replaceChildren(...rows.map(([head, ...cells]) => element("tr", {},
    element("th", { scope: "row" }, head), ...cells.map((cell) => element("td", {}, String(cell))))));
  $("changes-title").textContent =
    `${many(outcome.changed, "picture")} of ${outcome.answered.toLocaleString("en")} without a label got another answer`;
  $("changes").replaceChildren(...outcome.changes.slice(0, 40).map((change) => element("div", {},
    thumb(change.picture, change.name), element("span", {}, `${change.was} → ${change.now}, ${percent(change.sure)}`))));
}

function paintChart(rounds) {
  $("chart").hidden = rounds.length < 2;
  if (rounds.length < 2) return;
  const width = 480, height = 240, side = 44, svg = (kind, attributes, text) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };
  const labels = rounds.map((r) => r.labels), top = Math.max(...rounds.map((r) => r.error), 1);
  const [low, high] = [Math.min(...labels), Math.max(...labels)];
  const x = (n) => side + ((n - low) / Math.max(1, high - low)) * (width - side - 30);
  const y = (e) => height - side - (e / top) * (height - side - 24);
  const drawn = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  drawn.append(svg("title", {}, rounds.map((r) => `${r.labels} labels: ${r.error.toFixed(2)} %`).join("; ")));
  for (const e of [0, top / 2, top]) {
    drawn.append(svg("line", { class: "axis", x1: side, x2: width - 10, y1: y(e), y2: y(e) }));
    drawn.append(svg("text", { x: side - 6, y: y(e) + 4, "text-anchor": "end" }, `${e.toFixed(e < 10 ? 1 : 0)} %`));
  }
  drawn.append(svg("polyline", { class: "line", points: rounds.map((r) => `${x(r.labels)},${y(r.error)}`).join(" ") }));
  for (const r of rounds) {
    drawn.append(svg("circle", { cx: x(r.labels), cy: y(r.error), r: 4 }));
    drawn.append(svg("text", { x: x(r.labels), y: height - side + 20, "text-anchor": "middle" }, r.labels));
  }
  drawn.append(svg("text", { x: width / 2, y: height - 4, "text-anchor": "middle" }, "labels"));
  $("chart-picture").replaceChildren(drawn);
}

// ---- the whole page

const NOTHING = {
  next: "Nothing is left to label here. Train again, and the new run will ask about what it is unsure of.",
  suspects: "No label is suspect any more.",
  accept: "No certain answer is left to accept.",
};

function paint() {
  if (!state) return;
  $("run").textContent = `${end(state.run, 1)} on ${end(state.data, 1)}`;
  $("run").title = `${state.run} on ${state.data}`;
  $("saved").textContent = pending && !broken ? "Saving …" : `${many(state.given, "label")} given`;
  $("where").textContent = pending ? "" : `, saved in ${end(state.table, 2)}`;
  $("where").title = state.table;
  for (const button of document.querySelectorAll("nav [data-view]")) {
    const name = button.dataset.view, count = state.counts[name];
    if (name === view.name) button.setAttribute("aria-current", "page"); else button.removeAttribute("aria-current");
    if (count) button.querySelector(".count").textContent = count.left.toLocaleString("en");
  }
  const one = view.name === "next" || view.name === "suspects";
  $("focus").hidden = !one || !current();
  $("grid").hidden = view.name !== "accept" || !view.cells.length;
  $("train").hidden = view.name !== "train";
  $("empty").hidden = !($("focus").hidden && $("grid").hidden && $("train").hidden);
  $("empty-text").textContent = NOTHING[view.name] || "";
  if (!$("focus").hidden) paintFocus();
  if (!$("grid").hidden) paintGrid();
  if (!$("train").hidden) paintTrain();
  if (!$("empty").hidden && view.of && one) {
    $("empty-text").append(" ", element("button", { type: "button", click: () => filter("") }, "Show all classes"));
  }
}

function filter(name) {
  view.of = name;
  return show(view.name);
}

async function addClass() {
  if (!state.canAdd || !current()) return;
  $("add-name").value = $("find").value.trim();
  $("add").returnValue = "";
  $("add").showModal();
}

function keyed(event) {
  if (event.ctrlKey || event.altKey || event.metaKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.matches("input, select"), pressed = event.key;
  if (typing) {
    if (pressed === "Escape") { $("find").value = ""; event.target.blur(); paint(); }
    if (pressed === "Enter" && event.target === $("find")) {
      const first = $("classes").querySelector("button");
      if (first) { event.preventDefault(); first.click(); }
    }
    return;
  }
  const done = () => event.preventDefault();
  if (pressed === "?") { done(); return $("help").showModal(); }
  if (pressed === "u") { done(); return undo(); }
  if (view.name === "accept") return gridKey(event, done);
  if (view.name === "train" || !current()) return undefined;
  const onButton = event.target.matches("button") && (pressed === "Enter" || pressed === " ");
  if (onButton && event.target !== $("stage")) return undefined;
  if (pressed === "ArrowRight") { done(); return go(view.at + 1); }
  if (pressed === "ArrowLeft") { done(); return go(view.at - 1); }
  if (pressed === "Enter") { done(); return give(current().answer); }
  if (pressed === " " && view.name === "suspects") { done(); return give(current().given); }
  if (["Delete", "Backspace"].includes(pressed) && view.name === "suspects") { done(); return give(null); }
  if (pressed === "s") { done(); return skip(); }
  if (pressed === "z") { done(); return zoom(!$("stage").classList.contains("zoomed")); }
  if (pressed === "n") { done(); return addClass(); }
  if (pressed === "/") { done(); return $("find").focus(); }
  const found = [...keysOf(state.classes)].find(([, key]) => key === pressed);
  if (found) { done(); give(found[0]); }
  return undefined;
}

function gridKey(event, done) {
  const cell = event.target.closest("[data-cell]");
  if (event.key === "Enter" && (cell || !event.target.matches("button"))) { done(); acceptGrid(); }
  const steps = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns(), ArrowUp: -columns() };
  if (steps[event.key] && view.cells.length) { done(); walk(steps[event.key]); }
}

document.addEventListener("keydown", keyed);
for (const button of document.querySelectorAll("nav [data-view]")) {
  button.addEventListener("click", () => { view.of = ""; show(button.dataset.view); });
}
$("help-button").addEventListener("click", () => $("help").showModal());
$("stage").addEventListener("click", (event) => zoom(!$("stage").classList.contains("zoomed"), event));
$("stage").addEventListener("pointermove", move);
$("large").addEventListener("load", () => $("large").classList.toggle("tiny", $("large").naturalWidth <= 96));
$("large").addEventListener("error", async () => {
  const answer = await fetch($("large").src).catch(() => null);
  alarm(answer ? await answer.text() : GONE);
});
$("take").addEventListener("click", () => current() && give(current().answer));
$("keep").addEventListener("click", () => current() && give(current().given));
$("none").addEventListener("click", () => give(null));
$("skip").addEventListener("click", skip);
$("undo").addEventListener("click", undo);
$("grid-undo").addEventListener("click", undo);
$("back").addEventListener("click", () => go(view.at - 1));
$("forth").addEventListener("click", () => go(view.at + 1));
$("new").addEventListener("click", addClass);
$("find").addEventListener("input", () => current() && paintClasses(current()));
$("filter").addEventListener("change", () => { $("filter").blur(); filter($("filter").value); });
$("accept").addEventListener("click", acceptGrid);
$("start").addEventListener("click", () => save("train", {}));
$("stop").addEventListener("click", () => save("stop", {}));
$("add").addEventListener("close", () => {
  const name = $("add-name").value;
  if ($("add").returnValue !== "add" || !name.trim()) return;
  $("find").value = "";
  save("add-class", { name }, (answer) => give(answer.name));
});
addEventListener("beforeunload", (event) => { if (pending && !broken) event.preventDefault(); });
addEventListener("focus", async () => { // another tab may have labelled
  if (pending || broken || !state) return;
  try { state = await ask("state"); } catch (error) { return alarm(error.message); }
  return paint();
});

const first = location.hash.slice(1);
show(["next", "suspects", "accept", "train"].includes(first) ? first : "next");
