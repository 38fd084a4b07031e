// A real link next to the simulated link: its present state, and the settings that can be changed.

import { chart, figures, roundUp } from "./charts.js";
import { field, make } from "./controls.js";

const MOST = 300; // looks that are kept: a minute
const at = (id) => document.getElementById(id);
const NUMBERS = [
  ["queue_pkts", "queue", "packets"], ["throughput_mbps", "sent", "Mbit/s"],
  ["p50_ms", "delay, median", "ms"], ["p99_ms", "delay, 99th pct.", "ms"],
  ["drops_pct", "dropped", "%"], ["marks_pct", "marked", "%"], ["probability", "p", ""],
];

export class Live {
  /** steer(way, changes) asks for changes; simulated() returns law A of the page with its gains. */
  constructor(hello, steer, simulated) {
    this.hello = hello;
    this.steer = steer;
    this.way = "up";
    this.kept = { up: [], down: [] };
    this.start = performance.now();
    this.built = "";
    at("live").hidden = false;
    const time = { label: "Time [s]" };
    this.queue = chart(at("p-live-queue"), {
      x: time,
      y: { label: "Queue [packets]", range: (_, high) => [0, roundUp(Math.max(10, 1.05 * high))] },
      // The set-point is a curve, since it changes when the user moves its slider.
      series: [{ label: "queue", colour: "--law-a", width: 1.5 }, { label: "set-point", colour: "--ink", dash: [3, 3], width: 1 }],
      legend: at("l-live-queue"),
      sync: "live",
    });
    this.delay = chart(at("p-live-delay"), {
      x: time,
      y: { label: "Delay [ms]", range: (_, high) => [0, roundUp(Math.max(1, 1.02 * high))] },
      series: [{ label: "median", colour: "--law-a", width: 2 }, { label: "99 %", colour: "--law-b", width: 1.5 }],
      legend: at("l-live-delay"),
      sync: "live",
    });
    this.queue.say("Queue of the real link over the last minute.");
    this.delay.say("Queuing delay of the real link over the last minute.");
    this.fields = {};
    this.numbers = NUMBERS.map(([, name, unit]) => {
      const value = make("dd");
      at("live-numbers").append(make("div", {}, make("dt", {}, unit ? `${name} [${unit}]` : name), value));
      return value;
    });
    this.take = make("button", { type: "button" }, "Use the gains of law A");
    this.take.addEventListener("click", () => {
      const { kind, params } = simulated();
      this.steer(this.way, { law: kind, ...params });
    });
  }

  hear(message) {
    if (message.ended) {
      at("live-state").textContent = "has ended";
      at("live").classList.add("ended");
      return;
    }
    const time_s = (performance.now() - this.start) / 1000;
    for (const [way, now] of Object.entries(message.ways)) {
      this.kept[way].push({ ...now, time_s });
      if (this.kept[way].length > MOST) this.kept[way].shift();
    }
    this.show();
  }

  show() {
    const kept = this.kept[this.way];
    const now = kept.at(-1);
    if (!now) return;
    this.build(now);
    at("live-state").textContent = `${this.way === "up" ? "client to server" : "server to client"}, ${now.rate} under ${now.law}`;
    const column = (name) => kept.map((it) => it[name]);
    this.queue.set([column("time_s"), column("queue_pkts"), column("target_pkts")]);
    this.delay.set([column("time_s"), column("p50_ms"), column("p99_ms")]);
    NUMBERS.forEach(([name], i) => { this.numbers[i].textContent = figures(now[name]); });
    for (const [key, it] of Object.entries(this.fields)) it.show(key === "rate" ? now.rate : now.params[key]);
    this.select.value = now.law;
  }

  build(now) {
    const wanted = `${this.way}/${now.law}`;
    if (wanted === this.built) return;
    this.built = wanted;
    const law = this.hello.byName[now.law];
    const ways = make("select", { id: "live-way" }, ...["up", "down"].map((way) => make("option", { value: way }, way)));
    ways.value = this.way;
    ways.addEventListener("change", () => { this.way = ways.value; this.show(); });
    this.select = make("select", { id: "live-law" },
      ...this.hello.laws.map((it) => make("option", { value: it.name }, `${it.short} (${it.name})`)));
    this.select.addEventListener("change", () => this.steer(this.way, { law: this.select.value }));
    const rate = this.hello.controls.find((it) => it.key === "rate");
    const entries = [rate, ...law.params.filter((it) => it.type !== "text")];
    this.fields = Object.fromEntries(entries.map((it) =>
      // At the release of the slider: a real link must not follow every step of it.
      [it.key, field(it, `live.${it.key}`, (_, text, done) => done && this.steer(this.way, { [it.key]: text }))]));
    const rows = Object.values(this.fields).map((it) => it.element);
    at("live-controls").replaceChildren(
      make("legend", {}, "Change the link"),
      make("div", { class: "control choice" }, make("label", { for: "live-way" }, "Direction"), ways),
      make("div", { class: "control choice" }, make("label", { for: "live-law" }, "Law"), this.select),
      ...rows.slice(0, 5),
      ...(rows.length > 5 ? [make("details", { class: "more" }, make("summary", {}, "More"), ...rows.slice(5))] : []),
      this.take);
  }
}
