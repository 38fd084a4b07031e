"""The parameters with which a state's laws run: those of the page, or those of a design rule."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from forebay._native import ScenarioError

if TYPE_CHECKING:
    from forebay.studio.state import LawChoice, State

Params = list[tuple[str, str]]


@dataclass(frozen=True)
class LawSettings:
    """A law with the parameters that it runs with.

    Attributes
    ----------
    params : list of (name, value)
        The parameters.
    reason : str
        Why the gains are not those of the design rule, although they should be; else empty.
    notes : tuple of str
        Notes of the design.
    """

    params: Params
    reason: str = ""
    notes: tuple[str, ...] = ()


def gains_for(choice: LawChoice, state: State) -> LawSettings:
    """Return a law's parameters by its design rule, if the page asks for that, or as on the page.

    Parameters
    ----------
    choice : LawChoice
        The law of one side of the page.
    state : State
        The page's settings, which have the link.
    """
    params = list(choice.params)
    if not choice.designed:
        return LawSettings(params)
    # scipy takes a third of a second to load, which gains set by hand need not wait for.
    from forebay.experiment import automatic_gains

    try:
        target_pkts = state.link.set_point_pkts(choice.target)
        link = state.link.with_buffer_for(target_pkts, default=choice.target is None)
        settings = dict([*params, *choice.goals])
        design = automatic_gains.by_rule(choice.kind, link, target_pkts, settings)
    except ScenarioError as error:
        return LawSettings(params, plain(error))
    return LawSettings(design.params, "", tuple(design.notes))


def all_gains(state: State) -> dict[str, LawSettings]:
    """Return the parameters of the law of each side that has one."""
    return {side: gains_for(choice, state) for side, choice in state.choices}


def plain(error: ScenarioError, file: str = "") -> str:
    """Return an error without the file and the option that the page does not have.

    Parameters
    ----------
    error : ScenarioError
        The error of a command.
    file : str, optional
        Name of the scenario with which the message starts.
    """
    line = str(error).removeprefix(f"{file}:") if file else str(error)
    return line.lstrip("-0123456789: ")
