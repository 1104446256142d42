# SPDX-License-Identifier: Apache-2.0
"""The dataclasses of the package behave as those that the standard library makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
from typing import Any

import pytest

from shmbroker import _dataclasses, statistics
from shmbroker.properties import BasicProperties
from shmbroker.settings import QueueSettings

PUBLIC = [
    *(kind for kind in vars(statistics).values() if isinstance(kind, type) and kind.__module__ == statistics.__name__),
    BasicProperties,
    QueueSettings,
]
SHOWN = ("__repr__", "__eq__", "__hash__", "__setattr__", "__delattr__")
MAKERS = [_dataclasses, dataclasses]


def made_with(maker: Any) -> Any:  # noqa: ANN401 - either of the two modules
    """Make a dataclass with a module's decorator."""

    @maker.dataclass(frozen=True, slots=True)
    class Made:
        """A class with a method, and with each kind of field."""

        name: str
        count: int = 1
        texts: dict[str, Any] = maker.field(default_factory=dict)

        def doubled(self) -> int:
            """Twice the count."""
            return 2 * self.count

    return Made


def seen(function: Any, *arguments: Any, **named: Any) -> Any:  # noqa: ANN401
    """Return what a call returns, or the type and the text of what it raises."""
    try:
        return function(*arguments, **named)
    except Exception as error:  # noqa: BLE001 - compared
        return type(error), str(error)


@pytest.mark.parametrize(
    "observe",
    [
        lambda kind: kind("a"),
        lambda kind: kind("a", 2, {"b": 3}).__repr__(),
        lambda kind: kind(count=2, name="a").doubled(),
        lambda kind: kind(),
        lambda kind: kind("a", 1, {}, 2),
        lambda kind: kind("a", other=2),
        lambda kind: (kind("a") == kind("a"), kind("a") == kind("b"), kind("a") == ("a", 1, {})),
        lambda kind: kind("a").texts is kind("a").texts,
        lambda kind: hash(kind("a", 2, ())) == hash(kind("a", 2, ())),
        lambda kind: hash(kind("a")),
        lambda kind: setattr(kind("a"), "count", 2),
        lambda kind: delattr(kind("a"), "count"),
        lambda kind: kind("a").__dict__,
        lambda kind: copy.copy(kind("a", 2)).count,
        lambda kind: copy.deepcopy(kind("a", 2, {"b": [3]})).texts,
        lambda kind: str(inspect.signature(kind)),
        lambda kind: kind.__init__.__annotations__,
        lambda kind: (kind.__name__, kind.__qualname__, kind.__module__, kind.__doc__, kind.__slots__),
        lambda kind: (kind.__init__.__module__, kind.__match_args__),
        lambda kind: [(inspect.signature(method), method.__qualname__) for method in map(kind.__dict__.get, SHOWN)],
        dataclasses.is_dataclass,
        lambda kind: [(one.name, one.type, one.default) for one in dataclasses.fields(kind)],
        lambda kind: str(kind.__dataclass_params__),
        lambda kind: dataclasses.asdict(kind("a", 2, {"b": [3]})),
        lambda kind: dataclasses.astuple(kind("a", 2)),
        lambda kind: repr(dataclasses.replace(kind("a"), count=3)),
        lambda kind: dataclasses.replace(kind("a"), other=3),
        lambda kind: repr(dataclasses.dataclass(frozen=True)(type("Derived", (kind,), {}))("a", texts={})),
        lambda kind: dataclasses.dataclass(type("Derived", (kind,), {})),
    ],
)
def test_both_decorators_make_the_same(observe: Any) -> None:  # noqa: ANN401
    """A class, its objects, and what `dataclasses` says of them are the same, and so are the errors."""
    ours, theirs = (seen(observe, made_with(maker)) for maker in MAKERS)
    assert repr(ours) == repr(theirs)


def test_a_value_that_contains_itself_can_be_shown() -> None:
    """The inner one is shown as dots."""
    texts: dict[str, Any] = {}
    for maker in MAKERS:
        texts["itself"] = one = made_with(maker)("a", texts=texts)
        assert repr(one).endswith(".Made(name='a', count=1, texts={'itself': ...})")


def test_a_copy_with_other_values() -> None:
    """The package's `replace` does what that of the standard library does."""
    one = made_with(_dataclasses)("a", 2)
    assert _dataclasses.replace(one, name="b") == dataclasses.replace(one, name="b")
    assert (one.name, _dataclasses.replace(one, name="b").count) == ("a", 2)


@pytest.mark.parametrize("kind", PUBLIC)
def test_the_public_ones_are_dataclasses(kind: Any) -> None:  # noqa: ANN401
    """They have fields, each of them a parameter; their objects can be pickled, copied with changes, and listed."""
    names = [field.name for field in dataclasses.fields(kind)]
    assert tuple(names) == tuple(inspect.signature(kind).parameters) == kind.__match_args__
    one = kind(**dict.fromkeys(names, 7))
    assert pickle.loads(pickle.dumps(one)) == one  # noqa: S301
    assert dataclasses.asdict(one) == dict.fromkeys(names, 7)
    assert dataclasses.asdict(dataclasses.replace(one, **{names[0]: 8}))[names[0]] == 8
    assert hash(one) == hash(copy.copy(one))
    assert not hasattr(one, "__dict__")


def test_they_are_made_without_the_standard_library() -> None:
    """Neither the classes nor their objects need its module."""
    program = (
        "import sys, shmbroker\n"
        "one = shmbroker.BasicProperties('text/plain')\n"
        "print(one == one, hash(one), repr(one)[:15], 'dataclasses' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert (found[0], found[2], found[3]) == ("True", "BasicProperties", "False")


@dataclasses.dataclass(frozen=True)
class Tenant(QueueSettings):
    """A class that an application derives, with a field of its own."""

    tenant: str = "nobody"


@dataclasses.dataclass(frozen=True)
class Marked(BasicProperties):
    """Another one, whose field has no place in the constructor of the base."""

    mark: int = 0


@pytest.mark.parametrize("one", [Tenant(max_length=3, tenant="a"), Marked(app_id="b", mark=5)])
def test_a_derived_class_keeps_its_own_fields(one: Any) -> None:  # noqa: ANN401
    """A copy, a pickle and a replacement have them."""
    copies = [copy.copy(one), copy.deepcopy(one), pickle.loads(pickle.dumps(one)), dataclasses.replace(one)]  # noqa: S301
    assert copies == [one] * 4
    assert [vars(each) for each in copies] == [vars(one)] * 4
    assert _dataclasses.replace(one) == one


def test_a_state_of_another_length_is_taken_as_far_as_it_goes() -> None:
    """A pickle of another version, which had a field more or less, as in the standard library."""
    for maker in MAKERS:
        one = made_with(maker)("a", 2)
        one.__setstate__(["b"])
        assert (one.name, one.count) == ("b", 2)
        one.__setstate__(["c", 3, {}, "more"])
        assert (one.name, one.count) == ("c", 3)


@pytest.mark.parametrize("kind", [kind for kind in PUBLIC if kind is not BasicProperties])  # its constructor is C
def test_the_annotations_of_constructors_can_be_looked_up(kind: type) -> None:
    """In the module of the class, as those of the class."""
    assert kind.__init__.__globals__ is vars(sys.modules[kind.__module__])  # type: ignore[misc]
