# SPDX-License-Identifier: Apache-2.0
"""Making sure that a broker has a housekeeper."""

from __future__ import annotations

import contextlib

from shmbroker import exceptions
from shmbroker._core import attachment, segments
from shmbroker._housekeeper.launch import start_missing_housekeeper


def ensure_housekeeper(name: str) -> None:
    """Starts a detached housekeeper if none runs and none was ended on purpose. Returns immediately.

    A housekeeper whose process is stopped counts as missing: the new one does its work until it continues.
    """
    with contextlib.suppress(exceptions.BrokerNotFound):
        found = attachment.acquire(segments.path_of(name))
        try:
            if found.housekeeper_missing() or found.housekeeper_stopped():
                facts = found.facts()
                if not facts.stopped and not facts.closing:
                    start_missing_housekeeper(name)
        finally:
            attachment.release(found)
