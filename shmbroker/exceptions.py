# SPDX-License-Identifier: Apache-2.0
"""Errors of the broker and of its clients.

Those that a broker of the AMQP 0-9-1 family would send carry its code and text; the others say what was wrong, with
which value, and what is allowed.
"""

from __future__ import annotations

import queue


class BrokerError(Exception):
    """An error with an AMQP reply code.

    Args:
        code: the AMQP 0-9-1 reply code, such as 404.
        text: what happened, in RabbitMQ's words where it has some.
    """

    default_code = 541

    def __init__(self, code: int | None = None, text: str = "") -> None:
        self.code = self.default_code if code is None else code
        self.text = text
        super().__init__(self.code, text)

    def __str__(self) -> str:
        return f"{self.code} {self.text}" if self.text else str(self.code)


class ConnectionClosedByBroker(BrokerError):
    """The broker ended the connection."""

    default_code = 320


class ChannelClosedByBroker(BrokerError):
    """The broker ended the channel."""

    default_code = 406


class NotFound(ChannelClosedByBroker):
    """There is no such queue or exchange."""

    default_code = 404


class AccessRefused(ChannelClosedByBroker):
    """Not allowed on this object."""

    default_code = 403


class ResourceLocked(ChannelClosedByBroker):
    """Somebody else has exclusive use of the queue."""

    default_code = 405


class PreconditionFailed(ChannelClosedByBroker):
    """The object is there, but not as it was asked for."""

    default_code = 406


class GroupInUse(ResourceLocked):
    """Another user has taken the consumer group, or nobody attached it here."""


class LeaseNotFound(NotFound):
    """A lease of a consumer group is not there, or not whole: its messages are gone."""


class StaleHandle(NotFound):
    """The message that a handle stands for is gone: it was acknowledged, consumed or has expired."""


class GroupRewound(PreconditionFailed):
    """What is asked of a consumer group lies before what it has acknowledged: somebody else went on with it."""


class NotAllowed(ConnectionClosedByBroker):
    """The operation breaks a rule of the connection."""

    default_code = 530


class NotImplementedByBroker(ConnectionClosedByBroker):
    """The broker does not do this."""

    default_code = 540


class BrokerNotFound(BrokerError):
    """There is no broker of that name."""

    default_code = 404


class LayoutMismatch(BrokerError):
    """The shared memory was made by another version, or by something else."""


class CorruptSegment(BrokerError):
    """The shared memory contradicts itself."""


class ConnectionClosed(BrokerError):
    """The connection (or consumer) was closed here."""

    default_code = 504


class ChannelClosed(BrokerError):
    """The channel was closed here."""

    default_code = 504


class NoFreeChannels(BrokerError):
    """Every channel number is in use."""

    default_code = 530


class ForkedConnectionError(BrokerError):
    """A connection was used in a process that was forked after it was opened: connect anew there."""

    default_code = 504


class NackError(BrokerError):
    """The broker did not accept a published message."""

    default_code = 406


class UnroutableError(BrokerError):
    """A mandatory message had nowhere to go."""

    default_code = 312


class NotStaged(BrokerError):
    """What is to be published is not there: an attempt was dropped, or has expired."""

    default_code = 404


class OutOfMemory(queue.Full):
    """The broker's memory, or /dev/shm, has no room for the message.

    Args:
        text: what is used, the limit, and the queue that holds most.
    """


class NeverFits(queue.Full):
    """The queue, or the broker, can never have room for the message: waiting does not help.

    Args:
        text: the size of the message, and what is allowed.
    """


class NeverFitsMemory(NeverFits, OutOfMemory):
    """A :class:`NeverFits` because of the broker's memory, so an :class:`OutOfMemory` as well."""


class Timeout(TimeoutError):
    """The operation did not come through in its time; nothing was done."""


class WorkerError(BrokerError):
    """The workers of a pool cannot begin: they cannot import the function, or the main program."""


class MessageSettled(BrokerError):
    """The message was acknowledged, rejected or returned already."""

    default_code = 406


class ExchangeError(BrokerError):
    """Batches could not be handed over to a server, or its answer not back: `shmbroker.spark.exchange`."""


class NoServer(ExchangeError):
    """Nobody serves the queue of requests, or who did is dead and nobody took over."""

    default_code = 313


class FunctionFailed(ExchangeError):
    """The server's function raised; the text is the server's."""


class RequestRefused(ExchangeError):
    """The server does not try a request again that several servers died of."""

    default_code = 403


class SchemaMismatch(ExchangeError):
    """The answer has other columns than was said."""

    default_code = 406
