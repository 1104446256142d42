# SPDX-License-Identifier: Apache-2.0
"""What shmbroker costs in Spark, each time beside a counterpart that does the same without a broker.

    python -m benchmarks.spark [--runs 7] [--only source] [--json FILE]

Needs `pip install shmbroker[spark]` and a Java. The two ways of a comparison run in turn in one session, on the same
rows, and each run verifies what came out. A ratio is that of the medians.
"""
