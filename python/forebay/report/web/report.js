"use strict";
// The moving figures of a report: zoom and pan with linked axes, values under the pointer, curves that
// can be switched off. The static figure is shown in print, and by browsers that are too old.
(async () => {
  const found = document.getElementById("moving");
  if (!found || typeof DecompressionStream === "undefined") return;
  const { make, within, before, text, colourOf } = globalThis.forebayPanel;
  const { columns, figures } = JSON.parse(found.textContent);
  const column = await globalThis.forebayNumbers(document.getElementById("numbers").textContent, columns);
  const TALL = 132, TALLER = 200, ALONE = 300, GLANCE = 150, SPREAD = 96, ROOM_FOR_SPREAD = 620;
  const HINT =
    "Drag to zoom, drag with Shift to pan, double-click to reset. On the keyboard: arrows read " +
    "values, Shift and arrows pan, + and − zoom, 0 resets.";

  const element = (tag, attributes = {}, ...children) => {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  };

  // The visible range of the axes of a group, and the figures of this group.
  const groups = new Map();
  class Group {
    constructor(whole, log) {
      Object.assign(this, { whole, log, from: whole[0], to: whole[1], members: new Set() });
    }
    show(from, to) {
      const [low, high] = this.whole;
      const least = this.log ? 0 : (high - low) * 1e-5;
      if (!(to - from > least)) return;
      [this.from, this.to] = [Math.max(low, from), Math.min(high, to)];
      for (const one of this.members) one.show();
    }
    // In units in which the axis is linear.
    #moved(change) {
      const [f, g] = this.log ? [Math.log, Math.exp] : [(x) => x, (x) => x];
      const [from, to] = change(f(this.from), f(this.to), f(this.whole[0]), f(this.whole[1]));
      this.show(g(from), g(to));
    }
    pan(share) {
      this.#moved((from, to, low, high) => {
        const by = Math.min(Math.max(share * (to - from), low - from), high - to);
        return [from + by, to + by];
      });
    }
    scale(factor, at = 0.5) {
      this.#moved((from, to) => {
        const middle = from + at * (to - from);
        return [middle - (middle - from) * factor, middle + (to - middle) * factor];
      });
    }
    reset() { this.show(...this.whole); }
    point(x, source) { for (const one of this.members) one.point(x, source); }
  }

  class Figure {
    constructor(place, spec) {
      Object.assign(this, { place, spec, off: new Set(), apart: true, plots: [], only: null });
      for (const panel of spec.panels) {
        const whole = (i) => i === undefined || columns[i][0] === "i";
        panel.whole = panel.series.every((one) => whole(one.y) && whole(one.low));
        panel.targets = panel.target === null || panel.target === undefined ? [] : [panel.target];
      }
      const every = spec.panels.flatMap((panel) => panel.series);
      for (const one of every)
        for (const [tag, value] of Object.entries(one.tags))
          if (every.filter((it) => it.tags[tag] === value).every((it) => it.off)) this.off.add(`${tag}:${value}`);
      this.live = element("div", { class: "live" });
      place.querySelector("h2, h3").after(this.live);
      this.live.append(this.bar(every), (this.panels = element("div")));
      this.said = element("p", { class: "said", role: "status" });
      this.live.append(this.said);
    }

    // Unpacks the numbers, only now: most figures are below the window at first.
    open() {
      const { spec } = this;
      for (const panel of spec.panels) {
        panel.x = column(panel.x);
        for (const one of panel.series)
          for (const name of ["y", "low", "high"]) if (one[name] !== undefined) one[name] = column(one[name]);
      }
      const every = spec.panels.flatMap((panel) => panel.x);
      const least = (low, x) => Math.min(low, x), most = (high, x) => Math.max(high, x);
      const whole = spec.x.range ?? [spec.x.log ? every.reduce(least, Infinity) : 0, every.reduce(most, -Infinity)];
      // The axes of time are linked over the whole page if all runs last equally long.
      const key = `${spec.group} ${spec.group === "time" ? whole : ""}`;
      if (!groups.has(key)) groups.set(key, new Group(whole, spec.x.log));
      this.group = groups.get(key);
      const { whole: all } = this.group;
      if (spec.group !== "time") {
        const was = this.group.from === all[0] && this.group.to === all[1];
        [all[0], all[1]] = [Math.min(all[0], whole[0]), Math.max(all[1], whole[1])];
        if (was) [this.group.from, this.group.to] = all;
      }
      this.group.members.add(this);
      this.build();
    }

    button(label, title, act, attributes = {}) {
      const made = element("button", { type: "button", title, ...attributes });
      made.append(label);
      made.addEventListener("click", act);
      return made;
    }

    toggle(label, title, pressed, act, swatch, kind = "curves") {
      const made = this.button(label, title, () => {
        const on = made.getAttribute("aria-pressed") !== "true";
        made.setAttribute("aria-pressed", String(on));
        act(on);
        this.build();
      }, { "aria-pressed": String(pressed), class: kind });
      if (swatch) {
        const square = element("span", { class: `swatch dash-${swatch.dash % 3}` });
        square.style.color = colourOf(swatch);
        made.prepend(square);
      }
      return made;
    }

    bar(every) {
      const bar = element("div", { class: "bar" });
      const { spec } = this;
      const name = this.place.querySelector("h2, h3").textContent;
      for (const tag of Object.keys(every[0].tags)) {
        const values = [...new Set(every.map((one) => one.tags[tag]))];
        if (values.length < 2) continue;
        const group = element("div", { role: "group", "aria-label": `${name}: ${tag}s that are shown` });
        const single = values.every((value) => /^\d+$/.test(value) || value.startsWith("all"));
        if (single) group.append(element("span", { class: "what" }, tag));
        for (const value of values) {
          const key = `${tag}:${value}`;
          const own = every.filter((one) => one.tags[tag] === value);
          const alike = new Set(own.map((one) => one.colour)).size === 1 && !single;
          const act = (on) => (on ? this.off.delete(key) : this.off.add(key));
          const label = single && value.startsWith("all") ? "all (band)" : value;
          group.append(this.toggle(label, `Show or hide ${tag} ${value}`, !this.off.has(key), act, alike && own[0]));
        }
        bar.append(group);
      }
      const view = element("div", { role: "group", "aria-label": `${name}: view` });
      if (spec.panels.length > 1 && !spec.panels[0].y && spec.group === "time" && !spec.nearest)
        view.append(this.toggle("overlay", "All in one panel", false, (on) => (this.apart = !on), null, "mode"));
      view.append(
        this.button("◀", "Earlier, or less", () => this.group.pan(-0.5), { "aria-label": "Pan left" }),
        this.button("▶", "Later, or more", () => this.group.pan(0.5), { "aria-label": "Pan right" }),
        this.button("−", "Zoom out", () => this.group.scale(2), { "aria-label": "Zoom out" }),
        this.button("+", "Zoom in", () => this.group.scale(0.5), { "aria-label": "Zoom in" }),
        (this.all = this.button("reset", "Show the whole axis", () => this.group.reset())),
      );
      bar.append(view);
      const keys = element("p", { class: "keys" });
      // The caption of the first figure explains its lines, so that the table is on the first screen.
      if (spec.name !== "glance") this.explain(keys);
      if (spec.y.label) keys.prepend(element("span", { class: "upwards" }, `↑ ${spec.y.label}`));
      if (keys.childNodes.length) bar.append(keys);
      return bar;
    }

    // Adds what the lines and areas of the figure mean.
    explain(keys) {
      const { spec } = this;
      const targets = [...new Set(spec.panels.flatMap((panel) => panel.targets))];
      if (targets.length)
        keys.append(element("span", { class: "key-target" }), `set-point${targets.length === 1 ? ` ${text(targets[0])} ${spec.y.unit}` : " of the law"}`);
      if (spec.grey?.length) keys.append(element("span", { class: "key-grey" }), "not measured");
      if (spec.cut && spec.grey?.length) keys.append(element("span", { class: "key-cut" }), "peaks there may be cut off; zoom in to see them");
      if (spec.changes?.length) keys.append(element("span", { class: "key-change" }), spec.says.join("; "));
    }

    shown(panel) {
      const on = (one) =>
        (this.only ? one.label === this.only : true) &&
        Object.entries(one.tags).every(([tag, value]) => !this.off.has(`${tag}:${value}`));
      return panel.series.filter(on);
    }

    // Rows of the panels that have visible curves; a single row if panels are drawn over each other.
    rows() {
      const { panels } = this.spec;
      if (this.apart || panels.length < 2) return panels.filter((panel) => this.shown(panel).length);
      const [first] = panels;
      const same = panels.filter((panel) => panel.x.length === first.x.length && this.shown(panel).length);
      const series = same.flatMap((panel) =>
        panel.series.map((one) => ({ ...one, label: `${panel.title}, ${one.label}` })));
      const targets = [...new Set(same.flatMap((panel) => panel.targets))];
      return same.length ? [{ ...first, title: "", series, targets }] : [];
    }

    build() {
      for (const { u } of this.plots) u.destroy();
      const rows = this.rows();
      this.panels.replaceChildren();
      this.plots = [];
      if (!rows.length) this.panels.append(element("p", { class: "none" }, "Everything is switched off."));
      const width = this.live.clientWidth;
      this.spec.panelHeight = this.spec.name === "glance" ? GLANCE : rows.length < 2 ? ALONE : this.spec.group === "time" ? TALL : TALLER;
      rows.forEach((panel, i) => {
        const reading = element("p", { class: "reading" });
        const plot = element("div", { class: "plot" });
        const row = element("div", { class: "row" }, plot);
        const box = element("div", {
          class: "panel", tabindex: "0", role: "group", "aria-roledescription": "figure",
          "aria-label": [this.place.querySelector("h2, h3").textContent, panel.title].filter(Boolean).join(", "),
          "aria-describedby": "moving-hint",
        }, reading, row);
        this.panels.append(box);
        panel.last = i === rows.length - 1;
        panel.canvas = null;
        const beside = this.spec.spread && width > ROOM_FOR_SPREAD;
        if (beside) {
          panel.canvas = element("canvas", { class: "spread", "aria-hidden": "true" });
          row.append(panel.canvas);
        }
        const shown = this.shown(panel);
        const { from, to } = this.group;
        const u = make(plot, width - (beside ? SPREAD : 0), this.spec, panel, shown, [from, to], this.told());
        const made = { u, panel, shown, reading };
        this.plots.push(made);
        u.over.style.touchAction = "pan-y";
        this.listen(made, box);
        // Room for the texts that appear with the pointer: a plot that moves would leave the pointer.
        if (panel.x.length) this.read(made, panel.x[panel.x.length >> 1]);
        reading.style.minHeight = `${reading.offsetHeight}px`;
        this.read(made, null);
      });
      this.note();
    }

    told() {
      return {
        measured: () => this.measured(),
        yRange: (panel) => this.yRange(panel),
        whole: () => this.group.reset(),
        zoom: (from, to) => this.group.show(from, to),
        pan: (u, event) => this.drag(u, event),
        cursor: (u) => {
          if (this.moving || !u.cursor.event) return;
          const { left } = u.cursor;
          this.group.point(left < 0 ? null : u.posToVal(left, "x"), u);
        },
      };
    }

    yRange(panel) {
      const y = { ...this.spec.y, ...panel.y };
      if (y.range) return y.range;
      const own = panel.y ? [panel] : this.rows();
      let [low, high] = [Infinity, -Infinity];
      const { from, to } = this.group;
      for (const one of own) {
        const [a, b] = [Math.max(0, before(one.x, from)), Math.min(one.x.length, before(one.x, to) + 2)];
        // A peak of slow start would press all other values to the axis.
        const inside = this.spec.cut && this.isWhole();
        const [m, n] = inside ? [before(one.x, this.spec.measured[0]), before(one.x, this.spec.measured[1]) + 1] : [a, b];
        for (const series of this.shown(one))
          for (const values of [series.y, series.low, series.high])
            for (let i = Math.max(0, m); values && i < n; i++) {
              if (values[i] === null) continue;
              if (values[i] < low) low = values[i];
              if (values[i] > high) high = values[i];
            }
        if (!y.log) for (const target of one.targets ?? []) high = Math.max(high, target);
      }
      if (high < low) return y.log ? [y.least, 100] : [0, 1];
      if (y.log) return [y.least, 100];
      if (y.zero) return [0, 1.05 * high || 1];
      const room = Math.max(0.08 * (high - low), 0.01 * Math.abs(high), 1e-9);
      return [low >= 0 ? Math.max(low - room, low < 0.4 * high ? 0 : low - room) : low - room, high + room];
    }

    show() {
      if (!this.plots.length) return this.note();
      const { from: min, to: max } = this.group;
      for (const { u } of this.plots) u.setScale("x", { min, max });
      for (const made of this.plots) this.read(made, null);
      return this.note();
    }

    isWhole() {
      const { from, to, whole } = this.group;
      return from === whole[0] && to === whole[1];
    }

    // The numbers refer to the visible range, or to the measurement if the whole run is visible.
    measured() {
      return this.isWhole() && this.spec.measured ? this.spec.measured : [this.group.from, this.group.to];
    }

    note() {
      const { from, to } = this.group;
      this.live.dataset.from = from;
      this.live.dataset.to = to;
      this.all.disabled = this.isWhole();
    }

    // The pointer of a figure of the group is at x; x is null after the pointer has left.
    point(x, source) {
      if (!this.plots.length) return;
      this.moving = true;
      for (const made of this.plots) {
        const { u } = made;
        if (u !== source) u.setCursor({ left: x === null ? -10 : u.valToPos(x, "x"), top: -10 });
        this.read(made, x, u === source ? u.cursor.top : null);
      }
      this.moving = false;
    }

    // Writes the values at x into the panel's heading, or those of the visible range.
    read({ u, panel, shown, reading }, x, top = null) {
      const { spec } = this;
      const unit = (panel.y ?? spec.y).unit;
      const parts = panel.title ? [element("b", {}, panel.title)] : [];
      const say = (series, words) => {
        const square = element("span", { class: `swatch dash-${series.dash % 3}` });
        square.style.color = colourOf(series);
        parts.push(element("span", {}, square, `${series.label}: `, element("span", { class: "value" }, words)));
      };
      if (x === null) {
        const what = this.isWhole() ? "measured part" : "visible part";
        if (spec.spread && panel.of === 1)
          for (const [series, values] of within(panel, shown, this.measured()).slice(0, 4)) {
            const mean = values.reduce((sum, value) => sum + value, 0) / values.length;
            const sd = Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length);
            if (values.length) say(series, `mean ${text(+mean.toPrecision(3))}, SD ${text(+sd.toPrecision(2))} ${unit} (${what})`);
          }
        reading.replaceChildren(...parts);
        return;
      }
      // A step shows the value at its end: a sample describes the time before it.
      const held = spec.step && spec.group !== "time";
      let i = before(panel.x, x);
      if (spec.step && spec.group === "time") i = Math.min(panel.x.length - 1, i + (panel.x[i] < x || i < 0 ? 1 : 0));
      else if (!held && panel.of === 1 && i + 1 < panel.x.length && (i < 0 || panel.x[i + 1] - x < x - panel.x[i])) i++;
      if (i < 0) return reading.replaceChildren(...parts);
      const at = held ? x : panel.x[i];
      const place = panel.of > 1 && i + 1 < panel.x.length ? `${text(at)} to ${text(panel.x[i + 1])}` : `${+at.toPrecision(held ? 4 : 7)}`;
      parts.push(element("span", { class: "at" }, `${place} ${spec.x.unit}`));
      const values = shown.map((one) => [one, one.y ? one.y[i] : [one.low[i], one.high[i]]]);
      const words = (value) => (Array.isArray(value) ? `${text(value[0])} to ${text(value[1])} ${unit}` : value === null ? "–" : `${text(value)} ${unit}`);
      const single = values.filter(([, value]) => !Array.isArray(value) && value !== null);
      if (spec.nearest && single.length > 4) {
        if (top !== null && top >= 0) {
          const far = ([, value]) => Math.abs(u.valToPos(value, "y") - top);
          const [series, value] = single.reduce((a, b) => (far(b) < far(a) ? b : a));
          say(series, words(value));
          this.near = series.label;
        } else {
          const all = single.map(([, value]) => value);
          parts.push(element("span", {}, `${single.length} curves: ${text(Math.min(...all))} to ${text(Math.max(...all))} ${unit}`));
        }
      } else for (const [series, value] of values) if (value !== null && !(Array.isArray(value) && value[0] === null)) say(series, words(value));
      reading.replaceChildren(...parts);
    }

    listen(made, box) {
      const { u } = made;
      const { over } = u;
      over.addEventListener("wheel", (event) => {
        const zooms = event.ctrlKey || event.metaKey;
        const across = event.shiftKey ? event.deltaY : event.deltaX;
        if (!zooms && Math.abs(across) < Math.abs(event.shiftKey ? 0 : event.deltaY)) return;
        event.preventDefault();
        if (zooms) this.group.scale(event.deltaY > 0 ? 1.25 : 0.8, event.offsetX / over.clientWidth);
        else this.group.pan(across / over.clientWidth);
      }, { passive: false });
      if (this.spec.nearest) {
        let down = 0;
        over.addEventListener("mousedown", (event) => (down = event.clientX));
        over.addEventListener("mouseup", (event) => {
          if (Math.abs(event.clientX - down) > 3) return;
          // A click leaves one curve alone; a second click brings the other curves back.
          this.only = this.only ? null : (this.near ?? null);
          this.build();
          this.said.textContent = this.only ? `Only ${this.only}; click again for all.` : "";
        });
      }
      this.touch(u, over);
      box.addEventListener("keydown", (event) => {
        if (event.target !== box || event.ctrlKey || event.metaKey || event.altKey) return;
        const { group } = this;
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        if (step && event.shiftKey) group.pan(0.2 * step);
        else if (step) {
          const now = this.at ?? (group.log ? Math.sqrt(group.from * group.to) : (group.from + group.to) / 2);
          const share = step / 100;
          this.at = group.log ? now * (group.to / group.from) ** share : now + share * (group.to - group.from);
          this.at = Math.min(Math.max(this.at, group.from), group.to);
          group.point(this.at, null);
          this.said.textContent = made.reading.textContent;
        } else if (event.key === "+" || event.key === "=") group.scale(0.5);
        else if (event.key === "-") group.scale(2);
        else if (event.key === "0" || event.key === "Escape") group.reset();
        else return;
        event.preventDefault();
      });
    }

    drag(u, event) {
      event.preventDefault();
      let last = event.clientX;
      const move = (now) => {
        this.group.pan((last - now.clientX) / u.over.clientWidth);
        last = now.clientX;
      };
      const up = () => { removeEventListener("mousemove", move); removeEventListener("mouseup", up); };
      addEventListener("mousemove", move);
      addEventListener("mouseup", up);
    }

    // One finger reads values and pans, two fingers zoom; a vertical move scrolls the page.
    touch(u, over) {
      const fingers = new Map();
      over.addEventListener("pointerdown", (event) => {
        if (event.pointerType !== "touch") return;
        fingers.set(event.pointerId, event.clientX);
        this.group.point(u.posToVal(event.offsetX, "x"), null);
      });
      over.addEventListener("pointermove", (event) => {
        if (!fingers.has(event.pointerId)) return;
        const width = over.clientWidth;
        const was = [...fingers.values()];
        fingers.set(event.pointerId, event.clientX);
        const now = [...fingers.values()];
        if (now.length === 1) this.group.pan((was[0] - now[0]) / width);
        else {
          const [a, b] = [Math.abs(was[0] - was[1]), Math.abs(now[0] - now[1])];
          const middle = ((now[0] + now[1]) / 2 - over.getBoundingClientRect().left) / width;
          if (a > 8 && b > 8) this.group.scale(a / b, middle);
        }
      });
      for (const name of ["pointerup", "pointercancel", "pointerleave"])
        over.addEventListener(name, (event) => fingers.delete(event.pointerId));
    }
  }

  const made = new Map();
  const start = (place) => {
    const spec = figures.find((one) => one.name === place.dataset.moving);
    const figure = new Figure(place, spec);
    made.set(place, figure);
    figure.open();
  };
  const places = [...document.querySelectorAll("figure[data-moving]")];
  document.documentElement.classList.add("moving");
  if (places.length)
    (places[1] ?? places[0]).before(element("p", { id: "moving-hint", class: "hint" }, HINT));
  // A figure far below the window is drawn when it comes near.
  const near = new IntersectionObserver((seen) => {
    for (const { isIntersecting, target } of seen) {
      if (!isIntersecting) continue;
      near.unobserve(target);
      start(target);
    }
  }, { rootMargin: "600px" });
  for (const place of places) near.observe(place);
  // Then all other figures, so that nothing moves while a reader scrolls.
  const rest = () => {
    const place = places.find((one) => !made.has(one));
    if (!place) return;
    near.unobserve(place);
    start(place);
    later(rest);
  };
  const later = (act) => (globalThis.requestIdleCallback ?? setTimeout)(act);
  later(rest);

  const again = () => { for (const figure of made.values()) figure.build(); };
  let width = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    requestAnimationFrame(again);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
  document.documentElement.dataset.moving = "ready";
})();
