# SPDX-License-Identifier: Apache-2.0
"""The command line of shmbroker."""

from shmbroker_cli.app import main

__all__ = ["main"]
