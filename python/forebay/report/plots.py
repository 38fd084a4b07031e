"""Figures of one link at one point. The report shows them as SVG, and as PNG beside it."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from markupsafe import escape
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.backends.backend_pdf import FigureCanvasPdf
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from numpy.typing import NDArray
from PIL import Image

from forebay.report import style, twice, words
from forebay.report.style import COLOURS as COLOURS
from forebay.report.style import STYLE as STYLE

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from forebay._native import LawInfo, LinkInfo, Observed, PointInfo
    from forebay.run.runs import Runs

Floats = NDArray[np.float64]

#: Most steps that a curve over time is drawn with, and that all curves of a report share.
#: A step shows the least and the greatest value in it.
MOST_STEPS = 900
ALL_STEPS = 80_000

#: Samples of a scenario with `windows = true`.
WINDOWS = "in_flight_pkts"

#: Scale of a figure in a narrow page, at which its text of 9 points is 8.5 px high.
LEAST_PX_PER_INCH = 68
#: The text of a page is 1032 px wide.
MOST_PX = 1000

TARGET_STYLE: dict[str, Any] = {"color": "#222222", "linewidth": 1.1, "linestyle": (0, (5, 3))}
UNMEASURED_STYLE: dict[str, Any] = {"color": "#f0f0f0", "linewidth": 0, "zorder": 0}
CHANGE_STYLE: dict[str, Any] = {"color": "#777777", "linewidth": 1.0, "linestyle": ":"}


class Plot(Figure):
    """A figure that a notebook shows as it is, and that saves itself as PNG, SVG or PDF.

    It is matplotlib's: `figure.axes`, `figure.savefig` and all else work as there.
    """

    def __init__(self, *, figsize: tuple[float, float], **options: Any) -> None:
        super().__init__(figsize=style.size(*figsize), **options)

    def savefig(self, fname: Any, **options: Any) -> None:
        """As matplotlib's; fonts and colours of the style in use."""
        with mpl.rc_context(STYLE):
            super().savefig(fname, **options)

    def files(self, name: str) -> dict[str, bytes]:
        """Its files by their names: a PNG, and for a paper a PDF, too."""
        found = {f"{name}.png": self.png()}
        if style.printed():
            found[f"{name}.pdf"] = self.pdf()
        return found

    def pdf(self) -> bytes:
        """Vectors with the fonts inside. The same figure gives the same file."""
        out = io.BytesIO()
        with self._drawn(72):
            canvas = FigureCanvasPdf(self)
            canvas.print_pdf(out, metadata={"CreationDate": None})  # type: ignore[no-untyped-call]
        return out.getvalue()

    def png(self) -> bytes:
        with self._drawn(style.png_dpi()):
            canvas = FigureCanvasAgg(self)
            canvas.draw()  # type: ignore[no-untyped-call]
            return _png(np.asarray(canvas.buffer_rgba()))  # type: ignore[no-untyped-call]

    def svg(self, name: str = "") -> str:
        """An <svg> element to put into a page; `name` is what a screen reader calls it."""
        out = io.StringIO()
        with self._drawn(72):
            # Without a date the same result gives the same file.
            canvas = FigureCanvasSVG(self)
            canvas.print_svg(out, metadata={"Date": None})  # type: ignore[no-untyped-call]
        return self._element(out.getvalue(), name)

    def rendered(self, file: str, name: str = "") -> tuple[dict[str, bytes], str]:
        """`files` and `svg` of one drawing, which takes little longer than either."""
        if any(one.get_rasterized() for axes in self.axes for one in axes.collections):
            # An SVG has these as a picture, which takes a renderer of its own: of a bar of colours.
            vectors = self.svg(name)
            return self.files(file), vectors
        with self._drawn(style.png_dpi()):
            pixels, svg = twice.pixels_and_svg(self)
        found = {f"{file}.png": _png(pixels)}
        if style.printed():
            found[f"{file}.pdf"] = self.pdf()
        return found, self._element(svg, name)

    def _element(self, svg: str, name: str) -> str:
        """Of the text of a file, for a page."""
        attributes = f'style="min-width: {self._least_width_px()}px"'
        if name:
            attributes += f' role="img" aria-label="{escape(name)}"'
        return _compact(svg[svg.index("<svg") :]).replace("<svg ", f"<svg {attributes} ", 1)

    def _least_width_px(self) -> int:
        """In a page: with less, the text would be too small; more would not fit the page."""
        return round(min(MOST_PX, LEAST_PX_PER_INCH * self.get_figwidth()))

    @contextmanager
    def _drawn(self, dpi: float) -> Iterator[None]:
        """What `savefig` sets, which draws every figure twice."""
        canvas, former_dpi, colour = self.canvas, self.dpi, self.get_facecolor()
        try:
            self.set_dpi(dpi)
            self.set_facecolor("white")
            with mpl.rc_context(STYLE):
                yield
        finally:
            self.set_canvas(canvas)
            self.set_dpi(former_dpi)
            self.set_facecolor(colour)
        # The layout takes as long as the drawing, and does not change.
        self.set_layout_engine("none")

    def _repr_png_(self) -> bytes:
        return self.png()


def queue(result: Runs, point: int, link: int) -> Plot:
    """Queue against time, one row per law; beside it how often each length was seen."""
    info = result.plan.points[point]
    targets = {i: target_pkts(info, law, info.links[link]) for i, law in result.laws(point)}
    return _packets(result, point, link, "queue_pkts", "Queue [packets]", targets)


def windows(result: Runs, point: int, link: int) -> Plot:
    """Packets in flight of a mean flow against time, one row per law; beside it their spread."""
    if not shows_windows(result, point, link):
        raise ValueError('kind: found "windows", allowed: with windows = true in the scenario')
    return _packets(result, point, link, WINDOWS, "In flight [packets]", {})


def shows_windows(result: Runs, point: int, link: int) -> bool:
    """Whether the scenario has asked for them; they are recorded at the bottleneck alone."""
    return all(WINDOWS in one.samples for one in _observed(result, point, link))


def windows_caption(result: Runs, point: PointInfo, link: int) -> tuple[str, str]:  # noqa: ARG001
    start, end = point.measure_s
    seeds = f"all {result.seeds} seeds" if result.seeds > 1 else "the same seed"
    return (
        "Packets in flight over time",
        f"Left: what a flow of ftp has sent and not had acknowledged, every "
        f"{1e3 * point.sample_s:g} ms, the mean over all that have data, with the first seed. "
        f"Right: how often each number was seen from {start:g} s to {end:g} s, over {seeds}.",
    )


def _packets(
    result: Runs,
    point: int,
    link: int,
    column: str,
    label: str,
    targets: dict[int, float | None],
) -> Plot:
    """A column of samples that counts packets."""
    info = result.plan.points[point]
    longest = max(
        float(np.nanmax(one.samples[column], initial=1)) for one in _observed(result, point, link)
    )
    top = 1.05 * max(longest, *(target or 0 for target in targets.values()), 0)
    # Whole packets per bin, or bars would differ by how many lengths fall into each; but a mean
    # over flows is no whole number.
    whole = all(one.samples[column].dtype.kind in "iu" for one in _observed(result, point, link))
    bins = np.arange(0, top + 1, math.ceil(top / 50)) - 0.5 if whole else np.linspace(0, top, 51)

    def over_time(axes: Axes, index: int, one: Observed) -> None:
        values = one.samples[column].astype(float)
        _curve(axes, one.samples["time_s"], values, colour(index), steps_of(result))

    def spread(axes: Axes, index: int, observed: list[Observed]) -> None:
        values = np.concatenate([_measured(info, one, column) for one in observed])
        _histogram(axes, values, bins, colour(index))

    return _time_and_spread(
        result,
        point,
        link,
        value_label=label,
        share_label="Share of samples [%]",
        limits=(0, top),
        targets=targets,
        over_time=over_time,
        spread=spread,
    )


def loss(result: Runs, point: int, link: int) -> Plot:
    """Loss rate per interval against time, one row per law; beside it its distribution."""
    info = result.plan.points[point]
    interval_s = loss_interval_s(info)
    series = {id(one): loss_rate(one, info, interval_s) for one in _observed(result, point, link)}
    highest = max(float(np.nanmax(rate, initial=0)) for _, rate in series.values())
    top = 1.05 * max(highest, 0.1)
    bins = np.linspace(0, top, 41)
    start, end = info.measure_s

    def over_time(axes: Axes, index: int, one: Observed) -> None:
        times, rate = series[id(one)]
        _curve(axes, times, rate, colour(index), steps_of(result))

    def spread(axes: Axes, index: int, observed: list[Observed]) -> None:
        inside = [
            rate[(times - interval_s > start - TINY_S) & (times < end + TINY_S)]
            for times, rate in (series[id(one)] for one in observed)
        ]
        _histogram(axes, np.concatenate(inside), bins, colour(index))

    return _time_and_spread(
        result,
        point,
        link,
        value_label=f"Loss rate in {interval_s:g} s [%]",
        share_label="Share of intervals [%]",
        limits=(0, top),
        targets={},
        over_time=over_time,
        spread=spread,
    )


def delay(result: Runs, point: int, link: int) -> Plot:
    """Share of packets that waited longer than a given time, one curve per law."""
    # Matplotlib's own layout takes as long as the drawing.
    figure = Plot(figsize=(10, 3.4), layout="constrained" if style.printed() else None)
    axes = figure.subplots()
    if not style.printed():
        longest = max((len(law.label) for _, law in result.laws(point)), default=0)
        right = 1 - min(0.3, 0.06 + 0.0075 * longest)
        figure.subplots_adjust(left=0.092, right=right, top=0.965, bottom=0.14)
    for index, law in result.laws(point):
        delay_ms, longer = waited_longer(result.at(point, index, link), 1e-9)
        if not len(delay_ms):
            continue
        axes.plot(
            delay_ms,
            longer,
            color=colour(index),
            linestyle=style.dash(index),
            label=law.label,
        )
    axes.set_yscale("log")
    axes.set_ylim(1e-4, 1.5)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g} %"))
    axes.set_xlim(left=0)
    axes.set_xlabel("Queuing delay [ms]")
    axes.set_ylabel("Packets that waited longer\n(logarithmic)")
    if axes.lines:
        legend_beside(axes)
    return figure


def legend_beside(axes: Axes) -> None:
    """A legend to the right of the axes; above them in a column of a paper, which is narrow."""
    if not style.printed():
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return
    handles, labels = axes.get_legend_handles_labels()
    axes.figure.legend(handles, labels, loc="outside upper center", ncols=min(4, len(labels)))


def waited_longer(observed: Sequence[Observed], least: float) -> tuple[Floats, Floats]:
    """Delays in ms, and the share of packets that waited longer, where it is above `least`.

    Empty without packets.
    """
    delay_ms = 1e3 * np.concatenate([one.delay_s for one in observed])
    packets = np.concatenate([one.delay_packets for one in observed]).astype(float)
    order = np.argsort(delay_ms, kind="stable")
    if packets.sum() == 0:
        return delay_ms[:0], packets[:0]
    longer = 1 - np.cumsum(packets[order]) / packets.sum()
    # The last bin's share is zero; a logarithmic axis cannot show it.
    shown = longer > least
    return delay_ms[order][shown], longer[shown]


#: Figures of one link at one point.
KINDS: dict[str, Callable[[Runs, int, int], Plot]] = {
    "queue": queue,
    "loss": loss,
    "delay": delay,
}
#: Times are compared with this much slack.
TINY_S = 1e-9


def loss_interval_s(point: PointInfo) -> float:
    """The interval of a loss rate: 1 s, or less where that leaves fewer than 20 of them."""
    start, end = point.measure_s
    wanted = next((s for s in (1.0, 0.1, 0.01) if end - start >= 20 * s), 0.001)
    return max(1, round(wanted / point.sample_s)) * point.sample_s


def steps_of(result: Runs) -> int:
    """Most steps of one curve, so that a report of many curves stays small."""
    curves = len(result.plan.points) * len(result.plan.laws) * len(result.links)
    return max(120, min(MOST_STEPS, ALL_STEPS // curves))


def _observed(result: Runs, point: int, link: int) -> list[Observed]:
    observed = [one for index, _ in result.laws(point) for one in result.at(point, index, link)]
    if not observed:
        raise ValueError(f"point: found {point}, allowed: the index of a point with runs")
    return observed


def target_pkts(point: PointInfo, law: LawInfo, link: LinkInfo) -> float | None:
    """The set-point at a link; one with a law of its own has that law's."""
    if link.law:
        return link.law.target_pkts
    return law.target_pkts if point.target_pkts is None else point.target_pkts


def colour(law: int) -> str:
    return COLOURS[law % len(COLOURS)]


def round_of(law: int) -> int:
    """How often the colours have been used up."""
    return law // len(COLOURS)


def _measured(point: PointInfo, observed: Observed, column: str) -> Floats:
    """A column of samples within the window of measurement."""
    start, end = point.measure_s
    time_s = observed.samples["time_s"]
    inside = (time_s > start + TINY_S) & (time_s < end + TINY_S)
    return np.asarray(observed.samples[column][inside], dtype=float)


def loss_rate(observed: Observed, point: PointInfo, interval_s: float) -> tuple[Floats, Floats]:
    """Ends of whole intervals, and 100 × drops / arrivals in each; NaN where none arrived."""
    samples = observed.samples
    per_interval = max(1, round(interval_s / point.sample_s))
    rows = len(samples["time_s"]) // per_interval * per_interval

    def total(*columns: str) -> Floats:
        summed = sum((samples[name][:rows].astype(float) for name in columns), np.zeros(rows))
        return np.asarray(summed.reshape(-1, per_interval).sum(axis=1))

    drops = total("early_drops", "forced_drops", "overflow_drops")
    arrivals = total("arrivals")
    rate = np.full(len(drops), np.nan)
    np.divide(100 * drops, arrivals, out=rate, where=arrivals > 0)
    return samples["time_s"][per_interval - 1 : rows : per_interval], rate


def _curve(axes: Axes, times: Floats, values: Floats, colour: str, steps: int) -> None:
    """A curve; a long one as the mean of each step in the band from its least to greatest."""
    if len(times) <= 2 * steps:
        axes.plot(times, values, color=colour, linewidth=0.8)
        return
    starts = np.arange(0, len(times), math.ceil(len(times) / steps))
    low, high = np.fmin.reduceat(values, starts), np.fmax.reduceat(values, starts)
    known = ~np.isnan(values)
    count = np.add.reduceat(known.astype(float), starts)
    mean = np.full(len(starts), np.nan)
    np.divide(np.add.reduceat(np.where(known, values, 0), starts), count, mean, where=count > 0)
    # Each step includes the value before it, so that neighbours meet.
    before = values[starts[1:] - 1]
    low[1:], high[1:] = np.fmin(low[1:], before), np.fmax(high[1:], before)
    axes.fill_between(times[starts], low, high, step="post", color=colour, alpha=0.35, linewidth=0)
    axes.step(times[starts], mean, where="post", color=colour, linewidth=0.8)


def _histogram(axes: Axes, values: Floats, bins: Floats, colour: str) -> None:
    """Shares in percent, lying on its side so that it shares the axis of its values."""
    values = values[~np.isnan(values)]
    weights = np.full(len(values), 100 / max(1, len(values)))
    axes.hist(
        values,
        bins=list(bins),
        weights=weights,
        orientation="horizontal",
        histtype="stepfilled",
        color=colour,
    )


def _time_and_spread(
    result: Runs,
    point: int,
    link: int,
    *,
    value_label: str,
    share_label: str,
    limits: tuple[float, float],
    targets: dict[int, float | None],
    over_time: Callable[[Axes, int, Observed], None],
    spread: Callable[[Axes, int, list[Observed]], None],
) -> Plot:
    """A row per law on common axes: left its first run over time, right the spread of all."""
    info = result.plan.points[point]
    laws = list(result.laws(point))
    figure = Plot(figsize=(10, 1.2 + 1.4 * len(laws)))
    grid = figure.subplots(
        len(laws),
        2,
        sharey=True,
        sharex="col",
        squeeze=False,
        gridspec_kw={"width_ratios": [4, 1] if style.printed() else [5, 1]},
    )
    start, end = info.measure_s
    unmeasured = [(0.0, start), (end, info.duration_s)]
    for (index, law), (left, right) in zip(laws, grid, strict=True):
        runs = result.of(point, index)
        observed = result.at(point, index, link)
        over_time(left, index, observed[0])
        spread(right, index, observed)
        for axes in (left, right):
            if (target := targets.get(index)) is not None:
                axes.axhline(target, **TARGET_STYLE)
        for low, high in unmeasured:
            if high > low:
                left.axvspan(low, high, **UNMEASURED_STYLE)
        for change in info.changes:
            left.axvline(change.time_s, **CHANGE_STYLE)
        left.set_title(f"{law.label}, seed {runs[0].seed}")
        if len(runs) > 1:
            right.set_title(f"{len(runs)} seeds")
        left.set_ylim(*limits)
        left.set_xlim(0, info.duration_s)
        left.yaxis.set_major_locator(MaxNLocator(4))
        right.xaxis.set_major_locator(MaxNLocator(3))
    grid[-1][0].set_xlabel("Time [s]")
    grid[-1][1].set_xlabel("Share [%]" if style.printed() else share_label)
    lines = _legend(figure, set(targets.values()) - {None}, any(b > a for a, b in unmeasured), info)
    rows_of_time(figure, len(laws), value_label, lines)
    return figure


def rows_of_time(figure: Plot, rows: int, value_label: str, legend_lines: int) -> None:
    """Margins of panels below each other: matplotlib's own layout takes as long as the drawing,
    and a report has many of these."""
    width, height = figure.get_size_inches()
    top, bottom, title = 0.58 if legend_lines else 0.3, 0.5, 0.36
    left = 0.72
    if style.printed():
        top, bottom, title, left = top - 0.14, 0.36, 0.26, 0.5
    top += LEGEND_LINE * max(0, legend_lines - 1)
    room = (height - top - bottom - (rows - 1) * title) / rows
    figure.subplots_adjust(
        left=left / width,
        right=1 - 0.2 / width,
        top=1 - top / height,
        bottom=bottom / height,
        hspace=title / room,
        wspace=0.12 if style.printed() else 0.07,
    )
    middle = (1 - top / height + bottom / height) / 2
    figure.supylabel(value_label, fontsize=STYLE["font.size"], x=0.06 / width, y=middle, ha="left")


#: Height of a line of a legend in inches, and letters that a column of a paper has room for.
LEGEND_LINE, ROOM_FOR_LEGEND = 0.16, 52


def legend_above(figure: Plot, handles: list[Line2D | Patch], columns: int) -> int:
    """A legend in the upper right corner of `rows_of_time`; how many lines it has."""
    letters = sum(len(str(handle.get_label())) + 8 for handle in handles)
    if style.printed() and letters > ROOM_FOR_LEGEND * figure.get_figwidth() / 3.5:
        columns = 1
    width, height = figure.get_size_inches()
    corner = (1 - 0.08 / width, 1 - 0.05 / height)
    figure.legend(
        handles=handles, loc="upper right", bbox_to_anchor=corner, borderaxespad=0, ncols=columns
    )
    return math.ceil(len(handles) / max(1, columns))


def _legend(figure: Plot, targets: set[float | None], has_unmeasured: bool, info: PointInfo) -> int:
    """A legend of the lines and the grey, above the rows; how many lines it has."""
    handles: list[Line2D | Patch] = []
    if targets:
        value = f", {targets.pop():g} packets" if len(targets) == 1 else " of the law"
        handles.append(Line2D([], [], label=f"set-point{value}", **TARGET_STYLE))
    if has_unmeasured:
        handles.append(Patch(facecolor=UNMEASURED_STYLE["color"], label="not in the metrics"))
    if info.changes:
        label = "; ".join(words.changes(info, 2))
        handles.append(Line2D([], [], label=label, **CHANGE_STYLE))
    if handles:
        return legend_above(figure, handles, len(handles))
    return 0


def _png(pixels: NDArray[np.uint8]) -> bytes:
    out, dpi = io.BytesIO(), style.png_dpi()
    # Harder compression takes as long as the drawing, and saves little.
    picture = Image.fromarray(pixels).convert("RGB")
    picture.save(out, "png", compress_level=1, dpi=(dpi, dpi))
    return out.getvalue()


#: Decimals beyond the second.
FINER = re.compile(r"(?<=\.\d\d)\d+")


def _compact(svg: str) -> str:
    """The same picture in fewer bytes: hundredths of a point are finer than any screen."""
    # Within tags only: the labels of an axis keep their figures.
    svg = re.sub(r"<[^>]*>", lambda tag: FINER.sub("", tag[0]), svg)
    used = set(re.findall(r'(?:url\(|href=")#([^")]+)', svg))
    # Ids that nothing refers to would occur again in the page's other figures.
    return re.sub(r' id="([^"]+)"', lambda m: m[0] if m[1] in used else "", svg)
