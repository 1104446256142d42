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

from shmbroker.broker import Broker, connect
from shmbroker.broker import names as brokers
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
    ForkedConnectionError,
    LayoutMismatch,
    MessageSettled,
    NackError,
    NoFreeChannels,
    NotAllowed,
    NotFound,
    NotImplementedByBroker,
    OutOfMemory,
    PreconditionFailed,
    ResourceLocked,
    Timeout,
    UnroutableError,
)
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
    "ExchangeInfo",
    "ForkedConnectionError",
    "LayoutMismatch",
    "Message",
    "MessageBatch",
    "MessageSettled",
    "NackError",
    "NoFreeChannels",
    "NotAllowed",
    "NotFound",
    "NotImplementedByBroker",
    "OutOfMemory",
    "PreconditionFailed",
    "Queue",
    "QueueSettings",
    "QueueStatistics",
    "ResourceLocked",
    "Timeout",
    "UnroutableError",
    "WorkerPool",
    "brokers",
    "connect",
]
