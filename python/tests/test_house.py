"""What holds the house: no two files import each other, a law is named in its own file alone, and
what is declared once is used everywhere."""

from __future__ import annotations

import ast
import graphlib
import json
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import forebay
from forebay import _native

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "python" / "forebay"
LAWS = Path("crates/forebay-core/src/laws")
CRATES = sorted((ROOT / "crates").iterdir())


def imported(file: Path, modules: dict[str, Path]) -> set[str]:
    """Modules of the package that a file imports when it runs, at its top or late.

    Imports for types alone do not count: a result's `plot()` imports the module that draws it, and
    that module annotates its argument with the result's class.
    """
    found = set()
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{file}: relative import"
            whole = str(node.module)
            names = {f"{whole}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else whole for name in names}
    return found & modules.keys()


def test_no_two_files_import_each_other() -> None:
    files = [file for ending in ("py", "pyi") for file in PACKAGE.rglob(f"*.{ending}")]
    modules = {
        ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts): file for file in files
    }
    graph = {name: imported(file, modules) for name, file in modules.items()}
    assert len(graph) > 70
    assert graph["forebay.experiment.run"] >= {
        "forebay.experiment.experiment",
        "forebay.experiment.result",
    }
    # Raises `CycleError`, which names the circle.
    graphlib.TopologicalSorter(graph).prepare()


#: Rooms of the package from the ground up: as it is loaded, each imports only those before it.
ROOMS = [
    *("_base", "scenario", "control", "experiment", "report", "fluid", "linux", "tuning"),
    *("campaign", "comparison", "env", "studio", "guide", "cli"),
]


def loaded(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when a module is loaded: outside functions, and not for types alone."""
    for statement in body:
        if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if isinstance(statement, ast.If) and "TYPE_CHECKING" in ast.unparse(statement.test):
            yield from loaded(statement.orelse)
            continue
        yield statement
        inner = [node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt)]
        yield from loaded(inner)


def test_no_room_loads_one_above_it() -> None:
    """Numbers load no pictures: what draws imports them in the method that draws."""
    rooms = {file.parent.name for file in PACKAGE.glob("*/*.py")}
    assert rooms == set(ROOMS)
    back = []
    for room in ROOMS:
        for file in (PACKAGE / room).rglob("*.py"):
            for node in loaded(ast.parse(file.read_text()).body):
                names = []
                if isinstance(node, ast.Import):
                    names = [alias.name for alias in node.names]
                elif isinstance(node, ast.ImportFrom):
                    names = [f"{node.module}.{alias.name}" for alias in node.names]
                for name in names:
                    other = [*name.split("."), ""][1] if name.startswith("forebay.") else "_native"
                    if other in ROOMS and ROOMS.index(other) > ROOMS.index(room):
                        back.append(f"{file.relative_to(PACKAGE)} imports {name}")
    assert back == []


def test_no_folder_has_the_name_of_a_function() -> None:
    functions = {name for name in forebay.__all__ if callable(getattr(forebay, name))}
    assert functions >= {"run", "link", "study", "tune", "map"}
    assert sorted(functions & {path.name for path in PACKAGE.iterdir()}) == []


def code(file: Path) -> str:
    """A file of Rust without comments and without the tests at its end."""
    text = re.sub(r"//.*", "", file.read_text())
    attributes = r"#\[cfg\(test\)\]\s*(#\[allow\([^]]*\]\s*)?"
    return re.sub(rf"(?s){attributes}(pub(\(crate\))? )?mod \w+ \{{.*", "", text)


def rust(crate: Path) -> dict[tuple[str, ...], str]:
    """The code of a crate by the paths of its modules."""
    found = {}
    for file in (crate / "src").rglob("*.rs"):
        *folders, name = file.relative_to(crate / "src").with_suffix("").parts
        if name not in {"lib", "tests"}:
            found[*folders, name] = code(file)
    return found


USED = re.compile(r"\b(crate|super)((?:::super)*)((?:::\w+)*)(?:::\{([^;]*)\})?")


def used(module: tuple[str, ...], code: str) -> set[tuple[str, ...]]:
    """Paths from the root of the crate that a module uses by `crate::` and `super::`."""
    found = set()
    for head, supers, names, group in USED.findall(code):
        up = (1 if head == "super" else len(module)) + supers.count("super")
        path = (*module[: max(0, len(module) - up)], *names.split("::")[1:])
        items = re.split(r"[,{}]", group) if group else [""]
        found |= {(*path, *item.strip().split("::")) for item in items}
    return found


@pytest.mark.parametrize(
    "crate",
    [pytest.param(crate, id=crate.name) for crate in CRATES],
)
def test_no_two_files_of_rust_use_each_other(crate: Path) -> None:
    modules = rust(crate)
    graph: dict[tuple[str, ...], set[tuple[str, ...]]] = {}
    for module, code in modules.items():
        paths = used(module, code)
        ends = {
            next((p[:n] for n in range(len(p), 0, -1) if p[:n] in modules), None) for p in paths
        }
        graph[module] = {end for end in ends if end} - {module}
    graphlib.TopologicalSorter(graph).prepare()


#: Texts that are spelt like a law and mean something else.
OTHERWISE = {
    ("crates/forebay-core/src/disciplines/dualpi2.rs", "dualpi2"),  # the queue of that name
    ("crates/forebay-core/src/disciplines/cake.rs", "cake"),
    ("crates/forebay-py/src/link.rs", "pid"),  # the number of a process
}


def test_no_law_is_named_outside_its_file() -> None:
    """Beside its file and its line of the registry, only experiments, pages and tests name one."""
    kinds = {law["name"] for law in _native.laws()}
    registry = (ROOT / LAWS).with_suffix(".rs").read_text()
    files = set(re.findall(r"^    (\w+): [\w, ]+;$", registry, re.MULTILINE))
    assert len(kinds) >= len(files) > 10
    assert files == {file.stem for file in (ROOT / LAWS).glob("*.rs")}
    named = []
    for crate in CRATES:
        for file in (crate / "src").rglob("*.rs"):
            where = file.relative_to(ROOT)
            if LAWS in where.parents or where == LAWS.with_suffix(".rs"):
                continue
            texts = set(re.findall(r'"([\w-]+)"', code(file))) & kinds
            modules = set(re.findall(r"laws::(\w+)", code(file))) & files
            named += [(str(where), name) for name in texts | modules]
    for file in PACKAGE.rglob("*.py"):
        nodes = ast.walk(ast.parse(file.read_text()))
        texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
        named += [(str(file.relative_to(ROOT)), name) for name in texts & kinds]
    assert sorted(set(named) - OTHERWISE) == []


def packages() -> list[dict[str, object]]:
    """Every crate that is built or tested with, from the lock file."""
    command = ["cargo", "metadata", "--format-version", "1"]
    done = subprocess.run(
        [*command, "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found: list[dict[str, object]] = json.loads(done.stdout)["packages"]
    return found


def version(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")[:2]))


def test_the_declared_rust_version_is_enough_for_every_library() -> None:
    """Ours is checked by clippy (`incompatible_msrv`), which reads the same declaration."""
    workspace = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]
    ours = workspace["package"]["rust-version"]
    later = {
        f"{package['name']} {package['version']}": package["rust_version"]
        for package in packages()
        if package["rust_version"] and version(str(package["rust_version"])) > version(ours)
    }
    assert later == {}


@pytest.mark.parametrize("crate", CRATES, ids=lambda path: path.name)
def test_every_crate_has_the_lints_of_the_workspace(crate: Path) -> None:
    manifest = tomllib.loads((crate / "Cargo.toml").read_text())
    assert manifest["lints"] == {"workspace": True}
    code = [file.read_text() for file in (crate / "src").rglob("*.rs")]
    needs_unsafe = any(re.search(r"\bunsafe\s*(\{|fn|impl)", text) for text in code)
    forbids = "#![forbid(unsafe_code)]" in (crate / "src" / "lib.rs").read_text()
    assert forbids != needs_unsafe
