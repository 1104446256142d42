# SPDX-License-Identifier: Apache-2.0
"""The state that the objects of a connection share, also those of front ends such as :mod:`shmbroker.aio`."""
