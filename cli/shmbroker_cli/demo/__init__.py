# SPDX-License-Identifier: Apache-2.0
"""`shmbroker demo`: the standard library, taken apart by workers that get killed.

`files` finds the input, `analysis` counts one file, `workers` does so with messages,
`run` sends everything through the broker, `serial` does without it, `report` compares.
`files`, `serial` and `progress` serve `shmbroker demo-spark`, too.
"""
