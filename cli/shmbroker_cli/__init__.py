# SPDX-License-Identifier: Apache-2.0
"""The command line of shmbroker."""

import contextlib
import io
import os
import sys

from shmbroker_cli.version import version_text

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process, and exit with its code, also if Ctrl-C comes while it is loaded."""
    _stand_in_for_closed()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a name that it cannot show is shown by its numbers
    try:
        if sys.argv[1:] == ["--version"]:
            with contextlib.suppress(OSError):  # the application says what is wrong with the output
                sys.stdout.write(f"{version_text()}\n")
                sys.stdout.flush()
                return
        from shmbroker_cli import app  # noqa: PLC0415 (it takes a while)

        app.main()
    except KeyboardInterrupt:
        sys.exit(130)  # errors.INTERRUPTED


def _stand_in_for_closed() -> None:
    """Standard output that the caller closed takes everything: a command does its work all the same.

    Nor does a file of the broker get one of their three numbers, to which anything may be written.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 (of standard error)
        pass
    os.close(descriptor)
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8"))
