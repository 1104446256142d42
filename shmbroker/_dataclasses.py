# SPDX-License-Identifier: Apache-2.0
"""The dataclasses of the package: frozen, with slots. They are made without the standard library's `dataclasses`.

That module imports `inspect`, and compiles five functions for each class. Together this took a quarter of the import of
the package. This module compiles one function for each class, the constructor, and only when a program first uses it.
The other methods of all classes are the same functions.

The classes are dataclasses nevertheless: `dataclasses.fields`, `replace`, `asdict` and `is_dataclass` accept them, and
another dataclass can be derived from them. Type checkers see the decorator of the standard library. (A test compares
the classes with those that the standard library makes.)
"""

from __future__ import annotations

import operator
import reprlib
import sys
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - for the modules of the package
    from dataclasses import field as field  # noqa: PLC0414 - for the modules of the package
    from dataclasses import replace as replace  # noqa: PLC0414 - for the modules of the package


class _Factory:
    """What a signature shows as the default of a field with a factory, as in the standard library."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<factory>"


class _Field:
    """What :func:`field` returns in the body of a class; it has the arguments of `dataclasses.field`."""

    __slots__ = ("given",)

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given


_FACTORY = _Factory()
_set = object.__setattr__
_made_here: set[type] = set()


class _Described:
    """An attribute that `dataclasses` looks up in a dataclass: its fields, or the arguments of the decorator.

    It is made when it is first read. Its readers are the functions of `dataclasses`, so that module is imported by
    then.
    """

    def __init__(self, body: dict[str, Any], *, init: bool) -> None:
        self._body, self._init = body, init

    def __set_name__(self, owner: type, name: str) -> None:
        self._owner, self._name = owner, name

    def __get__(self, _: object, __: type) -> Any:  # noqa: ANN401 - private to `dataclasses`
        import dataclasses  # noqa: PLC0415 - see above

        body = {
            name: dataclasses.field(**value.given) if isinstance(value, _Field) else value
            for name, value in self._body.items()
        }
        made: type[Any] = type(self._owner.__name__, (), body)
        twin = dataclasses.dataclass(frozen=True, init=self._init, slots=True)(made)
        found = getattr(twin, self._name)
        setattr(self._owner, self._name, found)
        return found


if not TYPE_CHECKING:

    def replace(given: Any, /, **changes: Any) -> Any:  # noqa: ANN401 - as in the standard library
        """Returns a copy with other values of some fields."""
        return given.__replace__(**changes)

    def field(**given: Any) -> Any:  # noqa: ANN401 - as in the standard library
        """Describes a field by ``default`` or ``default_factory``, and ``metadata``."""
        return _Field(given)

    def dataclass(*, frozen: bool, slots: bool, init: bool = True) -> Callable[[type], type]:
        """Makes a class with annotations a dataclass, as `dataclasses.dataclass` does.

        Args:
            frozen: must be True.
            slots: must be True.
            init: False: a base class has the constructor.
        """
        assert frozen  # noqa: S101
        assert slots  # noqa: S101
        return lambda described: _made(described, init=init)


def _made(described: type, *, init: bool) -> type:
    names = tuple(described.__annotations__)
    body = dict(described.__dict__)
    for name in ("__dict__", "__weakref__"):
        body.pop(name, None)
    given = {name: body.pop(name) for name in names if name in body}
    inherited = {slot for base in described.__mro__[1:-1] for slot in base.__dict__.get("__slots__", ())}
    body["__slots__"] = tuple(name for name in names if name not in inherited)
    body["__match_args__"] = names
    like = {"__annotations__": described.__annotations__, "__doc__": described.__doc__, **given}
    for name in ("__dataclass_fields__", "__dataclass_params__"):
        body[name] = _Described(like, init=init)
    for name, method in _methods(names).items():
        method.__name__, method.__qualname__ = name, f"{described.__qualname__}.{name}"
        method.__module__ = described.__module__
        body[name] = method
    if init:
        body["__init__"] = _Constructor(described, given)
    made = type(described)(described.__name__, described.__bases__, body)
    made.__qualname__ = described.__qualname__
    _made_here.add(made)
    return made


class _Constructor:
    """The constructor of a class before its first use, which compiles it, and puts it in the place of this object."""

    def __init__(self, described: type, given: dict[str, Any]) -> None:
        self._described, self._given = described, given

    def __set_name__(self, owner: type, _: str) -> None:
        self._owner = owner

    def __get__(self, made: object, kind: type | None = None) -> Any:  # noqa: ANN401 - a function, or a bound one
        compiled = self._owner.__init__ = _constructor(self._described, self._given)  # type: ignore[misc]
        return compiled.__get__(made, kind)


def _constructor(described: type, given: dict[str, Any]) -> Any:  # noqa: ANN401
    """Compiles the constructor, so that it has the names and defaults of the fields as its parameters."""
    parameters, lines, known = [], [], {"_set": _set, "_FACTORY": _FACTORY}
    for name in described.__annotations__:
        value = name
        if name in given:
            options = given[name].given if isinstance(given[name], _Field) else {"default": given[name]}
            known[f"_{name}"] = options.get("default_factory") or options["default"]
            parameters.append(f"{name}=_FACTORY" if "default_factory" in options else f"{name}=_{name}")
            value = f"_{name}() if {name} is _FACTORY else {name}" if "default_factory" in options else name
        else:
            parameters.append(name)
        lines.append(f" _set(self, {name!r}, {value})\n")
    found: dict[str, Any] = {}
    # As in the standard library: a function in the module of the class, whose annotations can be looked up there.
    body = f"def made({', '.join(known)}):\n def __init__(self, {', '.join(parameters)}):\n"
    body += "".join(f" {line}" for line in lines) + " return __init__\n"
    exec(body, vars(sys.modules[described.__module__]), found)  # noqa: S102
    made = found["made"](**known)
    made.__qualname__ = f"{described.__qualname__}.__init__"
    made.__module__ = described.__module__
    made.__annotations__ = {**described.__annotations__, "return": None}
    return made


def _names_of(one: Any, names: tuple[str, ...]) -> tuple[str, ...]:  # noqa: ANN401
    """Returns ``names``, the fields of the class that has the method, or those of a class derived from it."""
    if type(one) in _made_here:
        return names
    import dataclasses  # noqa: PLC0415 - only for such classes, and most of them were made by this module

    return tuple(field.name for field in dataclasses.fields(one))


def _methods(names: tuple[str, ...]) -> dict[str, Any]:
    """Returns the methods that a frozen dataclass with slots has besides its constructor.

    They have no annotations, since `help` shows those of the standard library without any.
    """
    values = operator.attrgetter(*names)

    @reprlib.recursive_repr()
    def shown(self):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        listed = (f"{name}={value!r}" for name, value in zip(names, values(self), strict=True))
        return f"{type(self).__qualname__}({', '.join(listed)})"

    def equals(self, other):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        return hash(values(self))

    def state(self):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        return [getattr(self, name) for name in _names_of(self, names)]

    def restore(self, state):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202
        for name, value in zip(_names_of(self, names), state, strict=False):
            _set(self, name, value)

    def refuse_to_set(self, name, value):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202, ARG001
        _refuse(f"cannot assign to field {name!r}")

    def refuse_to_delete(self, name):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN202, ARG001
        _refuse(f"cannot delete field {name!r}")

    def replaced(self, /, **changes):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN003, ANN202
        return type(self)(**{name: getattr(self, name) for name in _names_of(self, names)} | changes)

    return {
        "__repr__": shown,
        "__eq__": equals,
        "__hash__": hashed,
        "__getstate__": state,
        "__setstate__": restore,
        "__setattr__": refuse_to_set,
        "__delattr__": refuse_to_delete,
        "__replace__": replaced,  # `copy.replace` calls it
    }


def _refuse(text: str) -> NoReturn:
    import dataclasses  # noqa: PLC0415 - only a mistake of the application comes here

    raise dataclasses.FrozenInstanceError(text)
