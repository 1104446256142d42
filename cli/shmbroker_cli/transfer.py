# SPDX-License-Identifier: Apache-2.0
"""`shmbroker export` and `shmbroker import`: the messages of a queue as a file, and back."""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, BinaryIO

import typer

from shmbroker import transfer
from shmbroker_cli.browse import State
from shmbroker_cli.errors import Refused, complain
from shmbroker_cli.managing import messages
from shmbroker_cli.options import (
    BrokerOption,
    CountOption,
    DataDirOption,
    JsonOption,
    QueueArgument,
    SelectorOption,
    TimeoutOption,
)
from shmbroker_cli.output import report
from shmbroker_cli.progress import bar
from shmbroker_cli.session import opened

STANDARD = "-"
_EXTENSIONS = {
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "jsonl"),
    **dict.fromkeys((".arrow", ".arrows", ".ipc"), "arrow"),
}


class Form(StrEnum):
    """The format of a file of messages."""

    ARROW = "arrow"
    JSONL = "jsonl"


FormOption = Annotated[
    Form | None,
    typer.Option(
        "--format",
        show_default=False,
        help="An Arrow IPC stream, or JSON lines; else what the extension of FILE says: "
        f"{', '.join(_EXTENSIONS)}; with '-' JSON lines.",
    ),
]


def _form(name: str, form: Form | None) -> str:
    """Return the format of a file."""
    if form is not None:
        return form.value
    found = "jsonl" if name == STANDARD else _EXTENSIONS.get(Path(name).suffix.lower())
    if found is None:
        message = f"give --format: the extension of '{name}' is none of {', '.join(_EXTENSIONS)}"
        raise typer.BadParameter(message)
    return found


@contextmanager
def _writing(name: str) -> Iterator[BinaryIO]:
    """Open a file beside its place, and rename it at the end of the block; or standard output, for `-`."""
    if name == STANDARD:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    path = Path(name)
    if path.is_dir():
        message = f"{name}: is a folder"
        raise Refused(message)
    try:
        descriptor, beside = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".partial", dir=path.parent)
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, error.strerror, str(path.parent)) from error
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        Path(beside).replace(path)
    except OSError as error:
        error.filename = error.filename or name  # that of a write has none
        raise
    finally:
        with suppress(FileNotFoundError):
            Path(beside).unlink()


@contextmanager
def _reading(name: str) -> Iterator[BinaryIO]:
    """Open a file; or standard input, for `-`."""
    if name != STANDARD:
        with Path(name).open("rb") as stream:
            yield stream
    elif sys.stdin is None:
        message = "standard input is closed"
        raise Refused(message)
    else:
        yield sys.stdin.buffer


class _Counted:
    """Counts the messages that pass by."""

    def __init__(self, source: Iterator[transfer.Exported], show: Callable[[int], None]) -> None:
        """Begin with none."""
        self._source, self._show = source, show
        self.count = 0

    def __iter__(self) -> Iterator[transfer.Exported]:
        """Yield the messages."""
        for message in self._source:
            yield message
            self.count += 1
            self._show(self.count)


def export(
    queue: QueueArgument,
    file: Annotated[
        str, typer.Argument(metavar="FILE|-", show_default=False, help="The file; '-' writes to standard output.")
    ],
    *,
    form: FormOption = None,
    state: Annotated[State, typer.Option(help="The messages to export; one state at a time.")] = State.READY,
    selector: SelectorOption = None,
    count: CountOption = None,
    data_dir: DataDirOption = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Write a queue's messages to a file, and leave them in the queue."""
    chosen = _form(file, form)
    if data_dir is not None and selector is not None:
        message = "--selector needs a broker: it cannot be used with --data-dir"
        raise typer.BadParameter(message)
    if data_dir is not None and state == State.DELIVERING:
        message = "--state delivering needs a broker: in a store, what was being delivered is ready"
        raise typer.BadParameter(message)
    total = count
    with ExitStack() as stack:
        if data_dir is None:
            found = stack.enter_context(opened(broker, queue))
            source = transfer.messages_of(found, selector, state=state.value, limit=count)
            if state == State.READY and selector is None:
                total = min(len(found), len(found) if count is None else count)
        else:
            store = stack.enter_context(transfer.opened(data_dir))
            source = store.messages_of(queue, state=state.value, limit=count)
        counted = _Counted(source, stack.enter_context(bar("exported", total)))
        transfer.write(stack.enter_context(_writing(file)), counted, chosen)
    if file != STANDARD:
        facts = {"queue": queue, "file": file, "exported": counted.count}
        report(facts, f"{queue}: {messages(counted.count)} exported", as_json=as_json)


def import_(
    queue: QueueArgument,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE|-", show_default=False, help="A file of `export`; '-' reads from standard input."),
    ],
    *,
    form: FormOption = None,
    timeout: TimeoutOption = None,
    broker: BrokerOption = "",
    as_json: JsonOption = False,
) -> None:
    """Put the messages of a file into a queue that exists; messages whose time is over are left out."""
    chosen = _form(file, form)
    done = 0

    with opened(broker, queue) as target, _reading(file) as stream, bar("imported", None) as show:

        def progress(count: int) -> None:
            nonlocal done
            done = count
            show(count)

        try:
            found = transfer.put(target, transfer.read(stream, chosen), timeout=timeout, progress=progress)
        except KeyboardInterrupt:
            complain(f"{queue}: interrupted after {messages(done)} imported")
            raise
        except ModuleNotFoundError:
            raise
        except Exception as error:
            text = f"{str(error) or 'the queue is full'} ({done} imported)"
            raise Refused(text) from error
    facts = {"queue": queue, "imported": found.put, "expired": found.expired}
    line = f"{queue}: {messages(found.put)} imported"
    if found.expired:
        line += f", {messages(found.expired)} left out: their time is over"
    report(facts, line, as_json=as_json)
