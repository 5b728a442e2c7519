"""Run pytest, and end with its status without finalizing the interpreter.

After whole runs of the tests with several processes, all of them passed, the process has died of
SIGSEGV while Python collected garbage for the last time (twice in about ten runs; no Python frame,
cause unknown). That would hide how the tests went. Whatever pytest itself does at its end is done
before.
"""

from __future__ import annotations

import os
import sys

import pytest

if __name__ == "__main__":
    status = pytest.main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(status))
