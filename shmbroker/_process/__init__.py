# SPDX-License-Identifier: Apache-2.0
"""Process-wide handling of forks, of the program's end, of locks and weakly held objects; the housekeeper's timers."""
