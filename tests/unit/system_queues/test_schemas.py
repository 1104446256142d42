# SPDX-License-Identifier: Apache-2.0
"""Schemas of queues, as bytes and text: of two the first stays, for the life of the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.inside import connection_of, core_of, session_of

import shmbroker
from shmbroker._amqp.names import GROUP, SCHEMA
from shmbroker._system_queues import queues, schemas
from shmbroker._system_queues.register import KEPT, Register, Version
from shmbroker._system_queues.schemas import Registered

if TYPE_CHECKING:
    from collections.abc import Callable

ONE, OTHER = Registered(b"\x00one\xff", "a: long"), Registered(b"other", "b: double")


def registers(connection: shmbroker.Connection) -> list[str]:
    """The broker's own queues that hold schemas."""
    return [name for name in core_of(connection).queue_incarnations() if name.startswith("amq.schema.")]


def test_the_first_schema_stays(queue: shmbroker.Queue) -> None:
    """It is returned to each that gives one; the register has it once, with the queue's name."""
    assert schemas.registered(queue) is None
    assert schemas.register(queue, ONE) == ONE
    assert schemas.register(queue, OTHER) == schemas.registered(queue) == ONE
    (name,) = registers(connection_of(queue))
    assert name == f"amq.schema.{core_of(queue).birth:x}"
    register = Register(connection_of(queue).queue(name, passive=True))
    latest = register.latest()
    assert latest is not None
    assert {**latest.value, "token": ""} == {"queue": "q", "encoded": "AG9uZf8=", "text": "a: long", "token": ""}
    assert len(register.queue) == 1


def test_a_register_that_was_only_made(queue: shmbroker.Queue) -> None:
    """The queue has no schema yet, and can be given one."""
    queues.ensure(session_of(queue), f"{SCHEMA}{core_of(queue).birth:x}", ring_size=KEPT)
    assert schemas.registered(queue) is None
    assert schemas.register(queue, ONE) == ONE


def test_of_two_at_a_time_the_first_wins(queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both get the schema of the first; each waits for memory as long as its connection does."""
    replace, timeouts = Register.replace, []

    def second(register: Register, value: dict[str, Any], *, timeout: float | None) -> bool:
        timeouts.append(timeout)
        monkeypatch.setattr(Register, "replace", replace)
        assert schemas.register(queue, OTHER) == OTHER
        return replace(register, value, timeout=timeout)

    monkeypatch.setattr(Register, "replace", second)
    assert schemas.register(queue, ONE) == OTHER
    assert timeouts == [session_of(queue).operation_timeout]


def test_schemas_of_queues_that_are_gone(connection: shmbroker.Connection) -> None:
    """They are cleared away when another one is registered; those of other queues stay, and so do all other queues."""
    first, second, gone = (connection.queue(name) for name in ("first", "second", "gone"))
    queues.ensure(session_of(connection), f"{GROUP}g")
    for queue in (first, gone):
        schemas.register(queue, ONE)
    gone.delete()
    assert len(registers(connection)) == 2
    schemas.register(second, OTHER)
    assert sorted(registers(connection)) == sorted(f"amq.schema.{core_of(one).birth:x}" for one in (first, second))
    assert (schemas.registered(first), schemas.registered(second)) == (ONE, OTHER)
    assert set(core_of(connection).queue_incarnations()) > {"first", "second", "amq.group.g"}


def test_the_schema_of_a_queue_that_is_deleted_meanwhile(
    queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says that there is no such queue."""
    latest: Callable[[Register], Version | None] = Register.latest

    def last_look(register: Register) -> Version | None:
        found = latest(register)
        if found is not None:
            register.queue.delete()
        return found

    monkeypatch.setattr(Register, "latest", last_look)
    with pytest.raises(shmbroker.NotFound, match="no queue 'q'") as missing:
        schemas.register(queue, ONE)
    assert missing.value.code == 404
