# SPDX-License-Identifier: Apache-2.0
"""The command line of shmbroker."""

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line of this process, and exit with its code, also if Ctrl-C comes while it is loaded."""
    try:
        from shmbroker_cli import app  # noqa: PLC0415 (it takes a while)

        app.main()
    except KeyboardInterrupt:
        sys.exit(130)  # errors.INTERRUPTED
