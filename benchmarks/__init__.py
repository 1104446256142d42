# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of shmbroker and its peers; `python -m benchmarks --help`."""
