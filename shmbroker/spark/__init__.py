# SPDX-License-Identifier: Apache-2.0
"""shmbroker and Apache Spark: ``pip install shmbroker[spark]``; Spark itself needs a system Java 17 or newer.

``.format("shmbroker")`` reads queues and writes to them (:class:`ShmBrokerDataSource`; Spark finds it by itself).
:func:`exchange` passes the batches of a DataFrame to a long-lived process on the executor's host, which runs
:func:`serve`; that process needs no Spark. With :func:`register_schema` a queue has record batches as messages, which
:func:`put_batch` puts. :func:`resolve` finds the bodies of rows that were read with ``payload=handle``.
:func:`header_value` decodes headers that are no text. A thread of the driver that did not make the session calls
:func:`use_session` before it writes to queues.
"""

from typing import TYPE_CHECKING, Any

from shmbroker.spark.handover.plan import exchange
from shmbroker.spark.handover.server import serve
from shmbroker.spark.headers import header_value
from shmbroker.spark.registered import put_batch, register_schema, registered_schema
from shmbroker.spark.resolving import resolve
from shmbroker.spark.threads import use_session

if TYPE_CHECKING:
    from shmbroker.spark.source import ShmBrokerDataSource

__all__ = [
    "ShmBrokerDataSource",
    "exchange",
    "header_value",
    "put_batch",
    "register_schema",
    "registered_schema",
    "resolve",
    "serve",
    "use_session",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Imports ``ShmBrokerDataSource`` when it is first used: it needs Spark, and importing this package must not."""
    if name == "ShmBrokerDataSource":
        from shmbroker.spark.source import ShmBrokerDataSource  # noqa: PLC0415

        return ShmBrokerDataSource
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)
