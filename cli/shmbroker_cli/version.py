# SPDX-License-Identifier: Apache-2.0
"""What `--version` prints."""


def version_text() -> str:
    """Return what `--version` prints. Scripts ask for it often: the application is not loaded for that alone."""
    import importlib.metadata  # noqa: PLC0415 (no other command needs it)

    return f"shmbroker {importlib.metadata.version('shmbroker')}"
