"""`forebay studio`: a control loop to explore in the browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.declaration import with_options

#: Without one of these, Python would start a browser that takes over the terminal.
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY")


@with_options
def studio(
    file: Path | None = None,
    /,
    *,
    link: Path | None = None,
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N")] = 0,
    no_open: bool = False,
) -> None:
    """Explore a link and its control loop in the browser.

    The page shows how the loop responds while you change the link, its traffic and the law. It is
    served to this machine only.

    Parameters
    ----------
    file : [FILE]
        Scenario to start from; - reads standard input. Without it, 20 flows on 15 Mbit/s.
    link : PATH
        Also watch and control a real link: the socket of `forebay link --control PATH`.
    port
        Port on the loopback device; 0 for any free port.
    no_open
        Print the address without opening a browser.
    """
    from forebay.studio import open_port
    from forebay.studio.scenario import BaseScenario

    base = BaseScenario.from_source(file)
    # An error in the scenario is reported here, not on the page.
    base.plan(base.start, {})
    if link is not None:
        from forebay.studio.session import check_link

        check_link(link)
    opened = open_port(port)
    print(f"Studio: {opened.address}", flush=True)
    print("Press Ctrl-C to stop.", file=sys.stderr, flush=True)
    try:
        if not no_open and (sys.platform == "darwin" or any(map(os.environ.get, SCREENS))):
            import webbrowser

            webbrowser.open(opened.address)
        # The browser starts while the server loads.
        from forebay.studio.server import serve

        serve(base, opened.listening, opened.token, link)
    except KeyboardInterrupt:
        # Ctrl-C is the usual way to stop it.
        raise typer.Exit from None
    finally:
        opened.listening.close()
