# SPDX-License-Identifier: Apache-2.0
"""Has Spark find ``.format("shmbroker")`` by itself: it looks for modules whose names begin with ``pyspark_``.

It imports each of them for every session that uses a Python data source, also where nobody wants ours.
"""

import contextlib

with contextlib.suppress(ImportError):  # no pyarrow, or no Python data sources in that Spark
    from shmbroker.spark.source import ShmBrokerDataSource as DefaultSource

    __all__ = ["DefaultSource"]
