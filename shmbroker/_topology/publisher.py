# SPDX-License-Identifier: Apache-2.0
"""Publishing to exchanges: which queues a message goes to, and how it is put there.

A route is found once for each exchange and routing key, and is valid while the version of the topology stays the same.
It is found anew for each message with the header CC or BCC, and for each message that a filter of a binding decides on.
While an exchange of type headers has a binding, it is found anew for each message with headers.

A message for one queue is put as by ``Queue.put``; a message for several queues is committed to all of them in one
step.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pwd
from typing import TYPE_CHECKING, Any

from shmbroker import exceptions
from shmbroker import properties as basic
from shmbroker._amqp.errors import amqp_error
from shmbroker._core import journal, native
from shmbroker._core.queue import PutOptions
from shmbroker._core.selecting import Selected
from shmbroker._core.transaction import Publication, commit_waiting
from shmbroker._dataclasses import replace
from shmbroker._process import locks
from shmbroker._topology.exchange import DEFAULT, check_publish
from shmbroker._topology.shared import exchanges_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from shmbroker._core.connection import CoreConnection
    from shmbroker._core.queue import CoreQueue
    from shmbroker.properties import BasicProperties

_MAX_ROUTES = 100_000
_MAX_PRIORITY = 255
_MODES = (1, 2)


@functools.cache
def _user(_pid: int) -> str:
    """Returns what `getpass.getuser` does; that module is slow to import."""
    named = (os.environ.get(name) for name in ("LOGNAME", "USER", "LNAME", "USERNAME"))
    return next(filter(None, named), None) or pwd.getpwuid(os.getuid()).pw_name


class Content:
    """The properties of a message to publish, checked and encoded.

    Raises:
        PreconditionFailed: user_id, expiration, delivery_mode or priority has a value that is not allowed; or the
            header CC or BCC is no array of strings.
        TypeError: a property cannot be encoded, see :func:`shmbroker.properties.encode`.
        ValueError: a property cannot be encoded, see there.
    """

    __slots__ = ("given", "headers", "keys", "options", "properties")

    def __init__(self, properties: BasicProperties | None) -> None:
        self.given = properties
        self.headers: dict[str, Any] | None = None
        self.keys: tuple[str, ...] = ()
        self.properties = b""
        self.options = (0.0, 0)
        if properties is not None:
            self._take(properties)

    def _take(self, given: BasicProperties) -> None:
        if given.user_id is not None and given.user_id != _user(os.getpid()):
            text = f"user_id property set to '{given.user_id}' but authenticated user was '{_user(os.getpid())}'"
            raise _refused(text)
        if given.delivery_mode is not None and given.delivery_mode not in _MODES:
            text = f"invalid delivery_mode {given.delivery_mode}: 1 or 2 is allowed"
            raise _refused(text)
        ttl = 0.0 if given.expiration is None else basic.seconds_of(given.expiration)
        priority = given.priority or 0
        if isinstance(priority, int) and not 0 <= priority <= _MAX_PRIORITY:
            text = f"invalid priority {priority}: 0 to {_MAX_PRIORITY} is allowed"
            raise _refused(text)
        self.properties = basic.encode(given)
        self.options = (ttl, priority)
        headers = given.headers
        if headers is not None:
            self.keys = (*_keys(headers, "CC"), *_keys(headers, "BCC"))
            self.headers = headers
            if "BCC" in headers:
                shown = {name: value for name, value in headers.items() if name != "BCC"}
                self.properties = basic.encode(replace(given, headers=shown))

    def put_options(self, exchange: str, routing_key: str) -> PutOptions:
        """Builds the options of a put."""
        ttl, priority = self.options
        return PutOptions(ttl, 0, priority, routing_key.encode(), self.properties, exchange.encode())


def _refused(text: str) -> exceptions.PreconditionFailed:
    return amqp_error(exceptions.PreconditionFailed, text)


def _keys(headers: dict[str, Any], name: str) -> tuple[str, ...]:
    found = headers.get(name, ())
    if not isinstance(found, (list, tuple)) or not all(isinstance(key, str) for key in found):
        text = f"unacceptable_type_in_{name}_header: {found!r} is not an array of strings"
        raise _refused(text)
    return tuple(found)


PLAIN = Content(None)


def _content(properties: object) -> Content:
    if not isinstance(properties, basic.BasicProperties):
        msg = f"properties={properties!r}: BasicProperties are needed"
        raise TypeError(msg)
    return Content(properties)


class Publishing:
    """Publishes the messages of one connection to exchanges.

    Args:
        core: the connection.
        open_queue: takes the name of a queue and returns the core's handle of that queue; ``None``: there is no such
            queue. The connection keeps the handle open.
        auto_create: makes the queue of a name, if there is none and its address settings say so; returns whether it
            made one.
    """

    def __init__(
        self,
        core: CoreConnection,
        open_queue: Callable[[str], CoreQueue | None],
        auto_create: Callable[[str], bool],
    ) -> None:
        self.core, self._open, self._auto_create = core, open_queue, auto_create
        self._exchanges = exchanges_of(core)
        self.compiled = native.Publisher(core.address, core)
        self._publish_with = self.compiled.publish_with
        self._last: tuple[object, Content] = (None, PLAIN)  # consecutive messages often have the same properties
        self._lock = locks.lock()
        self._targets: dict[tuple[str, str], tuple[CoreQueue, ...]] = {}
        self._version = 0
        self._headers_count = False

    def _renew(self) -> None:
        version = journal.version(self.core)
        if version != self._version or len(self._targets) > _MAX_ROUTES:
            self.compiled.renew(0, self._headers_count)
            self._targets = {}
            self._headers_count = self._exchanges.looks_at_headers(self.core)
            self.compiled.renew(version, self._headers_count)
            self._version = version

    def check(self, exchange: str) -> None:
        """Checks that clients may publish to an exchange.

        Raises:
            NotFound: there is no such exchange.
            AccessRefused: the exchange is internal.
        """
        check_publish(self._exchanges.exchange(self.core, exchange))

    def targets(self, exchange: str, routing_key: str, content: Content) -> tuple[CoreQueue, ...]:
        """Returns the queues that get a message.

        Raises:
            NotFound: there is no such exchange.
            AccessRefused: the exchange is internal.
        """
        with self._lock:  # no other thread may adopt a newer topology before this route is stored
            self._renew()
            by_key = not content.keys and not (content.headers and self._headers_count)
            found = self._targets.get((exchange, routing_key)) if by_key else None
            if found is None:
                table = self._exchanges
                check_publish(table.exchange(self.core, exchange))
                # A signal handler that changes the topology and publishes renews the routes. Then this route is
                # outdated. It is stored in the dictionaries from before, which nothing uses any more.
                targets, known = self._targets, self.compiled.routes.setdefault(exchange, {})
                selected = Selected(content.properties, content.options[1])
                queues = table.route(self.core, exchange, routing_key, content.headers, content.keys, selected.by)
                opened = (self._reach(queue.name, queue.incarnation) for queue in queues)
                found = tuple(queue for queue in opened if queue is not None)
                for queue in found:
                    with contextlib.suppress(exceptions.NotFound):  # deleted: the commit skips it
                        queue.changes_lives()  # updates `has_ttl`, which a new configuration may change
                if by_key and not selected.asked:
                    targets[exchange, routing_key] = found
                    self._learn(known, exchange, routing_key, found)
            return found

    def targets_or_created(self, exchange: str, routing_key: str, content: Content) -> tuple[CoreQueue, ...]:
        """Returns the queues that get a message.

        Makes those that the default exchange does not find, if the settings of their addresses say so.

        Raises:
            NotFound: there is no such exchange.
            AccessRefused: the exchange is internal.
            Timeout: a queue is to be made, and the topology lock is not free in time.
        """
        found = self.targets(exchange, routing_key, content)
        while exchange == DEFAULT and (content.keys or not found):
            made = [key for key in (routing_key, *content.keys) if self._auto_create(key)]
            if not made:
                break
            found = self.targets(exchange, routing_key, content)
        return found

    def forget_routes(self) -> None:
        """Makes the next call of `targets` discard all routes, so that each is looked up again."""
        with self._lock:
            self._version = 0

    def _reach(self, name: str, incarnation: int) -> CoreQueue | None:
        queue = self._open(name)
        return queue if queue is not None and incarnation in {0, queue.incarnation} else None

    @staticmethod
    def _learn(known: dict[str, Any], exchange: str, routing_key: str, queues: tuple[CoreQueue, ...]) -> None:
        """Adds a route to the known routes of an exchange, if compiled code can take it.

        Compiled code gives a message the same options in all queues. So a route to several queues must not lead to a
        queue that changes the life of its messages.
        """
        if 0 < len(queues) <= native.MOST_QUEUES and (len(queues) == 1 or not any(queue.has_ttl for queue in queues)):
            options = PLAIN.put_options(exchange, routing_key)
            addresses = tuple(queue.address for queue in queues)
            route = native.Route(addresses, options.address, (queues, options))
            known[routing_key] = route

    def publish_described(
        self,
        exchange: str,
        routing_key: str,
        body: Any,  # noqa: ANN401
        properties: BasicProperties | None,
    ) -> int:
        """Publishes a message on the fast path, with properties or without.

        Returns 0 if the message is published. Any other number: nothing was published, and the caller must use the slow
        path.
        """
        given, content = self._last
        if properties is None:
            content = PLAIN
        elif properties is not given:
            try:
                content = _content(properties)
            except (exceptions.PreconditionFailed, TypeError, ValueError):
                return -1
            if content.headers is None:  # the application may change the headers later
                self._last = (properties, content)
        if content.keys:
            return -1
        ttl, priority = content.options
        ttl_ns = int(ttl * native.NANOSECONDS)
        has_headers = bool(content.headers)
        return self._publish_with(exchange, routing_key, body, content.properties, ttl_ns, priority, has_headers)

    def publications(
        self,
        exchange: str,
        routing_key: str,
        body: Any,  # noqa: ANN401
        content: Content,
        targets: tuple[CoreQueue, ...],
    ) -> list[Publication]:
        """Makes the publications of a message that goes to several queues.

        A queue that changes the life of its messages gets a publication of its own; all other queues share one. A
        message that only a consumer gets that waits for it has one for each queue.
        """
        options = content.put_options(exchange, routing_key)
        is_for_now = content.options[0] == basic.LIFE_NOW
        apart = tuple(queue for queue in targets if is_for_now or queue.has_ttl)
        shared = tuple(queue for queue in targets if queue not in apart)
        found = [Publication(body, shared, options)] if shared else []
        found += [Publication(body, (queue,), options) for queue in apart]
        return found

    def publish(  # noqa: PLR0917 - what a message consists of
        self,
        exchange: str,
        routing_key: str,
        body: Any,  # noqa: ANN401
        size: int,
        content: Content,
        until: int,
    ) -> int:
        """Publishes a message; returns the number of queues that it was routed to.

        The number includes queues that do not get the message: full queues with overflow="drop"; and, of several
        queues, those that were deleted meanwhile.

        Raises:
            queue.Full: a queue with overflow="block" has no room in time.
            OutOfMemory: there is no memory in time.
            NeverFits: the body can never fit. If the memory is what is too small, it is also an ``OutOfMemory``.
            PublishRejected: a queue rejected the message. The other queues got it.
        """
        while True:
            targets = self.targets_or_created(exchange, routing_key, content)
            if not targets:
                return 0
            try:
                if len(targets) == 1:
                    targets[0].put_with(body, size, content.put_options(exchange, routing_key), until)
                else:
                    publications = self.publications(exchange, routing_key, body, content, targets)
                    self._commit(publications, until)
            except exceptions.NotFound:
                self.forget_routes()  # a queue was deleted after the routing
            else:
                return len(targets)

    def _commit(self, publications: list[Publication], until: int) -> None:
        """Commits the publications of one message without the queues that reject it.

        Each of those that sends what it rejects to its dead-letter exchange gets the message as a dead one in the same
        commit.

        Raises:
            PublishRejected: a queue rejected the message; the commit has happened.
        """
        rejected: exceptions.PublishRejected | None = None
        while publications:
            try:
                commit_waiting(self.core, publications, [], until)
                break
            except exceptions.PublishRejected as error:
                rejected = error
                publications = list(_without(error.queue_name, publications))
        if rejected is not None:
            raise rejected


def _without(name: str, publications: list[Publication]) -> Iterator[Publication]:
    """Yields the publications without a queue, and the one that makes the message a dead letter of that queue."""
    for one in publications:
        left = tuple(queue for queue in one.targets if queue.name != name)
        if left:
            yield Publication(one.body, left, one.options)
        for queue in one.targets:
            if queue.name == name and queue.dead_letters_rejected():
                yield Publication(one.body, (queue,), one.options.as_dead())
