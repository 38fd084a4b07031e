"""The gains that a state's laws run with: as given, or by the law's design rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay._native import ScenarioError
from forebay.control.loaded_link import PLAIN, LoadedLink

if TYPE_CHECKING:
    from forebay.studio.state import LawChoice, State

Params = list[tuple[str, str]]


@dataclass(frozen=True)
class LawSettings:
    """A law with the parameters that it runs with.

    reason: why its gains are not those of its design rule, although that was asked for.
    notes: of the design.
    """

    params: Params
    reason: str = ""
    notes: tuple[str, ...] = ()


def gains_for(choice: LawChoice, state: State) -> LawSettings:
    """The gains by the law's design rule where they are wanted, or else as they were given."""
    given = list(choice.params)
    if not choice.designed:
        return LawSettings(given)
    # scipy takes a third of a second to load, which gains by hand need not wait for.
    from forebay.control import design_rule

    asked = dict([*given, *choice.goals])
    try:
        try:
            made = design_rule.design_once(choice.kind, _link(state, choice.target), asked)
        except ScenarioError:
            if not state.link.groups:
                raise
            # What suits no other sender may suit Reno, as with `gains = "auto"`.
            made = design_rule.design_once(choice.kind, _link(state, choice.target, PLAIN), asked)
    except ScenarioError as error:
        return LawSettings(given, plain(error))
    return LawSettings(made.params, "", tuple(made.notes))


def all_gains(state: State) -> dict[str, LawSettings]:
    """Of each side that has a law."""
    return {side: gains_for(choice, state) for side, choice in state.choices}


def _link(state: State, target: str | None, tcp: str | None = None) -> LoadedLink:
    """The link with the set-point that was given, or a quarter of its bandwidth-delay product."""
    base = state.link
    return LoadedLink.from_texts(
        base.rate,
        base.packet,
        base.flows,
        base.rtt,
        target,
        f"{state.buffer}p",
        tcp=tcp or base.senders,
    )


def plain(error: ScenarioError, file: str = "") -> str:
    """An error of a command, whose options the page does not have."""
    line = str(error).removeprefix(f"{file}:") if file else str(error)
    return line.lstrip("-0123456789: ")
