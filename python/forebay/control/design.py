"""Designing a law for a link: from what is asked for to the design with its second thoughts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from forebay._base import quantities
from forebay._native import ScenarioError
from forebay.control import measured_law
from forebay.control import robust_settings as calmer_settings
from forebay.control.designed_law import Design
from forebay.control.loaded_link import PLAIN, LoadedLink, PerClass

if TYPE_CHECKING:
    from forebay.scenario.python_laws import Prototype


def design(
    law: str | Prototype,
    rate: str,
    flows: PerClass,
    rtt: PerClass,
    packet: str = "1000B",
    target: str | None = None,
    buffer: str | None = None,
    overrides: Mapping[str, Any] | None = None,
    l4s_flows: float = 0.0,
    tcp: PerClass = PLAIN,
) -> Design:
    """Designs a law for a link.

    law: its name in `forebay laws`; or a law written in Python, as FILE.py:NAME or as its class,
        whose linear model is measured (`measured_law`) with its parameters as they are.
    rate, packet, rtt: such as "15Mbit/s", "500B", "200ms"; rtt is propagation, both ways.
    target: queue length or queuing delay to hold, such as "175p" or "40ms"; a quarter of the
        bandwidth-delay product if None.
        {"target": "175p"} in `overrides` asks for the same.
    buffer: such as "800p"; the bandwidth-delay product, or twice the target if that is more.
    overrides: what the design is asked for ({"beta": 0.3}), and parameters of the law that it
        leaves alone ({"interval": "10ms"}).
    l4s_flows: scalable flows beside the classic ones, under a law that couples both.
    tcp: their sender: "reno" as published, "linux-reno", "cubic", "dctcp" or "prague".

    Where Linux has the law and its rule's own goals give gains that Linux's qdisc cannot have, the
    nearest goals that give a robust loop with gains in the qdisc's range are taken instead, and a
    note says so. Goals or gains in `overrides` are taken as they are.

    Of flows, rtt and tcp each may be a list, with a value of each class of flows (["20ms", "80ms"],
    or "20ms,80ms"); one number of flows is divided equally among the classes.

    A law without a design rule is analysed with its parameters as they are. Where a rule's gains
    make no stable loop here, the design asks it for less (`Design.unstable_goal`). Raises
    `ScenarioError` for a law, quantity or parameter that is wrong, for a law that has neither a
    design rule nor a linear model, and where no goal of a rule makes a stable loop.
    """
    settings = {key: quantities.plain(value) for key, value in (overrides or {}).items()}
    target = _one_target(target, settings.pop("target", None))
    if measured_law.is_python(law):
        link = LoadedLink.from_texts(rate, packet, flows, rtt, target, buffer, l4s_flows, tcp)
        return measured_law.design(law, link, settings, target)
    assert isinstance(law, str)
    link = LoadedLink.from_texts(rate, packet, flows, rtt, target, buffer, l4s_flows, tcp)
    rule_design = calmer_settings.design_at_fitting_interval(law, link, settings)
    if rule_design.loop is None:
        return calmer_settings.stable_rates(rule_design, settings)
    rule_design = calmer_settings.with_interval(rule_design, settings)
    rule_design = replace(rule_design, advice=calmer_settings.calmer_setting(rule_design, settings))
    return calmer_settings.within_linux(calmer_settings.stable(rule_design, settings), settings)


def _one_target(option: str | None, param: str | None) -> str | None:
    """The set-point, which may be given as an option or as a parameter, of any law."""
    if option is not None and param is not None and option != param:
        raise ScenarioError(
            f'--set target: found "{param}" beside --target "{option}", allowed: one of them'
        )
    return option if param is None else param
