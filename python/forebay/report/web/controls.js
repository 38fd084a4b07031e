// The form: a field and a slider for each control that the server declares.
//
// The state consists of texts in the notation of a scenario; a slider only writes such texts.

const STEPS = 1000;

/** A text as a number in the slider's unit; null for a text that is no number. */
export function number(text, control) {
  const found = /^\s*([-+]?[\d.]+(?:e[-+]?\d+)?)\s*([A-Za-z/]*)\s*$/i.exec(text);
  if (!found) return null;
  const value = Number(found[1]);
  if (!Number.isFinite(value)) return null;
  if (!found[2]) return control.unit ? null : value;
  const scale = control.units.find(([unit]) => unit === found[2]);
  return scale ? value * scale[1] : null;
}

/** A number of the slider's unit as a text, with three or four figures. */
export function text(value, control) {
  const digits = control.whole ? 0 : Math.max(0, 3 - Math.floor(Math.log10(Math.abs(value) || 1)));
  const rounded = control.whole ? String(Math.round(value)) : String(Number(value.toFixed(Math.min(digits, 20))));
  return rounded + control.unit;
}

function toSlider(value, { low, high, log }) {
  const share = log ? Math.log(value / low) / Math.log(high / low) : (value - low) / (high - low);
  return Math.round(STEPS * Math.min(1, Math.max(0, share)));
}

function fromSlider(step, { low, high, log, whole }) {
  const share = step / STEPS;
  const value = log ? low * (high / low) ** share : low + share * (high - low);
  if (whole) return value < 10 ? Math.round(value) : Number(value.toPrecision(value < 1000 ? 2 : 3));
  return Number(value.toPrecision(3));
}

const DELAYS = { unit: "ms", low: 0.5, high: 500, log: true, whole: false,
  units: [["us", 1e-3], ["ms", 1], ["s", 1e3]] };

function make(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== null) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

/**
 * One control.
 *
 * key: the control's key in the state
 * move(key, text, done): called at each change; `done` is true when the slider is released
 */
export function field(control, key, move) {
  const id = `c-${key.replaceAll(".", "-")}`;
  const label = make("label", { for: id, title: control.doc }, control.label);
  if (control.type === "choice") {
    const select = make("select", { id, title: control.doc });
    for (const [value, words] of control.options) select.append(make("option", { value }, words));
    select.addEventListener("change", () => move(key, select.value, true));
    return {
      element: make("div", { class: "control choice" }, label, select),
      show(now) { select.value = now; },
      wrong(is) { select.setAttribute("aria-invalid", String(is)); },
      disable(is) { select.disabled = is; },
    };
  }
  if (control.type === "flag") {
    const box = make("input", { id, type: "checkbox", title: control.doc });
    box.addEventListener("change", () => move(key, String(box.checked), true));
    return {
      element: make("div", { class: "control flag" }, label, box),
      show(now) { box.checked = (now ?? control.default) === "true"; },
      wrong(is) { box.setAttribute("aria-invalid", String(is)); },
      disable(is) { box.disabled = is; },
    };
  }
  const input = make("input", { id, type: "text", spellcheck: "false", title: control.doc });
  input.addEventListener("input", () => move(key, input.value.trim(), false));
  input.addEventListener("change", () => move(key, input.value.trim(), true));
  const element = make("div", { class: "control" }, label, input);
  let slider = null;
  let scale = control;
  if (control.type === "range") {
    slider = make("input", {
      type: "range", min: 0, max: STEPS, step: 1, "aria-label": `${control.label}, slider`,
      "data-key": key, tabindex: 0,
    });
    const moved = (done) => {
      const value = text(fromSlider(Number(slider.value), scale), scale);
      input.value = value;
      slider.setAttribute("aria-valuetext", value);
      move(key, value, done);
    };
    slider.addEventListener("input", () => moved(false));
    slider.addEventListener("change", () => moved(true));
    // A whole number moves by one if a step of the slider is smaller.
    slider.addEventListener("keydown", (event) => {
      const up = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      if (!up || !scale.whole) return;
      const before = number(input.value, scale);
      if (before === null) return;
      const next = fromSlider(Number(slider.value) + 4 * up, scale);
      const value = up > 0 ? Math.max(before + 1, next) : Math.min(before - 1, next);
      event.preventDefault();
      slider.value = toSlider(Math.min(scale.high, Math.max(scale.low, value)), scale);
      const words = text(Math.min(scale.high, Math.max(scale.low, value)), scale);
      input.value = words;
      slider.setAttribute("aria-valuetext", words);
      move(key, words, true);
    });
    element.append(slider);
  }
  const place = (now) => {
    if (!slider) return;
    // A set-point may be a queue or a delay.
    scale = control.queue && /s$/.test(now) ? DELAYS : control;
    const value = number(now, scale);
    if (value !== null) slider.value = toSlider(value, scale);
    slider.setAttribute("aria-valuetext", now);
  };
  return {
    element,
    show(now) {
      const value = now ?? control.default;
      if (document.activeElement !== input) input.value = value;
      if (document.activeElement !== slider || number(value, scale) === null) place(value);
      else slider.setAttribute("aria-valuetext", value);
    },
    wrong(is) { input.setAttribute("aria-invalid", String(is)); },
    disable(is) { input.disabled = is; if (slider) slider.disabled = is; },
  };
}

/** A group of controls under a name. */
export function group(name, fields, className = "") {
  return make("fieldset", { class: className }, make("legend", {}, name),
    ...fields.map((it) => it.element));
}

export { make };
