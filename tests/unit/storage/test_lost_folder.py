# SPDX-License-Identifier: Apache-2.0
"""A broker whose folder is gone: what its storekeepers, its stop and its purge do."""

from __future__ import annotations

import logging
import os
import signal
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from scenario_support.waiting import eventually

import shmbroker
from shmbroker._core import segments
from shmbroker._storekeeper import launch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAME = "shmbroker-reap-storekeeper"


class Lost:
    """A broker with 3 messages in a durable queue, whose storekeeper was killed, and whose folder is gone.

    Attributes:
        broker: the broker.
        folder: where its store was.
    """

    def __init__(self, name: str, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.broker = shmbroker.Broker(name, memory="64M", data_dir=folder).start()
        with self.broker.connect() as connection:
            connection.queue("jobs", durable=True).put_many([b"1", b"2", b"3"])
            connection.queue("quick").put(b"4")
        folder.rename(folder.with_name("moved"))
        pid = self.keeper()
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: self.keeper() == 0, "the end of the storekeeper")

    def keeper(self) -> int:
        """The process of the storekeeper; 0: there is none."""
        store = self.broker.statistics().store
        assert store is not None
        return store.storekeeper_pid

    def exists(self) -> bool:
        """Whether the memory is there."""
        return segments.exists(segments.path_of(self.broker.name))


@pytest.fixture
def lost(broker_name: str, tmp_path: Path) -> Iterator[Lost]:
    """Return such a broker, and remove its memory."""
    made = Lost(broker_name, tmp_path / "store")
    yield made
    if made.exists():
        with pytest.warns(shmbroker.StoreLost):
            made.broker.stop(purge=True)


def test_a_purge_ends_and_says_what_is_lost(lost: Lost) -> None:
    """It waits for no store, and the memory is gone."""
    with pytest.warns(shmbroker.StoreLost) as told:
        lost.broker.stop(purge=True)
    text = f"the store of broker {lost.broker.name!r} in {str(lost.folder)!r} is gone: "
    assert [str(one.message) for one in told] == [f"{text}3 messages in 1 durable queues are lost"]
    assert not lost.exists()


def test_a_purge_beside_a_storekeeper_says_so_as_well(broker_name: str, tmp_path: Path) -> None:
    """The storekeeper writes files that have no name any more."""
    folder = tmp_path / "store"
    folder.mkdir()
    broker = shmbroker.Broker(broker_name, memory="64M", data_dir=folder).start()
    with broker.connect() as connection:
        connection.queue("jobs", durable=True).put(b"1")
    folder.rename(folder.with_name("moved"))
    with pytest.warns(shmbroker.StoreLost, match="1 messages in 1 durable queues are lost"):
        broker.stop(purge=True)
    assert not segments.exists(segments.path_of(broker_name))


def test_a_stop_is_refused_and_keeps_the_memory(lost: Lost) -> None:
    """The messages are there until a purge."""
    with pytest.raises(shmbroker.StoreError, match="is gone, so nothing more is written") as refused:
        lost.broker.stop()
    assert repr(str(lost.folder)) in refused.value.text
    with lost.broker.connect() as connection:
        assert [bytes(one) for one in connection.queue("jobs", durable=True).browse()] == [b"1", b"2", b"3"]


def test_storekeepers_that_cannot_begin_are_started_more_and_more_rarely(
    lost: Lost, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After half a second at first, after five in the end; what they say is logged once."""
    now, starts = 0.0, list[float]()
    start = launch._start  # noqa: SLF001 - what is counted

    def counted(name: str, option: str | None = None) -> None:
        starts.append(now)
        start(name, option)
        for thread in threading.enumerate():
            if thread.name == NAME:
                thread.join()

    for known in ("_started", "_failures", "_told"):
        monkeypatch.setattr(launch, known, {})
    monkeypatch.setattr(launch, "_start", counted)
    monkeypatch.setattr(launch, "time", SimpleNamespace(monotonic=lambda: now))
    with caplog.at_level(logging.WARNING, "shmbroker"):
        while now < 20:
            launch.ensure_storekeeper(lost.broker.name)
            now += 0.5
    assert starts == [0.0, 1.0, 3.0, 7.0, 12.0, 17.0]
    said = [record.getMessage() for record in caplog.records if record.msg.startswith("the storekeeper of")]
    assert [text.count("is no folder") for text in said] == [1]
