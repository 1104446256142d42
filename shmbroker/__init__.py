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

from typing import TYPE_CHECKING, Any

from shmbroker._broker.connecting import connect
from shmbroker._topology.administration import DeclareOk
from shmbroker.address_settings import AddressSetting, AddressSettings, Explained
from shmbroker.broker import Broker
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
    DuplicateId,
    ExchangeError,
    ForkedConnectionError,
    FunctionFailed,
    GroupInUse,
    GroupRewound,
    InvalidSelector,
    LayoutMismatch,
    LeaseNotFound,
    MessageSettled,
    NackError,
    NeverFits,
    NoFreeChannels,
    NoServer,
    NotAllowed,
    NotFound,
    NotImplementedByBroker,
    NotStaged,
    OutOfMemory,
    PreconditionFailed,
    PublishRejected,
    RequestRefused,
    ResourceLocked,
    SchemaMismatch,
    StaleHandle,
    StoreError,
    StoreFull,
    StoreLost,
    StoreRefused,
    Timeout,
    UnroutableError,
    WorkerError,
)
from shmbroker.management import QueuedMessage, Retried
from shmbroker.message import Message, MessageBatch
from shmbroker.properties import BasicProperties
from shmbroker.queue import Queue
from shmbroker.settings import QueueSettings

if TYPE_CHECKING:
    from shmbroker.leasing import Group
    from shmbroker.leasing.group_state import groups
    from shmbroker.statistics import (
        BindingInfo,
        BrokerStatistics,
        ChannelInfo,
        ConnectionInfo,
        ConsumerInfo,
        ConsumerStatistics,
        ExchangeInfo,
        GroupInfo,
        QueueMemory,
        QueueStatistics,
        StoreStatistics,
    )
    from shmbroker.workers import WorkerPool

__version__ = "0.1.0"

__all__ = [
    "AccessRefused",
    "AddressSetting",
    "AddressSettings",
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
    "DuplicateId",
    "ExchangeError",
    "ExchangeInfo",
    "Explained",
    "ForkedConnectionError",
    "FunctionFailed",
    "Group",
    "GroupInUse",
    "GroupInfo",
    "GroupRewound",
    "InvalidSelector",
    "LayoutMismatch",
    "LeaseNotFound",
    "Message",
    "MessageBatch",
    "MessageSettled",
    "NackError",
    "NeverFits",
    "NoFreeChannels",
    "NoServer",
    "NotAllowed",
    "NotFound",
    "NotImplementedByBroker",
    "NotStaged",
    "OutOfMemory",
    "PreconditionFailed",
    "PublishRejected",
    "Queue",
    "QueueMemory",
    "QueueSettings",
    "QueueStatistics",
    "QueuedMessage",
    "RequestRefused",
    "ResourceLocked",
    "Retried",
    "Return",
    "SchemaMismatch",
    "StaleHandle",
    "StoreError",
    "StoreFull",
    "StoreLost",
    "StoreRefused",
    "StoreStatistics",
    "Timeout",
    "UnroutableError",
    "WorkerError",
    "WorkerPool",
    "brokers",
    "connect",
    "groups",
]


# Names that many programs never use, each with its module. `__getattr__` looks up such a name when a program first uses
# it. The package imports `shmbroker.leasing` and `shmbroker.workers` only then, but `shmbroker.statistics` in any case.
_LATER = {
    "BindingInfo": "shmbroker.statistics",
    "BrokerStatistics": "shmbroker.statistics",
    "ChannelInfo": "shmbroker.statistics",
    "ConnectionInfo": "shmbroker.statistics",
    "ConsumerInfo": "shmbroker.statistics",
    "ConsumerStatistics": "shmbroker.statistics",
    "ExchangeInfo": "shmbroker.statistics",
    "Group": "shmbroker.leasing",
    "GroupInfo": "shmbroker.statistics",
    "QueueMemory": "shmbroker.statistics",
    "QueueStatistics": "shmbroker.statistics",
    "StoreStatistics": "shmbroker.statistics",
    "WorkerPool": "shmbroker.workers",
    "groups": "shmbroker.leasing.group_state",
}
_MODULES = {"aio", "leasing", "statistics", "workers"}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Imports a name or a module when the program first uses it."""
    import importlib  # noqa: PLC0415

    if name in _MODULES:
        return importlib.import_module(f"shmbroker.{name}")
    if name in _LATER:
        found = globals()[name] = getattr(importlib.import_module(_LATER[name]), name)
        return found
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


def __dir__() -> list[str]:
    """Returns the names of the package, including those that are not imported yet."""
    return sorted({*globals(), *__all__})
