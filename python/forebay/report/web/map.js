// A stability map: cells over flows and round trip, and a mark at the present point.

import { css, figures } from "./charts.js";
import { make } from "./controls.js";

/** The smallest gain margin in dB of each colour of cells; the last colour has no lower limit. */
const STEPS = [[12, "--map-calm"], [6, "--map-good"], [3, "--map-fair"], [0, "--map-near"],
  [-6, "--map-bad"], [-Infinity, "--map-wild"]];
const MARGIN = { left: 46, right: 10, top: 6, bottom: 36 };

/** The legend: the colours, and between two colours their limit in dB. */
export function key(element) {
  const swatch = (colour, name = "") => {
    const made = make("i", { class: `swatch ${name}` });
    if (colour) made.style.setProperty("--line", `var(${colour})`);
    return made;
  };
  const scale = [...STEPS].reverse().flatMap(([least, colour]) =>
    [...(Number.isFinite(least) ? [String(least).replace("-", "−")] : []), swatch(colour)]);
  element.title = "Gain margin in dB; if it is negative, the loop is unstable";
  element.replaceChildren(make("span", { class: "scale" }, "unstable", ...scale, "dB"),
    make("span", {}, swatch("", "none"), "no equilibrium"));
}

/** A map; `pick(flows, rttMs)` is called with the point that the user chooses. */
export function map(pick) {
  const canvas = make("canvas", { role: "img" });
  const words = make("p", { class: "aside" });
  const title = make("h3", {});
  const box = make("div", { class: "canvas" }, canvas);
  const element = make("figure", { class: "map" }, title, box, words);
  let drawn = null;
  let point = null;

  const place = () => {
    const { flows, rtt_ms } = drawn;
    const width = box.clientWidth - MARGIN.left - MARGIN.right;
    const height = box.clientHeight - MARGIN.top - MARGIN.bottom;
    const share = (v, [low, high]) => Math.log(v / low) / Math.log(high / low);
    return {
      width, height,
      x: (n) => MARGIN.left + width * share(n, flows),
      y: (ms) => MARGIN.top + height * (1 - share(ms, rtt_ms)),
      back: (px, py) => [
        flows[0] * (flows[1] / flows[0]) ** ((px - MARGIN.left) / width),
        rtt_ms[0] * (rtt_ms[1] / rtt_ms[0]) ** (1 - (py - MARGIN.top) / height),
      ],
    };
  };

  function cell(n, ms) {
    const at = (v, [low, high]) =>
      Math.round((drawn.cells - 1) * Math.log(v / low) / Math.log(high / low));
    const column = at(n, drawn.flows);
    const row = at(ms, drawn.rtt_ms);
    if (row < 0 || column < 0 || row >= drawn.cells || column >= drawn.cells) return null;
    const i = row * drawn.cells + column;
    return { db: drawn.gain_margin_db[i], rest: drawn.rest[i] };
  }

  function say(n, ms) {
    const found = cell(n, ms);
    const where = `${Math.round(n)} flows, ${figures(ms, 3)} ms`;
    if (!found) return where;
    if (found.db === null) return `${where}: no equilibrium, ${drawn.reasons[found.rest]}`;
    const size = Math.abs(found.db) >= 60 ? "over 60" : figures(Math.abs(found.db), 2);
    return `${where}: ${found.db > 0 ? `stable, gain margin ${size} dB` : `unstable, ${size} dB too much gain`}`;
  }

  function draw() {
    if (!drawn || !box.clientWidth) return;
    const ratio = devicePixelRatio || 1;
    canvas.width = Math.round(box.clientWidth * ratio);
    canvas.height = Math.round(box.clientHeight * ratio);
    const c = canvas.getContext("2d");
    c.scale(ratio, ratio);
    const at = place();
    const n = drawn.cells;
    const colours = STEPS.map(([, name]) => css(name));
    // Half of the first cell and half of the last cell lie outside the axis.
    const dx = at.width / (n - 1), dy = at.height / (n - 1);
    c.save();
    c.beginPath();
    c.rect(MARGIN.left, MARGIN.top, at.width, at.height);
    c.clip();
    c.fillStyle = css("--map-none");
    c.fillRect(MARGIN.left, MARGIN.top, at.width, at.height);
    c.strokeStyle = css("--map-hatch");
    c.beginPath();
    for (let i = -at.height; i < at.width; i += 7) {
      c.moveTo(MARGIN.left + i, MARGIN.top + at.height);
      c.lineTo(MARGIN.left + i + at.height, MARGIN.top);
    }
    c.stroke();
    for (let row = 0; row < n; row++) {
      for (let column = 0; column < n; column++) {
        const db = drawn.gain_margin_db[row * n + column];
        if (db === null) continue;
        c.fillStyle = colours[STEPS.findIndex(([least]) => db >= least)];
        c.fillRect(MARGIN.left + (column - 0.5) * dx, MARGIN.top + at.height - (row + 0.5) * dy,
          dx + 0.6, dy + 0.6);
      }
    }
    if (point) {
      const [x, y] = [at.x(point[0]), at.y(point[1])];
      for (const [colour, width] of [[css("--panel"), 5], [css("--ink"), 2]]) {
        c.strokeStyle = colour;
        c.lineWidth = width;
        c.beginPath();
        c.arc(x, y, 6, 0, 2 * Math.PI);
        c.moveTo(x - 11, y); c.lineTo(x - 3, y);
        c.moveTo(x + 3, y); c.lineTo(x + 11, y);
        c.moveTo(x, y - 11); c.lineTo(x, y - 3);
        c.moveTo(x, y + 3); c.lineTo(x, y + 11);
        c.stroke();
      }
    }
    c.restore();
    axes(c, at);
  }

  function axes(c, at) {
    c.font = "12px system-ui, sans-serif";
    c.fillStyle = css("--soft");
    c.strokeStyle = css("--grid");
    c.lineWidth = 1;
    c.textBaseline = "top";
    c.textAlign = "center";
    for (const v of ticks(drawn.flows)) c.fillText(String(v), at.x(v), MARGIN.top + at.height + 4);
    c.fillText("Flows", MARGIN.left + at.width / 2, MARGIN.top + at.height + 20);
    c.textBaseline = "middle";
    c.textAlign = "right";
    for (const v of ticks(drawn.rtt_ms)) c.fillText(String(v), MARGIN.left - 5, at.y(v));
    c.save();
    c.translate(9, MARGIN.top + at.height / 2);
    c.rotate(-Math.PI / 2);
    c.textAlign = "center";
    c.fillText("RTT [ms]", 0, 0);
    c.restore();
  }

  function ticks([low, high]) {
    const found = [];
    for (let power = 10 ** Math.floor(Math.log10(low)); power <= high; power *= 10) {
      for (const step of [1, 3]) {
        const v = Number((step * power).toPrecision(3));
        if (v >= low * 0.999 && v <= high * 1.001) found.push(v);
      }
    }
    return found;
  }

  const under = (event) => {
    const box = canvas.getBoundingClientRect();
    const [n, ms] = place().back(event.clientX - box.left, event.clientY - box.top);
    const { flows, rtt_ms } = drawn;
    const inside = n >= flows[0] && n <= flows[1] && ms >= rtt_ms[0] && ms <= rtt_ms[1];
    return inside ? [n, ms] : null;
  };
  const rest = () => { words.textContent = drawn && point ? say(...point) : ""; };
  let held = false;
  canvas.addEventListener("pointerdown", (event) => {
    if (!drawn) return;
    const at = under(event);
    if (!at) return;
    held = true;
    canvas.setPointerCapture(event.pointerId);
    pick(at[0], at[1], false);
  });
  canvas.addEventListener("pointermove", (event) => {
    const at = drawn && under(event);
    if (!at) return;
    if (held) pick(at[0], at[1], false);
    else words.textContent = say(...at);
  });
  canvas.addEventListener("pointerup", (event) => {
    const at = drawn && held && under(event);
    held = false;
    if (at) pick(at[0], at[1], true);
  });
  canvas.addEventListener("pointerleave", rest);
  new ResizeObserver(draw).observe(box);

  return {
    element,
    draw,
    /** Shows a new map, or a text with the reason why there is none. */
    set(name, found) {
      title.textContent = name;
      box.hidden = typeof found === "string";
      drawn = box.hidden ? null : found;
      if (drawn) {
        rest();
        draw();
        canvas.setAttribute("aria-label", `Stability map of ${name}. ${words.textContent}`);
      } else words.textContent = found;
    },
    /** Moves the mark to the present point, without waiting for a new map. */
    move(flows, ms) {
      point = [flows, ms];
      if (!drawn) return;
      rest();
      draw();
    },
  };
}
