// Charts that follow the page's theme: uPlot with the axes, set-points and labels of Forebay.

const root = document.documentElement;

/** A colour of the style sheet, such as "--ink". */
export function css(name) {
  return getComputedStyle(root).getPropertyValue(name).trim();
}

/** A number with the given number of figures, without an exponent where the text stays short. */
export function figures(value, digits = 3) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  if (value === 0) return "0";
  const size = Math.floor(Math.log10(Math.abs(value)));
  if (size < -4 || size > 6) return value.toExponential(digits - 1).replace("e+", "e");
  return value.toFixed(Math.max(0, digits - 1 - size));
}

/** The next round number, so that an axis keeps its end while a curve changes a little. */
export function roundUp(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return power * [1, 1.5, 2, 3, 4, 5, 6, 8, 10].find((step) => step * power >= value * 0.9999);
}

const FONT = "12px system-ui, sans-serif";
const drawn = new Set();
let again = 0;

/** Draws every chart again, for example after a change of the theme. */
export function redraw() {
  for (const one of drawn) one.redraw();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);

/**
 * A chart in `element`.
 *
 * x, y: {label, log, range: (min, max) => [low, high], values: (splits) => texts, size, ticks}
 * x.whole: () => [low, high] of what is shown without a zoom
 * series: [{label, colour: CSS variable, width, dash, show}]
 * lines: () => [{x or y, colour, dash, label}], drawn over the curves
 * shade: () => [[from, to]] parts of x outside the measurement
 * legend: an element for the names of the curves, and for their values under the cursor
 * sync: charts with the same name here share the cursor and the zoom
 */
export function chart(element, { x, y, series, lines, shade, legend, sync, digits = 3 }) {
  const names = legend ? keys(legend, series, digits) : null;
  const axis = (it, side) => ({
    scale: side === 2 ? "x" : "y",
    side,
    label: it.label,
    labelFont: FONT,
    labelSize: 18,
    font: FONT,
    size: it.size ?? (side === 2 ? 34 : 48),
    gap: 4,
    stroke: () => css("--soft"),
    grid: { stroke: () => css("--grid"), width: 1 },
    ticks: { stroke: () => css("--grid"), width: 1, size: 4 },
    values: (_, splits) => (it.values ? it.values(splits) : splits.map(tick)),
    ...(it.splits ? { splits: it.splits } : {}),
    ...(it.space ? { space: it.space } : {}),
    ...(it.log ? { filter: decades } : {}),
  });
  // A zoom has its own ends; else the whole of x is shown, from the first round number on.
  const whole = (it) => (u, low, high) => {
    const xs = u.data[0];
    const all = !xs?.length || (low <= xs[0] && high >= xs.at(-1));
    return all ? it.whole() : [low, high];
  };
  const scale = (it) => ({
    time: false,
    ...(it.log ? { distr: 3 } : {}),
    ...(it.whole ? { range: whole(it) } : {}),
    ...(it.range ? { range: (_, low, high) => it.range(low, high) } : {}),
  });
  const size = () => ({
    width: Math.max(80, Math.floor(element.clientWidth)),
    height: Math.max(60, Math.floor(element.clientHeight)),
  });
  const options = {
    ...size(),
    padding: [8, 16, 0, 0],
    legend: { show: false },
    cursor: {
      points: { size: 6 },
      drag: { x: true, y: false },
      ...(sync ? { sync: { key: sync, scales: ["x", null] } } : {}),
    },
    scales: { x: scale(x), y: scale(y) },
    axes: [axis(x, 2), axis(y, 3)],
    series: [
      {},
      ...series.map((it) => ({
        label: it.label,
        stroke: () => css(it.colour),
        width: it.width ?? 1.5,
        alpha: it.alpha ?? 1,
        dash: it.dash,
        show: it.show ?? true,
        points: { show: false },
        spanGaps: false,
      })),
    ],
    hooks: {
      drawAxes: [(u) => shaded(u, shade?.() ?? [])],
      draw: [(u) => marked(u, lines?.() ?? [])],
      setCursor: [(u) => names?.under(u)],
    },
  };
  const plot = new uPlot(options, [[], ...series.map(() => [])], element);
  const zoomed = () => {
    const xs = plot.data[0];
    return xs.length > 1 && (plot.scales.x.min > xs[0] + 1e-9 || plot.scales.x.max < xs.at(-1) - 1e-9);
  };
  const one = {
    plot,
    element,
    /** New curves; a zoom stays where it is, as long as x has the same span. */
    set(data) {
      const before = plot.data[0];
      const same = before.length && before[0] === data[0][0] && before.at(-1) === data[0].at(-1);
      if (same && zoomed()) {
        const { min, max } = plot.scales.x;
        plot.batch(() => {
          plot.setData(data, false);
          plot.setScale("x", { min, max });
        });
      } else {
        plot.setData(data);
      }
      names?.under(plot);
    },
    /** Which curves there are, and what they are called. */
    show(index, on, label) {
      if (plot.series[index + 1].show !== on) plot.setSeries(index + 1, { show: on });
      names?.show(index, on, label);
    },
    redraw() {
      plot.redraw(false);
    },
    say(text) {
      element.setAttribute("aria-label", text);
    },
  };
  element.setAttribute("role", "img");
  drawn.add(one);
  new ResizeObserver(() => {
    const now = size();
    if (now.width !== plot.width || now.height !== plot.height) plot.setSize(now);
  }).observe(element);
  return one;
}

/** The label of a tick. */
function tick(value) {
  return value === null || value === undefined ? "" : String(Number(value.toPrecision(6)));
}

/** On a logarithmic axis 1, 2 and 5 of each decade have labels, or 1 alone if the axis is long. */
function decades(u, splits) {
  const long = splits.length > 24;
  return splits.map((it) => {
    const first = Math.round(it / 10 ** Math.floor(Math.log10(it) + 1e-9));
    return first === 1 || (!long && (first === 2 || first === 5)) ? it : null;
  });
}

function keys(legend, series, digits) {
  const items = series.map((it) => {
    const item = document.createElement("span");
    const line = document.createElement("i");
    line.style.setProperty("--line", `var(${it.colour})`);
    if (it.dash) line.className = "dashed";
    const name = document.createElement("b");
    name.textContent = it.label;
    const value = document.createElement("output");
    item.append(line, name, value);
    item.hidden = it.show === false;
    // A series without a name belongs to the named series next to it.
    if (it.label) legend.append(item);
    return { item, name, value };
  });
  return {
    show(index, on, label) {
      items[index].item.hidden = !on;
      if (label !== undefined) items[index].name.textContent = label;
    },
    under(u) {
      const at = u.cursor.idx;
      items.forEach(({ value }, i) => {
        const found = at === null || at === undefined ? null : u.data[i + 1]?.[at];
        value.textContent = found === null || found === undefined ? "" : figures(found, digits);
      });
    },
  };
}

function shaded(u, parts) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.fillStyle = css("--shade");
  for (const [from, to] of parts) {
    const left = Math.max(bbox.left, u.valToPos(from, "x", true));
    const right = Math.min(bbox.left + bbox.width, u.valToPos(to, "x", true));
    if (right > left) ctx.fillRect(left, bbox.top, right - left, bbox.height);
  }
  ctx.restore();
}

function marked(u, lines) {
  const { ctx, bbox } = u;
  const ratio = devicePixelRatio || 1;
  ctx.save();
  ctx.beginPath();
  ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
  ctx.clip();
  let above = Infinity; // the last label's place
  for (const it of [...lines].sort((a, b) => (b.y ?? 0) - (a.y ?? 0))) {
    ctx.strokeStyle = css(it.colour ?? "--ink");
    ctx.fillStyle = ctx.strokeStyle;
    ctx.lineWidth = (it.width ?? 1) * ratio;
    ctx.setLineDash((it.dash ?? [5, 4]).map((d) => d * ratio));
    ctx.beginPath();
    if (it.y !== undefined) {
      const at = Math.round(u.valToPos(it.y, "y", true)) + 0.5;
      ctx.moveTo(bbox.left, at);
      ctx.lineTo(bbox.left + bbox.width, at);
    } else {
      const at = Math.round(u.valToPos(it.x, "x", true)) + 0.5;
      const ends = it.from === undefined ? [bbox.top, bbox.top + bbox.height] : [it.from, it.to].map((v) => u.valToPos(v, "y", true));
      ctx.moveTo(at, ends[0]);
      ctx.lineTo(at, ends[1]);
    }
    ctx.stroke();
    if (it.label && it.y !== undefined) {
      // An outline separates the label from the curves.
      ctx.lineWidth = 4 * ratio;
      ctx.strokeStyle = css("--panel");
      ctx.setLineDash([]);
      ctx.lineJoin = "round";
      ctx.font = `${11 * ratio}px system-ui, sans-serif`;
      ctx.textAlign = "right";
      // Labels of two lines that are close go to different sides.
      const line = u.valToPos(it.y, "y", true);
      const below = Math.abs(line - above) < 15 * ratio;
      above = line;
      ctx.textBaseline = below ? "top" : "bottom";
      const place = [it.label, bbox.left + bbox.width - 4 * ratio, line + (below ? 3 : -3) * ratio];
      ctx.strokeText(...place);
      ctx.fillText(...place);
    }
  }
  ctx.restore();
}
