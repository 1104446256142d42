# SPDX-License-Identifier: Apache-2.0
"""The query: the queues that it reads and writes, and the measures that DataFrames compute."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmbroker_cli.demo_spark.measures import BLANK, COMMENT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FILES, RESULTS = "files", "results"
REQUESTS, REPLIES = "score", "scored"
GROUP = "demo-spark"
SOURCE, PATH = "source", "path"
SCORED = (
    "path string, size long, lines long, blank long, comments long, longest long, "
    "tokens long, vocabulary long, volume double, unread long"
)
"""The columns of the scorer's answers."""


def text_measures(files: DataFrame) -> DataFrame:
    """Return one row for each file: its path, the measures of its text, and its source.

    Args:
        files: Messages: the path is the key, the source is the value.
    """
    from pyspark.sql import functions  # noqa: PLC0415 (the names above are needed where there is no Spark, too)

    lines = functions.split(functions.decode("value", "ISO-8859-1"), "\n")  # this makes each byte one character
    return files.select(
        functions.decode("key", "UTF-8").alias(PATH),
        functions.octet_length("value").cast("long").alias("size"),
        functions.size(lines).cast("long").alias("lines"),
        functions.size(functions.filter(lines, lambda line: line.rlike(BLANK))).cast("long").alias("blank"),
        functions.size(functions.filter(lines, lambda line: line.rlike(COMMENT))).cast("long").alias("comments"),
        functions.array_max(functions.transform(lines, functions.length)).cast("long").alias("longest"),
        functions.column("value").alias(SOURCE),
    )


def results(scored: DataFrame) -> DataFrame:
    """Return rows as messages: the path is the key, all else is a JSON object.

    Args:
        scored: The answers of the scorer: one row for each file.
    """
    from pyspark.sql import functions  # noqa: PLC0415 (as above)

    measures = functions.struct(*(name for name in scored.columns if name != PATH))
    return scored.select(functions.column(PATH).alias("key"), functions.to_json(measures).alias("value"))
