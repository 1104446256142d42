# SPDX-License-Identifier: Apache-2.0
"""`shmbroker top`: the queues, exchanges, channels, clients and consumers of a broker, live.

`fields` says which columns there are, `model` computes rows and rates from samples, `view` holds what the person chose,
`screen` draws, `keyboard` reads keys, `command` ties them together.
"""
