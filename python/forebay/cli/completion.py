"""What the shell offers after TAB: names and keys from the declarations.

`forebay --install-completion` sets the shell up.
"""

from __future__ import annotations

from collections.abc import Iterable


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return sorted({name for name in names if name.startswith(incomplete)})


def laws(incomplete: str) -> list[str]:
    """Names of laws."""
    from forebay._base import registries

    return _beginning(registries.laws(), incomplete)


def queues(incomplete: str) -> list[str]:
    """Names of queue disciplines."""
    from forebay._base import registries

    return _beginning(registries.queues(), incomplete)


def engines(incomplete: str) -> list[str]:
    """Names of engines."""
    from forebay.experiment.engines import NAMES

    return _beginning(NAMES, incomplete)


def senders(incomplete: str) -> list[str]:
    """Senders of `--tcp`."""
    from forebay.control.senders import SENDERS

    return _beginning(SENDERS, incomplete)


def settings(incomplete: str) -> list[str]:
    """Keys of `--set` for a scenario, up to and with the `=`."""
    from forebay.guide import explain

    return _beginning((f"{path}=" for path in explain.settable()), incomplete)


def explained(incomplete: str) -> list[str]:
    """What `forebay explain` knows."""
    from forebay.guide import explain

    return _beginning(explain.names(), incomplete)


def cited(incomplete: str) -> list[str]:
    """What `forebay cite` knows."""
    from forebay.guide import cite

    return _beginning((name for it in cite.references() for name in it.of), incomplete)
