# SPDX-License-Identifier: Apache-2.0
"""The storekeeper: the one process that writes the store of a broker."""
