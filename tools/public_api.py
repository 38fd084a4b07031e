"""Write `docs/reference/api/`: the public names of the package and of each crate, with signatures.

    python -m tools.public_api            # all lists, after a change that is meant
    python -m tools.public_api python     # the named lists: python, forebay-aqm, …

`python -m tools.check names crates` compares the lists with the code, so that no change of a name
goes unnoticed. rustdoc describes a crate as JSON, which the stable compiler writes if it is allowed
to (`tools/rustdoc-json.sh`).
"""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from tools.docs.python import signature_text

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "reference" / "api"
#: The modules that users import; their public names are those of `__all__`.
MODULES = ("forebay", "forebay.fluid", "forebay.env.gym", "forebay.linux")
#: Crates that are not Rust libraries: the Python module, and the C library with its own header.
LISTED_ELSEWHERE = {"forebay-py", "forebay-capi"}

Item = dict[str, Any]


def crates() -> list[str]:
    """Return the names of the crates with a list."""
    names = {path.parent.name for path in ROOT.glob("crates/*/Cargo.toml")}
    return sorted(names - LISTED_ELSEWHERE)


# Python


def python_api() -> str:
    """Return the public names of `MODULES`, with the members of their classes.

    The members of classes that public functions return are included.
    """
    lines: list[str] = []
    classes: dict[str, type] = {}
    for name in MODULES:
        module = importlib.import_module(name)
        for public in sorted(module.__all__):
            thing = getattr(module, public)
            lines.append(f"{name}.{public}{_signature(thing)}")
            if inspect.isclass(thing):
                classes[f"{name}.{public}"] = thing
            elif returned := _returned(thing):
                classes[f"{returned.__module__}.{returned.__qualname__}"] = returned
    listed_classes: set[type] = set()
    for name, kind in sorted(classes.items()):
        if kind not in listed_classes:
            listed_classes.add(kind)
            lines += [f"{name}.{member}" for member in _members(kind)]
    return "".join(f"{line}\n" for line in lines)


def _signature(thing: Any) -> str:
    """Return the signature of a callable; empty for anything else."""
    return signature_text(thing) if callable(thing) and not inspect.ismodule(thing) else ""


def _returned(function: Any) -> type | None:
    """Return the class of Forebay that a function returns, which may be imported only for types."""
    annotation = getattr(function, "__annotations__", {}).get("return")
    module = inspect.getmodule(function)
    if not isinstance(annotation, str) or module is None:
        return None
    name = annotation.partition("[")[0]
    candidate = getattr(module, name, None) or _typed_imports(module).get(name)
    ours = inspect.isclass(candidate) and candidate.__module__.startswith("forebay")
    return candidate if ours else None


def _typed_imports(module: ModuleType) -> dict[str, Any]:
    """Return the names that a module imports from Forebay, also under `TYPE_CHECKING`."""
    return {
        alias.asname or alias.name: getattr(importlib.import_module(node.module), alias.name, None)
        for node in ast.walk(ast.parse(inspect.getsource(module)))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("forebay")
        for alias in node.names
        if node.module
    }


def _members(kind: type) -> Iterator[str]:
    """Yield the public members of a class with their signatures."""
    fields = {
        field: None
        for base in reversed(kind.__mro__)
        if base.__module__.startswith("forebay")
        for field in inspect.get_annotations(base)
    }
    ours = {
        name
        for base in kind.__mro__
        if base.__module__.startswith("forebay")
        for name in vars(base)
    }
    for name in sorted(ours | fields.keys()):
        if not name.startswith("_"):
            yield name + _signature(getattr(kind, name, None))


# Rust


def document_crates(names: list[str]) -> Path:
    """Run rustdoc and return the folder with its description of these crates."""
    packages = [word for name in names for word in ("--package", name)]
    subprocess.run(
        ["cargo", "doc", "--quiet", "--locked", "--no-deps", "--lib", *packages],
        cwd=ROOT,
        env={**os.environ, "RUSTDOC": str(ROOT / "tools" / "rustdoc-json.sh")},
        check=True,
    )
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "doc"


def rust_api(documented: dict[str, Any]) -> str:
    """Return the public items of a crate, under every path by which they can be reached."""
    index: dict[str, Item] = documented["index"]
    root = index[str(documented["root"])]
    return "".join(f"{line}\n" for line in sorted({*_items(index, root, root["name"], set())}))


def _items(index: dict[str, Item], parent: Item, path: str, above: set[int]) -> Iterator[str]:
    """Yield a line for each public item inside another."""
    (kind,) = parent["inner"]
    inner = parent["inner"][kind]
    identities = inner["items"] if kind in ("module", "trait") else []
    if kind == "enum":
        identities = inner["variants"]
    elif kind == "struct" and isinstance(inner["kind"], dict):
        identities = next(iter(inner["kind"].values()))
        identities = identities["fields"] if isinstance(identities, dict) else identities
    if kind in ("struct", "enum", "union"):
        # Only inherent methods are listed; the methods of traits are listed with the trait.
        impls = [index[str(identity)]["inner"]["impl"] for identity in inner["impls"]]
        own = [identity for block in impls if block["trait"] is None for identity in block["items"]]
        identities = [*identities, *own]
    for identity in identities:
        item = index.get(str(identity))
        # Items of a trait and variants are as public as their parent ("default").
        if item is None or item["visibility"] not in ("public", "default"):
            continue
        (item_kind,) = item["inner"]
        if item_kind == "use":
            use = item["inner"]["use"]
            target = index.get(str(use["id"]))
            if target is not None and target["id"] not in above:
                if use["is_glob"]:
                    yield from _items(index, target, path, above | {target["id"]})
                else:
                    yield from _one(index, target, f"{path}::{use['name']}", above)
            else:
                yield f"use {path}::{use['name']} = {use['source']}"
        else:
            yield from _one(index, item, f"{path}::{item['name']}", above)


def _one(index: dict[str, Item], item: Item, path: str, above: set[int]) -> Iterator[str]:
    """Yield the lines of one item."""
    (kind,) = item["inner"]
    inner = item["inner"][kind]
    if kind == "impl":
        return
    if kind == "function":
        sig = inner["sig"]
        inputs = ", ".join(
            _type(type_) if name == "self" else f"{name}: {_type(type_)}"
            for name, type_ in sig["inputs"]
        )
        output = f" -> {_type(sig['output'])}" if sig["output"] else ""
        yield f"fn {path}({inputs}){output}"
    elif kind == "struct_field":
        yield f"field {path}: {_type(inner)}"
    elif kind in ("constant", "static", "assoc_const", "type_alias"):
        yield f"{kind} {path}: {_type(inner['type'])}"
    else:
        yield f"{kind} {path}"
    if kind in ("module", "struct", "enum", "trait", "union"):
        yield from _items(index, item, path, above | {item["id"]})


def _type(description: Any) -> str:
    """Return a type as Rust code, without paths and bounds."""
    if description is None:
        return "()"
    ((kind, inner),) = description.items()
    match kind:
        case "primitive" | "generic":
            return str(inner)
        case "resolved_path":
            arguments = (inner["args"] or {}).get("angle_bracketed", {}).get("args", [])
            types = [_type(argument["type"]) for argument in arguments if "type" in argument]
            name = str(inner["path"]).rpartition("::")[2]
            return f"{name}<{', '.join(types)}>" if types else name
        case "borrowed_ref":
            return f"&{'mut ' if inner['is_mutable'] else ''}{_type(inner['type'])}"
        case "raw_pointer":
            return f"*{'mut' if inner['is_mutable'] else 'const'} {_type(inner['type'])}"
        case "tuple":
            return f"({', '.join(map(_type, inner))})"
        case "slice":
            return f"[{_type(inner)}]"
        case "array":
            return f"[{_type(inner['type'])}; {inner['len']}]"
        case "dyn_trait":
            return "dyn " + " + ".join(_bound(bound["trait"]) for bound in inner["traits"])
        case "impl_trait":
            bounds = [bound["trait_bound"]["trait"] for bound in inner if "trait_bound" in bound]
            return "impl " + " + ".join(map(_bound, bounds))
        case "qualified_path":
            return f"{_type(inner['self_type'])}::{inner['name']}"
        case "function_pointer":
            sig = inner["sig"]
            inputs = ", ".join(_type(input_) for _, input_ in sig["inputs"])
            return f"fn({inputs}) -> {_type(sig['output'])}"
    return str(kind)


def _bound(trait: Any) -> str:
    """Return a trait bound as Rust code."""
    name = str(trait["path"]).rpartition("::")[2]
    call = (trait["args"] or {}).get("parenthesized")
    if call is None:
        return name
    output = f" -> {_type(call['output'])}" if call["output"] else ""
    return f"{name}({', '.join(map(_type, call['inputs']))}){output}"


def public_api(names: list[str]) -> dict[str, str]:
    """Return the text of each list by its name: "python" or that of a crate."""
    texts = {"python": python_api()} if "python" in names else {}
    rust = [name for name in names if name != "python"]
    if rust:
        folder = document_crates(rust)
        for name in rust:
            file = folder / f"{name.replace('-', '_')}.json"
            texts[name] = rust_api(json.loads(file.read_text()))
    return texts


def main() -> None:
    """Write the lists that the command line names."""
    FOLDER.mkdir(exist_ok=True)
    for name, text in public_api(sys.argv[1:] or ["python", *crates()]).items():
        (FOLDER / f"{name}.txt").write_text(text)


if __name__ == "__main__":
    main()
