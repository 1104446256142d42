# SPDX-License-Identifier: Apache-2.0
"""Imports point down: front ends, public modules, `_core`, the compiled modules. What is public is documented."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILED = {"shmbroker._native", "shmbroker._native_fast", "shmbroker._native_message"}
# Words that all layers share; they know nothing of the layers above.
VOCABULARY = {
    f"shmbroker.{name}"
    for name in (
        *("_checks", "exceptions", "settings", "_setting_kinds", "statistics"),
        *("_amqp", "_amqp.arguments", "_amqp.errors", "_amqp.field_tables", "_amqp.names", "_amqp.utf8"),
        *("_process.living", "_process.locks"),
    )
}
FRONT_ENDS = ("shmbroker.spark", "shmbroker.amqp", "shmbroker.kombu")
# What front ends still import although it is private. A change that opens one of these takes it out of here.
PRIVATE_IN_FRONT_ENDS = {
    "shmbroker.spark.attachment": {"shmbroker._process.connections"},
    "shmbroker.spark.handover.memory": {"shmbroker._process.locks"},
    "shmbroker.spark.handover.protocol": {"shmbroker._amqp.utf8.size_in_utf8"},
    "shmbroker.spark.options": {"shmbroker._amqp.names.is_internal", "shmbroker._amqp.utf8.size_in_utf8"},
    "shmbroker.spark.registered": {
        "shmbroker._process.living.Beside",
        "shmbroker._process.locks",
        "shmbroker._system_queues.schemas",
    },
    "shmbroker_cli.queues": {"shmbroker._system_queues.schemas"},
}
REFERENCE = ROOT / "docs" / "reference" / "python.md"

BOTTOM, CORE, PUBLIC, FRONT, PROGRAM = range(5)


@dataclass(frozen=True)
class Import:
    """What a line of a module imports.

    Attributes:
        name: The module, in full; or the name taken out of it, after a dot.
        line: Where.
        private: Whether a part of the name begins with one underscore.
    """

    name: str
    line: int

    @property
    def private(self) -> bool:
        """Whether it is nobody else's business."""
        return any(part.startswith("_") and not part.startswith("__") for part in self.name.split("."))


def modules() -> dict[str, Path]:
    """Return all modules of the package and of the command line, by name."""
    found = {}
    for base, package in ((ROOT, "shmbroker"), (ROOT / "cli", "shmbroker_cli")):
        for path in sorted((base / package).rglob("*.py")):
            parts = path.relative_to(base).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def layer_of(name: str) -> int:
    """Return the layer of a module."""
    if name.partition(".")[0] == "shmbroker_cli":
        return PROGRAM
    if name in COMPILED or name in VOCABULARY:
        return BOTTOM
    if is_below(name, "shmbroker._core"):
        return CORE
    return FRONT if any(is_below(name, front) for front in FRONT_ENDS) else PUBLIC


def is_below(name: str, package: str) -> bool:
    """Is it the package or something in it?"""
    return name == package or name.startswith(package + ".")


def imports_of(module: str, *, for_types: bool = False) -> list[Import]:
    """Return what a module imports of the project, at its top or in functions.

    Args:
        module: Its name.
        for_types: Also what it imports for type checkers only.
    """
    path = MODULES[module]
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    found: list[Import] = []
    pending: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while pending:
        node = pending.pop()
        checked = isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "typing.TYPE_CHECKING"}
        if isinstance(node, ast.If) and checked and not for_types:
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.Import):
            found += [Import(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            origin = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            source = ".".join([*origin, *([node.module] if node.module else [])])
            found += [Import(f"{source}.{alias.name}", node.lineno) for alias in node.names]
        pending.extend(ast.iter_child_nodes(node))
    return [one for one in found if one.name.partition(".")[0] in {"shmbroker", "shmbroker_cli"}]


def module_meant(name: str) -> str:
    """Return the module behind an imported name: `shmbroker.queue.Queue` is in `shmbroker.queue`."""
    return name if name in MODULES or name in COMPILED else name.rpartition(".")[0]


def test_there_are_modules() -> None:
    """The checks below look at files that exist."""
    assert {"shmbroker", "shmbroker_cli", "shmbroker._core"} <= set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_imports_point_down(module: str) -> None:
    """A module imports nothing of a higher layer."""
    upwards = [one for one in imports_of(module) if layer_of(module_meant(one.name)) > layer_of(module)]
    # The vocabulary lies below the compiled modules too.
    sideways = [one for one in imports_of(module) if module in VOCABULARY and one.name in COMPILED]
    assert upwards + sideways == []


@pytest.mark.parametrize("module", MODULES)
def test_only_the_core_imports_the_compiled_modules(module: str) -> None:
    """No cffi type leaves `shmbroker._core`."""
    if layer_of(module) != CORE:
        assert [one for one in imports_of(module) if module_meant(one.name) in COMPILED] == []


CFFI = {"ffi", "fast_ffi", "slow", "fast", "pointer"}  # what `shmbroker._core` calls cffi's objects


def identifiers_of(module: str) -> set[str]:
    """Return the names that a module uses: variables, arguments, attributes, and what it imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(MODULES[module].read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name):
            found.add(node.id)
        elif isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif isinstance(node, ast.arg):
            found.add(node.arg)
        elif isinstance(node, ast.alias):
            found |= {node.name, node.asname or node.name}
    return found


@pytest.mark.parametrize("module", [name for name in MODULES if layer_of(name) != CORE])
def test_only_the_core_uses_cffi(module: str) -> None:
    """Other modules call no function of the native modules, and read none of their structures."""
    assert {name for name in identifiers_of(module) if name in CFFI or name.startswith("sb_")} == set()


@pytest.mark.parametrize("module", [name for name in MODULES if layer_of(name) >= FRONT])
def test_front_ends_use_the_public_names(module: str) -> None:
    """The command line and `shmbroker.spark` could have been written by anybody."""
    own = "shmbroker_cli" if layer_of(module) == PROGRAM else next(one for one in FRONT_ENDS if is_below(module, one))
    inside = {one.name for one in imports_of(module) if one.private and not is_below(one.name, own)}
    assert inside == PRIVATE_IN_FRONT_ENDS.get(module, set())
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    chains = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    assert [chain for chain in chains if chain.startswith("shmbroker._")] == []


@pytest.mark.parametrize("module", [name for name in MODULES if is_below(name, "shmbroker") and name != "shmbroker"])
def test_nothing_below_imports_the_package_as_a_whole(module: str) -> None:
    """`shmbroker/__init__.py` is the top of the package: only front ends and helpers for tests build on it."""
    if layer_of(module) < FRONT and module != "shmbroker.testing":
        whole = [one for one in imports_of(module) if module_meant(one.name) in {"shmbroker", ""}]
        assert whole == []


IMPORTED_LATE = {"shmbroker.broker": {"shmbroker._housekeeper.housekeeper"}}  # by `serve`, which is the whole program


@pytest.mark.parametrize("module", [name for name in MODULES if is_below(name, "shmbroker") and layer_of(name) < FRONT])
def test_no_call_imports_a_module_of_the_package(module: str) -> None:
    """A fork while another thread is inside an import leaves the lock of that import taken in the child, for ever."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    lines = {
        node.lineno for one in functions for node in ast.walk(one) if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert {one.name for one in imports_of(module) if one.line in lines} == IMPORTED_LATE.get(module, set())


def test_modules_do_not_need_each_other_in_circles() -> None:
    """There is an order in which no module of `shmbroker` imports a later one."""
    graph = {
        module: {module_meant(one.name) for one in imports_of(module)} - {module}
        for module in MODULES
        if is_below(module, "shmbroker")
    }
    TopologicalSorter(graph).prepare()


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Return the largest sets of modules that all lead to each other."""

    def reached_from(module: str) -> set[str]:
        found, pending = set(), [module]
        while pending:
            new = graph.get(pending.pop(), set()) - found
            found |= new
            pending += new
        return found

    reached = {module: reached_from(module) for module in graph}
    return {
        frozenset(other for other in reached[module] if module in reached.get(other, ()))
        for module in graph
        if module in reached[module]
    }


def test_types_do_not_need_each_other_in_circles() -> None:
    """With the imports for type checkers, too, there is such an order."""
    graph = {
        module: {module_meant(one.name) for one in imports_of(module, for_types=True)} - {module} for module in MODULES
    }
    assert circles(graph) == set()


def test_a_circle_is_found() -> None:
    """With all that belongs to it, and without what only leads to it or follows from it."""
    graph = {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b", "e"}, "e": set()}
    assert circles(graph) == {frozenset("bcd")}


def names_of(module: str) -> set[str]:
    """Return the public classes and functions of a module, or of all modules of a package."""
    trees = [ast.parse(MODULES[one].read_text(encoding="utf-8")) for one in MODULES if is_below(one, module)]
    made = (node for tree in trees for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef)))
    return {node.name for node in made if not node.name.startswith("_")}


@pytest.mark.parametrize("module", [name for name in MODULES if re.fullmatch(r"shmbroker\.[a-z]\w*", name)])
def test_a_module_without_an_underscore_is_documented(module: str) -> None:
    """The page of the Python API names it, or something in it, or has a page for it beside itself."""
    page = REFERENCE.read_text(encoding="utf-8")
    named = set(re.findall(r"^\.\. (?:auto)?\w+:: ([\w.]+)", page, re.MULTILINE)) | set(re.findall(r"`([\w.]+)`", page))
    if f"]({module.partition('.')[2]}.md)" not in page:
        assert named & names_of(module) or any(is_below(name, module) for name in named)
