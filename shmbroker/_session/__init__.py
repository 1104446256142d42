# SPDX-License-Identifier: Apache-2.0
"""What the objects of a connection share; front ends, such as :mod:`shmbroker.aio`, stand on it."""
