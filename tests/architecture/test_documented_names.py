# SPDX-License-Identifier: Apache-2.0
"""The reference has each name without an underscore of an object of the public API."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from functools import reduce
from pathlib import Path
from typing import Any

import pytest

import shmbroker.aio
import shmbroker.body_references
import shmbroker.columns
import shmbroker.staging
import shmbroker.stores
import shmbroker.transfer

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "python.md"
# Classes that have, as the page says, the methods of another class.
LIKE = {"aio.Channel": "Channel"}
_DIRECTIVE = re.compile(r"^\.\. (auto\w+|attribute):: (?:shmbroker\.)?([\w.]+)\n((?:   +:.*\n)*)", re.MULTILINE)
_ENTRY = re.compile(r"^    (\w+)(?: \(.*?\))?:", re.MULTILINE)


def documented() -> dict[str, set[str]]:
    """Return the classes that the page documents, by their name in the package, and the attributes that it names."""
    found: dict[str, set[str]] = {}
    for kind, name, options in _DIRECTIVE.findall(REFERENCE.read_text(encoding="utf-8")):
        owner, _, attribute = name.rpartition(".")
        if kind == "autoclass":
            members = re.search(r":members:(.*)", options)
            listed = members[1].split(",") if members is not None else []
            found.setdefault(name, set()).update(one.strip() for one in listed)
        elif owner in found:
            found[owner].add(attribute)
    return found


DOCUMENTED = documented()


def class_of(name: str) -> type[Any]:
    """Return a class by its name in the package."""
    found: type[Any] = reduce(getattr, name.split("."), shmbroker)
    return found


def layers(cls: type[Any], package: str = "shmbroker") -> list[type[Any]]:
    """Return a class and those of its bases that a package defines, in Python or in C."""
    return [one for one in cls.__mro__ if one.__module__.partition(".")[0] == package]


def set_on_self(cls: type[Any]) -> set[str]:
    """Return the attributes that the methods of a class set on their instance."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls)))
    except (OSError, TypeError):  # a class in C
        return set()
    stored = (node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store))
    return {node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"}


def shown(cls: type[Any], package: str = "shmbroker") -> set[str]:
    """Return the names without an underscore of a class, its slots, its annotations and its instances."""
    found: set[str] = set()
    for one in layers(cls, package):
        slots = vars(one).get("__slots__", ())
        found |= {*vars(one), *([slots] if isinstance(slots, str) else slots)}
        found |= {*inspect.get_annotations(one), *set_on_self(one)}
    return {name for name in found if not name.startswith("_")}


def explained(cls: type[Any]) -> set[str]:
    """Return the attributes that a class documents: its section "Attributes", and its fields if it is a record."""
    record = getattr(cls, "_fields", ()) if issubclass(cls, tuple) else getattr(cls, "__dataclass_fields__", ())
    fields = set(record)  # the page shows them in the signature
    text = inspect.cleandoc(cls.__doc__ or "")
    section = re.search(r"^Attributes:\n((?:    .*\n?|\n)*)", text, re.MULTILINE)
    return fields | set(_ENTRY.findall(section[1] if section is not None else ""))


def named(name: str) -> set[str]:
    """Return the attributes that the page names for a class, its documented bases, and the class it is like."""
    by_class = {class_of(one): one for one in DOCUMENTED}
    names = [by_class[base] for base in layers(class_of(name)) if base in by_class]
    names += [LIKE[name]] if name in LIKE else []
    return set().union(*(DOCUMENTED[one] | explained(class_of(one)) for one in names))


def test_the_page_is_understood() -> None:
    """The classes are found, with the attributes from each kind of directive."""
    assert {"Connection", "Queue", "Channel", "staging.Stage", "aio.Queue"} <= set(DOCUMENTED)
    assert {"put", "move"} <= DOCUMENTED["Queue"]
    assert "basic_publish" in DOCUMENTED["Channel"]
    assert "message_count" in named("DeclareOk")


@pytest.mark.parametrize("name", DOCUMENTED)
def test_what_an_object_shows_is_documented(name: str) -> None:
    """The page has each name without an underscore, and the class has each name on the page."""
    assert shown(class_of(name)) - named(name) == set()
    assert DOCUMENTED[name] - set(dir(class_of(name))) - shown(class_of(name)) == set()


def test_every_kind_of_name_is_seen() -> None:
    """Methods, slots, annotations, attributes that a method sets, and names of base classes are found."""

    class Base:
        __slots__ = ("_slot", "slot")

        def method(self) -> None:
            self.slot = 1

    class Derived(Base):
        annotated: int

        def __init__(self) -> None:
            self.set, self.__dict__["hidden"] = 2, 3
            self._private: int = 4

    assert shown(Derived, __name__.partition(".")[0]) == {"slot", "method", "annotated", "set"}
