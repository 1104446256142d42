# SPDX-License-Identifier: Apache-2.0
"""The command line of shmbroker."""

import contextlib
import io
import os
import sys

from shmbroker_cli.version import version_text

__all__ = ["main"]


def main() -> None:
    """Run the command line, and exit with its code. At Ctrl-C the code is 130, even while modules are imported."""
    _stand_in_for_closed()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # characters that its encoding lacks become escapes
    try:
        if sys.argv[1:] == ["--version"]:
            with contextlib.suppress(OSError):  # the application, below, reports the error
                sys.stdout.write(f"{version_text()}\n")
                sys.stdout.flush()
                return
        from shmbroker_cli import app  # noqa: PLC0415 (it takes a while)

        app.main()
    except KeyboardInterrupt:
        sys.exit(130)  # errors.INTERRUPTED


def _stand_in_for_closed() -> None:
    """Open /dev/null in place of each closed standard stream. Commands then work; what they write there is lost.

    Otherwise a file of the broker could get the number 0, 1 or 2, and output would be written into that file.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:  # noqa: PLR2004 (the number of standard error)
        pass
    os.close(descriptor)
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8"))
