# SPDX-License-Identifier: Apache-2.0
"""Errors of the broker and of its clients.

An error that RabbitMQ, an AMQP 0-9-1 broker, would send has RabbitMQ's code and text. The text of any other error says
what was wrong, with which value, and what is allowed.
"""

from __future__ import annotations

import queue


class BrokerError(Exception):
    """An error with an AMQP reply code.

    Args:
        code: the AMQP 0-9-1 reply code, such as 404.
        text: what happened, in RabbitMQ's words where RabbitMQ has a text.
    """

    default_code = 541

    def __init__(self, code: int | None = None, text: str = "") -> None:
        self.code = self.default_code if code is None else code
        self.text = text
        super().__init__(self.code, text)

    def __str__(self) -> str:
        return f"{self.code} {self.text}" if self.text else str(self.code)


class ConnectionClosedByBroker(BrokerError):
    """The broker closed the connection."""

    default_code = 320


class ChannelClosedByBroker(BrokerError):
    """The broker closed the channel; for a call that uses no channel: the broker refused the call."""

    default_code = 406


class NotFound(ChannelClosedByBroker):
    """The queue or the exchange does not exist."""

    default_code = 404


class AccessRefused(ChannelClosedByBroker):
    """The operation is not allowed on this object."""

    default_code = 403


class ResourceLocked(ChannelClosedByBroker):
    """The queue is in use by others.

    Another connection has exclusive use of it; a channel declares it with another ``exclusive``; or it has as many
    consumers as its ``max_consumers`` allows.
    """

    default_code = 405


class PreconditionFailed(ChannelClosedByBroker):
    """The object exists with other settings, or its state forbids the operation, or an argument is invalid."""

    default_code = 406


class GroupInUse(ResourceLocked):
    """Another user has taken the consumer group, the group was released, or this :class:`Group` has not attached it."""


class LeaseNotFound(NotFound):
    """A lease of a consumer group does not exist, or some of its messages are gone."""


class StaleHandle(NotFound):
    """The message that a Spark handle (``payload=handle``) names is gone: acknowledged, dropped, expired or deleted."""


class GroupRewound(PreconditionFailed):
    """The given number of a lease is below that of the last lease that the consumer group acknowledged.

    Another user continued with the group, or the caller has an old checkpoint.
    """


class NotAllowed(ConnectionClosedByBroker):
    """The operation breaks a rule of the connection, or exceeds a limit of the broker."""

    default_code = 530


class NotImplementedByBroker(ConnectionClosedByBroker):
    """The broker does not implement the operation."""

    default_code = 540


class BrokerNotFound(BrokerError):
    """No broker has that name."""

    default_code = 404


class LayoutMismatch(BrokerError):
    """The shared memory has the layout of another version, is truncated, or is not a broker's."""


class CorruptSegment(BrokerError):
    """The shared memory contradicts itself."""


class StoreError(BrokerError):
    """The store on disk is missing, damaged, of another format, in use by another broker, or cannot be written."""


class StoreLost(UserWarning):
    """The store of a broker was gone when the broker was purged, so its messages are lost."""


class ConnectionClosed(BrokerError):
    """The connection, the consumer, or the handle of the queue was closed in this process."""

    default_code = 504


class ChannelClosed(BrokerError):
    """The channel was closed, by this process or by an error."""

    default_code = 504


class NoFreeChannels(BrokerError):
    """The connection has as many channels open as its ``channel_max`` allows."""

    default_code = 530


class ForkedConnectionError(BrokerError):
    """A process used a connection that was opened before the process was forked: it must open another one."""

    default_code = 504


class NackError(BrokerError):
    """The broker did not accept a published message."""

    default_code = 406


class UnroutableError(BrokerError):
    """A mandatory message was routed to no queue."""

    default_code = 312


class NotStaged(BrokerError):
    """Messages of a staged attempt (:mod:`shmbroker.staging`) are gone: dropped, published or expired.

    Or they are still not ready after a while.
    """

    default_code = 404


class OutOfMemory(queue.Full):
    """The broker's memory, /dev/shm, or the address space of this process has no room: for a message, or a structure.

    Structures include the broker itself, connections, queues, exchanges, bindings, consumers, and the records of held
    messages. A read of Spark also raises this error if a message is too long for a column.

    Args:
        text: what has no room, and usually the memory used, the limit, and the queue that holds most.
    """


class NeverFits(queue.Full):
    """The queue, or the broker, can never have room for the message; waiting does not help.

    Args:
        text: the size of the message, and the allowed size.
    """


class NeverFitsMemory(NeverFits, OutOfMemory):
    """The broker's memory can never have room for the message: a :class:`NeverFits` and an :class:`OutOfMemory`."""


class InvalidSelector(ValueError):
    """A selector, or a name in one, is not in the language of selectors.

    Args:
        text: the selector, the place, what is wrong there, and what is allowed.
        line: the line of the selector, from 1 on.
        column: the character in the line, from 1 on.
    """

    def __init__(self, text: str, line: int = 1, column: int = 1) -> None:
        super().__init__(text, line, column)
        self.line = line
        self.column = column

    def __str__(self) -> str:
        return str(self.args[0])


class PublishRejected(queue.Full):
    """A full queue whose overflow is ``reject-publish`` or ``reject-publish-dlx`` rejected the message immediately.

    Args:
        text: the queue, how many messages are ready, and its limits.
        queue_name: the name of the queue.
    """

    def __init__(self, text: str, queue_name: str) -> None:
        self.queue_name = queue_name
        super().__init__(text)

    def __reduce__(self) -> tuple[type[PublishRejected], tuple[str, str]]:
        return type(self), (self.args[0], self.queue_name)


class DuplicateId(BrokerError):
    """A transaction publishes a message whose id a queue knows, or one id twice: nothing of the transaction was done.

    Args:
        text: the queue, and what is allowed.
        queue_name: the name of the queue.
    """

    default_code = 406

    def __init__(self, text: str, queue_name: str) -> None:
        self.queue_name = queue_name
        super().__init__(text=text)

    def __reduce__(self) -> tuple[type[DuplicateId], tuple[str, str]]:
        return type(self), (self.text, self.queue_name)


class StoreFull(queue.Full):
    """The disk of the broker's store is full, so a durable queue takes no message; the message is in no queue.

    Args:
        text: the queue, the folder of the store, and how much room its disk has.
    """


class StoreRefused(StoreFull):
    """The same, in a broker with ``store_full="refuse"``, whose publishers do not wait for room on the disk."""


FINAL = (NeverFits, PublishRejected, StoreRefused)
"""The kinds of ``queue.Full`` that a wait cannot help."""


class Timeout(TimeoutError):
    """The operation did not complete in time.

    A topology change that did not get its lock has changed nothing. Other operations may have had effects:
    ``Broker.stop(purge=True)`` that waited for the housekeeper has removed the memory, and unconfirmed messages may
    still be confirmed.
    """


class WorkerError(BrokerError):
    """The workers of a pool cannot start: they cannot import the function, or the main program."""


class MessageSettled(BrokerError):
    """The message was acknowledged, rejected or returned already."""

    default_code = 406


class ExchangeError(BrokerError):
    """`shmbroker.spark.exchange` could not hand a request to a server, or an answer back."""


class NoServer(ExchangeError):
    """No server serves the queue of requests, or the server has ended and no other server has taken over."""

    default_code = 313


class FunctionFailed(ExchangeError):
    """The server's function raised; the text is the server's."""


class RequestRefused(ExchangeError):
    """The server refuses the request, because several servers died while they processed it."""

    default_code = 403


class SchemaMismatch(ExchangeError):
    """The columns of an answer, a table or a batch are not those that the caller declared or the operation needs.

    Also raised if a value does not fit its column, such as a null, if a queue has no schema or another one, or if a
    message is not a batch.
    """

    default_code = 406
