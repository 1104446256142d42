# SPDX-License-Identifier: Apache-2.0
"""What `--version` prints."""


def version_text() -> str:
    """Return what `--version` prints. This module loads nothing of the application: scripts call `--version` often."""
    import importlib.metadata  # noqa: PLC0415 (no other command needs it)

    return f"shmbroker {importlib.metadata.version('shmbroker')}"
