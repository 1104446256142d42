# SPDX-License-Identifier: Apache-2.0
"""Imports point down: front ends, public modules, `_core`, compiled modules. Public modules are documented."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMPILED = {"shmbroker._native", "shmbroker._native_fast", "shmbroker._native_message"}
# Modules that all layers share; they import nothing from the layers above.
VOCABULARY = {
    f"shmbroker.{name}"
    for name in (
        *("_checks", "_dataclasses", "exceptions", "settings", "_setting_kinds", "statistics"),
        *("_amqp", "_amqp.arguments", "_amqp.errors", "_amqp.field_tables", "_amqp.names", "_amqp.utf8", "_amqp.wire"),
        *("_process.living", "_process.locks"),
    )
}
FRONT_ENDS = ("shmbroker.spark", "shmbroker.amqp", "shmbroker.kombu")
# The private names that front ends still import. A change that makes one of them public removes it here.
PRIVATE_IN_FRONT_ENDS = {
    "shmbroker.spark.attachment": {"shmbroker._process.connections"},
    "shmbroker.spark.handover.memory_share": {"shmbroker._process.locks"},
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
    """One name that a line of a module imports.

    Attributes:
        name: The full name of the module; or of a name from it, as `module.name`.
        line: The number of the line.
        private: Whether a part of the name begins with one underscore.
    """

    name: str
    line: int

    @property
    def private(self) -> bool:
        """Whether a part of the name begins with one underscore."""
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
    """Whether a name is that of a package or of something in it."""
    return name == package or name.startswith(package + ".")


def imports_of(module: str, *, for_types: bool = False) -> list[Import]:
    """Return the imports from the project in a module, at its top or in functions.

    Args:
        module: The name of the module.
        for_types: Whether to include the imports for type checkers only.
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
    # The vocabulary is below the compiled modules, too.
    sideways = [one for one in imports_of(module) if module in VOCABULARY and one.name in COMPILED]
    assert upwards + sideways == []


@pytest.mark.parametrize("module", MODULES)
def test_only_the_core_imports_the_compiled_modules(module: str) -> None:
    """No cffi type leaves `shmbroker._core`."""
    if layer_of(module) != CORE:
        assert [one for one in imports_of(module) if module_meant(one.name) in COMPILED] == []


CFFI = {"ffi", "fast_ffi", "slow", "fast", "pointer"}  # the names of cffi's objects in `shmbroker._core`


def identifiers_of(module: str) -> set[str]:
    """Return the names that a module uses: variables, arguments, attributes, and imported names."""
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
    """Modules outside `_core` call no function of the native modules, and read none of their structures."""
    assert {name for name in identifiers_of(module) if name in CFFI or name.startswith("sb_")} == set()


@pytest.mark.parametrize("module", [name for name in MODULES if layer_of(name) >= FRONT])
def test_front_ends_use_the_public_names(module: str) -> None:
    """Front ends and the command line use public names only, except those of PRIVATE_IN_FRONT_ENDS."""
    own = "shmbroker_cli" if layer_of(module) == PROGRAM else next(one for one in FRONT_ENDS if is_below(module, one))
    inside = {one.name for one in imports_of(module) if one.private and not is_below(one.name, own)}
    assert inside == PRIVATE_IN_FRONT_ENDS.get(module, set())
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    chains = [ast.unparse(node) for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    assert [chain for chain in chains if chain.startswith("shmbroker._")] == []


@pytest.mark.parametrize("module", [name for name in MODULES if is_below(name, "shmbroker") and name != "shmbroker"])
def test_nothing_below_imports_the_package_as_a_whole(module: str) -> None:
    """`shmbroker/__init__.py` is the top of the package: only front ends and `shmbroker.testing` may import it."""
    if layer_of(module) < FRONT and module != "shmbroker.testing":
        whole = [one for one in imports_of(module) if module_meant(one.name) in {"shmbroker", ""}]
        assert whole == []


# serve_forever: the whole program; a broker that is made from its store, messages that are loaded from it: LMDB
IMPORTED_LATE = {
    "shmbroker.broker": {"shmbroker._housekeeper.housekeeper"},
    "shmbroker._storekeeper.admission": {"shmbroker._storekeeper.loading"},
}


@pytest.mark.parametrize("module", [name for name in MODULES if is_below(name, "shmbroker") and layer_of(name) < FRONT])
def test_no_call_imports_a_module_of_the_package(module: str) -> None:
    """No function imports: a fork during an import in another thread leaves the import's lock held in the child."""
    tree = ast.parse(MODULES[module].read_text(encoding="utf-8"))
    functions = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    lines = {
        node.lineno for one in functions for node in ast.walk(one) if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    assert {one.name for one in imports_of(module) if one.line in lines} == IMPORTED_LATE.get(module, set())


def test_modules_do_not_need_each_other_in_circles() -> None:
    """The modules of `shmbroker` have an order in which no module imports a later module."""
    graph = {
        module: {module_meant(one.name) for one in imports_of(module)} - {module}
        for module in MODULES
        if is_below(module, "shmbroker")
    }
    TopologicalSorter(graph).prepare()


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Return the largest sets of modules in which each module imports all others, directly or not."""

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
    """The imports have no circle even with those for type checkers."""
    graph = {
        module: {module_meant(one.name) for one in imports_of(module, for_types=True)} - {module} for module in MODULES
    }
    assert circles(graph) == set()


def test_a_circle_is_found() -> None:
    """A circle has all its modules, and no module that only leads to it or follows from it."""
    graph = {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": {"b", "e"}, "e": set()}
    assert circles(graph) == {frozenset("bcd")}


def names_of(module: str) -> set[str]:
    """Return the public classes and functions of a module, or of all modules of a package."""
    trees = [ast.parse(MODULES[one].read_text(encoding="utf-8")) for one in MODULES if is_below(one, module)]
    made = (node for tree in trees for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef)))
    return {node.name for node in made if not node.name.startswith("_")}


@pytest.mark.parametrize("module", [name for name in MODULES if re.fullmatch(r"shmbroker\.[a-z]\w*", name)])
def test_a_module_without_an_underscore_is_documented(module: str) -> None:
    """The page of the Python API names the module or something in it, or links to a page for the module."""
    page = REFERENCE.read_text(encoding="utf-8")
    named = set(re.findall(r"^\.\. (?:auto)?\w+:: ([\w.]+)", page, re.MULTILINE)) | set(re.findall(r"`([\w.]+)`", page))
    if f"]({module.partition('.')[2]}.md)" not in page:
        assert named & names_of(module) or any(is_below(name, module) for name in named)
