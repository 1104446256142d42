# SPDX-License-Identifier: Apache-2.0
"""connect(): what it hands on, what it makes, and how long it waits."""

from __future__ import annotations

import concurrent.futures
import os
import signal
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.brokers import files
from scenario_support.core_calls import Noted
from scenario_support.inside import core_of, session_of

import shmbroker
from shmbroker._broker import connecting, making
from shmbroker.exceptions import BrokerNotFound, ConnectionClosedByBroker

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def ensured(monkeypatch: pytest.MonkeyPatch) -> Noted:
    """Note for which brokers a housekeeper is started, and start none."""
    noted = Noted(lambda _: None)
    monkeypatch.setattr(connecting, "ensure_housekeeper", noted)
    return noted


def test_options_are_those_of_the_connection(broker_name: str, ensured: Noted) -> None:
    """Each is handed on; a connection that misses the housekeeper starts one of its broker."""
    shmbroker.Broker(broker_name, memory="32M").create()
    errors: list[BaseException] = []
    with (
        concurrent.futures.ThreadPoolExecutor(1) as executor,
        shmbroker.connect(
            broker_name, create=False, executor=executor, channel_max=3, client_name="one", operation_timeout=4.5,
            on_callback_error=errors.append,
        ) as opened,
    ):  # fmt: skip
        session = session_of(opened)
        found = (session.callbacks._given, session._numbers._most, opened.name, session.operation_timeout)  # noqa: SLF001
        assert found == (executor, 3, "one", 4.5)
        assert session.callbacks._on_error == errors.append  # noqa: SLF001
        assert ensured.calls == []
        core_of(opened).on_housekeeper_missing()
        assert ensured.calls == [(broker_name,)]


@pytest.mark.parametrize(("argument", "name"), [("/some/where/program.py", "program.py"), ("", "python")])
def test_a_connection_is_named_after_its_program(
    broker_name: str, ensured: Noted, monkeypatch: pytest.MonkeyPatch, argument: str, name: str
) -> None:
    """And after its process."""
    monkeypatch.setattr(sys, "argv", [argument])
    with shmbroker.Broker(broker_name, memory="32M").create().connect() as opened:
        assert opened.name == f"{name}:{os.getpid()}"
    assert ensured.calls == []


def test_what_exists_is_not_made(broker_name: str, ensured: Noted, monkeypatch: pytest.MonkeyPatch) -> None:
    """A housekeeper is started for it, if it would have been made."""
    shmbroker.Broker(broker_name, memory="32M").create()
    monkeypatch.setattr(making.Plan, "make", None)
    with shmbroker.connect(broker_name):
        assert ensured.calls == [(broker_name,)]


def test_a_broker_object_connects_to_what_exists(broker_name: str) -> None:
    """It makes no memory."""
    with pytest.raises(BrokerNotFound):
        shmbroker.Broker(broker_name).connect()
    assert files(broker_name) == []


@pytest.mark.parametrize(
    "options",
    [{"channel_max": True}, {"channel_max": 0}, {"channel_max": 65536}, {"operation_timeout": False},
     {"operation_timeout": -1}, {"executor": 1}, {"client_name": 1}, {"on_callback_error": 1}],
)  # fmt: skip
def test_options_that_are_none(broker_name: str, options: dict[str, Any]) -> None:
    """The error names the option; no broker is made."""
    ((option, value),) = options.items()
    with pytest.raises(ValueError, match=f"^{option}={value}: .* is allowed$"):
        shmbroker.connect(broker_name, **options)
    assert files(broker_name) == []


def failing(error: Exception) -> Callable[..., None]:
    """No connection can be made."""

    def connection(*_: object, **__: object) -> None:
        raise error

    return connection


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Give deadlines the moment 5, and each look at the clock the next one of these; sleeping takes one of them."""
    left: list[int] = []
    clock = SimpleNamespace(monotonic_ns=lambda: left[0], sleep=lambda _: left.pop(0))
    monkeypatch.setattr(connecting, "time", clock)
    monkeypatch.setattr(connecting.native, "deadline", lambda _: 5)
    return left


def test_a_broker_that_is_not_made_in_time(broker_name: str, times: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is up when it has passed; without a timeout there is none."""
    monkeypatch.setattr(connecting, "Session", failing(BrokerNotFound(404, "none")))
    times += [3, 4, 5, 99]
    with pytest.raises(BrokerNotFound):
        shmbroker.connect(broker_name, create=False, timeout=1)
    assert times == [5, 99]
    times[:] = [3, 4, 5, 99]
    with pytest.raises(BrokerNotFound):
        shmbroker.connect(broker_name, create=False)
    assert times == [3, 4, 5, 99]


def test_a_purge_that_lasts(broker_name: str, times: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for until the time is up."""
    monkeypatch.setattr(connecting, "Session", failing(ConnectionClosedByBroker(320, "purged")))
    times += [3, 4, 5, 99]
    with pytest.raises(shmbroker.Timeout, match="still there after 30 seconds"):
        shmbroker.connect(broker_name, create=False)
    assert times == [5, 99]


def test_signals_are_handled_as_before(broker_name: str) -> None:
    """After this process was the housekeeper."""
    numbers = (signal.SIGTERM, signal.SIGINT)
    before = [signal.getsignal(number) for number in numbers]
    seen: list[object] = []

    def ready() -> None:
        seen.extend(signal.getsignal(number) for number in numbers)
        os.kill(os.getpid(), signal.SIGTERM)

    shmbroker.Broker(broker_name, memory="32M").serve_forever(on_ready=ready)
    assert [signal.getsignal(number) for number in numbers] == before
    assert len(seen) == 2
    assert not set(map(id, seen)) & set(map(id, before))
