# SPDX-License-Identifier: Apache-2.0
"""Lets Spark find ``.format("shmbroker")`` by itself: Spark looks for modules whose names begin with ``pyspark_``.

Spark imports each such module in every session that uses a Python data source, even if the session does not use ours.
"""

import contextlib

with contextlib.suppress(ImportError):  # no pyarrow, or no Python data sources in that Spark
    from shmbroker.spark.source import ShmBrokerDataSource as DefaultSource

    __all__ = ["DefaultSource"]
