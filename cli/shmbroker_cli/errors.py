# SPDX-License-Identifier: Apache-2.0
"""The errors of commands: one line for people, and an exit code for scripts.

| code | meaning |
|---|---|
| 0 | done |
| 1 | refused: by the broker, by the system, or by what a called function raised |
| 2 | usage: the arguments are wrong, whatever the state of the broker |
| 130 | interrupted, as by Ctrl-C |

With `SHMBROKER_TRACEBACK=1` in its environment, a command also prints the traceback of an error.
"""

from __future__ import annotations

import os
import queue
import sys
import traceback
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, runtime_checkable

import typer
from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

DONE = 0
REFUSED = 1
USAGE = 2
INTERRUPTED = 130  # 128 + SIGINT, as shells have it


class Refused(Exception):  # noqa: N818 (an outcome, and read as one: `raise Refused`)
    """The command cannot be carried out; the text says why in one line."""


@runtime_checkable
class _Complaint(Protocol):
    """What the parser of the command line raises."""

    exit_code: int

    def format_message(self) -> str:
        """Return what is wrong."""


def explain(error: Exception) -> tuple[int, str]:
    """Return the exit code and the text for an error.

    Args:
        error: Whatever a command raised.
    """
    if isinstance(error, _Complaint):
        return error.exit_code, error.format_message() + _hint(error)
    if isinstance(error, ValueError):
        return USAGE, str(error)
    if isinstance(error, OSError) and error.filename is not None:
        return REFUSED, f"{error.filename}: {error.strerror}"
    if isinstance(error, queue.Full):
        return REFUSED, str(error) or "the queue is full"
    return REFUSED, str(error) or type(error).__name__


def _hint(error: _Complaint) -> str:
    """Say where the right usage can be read."""
    context = getattr(error, "ctx", None)
    return f" (see {context.command_path} --help)" if context is not None else ""


def complain(text: str) -> None:
    """Print one line on standard error.

    Args:
        text: What to say; line breaks in it become spaces.
    """
    typer.echo(f"shmbroker: {' '.join(text.split())}", err=True)


class CommandGroup(TyperGroup):
    """A group of commands that reports errors as the top of this module says: in one line, with an exit code."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001, FBT002 (the signature is Typer's)
        windows_expand_args: bool = True,  # noqa: FBT001, FBT002
        **extra: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Run one command line. With `standalone_mode`, exit with its code; else return its result."""

        def run() -> object:
            return super(CommandGroup, self).main(
                args,
                prog_name,
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )

        return _exit(run) if standalone_mode else run()


def _exit(run: Any) -> NoReturn:  # noqa: ANN401 (a function without arguments)
    """Run a command line and exit with its code."""
    try:
        result = run()
        sys.stdout.flush()
    except (typer.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader has gone, as in `shmbroker list | head -1`
        _silence_stdout()
        sys.exit(REFUSED)
    except Exception as error:  # noqa: BLE001 (a person must not see a traceback)
        if os.environ.get("SHMBROKER_TRACEBACK"):
            traceback.print_exc()
        code, text = explain(error)
        complain(text)
        sys.exit(code)
    sys.exit(result if isinstance(result, int) else DONE)


def _silence_stdout() -> None:
    """Redirect standard output to /dev/null, so that the interpreter can flush its buffer at exit without an error."""
    sink = os.open(os.devnull, os.O_WRONLY)
    os.dup2(sink, sys.stdout.fileno())
    os.close(sink)
