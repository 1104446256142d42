# SPDX-License-Identifier: Apache-2.0
"""What a process does with all its connections when it is forked and when it ends; the broker for tests."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shmbroker import testing
from shmbroker._process import connections
from shmbroker._process import inherited as inherited_queues
from shmbroker._process.living import Living

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


class Connection:
    """Notes that its callbacks are stopped; fails then if it is to."""

    def __init__(self, *, fails: bool) -> None:
        self.fails, self.stopped = fails, 0

    def handed_out(self) -> Iterator[Connection]:
        """The handles of this connection."""
        return iter([self])

    def stop_callbacks(self) -> None:
        """Note the call."""
        self.stopped += 1
        if self.fails:
            msg = "no end"
            raise ValueError(msg)


def test_a_process_with_two_connections(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A child inherits the handles of both; at the end both are stopped, and a failure of one is logged."""
    monkeypatch.setattr(connections, "_connections", Living[Any]())
    inherited: list[object] = []
    monkeypatch.setattr(inherited_queues, "inherit", inherited.extend)
    both = [Connection(fails=True), Connection(fails=False)]
    for one in both:
        connections.note(one)
    inherited_queues._after_fork()  # noqa: SLF001
    assert inherited == both
    with caplog.at_level(logging.ERROR, "shmbroker"):
        connections._at_exit()  # noqa: SLF001
    assert [one.stopped for one in both] == [1, 1]
    assert [record.getMessage() for record in caplog.records if "at the end of the program" in record.getMessage()] == [
        f"the callbacks of {both[0]!r} could not be stopped at the end of the program"
    ]


def test_a_broker_for_tests(broker_name: str) -> None:
    """It has the name that it is given, or one that begins with test-; nothing stays of it."""
    with testing.broker(broker_name, memory="32M") as broker:
        assert broker.name == broker_name
    assert not list(Path("/dev/shm").glob(f"*{broker_name}*"))  # noqa: S108
    with testing.broker(memory="32M") as unnamed:
        assert unnamed.name.startswith("test-")
