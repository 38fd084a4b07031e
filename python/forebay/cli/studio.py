"""`forebay studio`: a control loop to play with, in the browser."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from forebay.cli.declaration import with_options

#: Without one of them a browser would take the terminal.
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
    """Move a link, its traffic and a law, and watch the loop, in a page of this machine alone.

    file [FILE]: Scenario to start from; - reads it from standard input. Without one, 20 flows on
        15 Mbit/s.
    link PATH: Watch and steer a real link, too: the socket of `forebay link --control PATH`.
    port: Port on the loopback device; any free one for 0.
    no_open: Print the address, and open no browser.
    """
    from forebay.studio import open_port
    from forebay.studio.scenario import BaseScenario

    base = BaseScenario.from_source(file)
    # What is wrong with it is told here, and not in the page.
    base.plan(base.start, {})
    if link is not None:
        from forebay.studio.session import check_link

        check_link(link)
    opened = open_port(port)
    print(f"Studio: {opened.address}", flush=True)
    print("It ends with Ctrl-C.", file=sys.stderr, flush=True)
    try:
        if not no_open and (sys.platform == "darwin" or any(map(os.environ.get, SCREENS))):
            import webbrowser

            webbrowser.open(opened.address)
        # While it loads, the browser does.
        from forebay.studio.server import serve

        serve(base, opened.listening, opened.token, link)
    except KeyboardInterrupt:
        # That is how it ends.
        raise typer.Exit from None
    finally:
        opened.listening.close()
