# SPDX-License-Identifier: Apache-2.0
"""A bar that shows how far a command has come."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)

from shmbroker_cli.output import console

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def bar(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on standard error, if that is a terminal.

    Args:
        title: The text before the bar.
        total: The bar is full when this many files, or messages, are done.

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
