# SPDX-License-Identifier: Apache-2.0
"""`shmbroker demo-spark`: the standard library through Apache Spark, whose driver gets killed.

`measures` computes all measures of a file in plain Python. With Spark, two places compute them: `query` has those
that DataFrames compute, and `scorer` is the long-lived process that computes the rest. `driver` runs the query. `run`
sends the files, starts drivers and kills one. `checkpoint` reads what Spark noted, and `report` compares the results
with those of a serial run.
"""
