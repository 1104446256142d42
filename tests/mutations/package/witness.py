# SPDX-License-Identifier: Apache-2.0
"""A plugin of pytest: notes which statements each test comes to, or which test was begun last.

The runner loads it into the processes that run tests. SHMBROKER_WITNESS names the file that it writes; with
SHMBROKER_SEEN, the file of marks, it is a survey.
"""

from __future__ import annotations

import json
import mmap
import os
import time
import zlib
from base64 import b64encode
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

WITNESS, SEEN = "SHMBROKER_WITNESS", "SHMBROKER_SEEN"


class Witness:
    """What one process of tests notes.

    Args:
        path: The file that is written.
        seen: The marks; none, if only the test that was begun last is asked for.
    """

    def __init__(self, path: Path, seen: mmap.mmap | None) -> None:
        self.path, self.seen = path, seen
        self.failed: set[str] = set()
        self.lines: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Notes a test. What was reached before the first one, by imports, counts as its own."""
        if self.seen is None:
            self.path.write_text(item.nodeid, encoding="utf-8")
            return (yield)
        begin = time.monotonic()
        try:
            return (yield)
        finally:
            seconds = time.monotonic() - begin
            places = b64encode(zlib.compress(self.seen[:])).decode()
            self.seen[:] = bytes(len(self.seen))
            if item.nodeid not in self.failed:
                with self.path.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([item.nodeid, seconds, places]) + "\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A test that fails without a fault, or is left out, finds nothing."""
        if report.outcome != "passed":
            self.failed.add(report.nodeid)


def pytest_configure(config: pytest.Config) -> None:
    """Notes from now on."""
    seen = None
    if SEEN in os.environ:
        with Path(os.environ[SEEN]).open("r+b") as file:
            seen = mmap.mmap(file.fileno(), 0)
    config.pluginmanager.register(Witness(Path(os.environ[WITNESS]), seen))
