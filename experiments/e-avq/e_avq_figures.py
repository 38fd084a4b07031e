"""The control figure of e-avq: its theorem as printed, compared with the exact test."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Patch

from forebay.control.delay_system import RateLoop
from forebay.report.parts import EDGE, is_narrow, stacked, write_next_to
from forebay.report.plot import Plot, styled
from forebay.report.style import COLOURS

#: The network in which the theorem is examined; K_p = 0.05 and K_i = 0.5 are the example's.
NETWORK = {"capacity_pkts_per_s": 1250.0, "flows": 50.0, "rtt_s": 0.1, "k_i": 0.5}
#: Colours and labels of the cases: unstable for both; the theorem alone says stable; the exact test
#: alone does; stable for both.
CASES = [
    ("#dddddd", "unstable, and the theorem says so"),
    ("#e08a5c", "unstable; the theorem says stable"),
    ("#62b99a", "stable; the theorem says unstable"),
    ("#2c6fa6", "stable, and the theorem says so"),
]


@styled
def e_avq_theorem() -> Plot:
    """e-avq's theorem as printed, compared with the exact test."""
    k2 = RateLoop(**NETWORK).k2
    gains, k_ps = np.linspace(0.02, 1.6, 80), np.linspace(0.0, 1.0, 36)
    verdict = np.zeros((len(k_ps), len(gains)), int)
    for i, k_p in enumerate(k_ps):
        for j, gain in enumerate(gains):
            loop = RateLoop(**NETWORK, k_p=float(k_p), k_d=float(gain) / k2)
            verdict[i, j] = 2 * loop.system.stable() + loop.printed_theorem()
    figure = Plot(figsize=(8.8, 4.2), layout="constrained")
    axes, right = stacked(figure, [1, 1], 5.0)
    colours = ListedColormap([colour for colour, _ in CASES])
    axes.pcolormesh(gains, k_ps, verdict, cmap=colours, vmin=-0.5, vmax=3.5, rasterized=True)
    axes.axvline(1, **EDGE)
    for gain in (0.5, 1.2):
        axes.plot([gain], [0.05], "o", color="#000000", markersize=5)
    axes.set(xlabel="K2·Kd", ylabel="Kp")
    axes.grid(False)
    present = [case for i, case in enumerate(CASES) if (verdict == i).any()]
    figure.legend(
        handles=[Patch(color=colour, label=label) for colour, label in present],
        loc="outside lower center",
        ncols=1 if is_narrow(figure) else len(present),
    )
    axes.set_title("C = 1250/s, N = 50, d = 0.1 s, Ki = 0.5")
    gains = np.linspace(0.05, 1.6, 60)
    near, far = [], []
    for gain in gains:
        loop = RateLoop(**NETWORK, k_p=0.05, k_d=float(gain) / k2)
        near.append(loop.system.rightmost().real)
        far.append(loop.far_roots_real_s())
    right.axhline(0, **EDGE)
    right.plot(gains, near, color=COLOURS[0], label="rightmost root")
    right.plot(gains, far, color=COLOURS[1], label="ln(K2·Kd)/d: roots far from 0")
    for gain in (0.5, 1.2):
        root = RateLoop(**NETWORK, k_p=0.05, k_d=gain / k2).system.rightmost()
        right.plot([gain], [root.real], "o", color="#000000", markersize=5)
        text = f"{root.real:.3g}" + (f" ± {root.imag:.3g}j" if root.imag else "")
        write_next_to(right, text.replace("-", "−"), (gain, root.real), (-2, 7))
    right.set(xlabel="K2·Kd", ylabel="Re s [1/s]", ylim=(-12, 8))
    right.legend(loc="lower right")
    right.set_title("Kp = 0.05: where the roots are")
    return figure


FIGURES: dict[str, Callable[[], Plot]] = {"e-avq-theorem": e_avq_theorem}
