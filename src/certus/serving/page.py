"""The page for people: drop pictures, see what each shows and how certain that is. It loads nothing from elsewhere."""

from __future__ import annotations

import base64
from hashlib import sha256

from certus.report.style import CSS

STYLE = (
    CSS
    + """
body { max-width: 60rem } [hidden] { display: none !important }
.drop { display: block; margin: 1rem 0; padding: 2.2rem 1rem; text-align: center; cursor: pointer; border-radius: .8rem;
  border: 2px dashed var(--muted); background: var(--card) }
.drop b { display: block; font-size: 1.15rem } .drop.over { border-color: var(--s0); border-style: solid }
.drop:focus-within { outline: 3px solid var(--s0); outline-offset: 2px }
.drop input { position: absolute; width: 1px; height: 1px; opacity: 0 }
form.key { display: flex; flex-wrap: wrap; gap: .6rem; align-items: end } form.key label { flex: 1 1 14rem }
input[type=password], button { font: inherit; padding: .5rem .8rem; border-radius: .5rem;
  border: 1px solid var(--muted); background: var(--paper); color: var(--ink) } input[type=password] { width: 100% }
button { cursor: pointer } button:focus-visible, input:focus-visible { outline: 3px solid var(--s0) }
.bar { display: flex; align-items: center; gap: 1rem; justify-content: space-between; min-height: 2.8rem }
ol.answers { list-style: none; margin: .4rem 0 1rem; padding: 0; display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fill, minmax(min(26rem, 100%), 1fr)) }
ol.answers > li { display: grid; grid-template-columns: 7.5rem minmax(0, 1fr); gap: 1rem; padding: .9rem 1rem;
  background: var(--card); border: 1px solid var(--grid); border-radius: .6rem }
ol.answers img { width: 7.5rem; height: 7.5rem; object-fit: contain; border-radius: .4rem; background: var(--grid);
  image-rendering: auto } ol.answers img.tiny { image-rendering: pixelated }
.answers h2 { font-size: 1.25rem; margin: 0; overflow-wrap: anywhere } .answers p { margin: 0 }
ol.answers .unseen { opacity: 0 }
.file { overflow: hidden; text-overflow: ellipsis; white-space: nowrap }
.unsure h2, .failed h2 { font-weight: 600 } .unsure h2 { color: var(--s4) } .failed h2 { color: var(--s1) }
table.classes { margin: .5rem 0; font-size: .875rem } table.classes tr { display: table-row; padding: 0; border: 0 }
table.classes td, table.classes th { display: table-cell; border: 0; padding: .1rem .4rem .1rem 0; font-weight: 400 }
table.classes th { text-align: left; max-width: 9rem; overflow-wrap: anywhere; font-size: inherit }
table.classes td.track { width: 66% } table.classes td.number { white-space: nowrap; padding-right: 0 }
table.classes td.number::before { content: none }
.track span { display: block; height: .6rem; min-width: 2px; border-radius: .3rem; background: var(--s0) }
.unsure .track span { background: var(--s4) }
.spoken { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap }
@media (max-width: 30rem) { ol.answers > li { grid-template-columns: 5.5rem minmax(0, 1fr); gap: .7rem }
  ol.answers img { width: 5.5rem; height: 5.5rem } .drop { padding: 1.4rem .8rem } }
"""
)

SCRIPT = """
"use strict";
const find = id => document.getElementById(id);
const list = find("answers"), waiting = [], AT_ONCE = 4, SHOWN = 3, UNREACHABLE = "The service cannot be reached.";
let token = "", running = 0, done = 0, all = 0, model = null;

function make(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}
const percent = share => (100 * share).toFixed(share > 0.9995 || share < 0.0005 ? 0 : 1) + "\u00a0%";
const headers = () => token ? { Authorization: "Bearer " + token } : {};

async function introduce() {
  const response = await fetch("model", { headers: headers() }).catch(() => null);
  if (!response) return say(UNREACHABLE);
  find("key").hidden = response.status !== 401;
  find("drop").hidden = response.status === 401;
  if (!response.ok) return say(response.status === 401 && token ? "This is not the token." : "");
  model = await response.json();
  say("");
  find("name").textContent = model.name;
  document.title = model.name + " · certus";
  const names = model.classes.slice(0, 12).join(", ") + (model.classes.length > 12 ? ", …" : "");
  find("about").textContent = `Knows ${model.classes.length} classes: ${names}.`;
  find("sure").textContent = model.promise
    ? "It says “not sure” instead of an answer that is not certain enough. " + model.promise
    : "This model was not calibrated, so it answers every picture. Look at the certainty.";
}

function say(text) { find("state").textContent = text; }

function count() {
  const pictures = all === 1 ? "picture" : "pictures";
  say(done < all ? `${done} of ${all} ${pictures} done …` : `${all} ${pictures} done.`);
  find("clear").hidden = done < all || !all;
}

function add(files) {
  const before = list.firstChild;  // the newest first, those of one drop in their order
  for (const file of files) {
    const item = make("li"), image = make("img"), body = make("div");
    image.alt = "";
    image.src = URL.createObjectURL(file);
    image.onload = () => { if (image.naturalWidth < 64) image.className = "tiny"; };
    image.onerror = () => { image.className = "unseen"; };
    body.append(make("h2", "…"), make("p", file.name || "picture", "muted file"));
    item.append(image, body);
    list.insertBefore(item, before);
    waiting.push({ file, item, body, image });
    all++;
  }
  count();
  next();
}

async function next() {
  while (running < AT_ONCE && waiting.length) {
    running++;
    const one = waiting.shift();
    answer(one).catch(() => fail(one, UNREACHABLE)).finally(() => {
      running--;
      done++;
      count();
      next();
    });
  }
}

async function answer(one) {
  for (;;) {
    const form = new FormData();
    form.append("pictures", one.file, one.file.name || "picture");
    const response = await fetch("predict", { method: "POST", body: form, headers: headers() });
    if (response.status === 429) {
      const seconds = Number(response.headers.get("Retry-After")) || 1;
      await new Promise(resolve => setTimeout(resolve, 1000 * seconds));
      continue;
    }
    const found = await response.json();
    return response.ok ? show(one, found.answers[0]) : fail(one, found.error.replace(/^Picture 1 /, "The picture "));
  }
}

function show(one, found) {
  const ranked = Object.entries(found.probabilities).sort((a, b) => b[1] - a[1]).slice(0, SHOWN);
  const table = make("table", undefined, "classes"), rows = make("tbody");
  for (const [name, share] of ranked) {
    const row = make("tr"), head = make("th", name), track = make("td", undefined, "track"), bar = make("span");
    head.scope = "row";
    bar.style.width = 100 * share + "%";
    track.setAttribute("aria-hidden", "true");
    track.append(bar);
    row.append(head, track, make("td", percent(share), "number"));
    rows.append(row);
  }
  table.append(make("caption", "the most likely classes", "spoken"), rows);
  one.item.className = found.answered ? "" : "unsure";
  one.body.firstChild.textContent = found.answered ? found.label : "Not sure";
  const guess = found.answered ? "" : ` · best guess ${found.label}`;
  one.body.append(table, make("p", `certainty ${percent(found.certainty)}${guess}`, "muted"));
  one.image.alt = one.file.name || "picture";
}

function fail(one, text) {
  one.item.className = "failed";
  one.body.firstChild.textContent = "No answer";
  one.body.append(make("p", text));
}

find("files").addEventListener("change", event => { add(event.target.files); event.target.value = ""; });
find("clear").addEventListener("click", () => {
  for (const image of list.querySelectorAll("img")) URL.revokeObjectURL(image.src);
  list.replaceChildren();
  done = all = 0;
  say("");
  find("clear").hidden = true;
  find("files").focus();
});
find("key").addEventListener("submit", event => { event.preventDefault(); token = find("token").value; introduce(); });
for (const kind of ["dragover", "dragleave", "drop"]) document.addEventListener(kind, event => {
  event.preventDefault();
  find("drop").classList.toggle("over", kind === "dragover");
  if (kind === "drop" && !find("drop").hidden) add(event.dataTransfer.files);
});
document.addEventListener("paste", event => { if (!find("drop").hidden) add(event.clipboardData.files); });
introduce();
"""


def digest(text: str) -> str:
    """How a policy names an inline script or style."""
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"


POLICY = "; ".join(
    (
        "default-src 'none'",
        f"script-src {digest(SCRIPT)}",
        f"style-src {digest(STYLE)}",
        "img-src blob: data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)

PAGE = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,"><title>certus</title><style>{STYLE}</style></head>
<body><main>
<h1 id="name">certus</h1>
<p class="muted" id="about">Drop pictures here and see what each one shows.</p>
<form class="key" id="key" hidden><label>Token of this service<br>
<input type="password" id="token" autocomplete="off" required></label><button>Go on</button></form>
<label class="drop" id="drop"><b>Drop pictures here</b>or choose them, take one, or paste one
<input type="file" id="files" accept="image/*" multiple aria-label="Choose pictures"></label>
<div class="bar"><p id="state" role="status" aria-live="polite"></p><button id="clear" hidden>Clear</button></div>
<ol class="answers" id="answers" aria-label="Answers"></ol>
<p class="muted" id="sure"></p>
<p class="muted">Pictures are answered and forgotten: nothing is stored. Programs use
<a href="openapi.json">the same service</a>.</p>
</main><script>{SCRIPT}</script></body></html>
"""
