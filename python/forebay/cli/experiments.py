"""`forebay experiments`: what can be run by name, and the text of one to start from."""

from __future__ import annotations

import sys

from forebay.cli.declaration import with_options
from forebay.cli.options import print_table


@with_options
def experiments(name: str | None = None, /, *, as_json: bool = False) -> None:
    """List the experiments that can be run by name, or print one.

    name [NAME]: A folder, such as pi-pd, lists its experiments; an experiment, such as pi-pd/load,
        is printed as TOML, to be saved and changed.
    as_json: Print one JSON object per experiment.
    """
    import tomllib

    from forebay.scenario import names

    known = names.scenarios()
    folder = (name or "").strip("/")
    chosen = {one: file for one, file in known.items() if folder in ("", one.partition("/")[0])}
    if name is not None and not chosen:
        file = names.path(name)
        if file not in known.values():
            raise names.missing(name, "no experiment of this name")
        if not as_json:
            sys.stdout.write(file.read_text(encoding="utf-8"))
            return
        chosen = {one: path for one, path in known.items() if path == file}
    titles = {one: tomllib.loads(file.read_text("utf-8")) for one, file in chosen.items()}
    if as_json:
        import json

        for one, file in chosen.items():
            about = {key: titles[one].get(key, "") for key in ("title", "source")}
            print(json.dumps({"name": one, **about, "file": str(file)}))
        return
    from forebay._base.terminal_table import Column

    columns = [Column("experiment", left=True), Column("title", sentence=True)]
    rows = [[one, str(titles[one].get("title", ""))] for one in chosen]
    print_table(columns, rows).print(
        "forebay run NAME runs one; forebay experiments NAME > my.toml is one to change",
        style="dim",
    )
