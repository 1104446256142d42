# SPDX-License-Identifier: Apache-2.0
"""Is there a Spark to test with? Tests named `test_arrow_...` need pyarrow only, all others a session."""

from __future__ import annotations

from typing import Any


def test_there_is_a_session(spark: Any) -> None:  # noqa: ANN401
    """Spark is 4.0 or newer, and its Java answers."""
    assert int(spark.version.partition(".")[0]) >= 4
    assert spark.range(3).count() == 3
