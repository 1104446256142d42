# SPDX-License-Identifier: Apache-2.0
"""Programs that are interrupted at one place after the other, as a signal's handler that raises does it."""

from __future__ import annotations

# Calls `deed`, and raises before the n-th instruction of the package; false, if it has fewer.
INTERRUPTED_AT = """
    import gc, json, os, sys
    import shmbroker

    package = os.path.dirname(shmbroker.__file__)

    class Interrupted(Exception):
        pass

    def interrupted_at(number, deed):
        left = number

        def trace(frame, event, _):
            nonlocal left
            if not frame.f_code.co_filename.startswith(package):
                return None
            frame.f_trace_lines, frame.f_trace_opcodes = False, True
            if event == "opcode":
                left -= 1
                if left < 0:
                    sys.settrace(None)
                    raise Interrupted
            return trace

        sys.settrace(trace)
        try:
            try:
                deed()
            finally:
                sys.settrace(None)  # at the latest, this raises what was raised in a finalizer
        except Interrupted:
            pass
        return left < 0
"""

# Calls `deed`, and raises at the n-th place where Python runs a signal's handler; false, if it has fewer. These are the
# beginning of a function and the end of a call of C, as part of the calling instruction. (There are loops, too.)
SIGNALLED_AT = """
    import gc, json, os, sys
    import shmbroker

    package = os.path.dirname(shmbroker.__file__)

    class Signalled(Exception):
        pass

    def signalled_at(number, deed):
        left = number

        def look(frame, event, _):
            nonlocal left
            if event in ("call", "c_return") and frame.f_code.co_filename.startswith(package):
                left -= 1
                if left < 0:
                    sys.setprofile(None)
                    raise Signalled

        sys.setprofile(look)
        try:
            try:
                deed()
            finally:
                sys.setprofile(None)  # at the latest, this raises what was raised in a finalizer
        except Signalled:
            pass
        return left < 0
"""
