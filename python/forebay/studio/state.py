"""What the page is set to, as one typed value with one parser.

A state travels as texts by key, as `--set` takes them: in the page's address, and over its
socket. What an address leaves out is as in the scenario that the studio was started with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import urlencode

from forebay._base import registries
from forebay._native import LawModel, ScenarioError
from forebay.control.loaded_link import PLAIN, LoadedLink
from forebay.scenario.builder import Group
from forebay.studio.controls import BY_KEY, CONTROLS

Texts = Mapping[str, str]
Pairs = tuple[tuple[str, str], ...]

#: The two laws.
SIDES = ("a", "b")
#: Where gains come from.
BY = ("design", "hand")
#: Most packets that one run may send: two seconds or so of a processor.
MOST_PACKETS = 2e7
#: Characters of a value.
LONGEST = 200


@dataclass(frozen=True)
class LawChoice:
    """One of the two laws.

    designed: gains follow the law's design rule, which is asked for `goals`.
    params: those that were given, as texts; with a design, those that it leaves alone.
    """

    kind: str
    designed: bool
    params: Pairs = ()
    goals: Pairs = ()

    @property
    def target(self) -> str | None:
        """The set-point that was given, of a law that has one."""
        return dict(self.params).get(registries.laws()[self.kind]["set_point"] or "")


@dataclass(frozen=True)
class State:
    """A link, its traffic, how it runs, and one law or two."""

    rate: int
    rtt: float
    buffer: int
    packet: int
    flows: int
    spread: float
    tcp: str
    ecn: bool
    mice: int
    event: str
    duration: float
    seed: int
    a: LawChoice
    b: LawChoice | None

    @property
    def growth(self) -> str | None:
        """The flows' sender as theory names it; None of one that it does not have."""
        return registries.window_law(self.tcp, self.ecn)

    @property
    def link(self) -> LoadedLink:
        """As theory sees it, but for the set-point; with Reno where it has no such sender."""
        write = {key: BY_KEY[key].write(getattr(self, key)) for key in ("rate", "packet", "rtt")}
        tcp = self.growth or PLAIN
        groups = () if tcp == PLAIN else (Group(tcp, self.flows, write["rtt"]),)
        return LoadedLink(
            write["rate"],
            write["packet"],
            self.flows,
            write["rtt"],
            1.0,
            self.buffer,
            groups=groups,
        )

    @property
    def packets(self) -> float:
        """Most that a run can send."""
        return self.rate * self.duration / (8 * self.packet)

    @property
    def choices(self) -> list[tuple[str, LawChoice]]:
        """The laws that are shown, by side."""
        both = ((side, getattr(self, side)) for side in SIDES)
        return [(side, choice) for side, choice in both if choice is not None]

    def texts(self) -> dict[str, str]:
        """Every key with its value."""
        found = {it.key: it.write(getattr(self, it.key)) for it in CONTROLS}
        for side, choice in self.choices:
            found[side] = choice.kind
            found[f"{side}.by"] = BY[0] if choice.designed else BY[1]
            found |= {f"{side}.{name}": text for name, text in choice.params}
            found |= {f"{side}.goal.{name}": text for name, text in choice.goals}
        if self.b is None:
            found["b"] = ""
        return found

    def address(self, start: State) -> str:
        """What differs from where the studio started, for the page's address."""
        before = start.texts()
        now = self.texts()
        for side, choice in self.choices:
            if getattr(start, side) != choice:
                # A law is written as a whole: a parameter that is absent has its default.
                before = {k: v for k, v in before.items() if k.split(".")[0] != side}
        return urlencode({k: v for k, v in now.items() if before.get(k) != v}, safe="/,")


def parse(texts: object, start: State) -> State:
    """The state that these texts mean. Raises `ScenarioError` with the key that is wrong."""
    if not isinstance(texts, dict):
        raise ScenarioError("state: found no table, allowed: texts by key")
    for key, text in texts.items():
        if not isinstance(text, str) or len(text) > LONGEST:
            raise ScenarioError(f"{key[:LONGEST]}: allowed: a text of {LONGEST} characters at most")
        if key not in BY_KEY and key.split(".")[0] not in SIDES:
            raise ScenarioError(
                f'state: found "{key[:LONGEST]}", allowed: {", ".join(BY_KEY)}, a, b'
            )
    values = {
        it.key: it.read(texts[it.key]) if it.key in texts else getattr(start, it.key)
        for it in CONTROLS
    }
    state = State(**values, a=start.a, b=start.b)
    a, b = (_choice(side, texts, state) for side in SIDES)
    if a is None:
        raise ScenarioError('a: found "", allowed: a law of forebay laws')
    found = replace(state, a=a, b=b)
    # A file may ask for more.
    most = max(MOST_PACKETS, start.packets)
    if found.packets > most:
        longest = BY_KEY["duration"].write(round(most * 8 * found.packet / found.rate))
        raise ScenarioError(
            f'duration: found "{BY_KEY["duration"].write(found.duration)}", which is '
            f"{found.packets / 1e6:.3g} million packets at this rate, allowed: at most {longest}"
        )
    return found


def _choice(side: str, texts: Texts, state: State) -> LawChoice | None:
    """The law of one side; as at the start where nothing is said of it."""
    prefix = f"{side}."
    own = {key.removeprefix(prefix): text for key, text in texts.items() if key.startswith(prefix)}
    started: LawChoice | None = getattr(state, side)
    if side not in texts:
        if not own:
            return started
        if started is None:
            raise ScenarioError(
                f"{prefix}{next(iter(own))}: found without {side}, allowed: with it"
            )
    kind = texts.get(side, started.kind if started else "")
    if not kind:
        return None
    if kind not in registries.laws():
        raise ScenarioError(f'{side}: found "{kind}", allowed: {", ".join(registries.laws())}')
    goals = tuple((k.removeprefix("goal."), v) for k, v in own.items() if k.startswith("goal."))
    params = [(k, v) for k, v in own.items() if not k.startswith("goal.") and k != "by"]
    rule = registries.laws()[kind]["has_rule"]
    by = own.get("by", BY[0] if rule and side in texts else BY[1])
    if by not in BY:
        raise ScenarioError(f'{side}.by: found "{by}", allowed: {", ".join(BY)}')
    told = LawChoice(kind, by == BY[0] and rule, tuple(sorted(params)), tuple(sorted(goals)))
    if told == started:
        return started
    params = with_target(kind, params, state)
    for name, text in params:
        _check(side, kind, name, text, state)
    return replace(told, params=tuple(sorted(params)))


def with_target(kind: str, params: list[tuple[str, str]], state: State) -> list[tuple[str, str]]:
    """With a set-point of a quarter of the bandwidth-delay product where the law's default is a
    queue that does not suit the link."""
    name = registries.laws()[kind]["set_point"]
    if name is None or name in dict(params):
        return params
    (param,) = (it for it in registries.laws()[kind]["params"] if it["name"] == name)
    default = param["default"]
    if param["unit"] != "p" or isinstance(default, str) or default < 0.5 * state.buffer:
        return params
    quarter = state.rate * state.rtt / (32 * state.packet)
    return [(name, f"{max(2, round(min(quarter, 0.4 * state.buffer)))}p"), *params]


def _check(side: str, kind: str, name: str, text: str, state: State) -> None:
    """Each parameter alone, so that the error names the one that is wrong."""
    try:
        LawModel(kind, [(name, text)], state.rate, state.packet, 1e9)
    except ScenarioError as error:
        line = str(error)
        raise ScenarioError(
            f"{side}.{line}" if line.startswith(name) else f"{side}: {line}"
        ) from None
