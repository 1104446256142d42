# SPDX-License-Identifier: Apache-2.0
"""What a broker is made with, and the making of its memory."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from typing import TYPE_CHECKING

from shmbroker import exceptions, settings
from shmbroker._amqp.errors import amqp_error
from shmbroker._checks import is_number
from shmbroker._core import attachment, segments
from shmbroker._dataclasses import dataclass
from shmbroker._storekeeper import admission, beginning
from shmbroker._storekeeper.launch import ensure_storekeeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from shmbroker._core.attachment import Attachment

_NAME = re.compile(r"(?:(\d{1,10})/)?([A-Za-z0-9_-]{1,64})\Z")
_LEAST_MARK = 0.001
_MODES = (0o600, 0o660)
Marks = tuple[float | None, float | None]
"""The marks of memory: the high watermark and the warning, as shares of the limit."""


class Default(str):
    """The type of a default value that the operator ``is`` distinguishes from an equal string of a caller.

    A plain string would not do: CPython has only one object for equal literals.
    """

    __slots__ = ()


DEFAULT_MEMORY = Default("256M")


def check_name(name: object) -> str:
    """Checks a broker's name, and returns it without the user number of this process.

    Raises:
        ValueError: the name is not 1 to 64 letters, digits, ``_`` or ``-``, or has a prefix that is not the number of a
            user and a slash.
    """
    found = _NAME.match(name) if isinstance(name, str) else None
    if found is None:
        msg = (
            f"broker name {name!r}: 1 to 64 of A-Z, a-z, 0-9, _ and - are allowed, "
            "for a broker of another user with the user's number and a slash before them, such as 1000/orders"
        )
        raise ValueError(msg)
    uid, own = found.groups()
    return own if uid is None or int(uid) == os.getuid() else f"{int(uid)}/{own}"


@dataclass(frozen=True, slots=True)
class Plan:
    """What a broker is made with. :func:`checked` makes one.

    Attributes:
        name: as :func:`check_name` returns it.
        memory: the limit, bytes.
        given_memory: whether the caller named the limit: a broker that exists must then have the same one.
        marks: the marks of memory.
        data_dir: the absolute path of the store's folder.
        mode: the permissions of the memory.
        sync: what publishers to durable queues wait for; ``None``: not given.
        store_full: what they do while the disk is full; ``None``: not given.
    """

    name: str
    memory: int
    given_memory: bool
    marks: Marks
    data_dir: str | None
    mode: int
    sync: str | None = None
    store_full: str | None = None

    @property
    def path(self) -> str:
        """The path of the memory's first segment, as the core names it."""
        return segments.path_of(self.name)

    def make(self) -> None:
        """Creates the memory of the broker if it does not exist.

        Raises:
            PreconditionFailed: the broker exists with another limit than the one given, other marks or another folder.
            OutOfMemory: /dev/shm has no room for the memory.
            BrokerNotFound: the broker belongs to another user, and does not exist.
            StoreError: the store is damaged, of another format, in use, or cannot be written.
        """
        if segments.uid_of(self.path) != os.getuid() and not segments.exists(self.path):
            text = f"no broker {self.name!r}, and only user {segments.uid_of(self.path)} can make it"
            raise amqp_error(exceptions.BrokerNotFound, text)
        if self.data_dir is not None:
            made = self._make_with_store(self.data_dir)
        else:
            made = segments.create(self.path, self.name, self.memory, self.mode)
            if made:
                self._begin(lambda _: None)
        if not made:
            self._compare()
        ensure_storekeeper(self.name)

    def _make_with_store(self, data_dir: str) -> bool:
        """Creates the memory of a broker with a store, and restores it; False if the broker exists."""
        while self._gives_up() or not segments.exists(self.path):
            try:
                place = beginning.place_in(self.name, data_dir)
            except exceptions.StoreError:
                if segments.exists(self.path):
                    continue  # another process makes the broker, and has its store
                raise
            try:
                store = segments.Store(data_dir, self.sync or segments.SYNCS[0], self.store_full or segments.ON_FULL[0])
                if segments.create(self.path, self.name, self.memory, self.mode, store):
                    self._begin(functools.partial(beginning.restore, place))
                    return True
            finally:
                place.leave()
        return False

    def _begin(self, restore: Callable[[Attachment], None]) -> None:
        """Gives new memory what it needs before clients use it; removes the memory if that fails."""
        with attachment.attached_to(self.path) as attached:
            try:
                attached.grow_first()
                attached.set_memory_marks(*self.marks)
                restore(attached)
            except BaseException:
                attached.set_closing()
                segments.remove(self.path, segments.identity(self.path))
                raise

    def _gives_up(self) -> bool:
        """Removes the memory of a broker whose maker was killed while it restored the broker; whether it was one."""
        with (
            contextlib.suppress(exceptions.BrokerNotFound, exceptions.LayoutMismatch),
            attachment.attached_to(self.path) as attached,
        ):
            if admission.is_abandoned(attached):
                attached.set_closing()
                segments.remove(self.path, segments.identity(self.path))
                return True
        return False

    def _compare(self) -> None:
        """Checks that the broker, which exists, has what was given."""
        if not self.given_memory and self.data_dir is None and self.marks == (None, None):
            return  # `sync` and `store_full` are only given with `data_dir`
        with attachment.attached_to(self.path) as attached:
            limit, folder, marks = attached.facts().memory_limit, attached.data_dir, attached.memory_marks()
            sync, policy = attached.sync, attached.store_full_policy
        wanted = self.memory // segments.CHUNK * segments.CHUNK
        if self.given_memory and limit != wanted:
            text = f"memory={limit}, not {wanted}"
        elif self.data_dir is not None and folder != self.data_dir:
            text = f"data_dir={folder!r}, not {self.data_dir!r}"
        elif self.marks not in {(None, None), marks}:
            shown = "memory_high_watermark={}, memory_warning={}"
            text = f"{shown.format(*marks)}, not {shown.format(*self.marks)}"
        elif self.sync not in {None, sync}:
            text = f"sync={sync!r}, not {self.sync!r}"
        elif self.store_full not in {None, policy}:
            text = f"store_full={policy!r}, not {self.store_full!r}"
        else:
            return
        raise amqp_error(exceptions.PreconditionFailed, f"broker {self.name!r} exists with {text}")


def checked(  # noqa: PLR0917 - those of `Broker`
    name: str,
    memory: int | str = DEFAULT_MEMORY,
    marks: Marks = (None, None),
    data_dir: str | os.PathLike[str] | None = None,
    mode: int = 0o600,
    sync: str | None = None,
    store_full: str | None = None,
) -> Plan:
    """Checks what a broker is to be made with. The arguments are those of :class:`shmbroker.Broker`.

    Raises:
        ValueError: a value is not allowed.
    """
    name = check_name(name)
    size = settings.parse_size(memory)
    segments.plan(size)
    marks = checked_marks(*marks)
    if mode not in _MODES:
        shown = oct(mode) if isinstance(mode, int) else repr(mode)
        msg = f"mode={shown}: 0o600 or 0o660 is allowed"
        raise ValueError(msg)
    folder = None if data_dir is None else _folder_of(data_dir)
    _check_of_store("sync", sync, segments.SYNCS, folder)
    _check_of_store("store_full", store_full, segments.ON_FULL, folder)
    return Plan(name, size, memory is not DEFAULT_MEMORY, marks, folder, mode, sync, store_full)


def _check_of_store(name: str, value: object, values: tuple[str, ...], folder: str | None) -> None:
    if value is None or (value in values and folder is not None):
        return
    allowed = "one of " + ", ".join(map(repr, values)) if folder is not None else "only with data_dir it"
    msg = f"{name}={value!r}: {allowed} is allowed"
    raise ValueError(msg)


def _folder_of(data_dir: object) -> str:
    """Checks the folder of a store; returns it as an absolute path."""
    path = os.fspath(data_dir) if isinstance(data_dir, (str, os.PathLike)) else None
    if not isinstance(path, str) or not path or "\0" in path:
        msg = f"data_dir={data_dir!r}: the path of a folder is allowed, or None"
        raise ValueError(msg)
    return os.path.realpath(path)


def checked_marks(high_watermark: object, warning: object) -> tuple[float | None, float | None]:
    """Checks the two marks of memory; returns them as the core stores them."""
    marks: list[float | None] = []
    for name, mark in (("memory_high_watermark", high_watermark), ("memory_warning", warning)):
        if mark is not None and not (is_number(mark) and _LEAST_MARK <= mark <= 1):
            msg = f"{name}={mark!r}: a share from {_LEAST_MARK} to 1, or None, is allowed"
            raise ValueError(msg)
        marks.append(round(mark, 3) if is_number(mark) else None)
    if None not in marks and marks[1] > marks[0]:  # type: ignore[operator]
        msg = f"memory_warning={warning!r}: at most memory_high_watermark={high_watermark!r} is allowed"
        raise ValueError(msg)
    return marks[0], marks[1]
