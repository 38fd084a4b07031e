"""Runs a fuzz target of Python on mutated inputs until the time is up.

A target is a function that takes bytes and may raise `ScenarioError` with a message of one line;
any other exception is a fault. Inputs are mutations of sound ones: bytes are changed, and where an
input is JSON, its values are. Every mutation follows from the seed. With `atheris` installed and
`--coverage`, libFuzzer chooses the bytes instead, by what they reach.
"""

from __future__ import annotations

import json
import random
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from forebay import ScenarioError

Target = Callable[[bytes], object]
ARTIFACTS = Path(__file__).parents[1] / "artifacts"
#: Values that a number, a text, a list or a table is replaced by.
ODD_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1, 1e308, -1e308, float("nan"), float("inf"), 10**400, 2**63),
    *("", "x", "\ud800", "\x1b[2J", "1e5", "\u202e", "a" * 300),
    *([], [None], [[]], [1, "a"], {}, {"": None}, {"val": []}),
]
#: Bytes that formats give a meaning to.
ODD_BYTES = [
    b"\x00",
    b"\xff\xff\xff\xff",
    b"\xef\xbb\xbf",
    b"\n",
    b"[" * 2000,
    b'"',
    b"1e999",
    b"-",
]


def mutated_bytes(rng: random.Random, data: bytes) -> bytes:
    """Return `data` with one to four changes: bits, bytes, and parts removed, doubled or moved."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 4])):
        if not changed:
            changed += b"\x00"
        at = rng.randrange(len(changed))
        length = min(rng.choice([1, 4, 50, 1000]), len(changed) - at)
        match rng.randrange(6):
            case 0:
                changed[at] ^= 1 << rng.randrange(8)
            case 1:
                changed[at] = rng.randrange(256)
            case 2:
                del changed[at : at + length]
            case 3:
                changed[at:at] = changed[at : at + length]
            case 4:
                changed[at:at] = rng.choice(ODD_BYTES)
            case _:
                del changed[at:]
    return bytes(changed)


def mutated_value(rng: random.Random, value: Any) -> Any:
    """Return a value of JSON in which one value, somewhere, is replaced or removed."""
    if isinstance(value, dict) and value and rng.random() < 0.95:
        key = rng.choice(list(value))
        chance = rng.random()
        if chance < 0.1:
            return {other: item for other, item in value.items() if other != key}
        if chance < 0.15:
            return {"\ud800" if other == key else other: item for other, item in value.items()}
        return {**value, key: mutated_value(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        chance = rng.random()
        if chance < 0.1:
            return value[:at] + value[at + 1 :]
        if chance < 0.15:
            return [*value, value[at]]
        return [*value[:at], mutated_value(rng, value[at]), *value[at + 1 :]]
    return rng.choice(ODD_VALUES)


def mutated_json(rng: random.Random, data: bytes) -> bytes:
    """Return a document in JSON with one to three values changed."""
    document = json.loads(data)
    for _ in range(rng.choice([1, 1, 2, 3])):
        document = mutated_value(rng, document)
    return json.dumps(document).encode()


def mutated(rng: random.Random, inputs: Sequence[bytes]) -> bytes:
    """Return a mutation of one of the inputs: of its values if it is JSON, or of its bytes."""
    data = rng.choice(inputs)
    if data[:1] in (b"{", b"[") and rng.random() < 0.7:
        return mutated_json(rng, data)
    return mutated_bytes(rng, data)


def fault(target: Target, data: bytes) -> str:
    """Return what is wrong with how a target takes an input; empty if nothing is."""
    try:
        target(data)
    except ScenarioError as error:
        message = str(error)
        if not message.isprintable():
            return f"the message is not one line that a terminal shows: {message!r}"
    except Exception:
        return traceback.format_exc()
    return ""


def main(target: Target, inputs: Sequence[bytes]) -> None:
    """Run a target for `SECONDS` from `SEED`, the two words of the command line.

    The process exits with 1 at the first fault, and keeps its input.
    """
    words = [word for word in sys.argv[1:] if word != "--coverage"]
    seconds, seed = (int(word) for word in [*words, "30", "1"][:2])
    for data in inputs:
        if said := fault(target, data):
            sys.exit(f"a sound input is refused or fails:\n{said}")
    if "--coverage" in sys.argv:
        _with_coverage(target, inputs, seconds, seed)
    rng, end, count = random.Random(seed), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        data = mutated(rng, inputs)
        count += 1
        if said := fault(target, data):
            ARTIFACTS.mkdir(exist_ok=True)
            kept = ARTIFACTS / f"{Path(sys.argv[0]).stem}-{seed}-{count}"
            kept.write_bytes(data)
            sys.exit(f"{said}\ninput {count} of seed {seed} is kept in {kept}")
    print(f"{Path(sys.argv[0]).stem}: {count} inputs in {seconds} s, no fault")


def _with_coverage(target: Target, inputs: Sequence[bytes], seconds: int, seed: int) -> None:
    """Let libFuzzer choose the bytes; it ends the process."""
    import atheris  # from PyPI, and no dependency of Forebay

    corpus = ARTIFACTS / f"corpus-{Path(sys.argv[0]).stem}"
    corpus.mkdir(parents=True, exist_ok=True)
    for i, data in enumerate(inputs):
        (corpus / f"sound-{i}").write_bytes(data)

    def one(data: bytes) -> None:
        if said := fault(target, data):
            raise AssertionError(said)

    atheris.instrument_all()
    atheris.Setup([sys.argv[0], str(corpus), f"-max_total_time={seconds}", f"-seed={seed}"], one)
    atheris.Fuzz()
