"""Structure of the source, which four checks hold.

There are no import cycles, rooms are in order, a law is named in its own file alone, and the lints
and the Rust version are those that the workspace declares.
"""

from __future__ import annotations

import ast
import graphlib
import json
import re
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import forebay
from forebay import _native

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "forebay"
LAWS = Path("crates/forebay-aqm/src/laws")
CRATES = sorted(path.parent for path in ROOT.glob("crates/*/Cargo.toml"))

#: Rooms of the package from the ground up: when it is loaded, a room imports only those before it.
ROOMS = [
    *("_base", "scenario", "control", "experiment", "report", "fluid", "linux", "tuning"),
    *("campaign", "comparison", "env", "studio", "guide", "cli"),
]
#: Texts that are spelt like a law and mean something else.
OTHER_MEANINGS = {
    ("crates/forebay-aqm/src/disciplines/dualpi2.rs", "dualpi2"),  # the queue of that name
    ("crates/forebay-aqm/src/disciplines/cake.rs", "cake"),
    ("crates/forebay-py/src/link.rs", "pid"),  # a process identifier
}


def check() -> Iterator[str]:
    """Yield every finding about the source."""
    yield from python_cycles()
    yield from room_order()
    yield from shadowed_functions()
    for crate in CRATES:
        yield from rust_cycles(crate)
        yield from crate_lints(crate)
    yield from laws_named_elsewhere()
    yield from newer_rust()


def python_cycles() -> Iterator[str]:
    """Yield the import cycle of the package among imports that run as a module is loaded.

    A method that draws imports what draws, which takes the class of that method as a type.
    """
    files = [file for ending in ("py", "pyi") for file in PACKAGE.rglob(f"*.{ending}")]
    modules = {
        ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts): file for file in files
    }
    graph: dict[str, set[str]] = {}
    for name, file in modules.items():
        graph[name] = set()
        for node in loaded_statements(ast.parse(file.read_text()).body):
            if isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names} & modules.keys()
            elif isinstance(node, ast.ImportFrom):
                if node.level:
                    yield f"{file.relative_to(ROOT)}:{node.lineno}: relative import"
                members = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[name] |= {
                    member if member in modules else str(node.module) for member in members
                } & modules.keys()
    yield from cycle(graph)


def cycle(graph: Mapping[str, Iterable[str]]) -> Iterator[str]:
    """Yield the first cycle of a graph, as one line."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        yield " imports ".join(map(str, reversed(error.args[1])))


def room_order() -> Iterator[str]:
    """Yield each import at module level of a room above the importing one."""
    rooms = {file.parent.name for file in PACKAGE.glob("*/*.py")}
    if rooms != set(ROOMS):
        yield f"tools/check/source.py: ROOMS differs from the folders: {rooms ^ set(ROOMS)}"
    for room in sorted(rooms & set(ROOMS), key=ROOMS.index):
        for file in sorted((PACKAGE / room).rglob("*.py")):
            for node in loaded_statements(ast.parse(file.read_text()).body):
                for name in imported_names(node):
                    imported_room = name.split(".")[1] if name.startswith("forebay.") else ""
                    if imported_room in ROOMS and ROOMS.index(imported_room) > ROOMS.index(room):
                        yield f"{file.relative_to(ROOT)}:{node.lineno}: {room} imports {name}"


def imported_names(node: ast.stmt) -> list[str]:
    """Return the dotted names that an import statement binds."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    return []


def loaded_statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is loaded: none of functions or for types."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from loaded_statements(statement.orelse)
            continue
        yield statement
        inner = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt)]
        yield from loaded_statements(inner)


def shadowed_functions() -> Iterator[str]:
    """Yield each public function that has the name of a folder, which importing it would hide."""
    functions = {name for name in forebay.__all__ if callable(getattr(forebay, name))}
    for name in sorted(functions & {path.name for path in PACKAGE.iterdir()}):
        yield f"python/forebay/{name}: has the name of the function forebay.{name}"


def rust_code(file: Path) -> str:
    """Return a file of Rust without comments and without the tests at its end."""
    text = re.sub(r"//.*", "", file.read_text())
    attributes = r"#\[cfg\(test\)\]\s*(#\[allow\([^]]*\]\s*)?"
    return re.sub(rf"(?s){attributes}(pub(\(crate\))? )?mod \w+ \{{.*", "", text)


USED_PATH = re.compile(r"\b(crate|super)((?:::super)*)((?:::\w+)*)(?:::\{([^;]*)\})?")


def used_paths(module: tuple[str, ...], code: str) -> set[tuple[str, ...]]:
    """Return the paths from the root of the crate that a module uses."""
    paths = set()
    for head, supers, names, group in USED_PATH.findall(code):
        levels = (1 if head == "super" else len(module)) + supers.count("super")
        path = (*module[: max(0, len(module) - levels)], *names.split("::")[1:])
        items = re.split(r"[,{}]", group) if group else [""]
        paths |= {(*path, *item.strip().split("::")) for item in items}
    return paths


def rust_cycles(crate: Path) -> Iterator[str]:
    """Yield the cycle among the modules of a crate that use each other."""
    modules = {}
    for file in (crate / "src").rglob("*.rs"):
        *folders, name = file.relative_to(crate / "src").with_suffix("").parts
        if name not in {"lib", "tests"}:
            modules[*folders, name] = rust_code(file)
    graph = {}
    for module, code in modules.items():
        paths = used_paths(module, code)
        ends = {
            next((p[:n] for n in range(len(p), 0, -1) if p[:n] in modules), None) for p in paths
        }
        graph["::".join(module)] = {"::".join(end) for end in ends if end} - {"::".join(module)}
    for line in cycle(graph):
        yield f"{crate.relative_to(ROOT)}: {line}"


def crate_lints(crate: Path) -> Iterator[str]:
    """Yield each difference of a crate's lints from those of the workspace."""
    manifest = tomllib.loads((crate / "Cargo.toml").read_text())
    if manifest.get("lints") != {"workspace": True}:
        yield f"{crate.relative_to(ROOT)}/Cargo.toml: lacks `lints.workspace = true`"
    code = [file.read_text() for file in (crate / "src").rglob("*.rs")]
    needs_unsafe = any(re.search(r"\bunsafe\s*(\{|fn|impl)", text) for text in code)
    forbids = "#![forbid(unsafe_code)]" in (crate / "src" / "lib.rs").read_text()
    if forbids == needs_unsafe:
        rule = "forbid" if not needs_unsafe else "not forbid"
        yield f"{crate.relative_to(ROOT)}/src/lib.rs: must {rule} unsafe_code"


def laws_named_elsewhere() -> Iterator[str]:
    """Yield each text of the code that is the name of a law, outside its file and the registry."""
    kinds = {law["name"] for law in _native.laws()}
    files = {file.stem for file in (ROOT / LAWS).glob("*.rs")}
    named = set()
    for crate in CRATES:
        for file in (crate / "src").rglob("*.rs"):
            path = file.relative_to(ROOT)
            if LAWS in path.parents or path == LAWS.with_suffix(".rs"):
                continue
            code = rust_code(file)
            texts = set(re.findall(r'"([\w-]+)"', code)) & kinds
            modules = set(re.findall(r"laws::(\w+)", code)) & files
            named |= {(str(path), law) for law in texts | modules}
    for file in PACKAGE.rglob("*.py"):
        nodes = ast.walk(ast.parse(file.read_text()))
        texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        named |= {(str(file.relative_to(ROOT)), law) for law in texts & kinds}
    for name, law in sorted(named - OTHER_MEANINGS):
        yield f"{name}: names the law {law}, which only {LAWS} does"


def newer_rust() -> Iterator[str]:
    """Yield each library that needs a later Rust than the workspace declares.

    Clippy checks the workspace's own code (`incompatible_msrv`).
    """
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    declared = workspace["package"]["rust-version"]
    command = ["cargo", "metadata", "--format-version", "1", "--locked"]
    metadata = subprocess.run(
        [*command, "--filter-platform", "x86_64-unknown-linux-gnu"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for package in json.loads(metadata.stdout)["packages"]:
        needed = package["rust_version"]
        if needed and rust_version(needed) > rust_version(declared):
            yield f"Cargo.toml: {package['name']} {package['version']} needs Rust {needed}"


def rust_version(text: str) -> tuple[int, ...]:
    """Return major and minor of a version of Rust."""
    return tuple(map(int, text.split(".")[:2]))
