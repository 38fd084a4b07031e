"use strict";
// One panel of a moving figure: a uPlot with the set-point, the time outside the metrics, changes of
// the link, and next to it how often each value occurs in the visible part.
globalThis.forebayPanel = (() => {
  const DASHES = [[], [6, 3], [2, 2]];

  const ink = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  const shade = (colour, alpha) =>
    colour + Math.round(255 * alpha).toString(16).padStart(2, "0");
  // Black and dark blue cannot be seen on a dark page.
  const dark = () => matchMedia("(prefers-color-scheme: dark)").matches;
  const LIGHTER = {
    "#000000": "#e4e8ef", "#0072B2": "#3fa2e8", "#332288": "#9d90e8", "#882255": "#d977a8",
    "#661100": "#d08a70",
  };
  const colourOf = ({ colour }) => (dark() && LIGHTER[colour]) || colour;

  const text = (value) => {
    if (value === null || value === undefined) return "–";
    if (Number.isInteger(value)) return String(value);
    return String(+value.toPrecision(4));
  };

  // The index of the last place that is not beyond x; -1 before the first.
  const before = (places, x) => {
    let low = 0, high = places.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (places[middle] <= x) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  };

  // The rows of numbers of uPlot: a range has two rows with a band between them.
  const rows = (shown) => {
    const data = [], series = [], bands = [];
    for (const one of shown) {
      const colour = colourOf(one);
      const stroke = one.band ? undefined : colour;
      const of = { one, points: { show: false }, width: one.band ? 0 : 1.1, stroke, dash: DASHES[one.dash % 3] };
      if (one.y) {
        data.push(one.y);
        series.push(of);
        continue;
      }
      data.push(one.high, one.low);
      series.push({ ...of, dash: [] }, { ...of, dash: [] });
      const first = series.length - 1;
      bands.push({ series: [first, first + 1], fill: shade(colour, one.band ? 0.22 : 0.55) });
    }
    return { data, series, bands };
  };

  const lines = (u, figure, panel) => {
    const { ctx, bbox } = u;
    const at = (x) => Math.min(Math.max(u.valToPos(x, "x", true), bbox.left), bbox.left + bbox.width);
    ctx.save();
    ctx.fillStyle = ink("thin");
    for (const [from, to] of figure.grey ?? []) {
      ctx.globalAlpha = 0.55;
      ctx.fillRect(at(from), bbox.top, at(to) - at(from), bbox.height);
    }
    ctx.restore();
  };

  const marks = (u, figure, panel) => {
    const { ctx, bbox } = u;
    const ratio = devicePixelRatio;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    const line = (x0, y0, x1, y1, dash, width, colour) => {
      ctx.beginPath();
      ctx.setLineDash(dash.map((part) => part * ratio));
      ctx.lineWidth = width * ratio;
      ctx.strokeStyle = colour;
      ctx.moveTo(x0, y0);
      ctx.lineTo(x1, y1);
      ctx.stroke();
    };
    for (const x of figure.changes ?? []) {
      const at = u.valToPos(x, "x", true);
      line(at, bbox.top, at, bbox.top + bbox.height, [1, 3], 1.2, ink("quiet"));
    }
    for (const target of new Set(panel.targets)) {
      const at = u.valToPos(target, "y", true);
      line(bbox.left, at, bbox.left + bbox.width, at, [6, 4], 1.4, ink("ink"));
    }
    ctx.restore();
  };

  // The values of the shown curves from one index to another; a band those of its law's curves.
  const within = (panel, shown, [from, to]) => {
    const [start, end] = [before(panel.x, from) + 1, before(panel.x, to) + 1];
    const values = (one) => (one.y ? [one.y] : [one.low, one.high]).flatMap((y) => y.slice(start, end));
    const single = (one) => !one.band;
    return shown.map((one) => [
      one,
      (one.band ? panel.series.filter((it) => single(it) && it.tags.law === one.tags.law) : [one])
        .flatMap(values).filter((value) => value !== null),
    ]);
  };

  // The histogram of the values, with horizontal bars, next to the panel.
  const spread = (u, canvas, panel, shown, range) => {
    const ratio = devicePixelRatio;
    const [width, height] = [canvas.clientWidth, u.height];
    canvas.style.height = `${height}px`;
    canvas.width = width * ratio;
    canvas.height = height * ratio;
    const ctx = canvas.getContext("2d");
    const { min, max } = u.scales.y;
    const whole = panel.whole;
    const size = whole ? Math.max(1, Math.ceil((max - min) / 50)) : (max - min) / 40;
    const bins = Math.max(1, Math.ceil((max - min) / size) + 1);
    const bands = shown.filter((one) => one.band);
    const views = within(panel, bands.length ? bands : shown, range);
    const counts = views.map(([one, values]) => {
      const count = new Float64Array(bins);
      for (const value of values)
        count[Math.min(bins - 1, Math.max(0, Math.floor((value - min) / size + (whole ? 0.5 : 0))))]++;
      return [one, count.map((share) => share / Math.max(1, values.length))];
    });
    const most = Math.max(1e-9, ...counts.flatMap(([, count]) => [...count]));
    for (const [one, count] of counts) {
      ctx.fillStyle = shade(colourOf(one), counts.length > 1 ? 0.45 : 0.9);
      count.forEach((share, i) => {
        const low = min + (i - (whole ? 0.5 : 0)) * size;
        const [top, bottom] = [low + size, low].map((y) => u.valToPos(y, "y", true));
        const [t, b] = [Math.max(top, u.bbox.top), Math.min(bottom, u.bbox.top + u.bbox.height)];
        if (b > t) ctx.fillRect(0, t, (share / most) * (canvas.width - 2 * ratio), Math.max(ratio, b - t - ratio * 0.5));
      });
    }
    ctx.strokeStyle = ink("edge");
    ctx.lineWidth = ratio;
    ctx.strokeRect(0.5, u.bbox.top, 0, u.bbox.height);
    ctx.setLineDash([6 * ratio, 4 * ratio]);
    ctx.strokeStyle = ink("ink");
    for (const target of new Set(panel.targets)) {
      const y = u.valToPos(target, "y", true);
      if (y < u.bbox.top || y > u.bbox.top + u.bbox.height) continue;
      ctx.beginPath();
      ctx.moveTo(0, y);
      ctx.lineTo(canvas.width, y);
      ctx.stroke();
    }
    ctx.setLineDash([]);
    ctx.fillStyle = ink("quiet");
    ctx.font = `${11 * ratio}px system-ui, sans-serif`;
    ctx.textAlign = "right";
    ctx.textBaseline = "bottom";
    ctx.fillText(`${text(+(100 * most).toPrecision(2))} %`, canvas.width - 2 * ratio, u.bbox.top + u.bbox.height + 15 * ratio);
  };

  // Makes the uPlot of a panel in `place`; `told` has the functions that it calls at events.
  const make = (place, width, figure, panel, shown, range, told) => {
    const { data, series, bands } = rows(shown);
    const y = { ...figure.y, ...panel.y };
    const font = "12px system-ui, sans-serif";
    const axis = () => ({
      font, labelFont: font, stroke: ink("quiet"),
      grid: { stroke: ink("thin"), width: 1 }, ticks: { stroke: ink("edge"), width: 1, size: 4 },
    });
    // Ticks at 1, 2 and 5 of each decade; at all digits if little more than one decade is visible.
    const decade = (u, splits) => {
      const few = splits.length < 14;
      const named = (one) => one !== null && (few || /^[125]/.test(one.toExponential()));
      return splits.map((one) => (named(one) ? text(+one.toPrecision(6)) : ""));
    };
    const path = figure.step ? uPlot.paths.stepped({ align: figure.group === "time" ? -1 : 1 }) : undefined;
    for (const one of series) {
      if (path) one.paths = path;
      if (figure.dots && !one.one.band) one.points = { show: true, size: 6, fill: one.stroke, stroke: one.stroke };
    }
    const u = new uPlot(
      {
        width,
        height: figure.panelHeight + (panel.last ? 42 : 14),
        padding: [8, 10, panel.last ? 0 : 8, 0],
        legend: { show: false },
        focus: { alpha: figure.nearest ? 0.2 : 1 },
        scales: {
          // The limits as given: uPlot would extend a logarithmic scale to whole decades.
          x: {
            time: false, auto: false, distr: figure.x.log ? 3 : 1, min: range[0], max: range[1],
            range: (_, min, max) => [min, max],
          },
          y: { auto: true, distr: y.log ? 3 : 1, range: () => told.yRange(panel) },
        },
        axes: [
          { ...axis(), label: panel.last ? figure.x.label : undefined, labelSize: 18, labelGap: 2,
            size: panel.last ? 24 : 6, space: width < 500 ? 60 : 50,
            splits: figure.dots && panel.x.length <= 12 ? () => panel.x : undefined, values: panel.last ? (figure.x.log ? decade : undefined) : () => [] },
          { ...axis(), label: width < 500 ? undefined : y.label, labelFont: "11px system-ui, sans-serif", labelSize: 16, labelGap: 0, size: width < 500 ? 44 : 46, space: y.log ? 16 : 26, values: y.log ? decade : (_, splits) => splits.map((one) => text(+one.toPrecision(6))) },
        ],
        cursor: {
          y: false,
          drag: { x: true, y: false, setScale: false },
          points: { size: 6, show: !figure.nearest },
          focus: { prox: figure.nearest ? 30 : -1 },
          bind: {
            dblclick: () => () => told.whole(),
            mousedown: (u, _, go) => (event) => (event.shiftKey ? told.pan(u, event) : go(event)),
          },
        },
        series: [{}, ...series],
        bands,
        hooks: {
          drawClear: [(u) => lines(u, figure, panel)],
          draw: [(u) => marks(u, figure, panel), (u) => panel.canvas && spread(u, panel.canvas, panel, shown, told.measured())],
          setCursor: [(u) => told.cursor(u, panel)],
          setSelect: [
            (u) => {
              const { left, width } = u.select;
              if (width > 3) told.zoom(u.posToVal(left, "x"), u.posToVal(left + width, "x"));
              u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
            },
          ],
        },
      },
      [panel.x, ...data],
      place,
    );
    return u;
  };

  return { make, within, before, text, colourOf };
})();
