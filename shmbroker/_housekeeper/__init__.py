# SPDX-License-Identifier: Apache-2.0
"""The housekeeper of a broker, and how its process is started."""
