# SPDX-License-Identifier: Apache-2.0
"""Settings as command-line options: one for each row of queue settings with `option`, and for each address setting."""

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeAlias

import typer

from shmbroker.address_settings import ADDRESS_ROWS, AddressRow
from shmbroker.settings import ROWS, Row

Settings: TypeAlias = dict[str, Any]
"""The settings that were given, by their names."""


def with_settings(*, fixed: bool) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Decorate a command: replace its parameter `settings` by an option for each setting that has one.

    Args:
        fixed: Whether there are also options for settings that cannot change after the declaration of the queue.
    """
    rows = {name: row for name, row in ROWS.items() if row.option and (fixed or not row.fixed)}
    return _with(rows, negatable=not fixed)


def with_address_settings(command: Callable[..., None]) -> Callable[..., None]:
    """Decorate a command: replace its parameter `settings` by an option for each address setting.

    Args:
        command: The command.
    """
    return _with(ADDRESS_ROWS, negatable=True)(command)


def _with(
    rows: Mapping[str, Row | AddressRow], *, negatable: bool = False
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator as `with_settings` does; with `negatable`, a switch also has an option that turns it off."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        signature = inspect.signature(command)

        @functools.wraps(command)
        def with_options(*arguments: Any, **options: Any) -> None:  # noqa: ANN401
            values = {name: options.pop(name) for name in rows}
            given = {name: rows[name].kind.from_option(one) for name, one in values.items() if one is not None}
            command(*arguments, settings=given, **options)

        parameters = [one for one in signature.parameters.values() if one.name != "settings"]
        options = [_option(name, row, negatable=negatable) for name, row in rows.items()]
        first = next(n for n, one in enumerate(parameters) if one.kind is inspect.Parameter.KEYWORD_ONLY)
        parameters[first:first] = options
        with_options.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
        with_options.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": None}
        return with_options

    return decorate


def _option(name: str, row: Row | AddressRow, *, negatable: bool) -> inspect.Parameter:
    words, text = name.replace("_", "-"), f"{row.help[0].upper()}{row.help[1:]}."
    flag = f"--{words}/--no-{words}" if negatable and row.kind.option is bool else f"--{words}"
    option = typer.Option(flag, metavar=row.kind.metavar, help=text, show_default=False)
    annotation: Any = Annotated[row.kind.option | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
