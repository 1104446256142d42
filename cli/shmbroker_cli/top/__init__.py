# SPDX-License-Identifier: Apache-2.0
"""`shmbroker top`: the queues of a broker, live.

`model` computes rows and rates from samples, `view` holds what the person chose,
`screen` draws, `keyboard` reads keys, `command` ties them together.
"""
