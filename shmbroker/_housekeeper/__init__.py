# SPDX-License-Identifier: Apache-2.0
"""The housekeeper of a broker, and the start of its process."""
