# SPDX-License-Identifier: Apache-2.0
"""A message broker for the processes of one machine, in shared memory.

>>> import shmbroker
>>> with shmbroker.connect("doctest-tour") as connection:
...     jobs = connection.queue("jobs")
...     jobs.put(b"hello")
...     with jobs.get() as message:
...         bytes(message)
b'hello'
>>> shmbroker.Broker("doctest-tour").stop(purge=True)
"""

from typing import Any

from shmbroker._topology.administration import DeclareOk
from shmbroker.broker import Broker, connect
from shmbroker.broker import names as brokers
from shmbroker.channel import Channel
from shmbroker.channel.deliveries import Delivery, Return
from shmbroker.connection import Connection
from shmbroker.consumer import Consumer
from shmbroker.exceptions import (
    AccessRefused,
    BrokerError,
    BrokerNotFound,
    ChannelClosed,
    ChannelClosedByBroker,
    ConnectionClosed,
    ConnectionClosedByBroker,
    CorruptSegment,
    ExchangeError,
    ForkedConnectionError,
    FunctionFailed,
    GroupInUse,
    GroupRewound,
    LayoutMismatch,
    LeaseNotFound,
    MessageSettled,
    NackError,
    NoFreeChannels,
    NoServer,
    NotAllowed,
    NotFound,
    NotImplementedByBroker,
    NotStaged,
    OutOfMemory,
    PreconditionFailed,
    RequestRefused,
    ResourceLocked,
    SchemaMismatch,
    StaleHandle,
    Timeout,
    UnroutableError,
    WorkerError,
)
from shmbroker.leasing import Group
from shmbroker.leasing.state import groups
from shmbroker.message import Message, MessageBatch
from shmbroker.properties import BasicProperties
from shmbroker.queue import Queue
from shmbroker.settings import QueueSettings
from shmbroker.statistics import (
    BindingInfo,
    BrokerStatistics,
    ChannelInfo,
    ConnectionInfo,
    ConsumerInfo,
    ConsumerStatistics,
    ExchangeInfo,
    GroupInfo,
    QueueStatistics,
)
from shmbroker.workers import WorkerPool

__version__ = "0.1.0"

__all__ = [
    "AccessRefused",
    "BasicProperties",
    "BindingInfo",
    "Broker",
    "BrokerError",
    "BrokerNotFound",
    "BrokerStatistics",
    "Channel",
    "ChannelClosed",
    "ChannelClosedByBroker",
    "ChannelInfo",
    "Connection",
    "ConnectionClosed",
    "ConnectionClosedByBroker",
    "ConnectionInfo",
    "Consumer",
    "ConsumerInfo",
    "ConsumerStatistics",
    "CorruptSegment",
    "DeclareOk",
    "Delivery",
    "ExchangeError",
    "ExchangeInfo",
    "ForkedConnectionError",
    "FunctionFailed",
    "Group",
    "GroupInUse",
    "GroupInfo",
    "GroupRewound",
    "LayoutMismatch",
    "LeaseNotFound",
    "Message",
    "MessageBatch",
    "MessageSettled",
    "NackError",
    "NoFreeChannels",
    "NoServer",
    "NotAllowed",
    "NotFound",
    "NotImplementedByBroker",
    "NotStaged",
    "OutOfMemory",
    "PreconditionFailed",
    "Queue",
    "QueueSettings",
    "QueueStatistics",
    "RequestRefused",
    "ResourceLocked",
    "Return",
    "SchemaMismatch",
    "StaleHandle",
    "Timeout",
    "UnroutableError",
    "WorkerError",
    "WorkerPool",
    "brokers",
    "connect",
    "groups",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """``shmbroker.aio`` is imported when it is first used: asyncio takes longer to import than all the rest."""
    if name == "aio":
        import importlib  # noqa: PLC0415

        return importlib.import_module("shmbroker.aio")
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
