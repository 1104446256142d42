# SPDX-License-Identifier: Apache-2.0
"""Bars that show how far a command has come."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
)

from shmbroker_cli.output import byte_count, console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BYTES = frozenset({"copied"})  # the steps whose amounts are bytes


@contextmanager
def bar(title: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error, if that is a terminal.

    Args:
        title: The text before the bar.
        total: The bar is full when this many files, or messages, are done; None: it is not known how many there are.

    Yields:
        A function. The caller calls it with the number done so far, and it moves the bar.
    """
    shown = Progress(
        TextColumn("{task.description:<12}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console(stderr=True),
    )
    if not shown.console.is_terminal:
        yield lambda _done: None
        return
    with shown:
        task = shown.add_task(title, total=total)
        yield lambda done: shown.update(task, completed=done)


@contextmanager
def steps() -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for each step of a command on standard error, if that is a terminal.

    Yields:
        A function. The caller calls it with the name of the step, how much of it is done, and how much it is.
    """
    shown = Progress(
        TextColumn("{task.description:<12}"),
        BarColumn(),
        TextColumn("{task.fields[amount]}"),
        TimeElapsedColumn(),
        console=console(stderr=True),
    )
    if not shown.console.is_terminal:
        yield lambda _step, _done, _total: None
        return
    tasks: dict[str, TaskID] = {}

    def show(step: str, done: int, total: int) -> None:
        amount = f"{byte_count(done)} of {byte_count(total)}" if step in _BYTES else f"{done:,}/{total:,}"
        if step not in tasks:
            tasks[step] = shown.add_task(step, total=total, amount=amount)
        shown.update(tasks[step], completed=done, total=total, amount=amount)

    with shown:
        yield show
