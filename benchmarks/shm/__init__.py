# SPDX-License-Identifier: Apache-2.0
"""The project's own side of the measurements, by its public API only."""
