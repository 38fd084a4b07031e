// The figures of a state: curves of packets, fluid model and linear loop, numbers and maps.

import { chart, figures, redraw, roundUp } from "./charts.js";
import { make } from "./controls.js";
import { key, map } from "./map.js";

const SIDES = ["a", "b"];
const COLOURS = { a: "--law-a", b: "--law-b" };
const DASH = [7, 4];
const at = (id) => document.getElementById(id);

export class Pictures {
  constructor(hello, pick) {
    this.hello = hello;
    this.last = {}; // the latest message of each kind
    const both = (extra = {}) => SIDES.map((side) => ({
      label: side.toUpperCase(), colour: COLOURS[side], show: side === "a", ...extra,
    }));
    const packets = () => this.last.packets;
    const time = { label: "Time [s]", whole: () => [0, packets()?.duration_s ?? 1] };
    const unmeasured = () => {
      const found = packets();
      return found ? [[0, found.measure_s[0]], [found.measure_s[1], found.duration_s]] : [];
    };
    const changes = () => (packets()?.changes_s ?? []).map((x) => ({ x, colour: "--soft", dash: [2, 3] }));
    const targets = () => SIDES.flatMap((side) => {
      const y = packets()?.laws[side]?.target_pkts;
      if (y === null || y === undefined) return [];
      const same = side === "b" && y === packets().laws.a?.target_pkts;
      return same ? [] : [{ y, colour: "--ink", dash: [3, 3], label: `set-point ${figures(y)}` }];
    });
    this.queue = chart(at("p-queue"), {
      x: time,
      y: { label: "Queue [packets]", range: (_, high) => [0, roundUp(Math.max(10, 1.02 * high, ...targets().map((it) => 1.1 * it.y)))] },
      series: [...both({ width: 1, alpha: 0.8 }), ...both({ dash: DASH, width: 2.2 }).map((it) => ({ ...it, show: false }))]
        .map((it, i) => ({ ...it, colour: i < 2 ? it.colour : `${it.colour}-strong` })),
      lines: () => [...targets(), ...changes()],
      shade: unmeasured,
      legend: at("l-queue"),
      sync: "time",
    });
    this.delay = chart(at("p-delay"), {
      x: { label: "Delay [ms]", whole: () => [0, packets()?.delay_ms.at(-1) ?? 1] },
      y: { label: "Waited no longer [%]", range: () => [0, 100] },
      series: both({ width: 2 }),
      legend: at("l-delay"),
    });
    this.loss = chart(at("p-loss"), {
      x: time,
      // The range of the plot need not contain the start of the run, which is not measured.
      y: { label: "Share of arrivals [%]", range: () => [0, roundUp(Math.max(0.5, 1.1 * (packets()?.mostLost ?? 0)))] },
      series: [...both({ width: 2 }), ...both({ dash: [3, 3] }).map((it) => ({ ...it, label: "", show: false }))],
      lines: changes,
      shade: unmeasured,
      legend: at("l-loss"),
      sync: "time",
    });
    this.through = chart(at("p-through"), {
      x: time,
      y: { label: "Sent [Mbit/s]", range: (_, high) => [0, roundUp(1.05 * Math.max(high, packets()?.rate_mbps ?? 1))] },
      series: both({ width: 1.5 }),
      lines: () => [{ y: packets()?.rate_mbps ?? 0, colour: "--ink", dash: [3, 3], label: "rate" }, ...changes()],
      shade: unmeasured,
      legend: at("l-through"),
      sync: "time",
    });
    const margins = (what) => () => SIDES.flatMap((side) => what(this.last.loops?.laws[side] ?? {}, COLOURS[side]));
    const frequency = { log: true };
    this.gain = chart(at("p-gain"), {
      x: { ...frequency, values: (s) => s.map(() => "") },
      y: { label: "Gain [dB]", range: (low, high) => [Math.max(-60, 20 * Math.floor(low / 20)), 20 * Math.ceil(high / 20)],
        splits: (_, __, low, high) => Array.from({ length: Math.floor((high - low) / 20) + 1 }, (___, i) => low + 20 * i), space: 14 },
      series: both({ width: 2 }),
      lines: () => [{ y: 0, colour: "--ink" }, ...margins(({ margins: m }, colour) =>
        m?.phase_crossover_rad_s && m.gain_db !== null
          ? [{ x: m.phase_crossover_rad_s, from: -m.gain_db, to: 0, colour, width: 3, dash: [] }] : [])()],
      legend: at("l-bode"),
      sync: "frequency",
    });
    this.phase = chart(at("p-phase"), {
      x: { ...frequency, label: "Frequency [rad/s]" },
      y: { label: "Phase [°]", range: (low) => [Math.max(-450, 90 * Math.floor(Math.min(low, -180) / 90)), 0],
        splits: (_, __, low, high) => Array.from({ length: Math.floor((high - low) / 90) + 1 }, (___, i) => high - 90 * i), space: 14 },
      series: both({ width: 2 }),
      lines: () => [{ y: -180, colour: "--ink" }, ...margins(({ margins: m }, colour) =>
        m?.crossover_rad_s && m.phase_deg !== null
          ? [{ x: m.crossover_rad_s, from: -180 + m.phase_deg, to: -180, colour, width: 3, dash: [] }] : [])()],
      sync: "frequency",
    });
    this.step = chart(at("p-step"), {
      x: { label: "Time since the new flows started [s]" },
      y: { label: "Queue [packets]" },
      series: both({ width: 2 }),
      lines: margins(({ rest_pkts: y }) => (y === undefined ? [] : [{ y, colour: "--ink", dash: [3, 3] }])),
      legend: at("l-step"),
    });
    this.maps = Object.fromEntries(SIDES.map((side) => [side, map(pick)]));
    at("p-map").replaceChildren(...SIDES.map((side) => this.maps[side].element));
    this.maps.b.element.hidden = true;
    key(at("l-map"));
    this.table();
    new ResizeObserver(() => this.table()).observe(at("numbers"));
  }

  width() {
    return Math.max(50, Math.round(at("p-queue").clientWidth - 60));
  }

  redraw() {
    redraw();
    for (const one of Object.values(this.maps)) one.draw();
  }

  point(flows, ms) {
    if (flows && ms) for (const one of Object.values(this.maps)) one.move(flows, ms);
  }

  draw(message) {
    this.last[message.kind] = message;
    this[`draw_${message.kind}`]?.(message);
  }

  name(side) {
    const label = this.last.packets?.laws[side]?.label;
    return label ?? side.toUpperCase();
  }

  draw_packets(message) {
    const laws = SIDES.map((side) => message.laws[side]);
    const of = (what, x) => laws.map((law) => law?.[what] ?? x.map(() => null));
    // Until its answer arrives, the curve of the fluid model is that of an older state.
    const blank = message.time_s.map(() => null);
    const fluid = this.last.fluid && this.fits(message) ? this.fluids() : [blank, blank];
    this.queue.set([message.time_s, ...of("queue_pkts", message.time_s), ...fluid]);
    this.delay.set([message.delay_ms, ...of("delay_share_pct", message.delay_ms)]);
    const marks = laws.some((law) => law && law.signalled_pct.some((v, i) => v !== law.lost_pct[i]));
    const measured = (_, i) => message.parts_s[i] > message.measure_s[0];
    message.mostLost = Math.max(0, ...laws.flatMap((law) => (law?.signalled_pct ?? []).filter(measured)));
    this.loss.set([message.parts_s, ...of("lost_pct", message.parts_s), ...of("signalled_pct", message.parts_s)]);
    this.through.set([message.parts_s, ...of("throughput_mbps", message.parts_s)]);
    SIDES.forEach((side, i) => {
      const law = message.laws[side];
      const on = Boolean(law);
      const name = law?.label ?? "";
      this.queue.show(i, on, name);
      if (!on) this.queue.show(i + 2, false);
      this.delay.show(i, on, name);
      this.loss.show(i, on, name);
      this.loss.show(i + 2, on && marks);
      this.through.show(i, on, name);
    });
    at("n-loss").textContent = marks ? "dashed: with marks" : "";
    this.numbers(message);
    const words = laws.filter(Boolean).map((law) => {
      const n = law.numbers;
      return `${law.label}: queue ${figures(n.queue_mean_pkts)} packets on average, ` +
        `95th percentile of the delay ${figures(1e3 * n.delay_p95_s)} ms, ${figures(100 * n.drop_rate)} % dropped`;
    }).join("; ");
    this.queue.say(`Queue over time. ${words}`);
    this.delay.say(`Distribution of the queuing delay. ${words}`);
    this.loss.say(`Drops and marks over time. ${words}`);
    this.through.say("Throughput over time.");
  }

  draw_warnings({ texts }) {
    at("warnings").replaceChildren(...texts.map((text) => make("li", {}, text)));
  }

  fits(message) {
    const curve = Object.values(this.last.fluid.laws).find((law) => law.queue_pkts);
    return curve?.queue_pkts.length === message.time_s.length;
  }

  fluids() {
    const length = this.last.packets.time_s.length;
    return SIDES.map((side) => this.last.fluid.laws[side]?.queue_pkts ?? new Array(length).fill(null));
  }

  draw_fluid(message) {
    const data = this.queue.plot.data;
    if (!this.fits({ time_s: data[0] }) && Object.values(message.laws).some((law) => law.queue_pkts)) return;
    this.queue.set([data[0], data[1], data[2], ...this.fluids()]);
    SIDES.forEach((side, i) => {
      const there = Boolean(message.laws[side]?.queue_pkts);
      this.queue.show(i + 2, there, `${this.name(side)}, fluid`);
    });
    const reasons = SIDES.map((side) => message.laws[side]?.reason).filter(Boolean);
    at("window").dataset.fluid = reasons[0] ?? "";
    this.aside();
  }

  draw_loops(message) {
    const laws = SIDES.map((side) => message.laws[side]);
    const empty = (x) => x.map(() => null);
    const there = Boolean(message.omega);
    for (const id of ["p-gain", "p-phase", "p-step"]) at(id).classList.toggle("off", !there);
    if (there) {
      const of = (what, x) => laws.map((law) => law?.[what] ?? empty(x));
      this.gain.set([message.omega, ...of("gain_db", message.omega)]);
      this.phase.set([message.omega, ...of("phase_deg", message.omega)]);
      this.step.set([message.step_s, ...of("step_pkts", message.step_s)]);
    }
    SIDES.forEach((side, i) => {
      const on = Boolean(message.laws[side]?.margins);
      for (const one of [this.gain, this.step]) one.show(i, on, this.name(side));
      this.phase.show(i, on);
    });
    const words = (law) => {
      const m = law.margins;
      const value = (name, form) =>
        m.unlimited.includes(name) ? "unlimited" : m[name] === null ? "none" : form(m[name]);
      return [
        ["", m.stable ? "stable" : "unstable", m.stable ? "good" : "bad"],
        ["phase margin", value("phase_deg", (v) => `${figures(v)}°`)],
        ["gain margin", value("gain_db", (v) => `${figures(v)} dB`)],
        ["delay margin", value("delay_s", (v) => (v < 1 ? `${figures(1e3 * v)} ms` : `${figures(v)} s`))],
        ["crossover", value("crossover_rad_s", (v) => `${figures(v)} rad/s`)],
        ["sensitivity peak", value("sensitivity", (v) => figures(v))],
      ];
    };
    at("w-bode").replaceChildren(...SIDES.filter((side) => message.laws[side]).map((side) => {
      const law = message.laws[side];
      const head = make("b", { class: `side-${side}` }, make("i", { class: "dot" }), this.name(side));
      if (law.reason) return make("p", {}, head, ` ${law.reason}`);
      return make("dl", {}, make("div", { class: "head" }, make("dt", {}, head),
        make("dd", { class: law.margins.stable ? "good" : "bad" }, law.margins.stable ? "stable" : "unstable")),
        ...words(law).slice(1).map(([name, value]) =>
          make("div", {}, make("dt", {}, name), make("dd", {}, value))));
    }));
    at("w-step").replaceChildren(...SIDES.filter((side) => message.laws[side]).map((side) => {
      const law = message.laws[side];
      const head = make("b", { class: `side-${side}` }, make("i", { class: "dot" }), this.name(side));
      if (law.reason) return make("p", {}, head, ` ${law.reason}`);
      const m = law.margins;
      const settles = m.settling_s === null ? "does not settle" : `settles within ${figures(m.settling_s)} s (2 %)`;
      return make("p", {}, head, ` ${settles}; each flow has ${figures(m.window_pkts)} packets in flight ` +
        `and needs a signal probability of ${figures(100 * m.probability)} %.`);
    }));
    this.gain.say("Gain of the loop over frequency; the margins are below in words.");
    this.phase.say("Phase of the loop over frequency; the margins are below in words.");
    this.step.say("Response of the queue to 10 % more flows, by the linear loop.");
  }

  draw_maps(message) {
    for (const side of SIDES) {
      const found = message.laws[side];
      this.maps[side].element.hidden = found === undefined;
      if (found !== undefined) this.maps[side].set(this.name(side), found);
    }
    at("p-map").classList.toggle("two", SIDES.every((side) => message.laws[side] !== undefined));
  }

  /** The table, whose cells keep their places; on a narrow page it has a row for each number. */
  table() {
    const narrow = at("numbers").clientWidth < 640;
    if (this.narrow === narrow) return;
    this.narrow = narrow;
    const unit = (it) => (it.unit ? [make("small", {}, it.unit)] : []);
    const heads = this.hello.numbers.map((it) =>
      make("th", { scope: narrow ? "row" : "col", title: it.doc }, it.title, ...unit(it)));
    this.laws = Object.fromEntries(SIDES.map((side) => [side, {
      name: make("th", { scope: narrow ? "col" : "row", class: `side-${side}` }),
      cells: heads.map(() => make("td")),
    }]));
    const corner = make("th", { scope: narrow ? "row" : "col" }, narrow ? "" : "Law");
    const [a, b] = SIDES.map((side) => this.laws[side]);
    const rows = narrow
      ? [[corner, a.name, b.name], ...heads.map((head, i) => [head, a.cells[i], b.cells[i]])]
      : [[corner, ...heads], [a.name, ...a.cells], [b.name, ...b.cells]];
    const [first, ...rest] = rows.map((cells) => make("tr", {}, ...cells));
    at("numbers").replaceChildren(make("table", { class: narrow ? "narrow" : "" },
      make("thead", {}, first), make("tbody", {}, ...rest)));
    if (this.last.packets) this.numbers(this.last.packets);
  }

  numbers(message) {
    for (const side of SIDES) {
      const law = message.laws[side];
      const { name, cells } = this.laws[side];
      for (const cell of [name, ...cells]) cell.hidden = !law;
      if (!law) continue;
      name.replaceChildren(make("i", { class: "dot" }), law.label);
      this.hello.numbers.forEach((it, i) => {
        const value = law.numbers[it.name];
        cells[i].textContent = value === null ? "–" : figures(value * it.scale);
      });
    }
    this.aside();
  }

  aside() {
    const message = this.last.packets;
    if (!message) return;
    const [from, to] = message.measure_s;
    const without = at("window").dataset.fluid;
    at("window").textContent = `from ${Number(from.toPrecision(3))} s to ${Number(to.toPrecision(3))} s` +
      (without ? ` · no fluid model: ${without}` : "");
  }
}
