"""``python -m disttrain.compat.FACE [-m] script args``: run a program with a stand-in."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable


def run(
    face: str, library: str, install: Callable[[], None], argv: list[str],
    flags: dict[str, Callable[[int], None]] | None = None,
) -> int:  # fmt: skip
    """Publish the face ``face`` of ``library`` (as people call it) and run the program named by
    the words ``argv``; the exit status. ``flags``: what is to be done with the numbers of flags in
    front of it, by name."""
    told = "".join(f"[{name} N] " for name in flags or {})
    usage = f"usage: python -m disttrain.compat.{face} {told}[-m module | script.py] [args ...]"
    if argv[:1] in (["-h"], ["--help"]):
        print(f"{usage}\n\nRun a {library} program on disttrain: `import {face}` means disttrain.")
        return 0
    while argv and argv[0].partition("=")[0] in (flags or {}):
        name, said, number = argv[0].partition("=")
        number, argv = (number, argv[1:]) if said else ("".join(argv[1:2]), argv[2:])
        if not number.isdigit() or not int(number):
            print(f"{usage}\nerror: {name} needs a number, 1 or more", file=sys.stderr)
            return 2
        flags[name](int(number))  # type: ignore[index]
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
