"""``python -m disttrain.compat.torch [-m] script args``: run a program with the stand-in."""

from __future__ import annotations

import os
import runpy
import sys

from . import install

USAGE = "usage: python -m disttrain.compat.torch [-m module | script.py] [args ...]"


def main(argv: list[str]) -> int:
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE)
        return 0 if argv else 2
    as_module = argv[0] == "-m"
    rest = argv[1:] if as_module else argv
    if not rest:
        print(f"{USAGE}\nerror: -m needs a module's name", file=sys.stderr)
        return 2
    if not as_module and not os.path.exists(rest[0]):
        print(f"error: no such file: {rest[0]}", file=sys.stderr)
        return 2
    install()
    sys.argv = rest
    if as_module:
        sys.path.insert(0, os.getcwd())
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(os.path.abspath(rest[0])))
        runpy.run_path(rest[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
