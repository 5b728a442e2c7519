"""``python -m disttrain.compat.torch [-m] script args``: run a program with the stand-in."""

from __future__ import annotations

import os
import runpy
import sys

from . import install

USAGE = "usage: python -m disttrain.compat.torch [-m module | script.py] [args ...]"


def main(argv: list[str]) -> int:
    if argv[:1] in (["-h"], ["--help"]):
        print(f"{USAGE}\n\nRun a PyTorch program on disttrain: `import torch` means disttrain.")
        return 0
    as_module = argv[:1] == ["-m"]
    rest = argv[1:] if as_module else argv
    if not rest:
        print(f"{USAGE}\nerror: name the script or module to run", file=sys.stderr)
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
