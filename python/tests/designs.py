"""Designs that tests of theory compare with packets and the fluid."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from forebay.control.design import design
from forebay.control.designed_law import Design
from forebay.control.link import Link
from forebay.control.plant import CoupledEquilibrium


def typed_design(text: str, **overrides: str) -> Design:
    """Return the design of `forebay design …` as it is typed."""
    law, *words = text.split()
    options: dict[str, Any] = {
        key[2:]: value for key, value in zip(words[::2], words[1::2], strict=True)
    }
    target, flows = options.pop("target", None), float(options.pop("flows"))
    return design(law, Link(flows=flows, **options), target=target, overrides=overrides)


def scaled_design(law: str, link: tuple[str, int, str, str], factor: float = 1.0) -> Design:
    """Return a design whose gains are multiplied by a factor."""
    rate, flows, rtt, target = link
    one = design(law, Link(rate, rtt, flows=flows, buffer="3000p"), target=target)
    knobs = {"pi": ("a", "b"), "pi-pd": ("alpha",)}.get(law, ())
    return replace(
        one,
        params=[
            (key, f"{float(value) * factor:.10g}" if key in knobs else value)
            for key, value in one.params
        ],
    )


def coupled_design(law: str = "dualpi2", l4s_flows: float = 5, **options: str) -> Design:
    """Return a design for ten classic flows and flows of L4S."""
    values: dict[str, Any] = {"rate": "40Mbit/s", "rtt": "30ms", "packet": "1500B"} | options
    target = values.pop("target", "15ms")
    return design(law, Link(flows=10, l4s_flows=l4s_flows, **values), target=target)


def class_equilibria(one: Design) -> CoupledEquilibrium:
    """Return the equilibrium of both classes of a coupled design."""
    assert one.classes is not None
    return one.classes
