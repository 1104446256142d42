# SPDX-License-Identifier: Apache-2.0
"""Objects that were never made to the end: a signal's handler raised inside `__init__`, at any instruction."""

from __future__ import annotations

import gc
import importlib
import inspect
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from scenario_support.core_calls import Noted, Replaced
from scenario_support.inside import core_of

import shmbroker
from shmbroker._core import channel, consumer, native, queue, watch

if TYPE_CHECKING:
    from collections.abc import Callable


def _with_finalizers() -> list[type]:
    folder = Path(shmbroker.__file__).parent
    paths = [path.relative_to(folder.parent) for path in folder.rglob("*.py") if "spark" not in path.parts]
    names = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in paths]
    modules = [importlib.import_module(name) for name in names]
    classes = {one for module in modules for _, one in inspect.getmembers(module, inspect.isclass)}
    own = [one for one in classes if one.__module__.startswith("shmbroker.") and "_finalize" in vars(one)]
    return sorted(own, key=lambda one: one.__qualname__)


@pytest.mark.parametrize("cls", _with_finalizers())
def test_what_has_no_attributes_yet_goes_silently(cls: type) -> None:
    """The finalizer of an object whose `__init__` did nothing finds nothing to do, and the program prints nothing."""
    half_made = object.__new__(cls)
    vars(cls)["_finalize"](half_made)


def test_there_are_such_objects() -> None:
    """The test above looks at attachments, connections and handles."""
    names = {one.__name__ for one in _with_finalizers()}
    assert {"Attachment", "MappingReference", "CoreConnection", "Session", "CoreQueue"} <= names


class InterruptError(BaseException):
    """What a signal's handler raises."""


class Interrupted:
    """An object in which a signal's handler raises before it has stored its handle."""

    @property
    def handle(self) -> None:
        """There is none."""

    @handle.setter
    def handle(self, handle: object) -> None:
        if handle is not None:
            raise InterruptError(handle)


def open_consumer(cls: type, of: Any) -> None:  # noqa: ANN401
    """A consumer of that queue."""
    cls(of.connection, [of], 1, 0, ack_batch=1, ack_interval=1)


def open_watch(cls: type, of: Any) -> None:  # noqa: ANN401
    """A watch of that queue."""
    descriptor = os.eventfd(0)
    try:
        cls(of, descriptor, room=False)
    finally:
        os.close(descriptor)


MADE: dict[str, tuple[Any, type, Callable[[type, Any], object]]] = {
    "sb_consumer_free": (consumer, consumer.CoreConsumer, open_consumer),
    "sb_watch_free": (watch, watch.CoreWatch, open_watch),
    "sb_queue_free": (queue, queue.CoreQueue, lambda cls, of: cls(of.connection, "q", of.slot)),
    "sb_channel_free": (channel, channel.CoreChannel, lambda cls, of: cls(of.connection, 1)),
}


@pytest.mark.parametrize("free", MADE)
def test_what_the_core_has_made_goes_with_its_object(
    queue: shmbroker.Queue, monkeypatch: pytest.MonkeyPatch, free: str
) -> None:
    """An interrupt may come between the core's call and the line that stores the handle: it is freed, once."""
    module, cls, make = MADE[free]
    freed = Noted(getattr(native.slow, free))
    monkeypatch.setattr(module, "slow", Replaced(native.slow, **{free: freed}))
    with pytest.raises(InterruptError) as interrupt:
        make(type(cls.__name__, (Interrupted, cls), {}), core_of(queue))
    handle = interrupt.value.args
    del interrupt
    gc.collect()
    assert freed.calls.count(handle) == 1
    assert queue.statistics().consumers == 0
