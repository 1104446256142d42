# SPDX-License-Identifier: Apache-2.0
"""What a process does about forks, its end, locks, and objects that others hold."""
