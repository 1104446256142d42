# SPDX-License-Identifier: Apache-2.0
"""The broker that a Python worker of Spark uses, and its connection: one for each process and broker."""

from __future__ import annotations

import os
import resource
import socket

import shmbroker
from shmbroker._process import connections

VARIABLE = "SHMBROKER_BROKER"
_DEFAULT = "default"


def broker_name(option: str | None) -> str:
    """Returns the broker's name: the option, else ``SHMBROKER_BROKER`` in this process's environment, else "default".

    Call it where the broker is used: Spark's executors have their own environment, not the driver's.
    """
    return option or os.environ.get(VARIABLE) or _DEFAULT


def connection_to(broker: str) -> shmbroker.Connection:
    """Returns the connection that all code in this process shares.

    A worker may outlive the memory of a broker, which then was made again from its store: it connects again.

    Raises:
        BrokerNotFound: there is no such broker on this host.
        OutOfMemory: its memory cannot be mapped in this process, or has no room for a connection.
    """
    return connections.shared(_connected, broker)


def _connected(broker: str) -> shmbroker.Connection:
    try:
        return shmbroker.connect(broker, create=False, client_name=f"spark:{os.getpid()}")
    except shmbroker.BrokerNotFound:
        text = (
            f"NOT_FOUND - no broker {broker!r} on host {socket.gethostname()!r}: start one there, or name another with "
            f"broker=, or with {VARIABLE} in the environment of Spark's executors"
        )
        raise shmbroker.BrokerNotFound(404, text) from None
    except shmbroker.OutOfMemory as error:
        if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
            raise
        text = (
            f"{error}; spark.executor.pyspark.memory limits the memory of Spark's Python workers: "
            "remove that limit, or raise it"
        )
        raise shmbroker.OutOfMemory(text) from None
