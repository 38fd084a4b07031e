// The studio's page: it holds a state as texts, sends it when a control moves, and draws the
// answer. The server computes everything.

import { redraw } from "./charts.js";
import { field, group, make, number } from "./controls.js";
import { Live } from "./live.js";
import { Pictures } from "./pictures.js";

const SIDES = ["a", "b"];
const root = document.documentElement;
const form = document.getElementById("controls");
const told = document.getElementById("told");

let hello = null;
let socket = null;
let texts = {};
let fields = {};
let built = ""; // which laws the form was made for
let laws = {}; // what the server made of each side: gains in effect, reasons, notes
let sent = 0;
let answered = 0;
let waiting = null;
let pictures = null;
let live = null;
/** The time at which each state was sent, until its figures are drawn. */
const asked = new Map();
/** Milliseconds from a move to the packets' new curve, the latest 500. */
const latencies = [];
window.studio = { latencies, state: () => ({ ...texts }), sent: () => sent };

// --- messages ----------------------------------------------------------------------------------

function connect() {
  socket = new WebSocket(new URL("socket", location.href.split("#")[0]).href.replace(/^http/, "ws"));
  socket.addEventListener("message", (event) => hear(JSON.parse(event.data)));
  socket.addEventListener("close", () => {
    tell("The studio has ended. Start it again with forebay studio, and open its new address.", true);
    root.dataset.closed = "true";
  });
}

function hear(message) {
  if (message.kind === "hello") return greet(message);
  if (message.kind === "toml") return download(message.text);
  if (message.kind === "python") return copy(message.text, "Python is in the clipboard.");
  if (message.kind === "live") return live?.hear(message);
  if (message.kind === "steered") return tell(message.message, Boolean(message.message));
  // An answer without a state has the number 0.
  if (message.n && message.n < answered) return undefined;
  answered = message.n || answered;
  if (message.kind === "error") return wrong(message);
  if (message.kind === "state") return accepted(message);
  if (message.kind === "done") {
    root.dataset.done = message.n;
    return undefined;
  }
  pictures.draw(message, hello, texts);
  if (message.kind === "packets") {
    root.dataset.shown = message.n;
    const since = asked.get(message.n);
    for (const n of asked.keys()) if (n <= message.n) asked.delete(n);
    // uPlot draws in a microtask; the next frame shows the drawing.
    requestAnimationFrame(() => {
      if (!performance.getEntriesByName("first-picture").length) performance.mark("first-picture");
      if (since !== undefined) {
        latencies.push(performance.now() - since);
        if (latencies.length > 500) latencies.shift();
      }
    });
  }
  return undefined;
}

/** Sends the newest state, at most once in a frame. */
function send() {
  if (waiting !== null) return;
  const since = performance.now();
  waiting = requestAnimationFrame(() => {
    waiting = null;
    if (socket?.readyState !== WebSocket.OPEN) return;
    sent += 1;
    asked.set(sent, since);
    if (asked.size > 500) asked.delete(asked.keys().next().value);
    socket.send(JSON.stringify({ n: sent, state: texts, width: pictures.width() }));
  });
}

function ask(what) {
  socket.send(JSON.stringify({ n: 0, ask: what, state: texts }));
}

function greet(message) {
  hello = message;
  hello.byName = Object.fromEntries(hello.laws.map((law) => [law.name, law]));
  document.getElementById("file").textContent = [hello.file, hello.remark].filter(Boolean).join(" · ");
  if (hello.file) document.title = `${hello.file} · Forebay studio`;
  pictures = new Pictures(hello, (flows, rttMs, done) => {
    const limits = Object.fromEntries(hello.controls.map((it) => [it.key, it]));
    texts.flows = String(Math.max(limits.flows.low, Math.round(flows)));
    texts.rtt = `${Number(rttMs.toPrecision(3))}ms`;
    moved(done, ["flows", "rtt"]);
  });
  if (hello.link) {
    live = new Live(hello, (way, changes) => {
      socket.send(JSON.stringify({ n: 0, steer: way, changes }));
    }, () => ({ kind: texts.a, params: laws.a?.params ?? {} }));
  }
  texts = { ...hello.start, ...fromAddress() };
  build();
  send();
}

function fromAddress() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

function load() {
  const found = fromAddress();
  texts = { ...hello.start };
  for (const side of SIDES) {
    // A law is written as a whole.
    if (side in found) for (const key of Object.keys(texts)) if (key.startsWith(`${side}.`)) delete texts[key];
  }
  Object.assign(texts, found);
  build();
  send();
}

function accepted(message) {
  laws = message.laws;
  tell("");
  for (const it of Object.values(fields)) it.wrong(false);
  // A text that was typed in the meantime is newer.
  if (message.n === sent && waiting === null) {
    texts = { ...message.texts };
    build();
    show();
    const hash = message.address ? `#${message.address}` : "";
    if (hash !== location.hash) {
      history.replaceState(null, "", hash || location.pathname);
    }
  }
}

function wrong({ message }) {
  tell(message, true);
  const key = message.split(":")[0];
  fields[key]?.wrong(true);
  root.dataset.failed = String(answered);
}

function tell(text, bad = false) {
  if (told.textContent !== text) told.textContent = text;
  told.classList.toggle("bad", bad);
}

// --- the form ----------------------------------------------------------------------------------

function moved(done, keys) {
  if (done) {
    // The browser's Back undoes: the former state is an entry of its history.
    history.pushState(null, "", location.href);
  }
  if (keys) show();
  send();
}

function build() {
  const now = SIDES.map((side) => texts[side] ?? "").join("/");
  if (now === built) {
    show();
    return;
  }
  built = now;
  const focus = document.activeElement?.id;
  fields = {};
  const move = (key, text, done) => {
    texts[key] = text;
    moved(done);
    if (key === "flows" || key === "rtt") point();
  };
  const groups = {};
  for (const control of hello.controls) {
    const made = field(control, control.key, move);
    fields[control.key] = made;
    (groups[control.group] ??= []).push(made);
  }
  const parts = SIDES.map((side) => law(side, move));
  form.replaceChildren(group("Link", groups.Link), group("Traffic", groups.Traffic), ...parts,
    group("Run", groups.Run));
  show();
  if (focus) document.getElementById(focus)?.focus();
}

function law(side, move) {
  const name = side.toUpperCase();
  const chosen = hello.byName[texts[side]];
  const head = `Law ${name}`;
  const select = make("select", { id: `c-${side}`, "aria-label": head });
  if (side === "b") select.append(make("option", { value: "" }, "none"));
  for (const it of hello.laws) {
    select.append(make("option", { value: it.name, title: it.title }, `${it.short} (${it.name})`));
  }
  select.value = texts[side] ?? "";
  select.addEventListener("change", () => choose(side, select.value));
  const children = [make("legend", {}, make("i", { class: "dot" }), head), select];
  if (chosen) {
    children.push(make("p", { class: "title" }, chosen.title));
    children.push(by(side, chosen));
    const own = [];
    const target = chosen.params.filter((it) => it.key === chosen.target);
    const goals = texts[`${side}.by`] === "design" ? chosen.goals : [];
    const rest = chosen.params.filter((it) => it.key !== chosen.target);
    for (const it of [...target, ...goals, ...rest]) {
      const key = `${side}.${it.key}`;
      const made = field(it, key, (changed, text, done) => {
        // A gain that is moved by hand no longer follows the design; the other gains keep their values.
        const ruled = laws[side]?.params ?? {};
        if (texts[`${side}.by`] === "design" && it.key in ruled && it.key !== chosen.target) {
          take(side);
        }
        move(changed, text, done);
      });
      fields[key] = made;
      own.push({ made, goal: it.key.startsWith("goal.") });
    }
    const first = own.slice(0, 6).map(({ made }) => made.element);
    children.push(...first);
    if (own.length > 6) {
      children.push(make("details", { class: "more" },
        make("summary", {}, `${own.length - 6} more parameters`),
        ...own.slice(6).map(({ made }) => made.element)));
    }
    children.push(make("p", { class: "note", id: `note-${side}` }));
  }
  return make("fieldset", { class: `law side-${side}` }, ...children);
}

/** The choice of gains by design or by hand. */
function by(side, chosen) {
  const name = `by-${side}`;
  const options = [["design", "by design"], ["hand", "by hand"]].map(([value, words]) => {
    const radio = make("input", { type: "radio", name, value, id: `${name}-${value}` });
    radio.checked = texts[`${side}.by`] === value;
    radio.disabled = value === "design" && !chosen.rule;
    radio.addEventListener("change", () => {
      if (value === "hand") take(side);
      else {
        texts[`${side}.by`] = "design";
        const kept = chosen.target ? texts[`${side}.${chosen.target}`] : undefined;
        clear(side);
        if (kept !== undefined) texts[`${side}.${chosen.target}`] = kept;
      }
      built = "";
      build();
      moved(true);
    });
    return make("label", {}, radio, make("span", {}, words));
  });
  return make("div", { class: "by", role: "radiogroup", "aria-label": `Gains of law ${side.toUpperCase()}` },
    make("span", {}, "Gains"), ...options,
    ...(chosen.rule ? [] : [make("span", { class: "aside" }, "no design rule")]));
}

/** The gains that are in effect become gains by hand. */
function take(side) {
  texts[`${side}.by`] = "hand";
  for (const key of Object.keys(texts)) if (key.startsWith(`${side}.goal.`)) delete texts[key];
  for (const [key, value] of Object.entries(laws[side]?.params ?? {})) texts[`${side}.${key}`] = value;
  built = "";
}

function clear(side) {
  for (const key of Object.keys(texts)) {
    if (key.startsWith(`${side}.`) && key !== `${side}.by`) delete texts[key];
  }
}

function choose(side, kind) {
  const before = hello.byName[texts[side]];
  const target = before?.target && texts[`${side}.${before.target}`];
  clear(side);
  delete texts[`${side}.by`];
  texts[side] = kind;
  const now = hello.byName[kind];
  // The same set-point, for a meaningful comparison.
  const other = side === "b" ? texts[`a.${hello.byName[texts.a]?.target}`] : undefined;
  const wanted = target ?? other;
  const control = now?.params.find((it) => it.key === now.target);
  if (control?.queue && wanted !== undefined && now.rule) texts[`${side}.${now.target}`] = wanted;
  build();
  moved(true);
}

function show() {
  for (const [key, it] of Object.entries(fields)) {
    const [side, ...rest] = key.split(".");
    const effective = SIDES.includes(side) && rest.length ? laws[side]?.params?.[rest.join(".")] : undefined;
    const designed = texts[`${side}.by`] === "design";
    it.show(designed && effective !== undefined ? effective : texts[key]);
  }
  for (const side of SIDES) {
    const note = document.getElementById(`note-${side}`);
    const of = laws[side];
    if (!note) continue;
    note.textContent = of?.reason ? `No design for this link: ${of.reason}` : (of?.notes ?? []).join(" ");
    note.classList.toggle("bad", Boolean(of?.reason));
    for (const value of ["design", "hand"]) {
      const radio = document.getElementById(`by-${side}-${value}`);
      if (radio) radio.checked = texts[`${side}.by`] === value;
    }
  }
  point();
}

function point() {
  const limits = Object.fromEntries(hello.controls.map((it) => [it.key, it]));
  pictures?.point(number(texts.flows, limits.flows), number(texts.rtt, limits.rtt));
}

// --- actions -----------------------------------------------------------------------------------

function download(text) {
  const link = make("a", { download: "studio.toml" });
  link.href = URL.createObjectURL(new Blob([text], { type: "application/toml" }));
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  tell("Saved as studio.toml: forebay run studio.toml runs it.");
}

async function copy(text, words) {
  window.studio.copied = text;
  try {
    await navigator.clipboard.writeText(text);
    tell(words);
  } catch {
    // If the browser denies access to the clipboard, the text can be copied by hand.
    const area = make("textarea", { readonly: true, rows: 12, "aria-label": "To copy" });
    area.value = text;
    const box = make("dialog", {}, area, make("form", { method: "dialog" }, make("button", {}, "Close")));
    document.body.append(box);
    box.addEventListener("close", () => box.remove());
    box.showModal();
    area.select();
  }
}

function theme() {
  const dark = document.getElementById("dark");
  dark.media = matchMedia(dark.media).matches ? "not all" : "all";
  redraw();
  pictures?.redraw();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => pictures?.redraw());

const actions = {
  save: () => ask("toml"),
  python: () => ask("python"),
  share: () => copy(location.href, "The address is in the clipboard; it holds the token of this studio."),
  reset: () => {
    history.pushState(null, "", location.pathname);
    load();
  },
  theme,
  ask: () => document.getElementById("help").showModal(),
};
for (const [id, act] of Object.entries(actions)) {
  document.getElementById(id).addEventListener("click", act);
}

const letters = {
  s: actions.save,
  p: actions.python,
  a: actions.share,
  t: theme,
  0: actions.reset,
  "?": actions.ask,
  c: () => choose("b", texts.b ? "" : (hello.start.b || hello.laws.find((law) => law.baseline).name)),
  n: () => {
    texts.seed = String((Number(texts.seed) % 1000) + 1);
    moved(true, ["seed"]);
  },
};
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !hello) return;
  if (event.target.matches("input[type=text], select, textarea") || document.querySelector("dialog[open]")) return;
  const act = letters[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
form.addEventListener("submit", (event) => event.preventDefault());
addEventListener("popstate", () => hello && load());
addEventListener("hashchange", () => hello && load());

connect();
