# SPDX-License-Identifier: Apache-2.0
"""`shmbroker demo-spark`: the standard library through Apache Spark, whose driver gets killed.

`measures` says what is found out about one file, in plain Python. Here it is done in two places: `query` has the part
that DataFrames do, `scorer` the long-lived process that does the rest. `driver` runs the query, `run` sends the files,
starts drivers and kills one, `checkpoint` reads what Spark noted, `report` compares with a serial run.
"""
