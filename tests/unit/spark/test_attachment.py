# SPDX-License-Identifier: Apache-2.0
"""Which broker a worker of Spark uses, its connection there, and what the package shows without Spark."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyarrow")

import shmbroker
import shmbroker.spark
from shmbroker._process import connections
from shmbroker.spark import attachment

if TYPE_CHECKING:
    from pathlib import Path

NARROW = 1 << 40
"""Bytes: a limit of the address space that nothing here comes to."""


def test_the_broker_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the option's, else that of the environment where it is asked for, else "default"; empty is not given."""
    monkeypatch.setenv("SHMBROKER_BROKER", "of-the-environment")
    assert attachment.broker_name("of-the-option") == "of-the-option"
    assert attachment.broker_name(None) == attachment.broker_name("") == "of-the-environment"
    monkeypatch.setenv("SHMBROKER_BROKER", "")
    assert attachment.broker_name(None) == "default"
    monkeypatch.delenv("SHMBROKER_BROKER")
    assert attachment.broker_name(None) == "default"


def test_a_process_has_one_connection_to_a_broker(broker: shmbroker.Broker) -> None:
    """Whatever runs in it shares it, under a name that says which process it is of; a closed one is replaced."""
    first = attachment.connection_to(broker.name)
    assert attachment.connection_to(broker.name) is first
    assert first.is_open
    with broker.connect() as looking:
        assert f"spark:{os.getpid()}" in {one.name for one in looking.connections()}
    first.close()
    second = attachment.connection_to(broker.name)
    assert second is not first
    assert second.is_open
    assert attachment.connection_to(broker.name) is second


def test_a_forked_worker_connects_anew(broker: shmbroker.Broker, tmp_path: Path) -> None:
    """What its parent had connected is the parent's; Spark's daemon forks its workers."""
    attachment.connection_to(broker.name)
    child = os.fork()
    if child == 0:  # pragma: no cover - in the child
        with contextlib.suppress(BaseException):
            known = len(connections._shared)  # noqa: SLF001
            found = attachment.connection_to(broker.name)
            names = {one.name for one in found.connections()}
            seen = f"{known} {found.is_open} {f'spark:{os.getpid()}' in names} {f'spark:{os.getppid()}' in names}"
            (tmp_path / "seen").write_text(seen, "ascii")
        os._exit(0)
    os.waitpid(child, 0)
    assert (tmp_path / "seen").read_text("ascii") == "0 True True True"


def test_no_broker_here(broker_name: str) -> None:
    """The error says which one, on which host, and the three remedies; none is made."""
    with pytest.raises(shmbroker.BrokerNotFound) as missing:
        attachment.connection_to(broker_name)
    assert missing.value.code == 404
    assert missing.value.text == (
        f"NOT_FOUND - no broker {broker_name!r} on host {socket.gethostname()!r}: start one there, or name another "
        f"with broker=, or with SHMBROKER_BROKER in the environment of Spark's executors"
    )
    assert broker_name not in shmbroker.brokers()


@pytest.mark.parametrize("limit", [NARROW, resource.RLIM_INFINITY])
def test_memory_that_cannot_be_mapped(broker_name: str, monkeypatch: pytest.MonkeyPatch, limit: int) -> None:
    """Where the address space has a limit, the error says which setting of Spark's makes it; else it is as it was."""

    def full(*_: object, **__: object) -> None:
        text = "cannot be mapped"
        raise shmbroker.OutOfMemory(text)

    monkeypatch.setattr(shmbroker, "connect", full)
    monkeypatch.setattr(resource, "getrlimit", lambda _which: (limit, resource.RLIM_INFINITY))
    with pytest.raises(shmbroker.OutOfMemory) as narrow:
        attachment.connection_to(broker_name)
    remedy = (
        "; spark.executor.pyspark.memory limits the memory of Spark's Python workers: remove that limit, or raise it"
    )
    assert str(narrow.value) == "cannot be mapped" + (remedy if limit == NARROW else "")


def test_the_data_source_is_an_attribute_of_the_package() -> None:
    """It is imported when it is asked for; other names are not there, and the error says so."""
    pytest.importorskip("pyspark")
    from shmbroker.spark.source import ShmBrokerDataSource  # noqa: PLC0415 - needs Spark

    assert shmbroker.spark.ShmBrokerDataSource is ShmBrokerDataSource
    with pytest.raises(AttributeError, match=r"module 'shmbroker\.spark' has no attribute 'SparkSession'"):
        shmbroker.spark.SparkSession  # noqa: B018
