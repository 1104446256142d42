# SPDX-License-Identifier: Apache-2.0
"""`shmbroker demo`: workers, one of which is killed, analyse the standard library.

`files` finds the source files, `analysis` counts what is in a file, and `workers` does so
for each message. `run` sends all files through the broker, `left` reads what the run left
in other queues, `serial` analyses the files without the broker, and `report` compares the
results. `restart` has the last part: the restart of a broker with a store. `shmbroker demo-spark` also uses `files`,
`serial` and `progress`.
"""
