# SPDX-License-Identifier: Apache-2.0
"""Threads of Spark's driver: what one of them has to say before it writes.

Spark keeps an *active* session for each thread, that of the thread which made it. A write looks for sources that are
written in Python in the active session of its thread, registered or not, and not in that of its table.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def use_session(spark: SparkSession) -> None:
    """Makes a session the active one of this thread of the driver, so that what the thread writes finds the source.

    Without it, ``write.format("shmbroker")`` and ``writeStream`` of any thread but the one that made the session end
    with ``DATA_SOURCE_NOT_FOUND``. A session of Spark Connect has no use for it, and is left as it is.

    Args:
        spark: the session whose tables the thread writes.

    Raises:
        TypeError: it is no session.
    """
    from pyspark.sql import SparkSession  # noqa: PLC0415 - what serves needs no Spark
    from pyspark.sql.utils import is_remote  # noqa: PLC0415

    if is_remote():
        return
    if not isinstance(spark, SparkSession):
        msg = f"spark={spark!r}: a SparkSession is needed"
        raise TypeError(msg)
    session: Any = spark  # Spark has no public name for this
    SparkSession._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)  # noqa: SLF001
