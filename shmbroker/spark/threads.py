# SPDX-License-Identifier: Apache-2.0
"""Threads of Spark's driver: sets the active session of a thread before it writes.

Spark keeps an *active* session for each thread; only the thread that makes a session gets it as the active one. A write
looks for its Python data source, even a registered one, in the active session of its thread, and not in the session of
its table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def use_session(spark: SparkSession) -> None:
    """Makes a session the active one of this thread of the driver, so that writes of the thread find the source.

    Without it, ``write.format("shmbroker")`` and ``writeStream`` raise ``DATA_SOURCE_NOT_FOUND`` in any thread but the
    one that made the session. A session of Spark Connect does not need it, and is left unchanged.

    Args:
        spark: the session whose tables the thread writes.

    Raises:
        TypeError: ``spark`` is no session.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - a server needs no Spark
    from pyspark.sql.utils import is_remote  # noqa: PLC0415

    if is_remote():
        return
    if not isinstance(spark, SparkSession):
        msg = f"spark={spark!r}: a SparkSession is needed"
        raise TypeError(msg)
    session: Any = spark  # Spark has no public name for this
    SparkSession._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)  # noqa: SLF001
