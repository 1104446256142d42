# SPDX-License-Identifier: Apache-2.0
"""The life of a broker: its memory is made, clients connect, its housekeeper and its storekeeper end."""
