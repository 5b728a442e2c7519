"""``python -m disttrain.compat.FACE [-m] script args``: run a program with a stand-in."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable


def run(face: str, library: str, install: Callable[[], None], argv: list[str]) -> int:
    """Publish the face ``face`` of ``library`` (as people call it) and run the program named by
    the words ``argv``; the exit status."""
    usage = f"usage: python -m disttrain.compat.{face} [-m module | script.py] [args ...]"
    if argv[:1] in (["-h"], ["--help"]):
        print(f"{usage}\n\nRun a {library} program on disttrain: `import {face}` means disttrain.")
        return 0
    as_module = argv[:1] == ["-m"]
    rest = argv[1:] if as_module else argv
    if not rest:
        print(f"{usage}\nerror: name the script or module to run", file=sys.stderr)
        return 2
    if not as_module and not os.path.exists(rest[0]):
        print(f"error: no such file: {rest[0]}", file=sys.stderr)
        return 2
    install()
    sys.argv = rest
    if as_module:
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(rest[0]))  # what python itself would do
        runpy.run_path(rest[0], run_name="__main__")
    return 0
