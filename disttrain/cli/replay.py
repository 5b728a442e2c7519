"""``disttrain replay DIR --rank 3``: one rank of a recorded run once more, alone."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile

from .. import settings
from ..record.log.surroundings import heard
from ..record.replay import bundle
from ..record.replay.options import Options, as_words, opened
from ..record.replay.stops import parse


def configure(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    add = parser.add_argument
    add("folder", nargs="?", default="", metavar="DIR",
        help="a recording (dtrun --record DIR --record-payloads)")  # fmt: skip
    add("--rank", type=int, default=None, help="which rank (default: the one that was recorded)")
    add("--pdb", action="store_true", help="debug: stop at the program's first line (or where "
        "--until says), at the first difference, and at an exception")  # fmt: skip
    add("--until", default="", metavar="PLACE", help="stop there in the debugger: step:3, op:NAME, "
        "op:NAME#2 (the second one), call:17")  # fmt: skip
    add("--bundle", default="", metavar="FILE", help="with DIR: write the recording of the rank "
        "into a file; without: replay from that file")  # fmt: skip
    add("--trust", action="store_true", help="replay what another user or machine has recorded: "
        "its program's arguments and pickled objects are used")  # fmt: skip
    add("--strict", action="store_true", help="refuse to run with other code or versions")
    add("--program", default="", metavar="FILE", help="the program, where it is elsewhere")
    add("--cwd", default="", metavar="DIR", help="the folder to run in (default: as recorded)")


def run(options: argparse.Namespace) -> int:
    """Replay; 1 where something differs."""
    parse(options.until)
    if options.folder and options.bundle:
        size = bundle.write(options.folder, _rank(options.folder, options.rank), options.bundle)
        print(f"{options.bundle}: {size / 1e6:.1f} MB")
        return 0
    if not options.folder and not options.bundle:
        print("disttrain replay: which recording? Give DIR, or --bundle FILE", file=sys.stderr)
        return 2
    if options.folder:
        return _replay(options, options.folder)
    with tempfile.TemporaryDirectory(prefix="disttrain-replay-") as folder:
        bundle.read(options.bundle, folder)
        return _replay(options, folder)


def _rank(folder: str, asked: int | None) -> int:
    return bundle.ranks_in(folder, asked)[0]


def _replay(options: argparse.Namespace, folder: str) -> int:
    wanted = Options(
        os.path.abspath(folder), _rank(folder, options.rank), options.until, options.pdb,
        options.trust, options.strict, options.program and os.path.abspath(options.program),
        options.cwd and os.path.abspath(options.cwd),
    )  # fmt: skip
    told = opened(wanted).frames[0].meta
    here = settings.environment()
    env = {k: v for k, v in here.items() if not heard(k)} | told["env"]
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is for the program
    try:
        words = [sys.executable, *as_words(wanted)]
        code = subprocess.run(words, env=env, check=False, preexec_fn=_hears).returncode
        if code < 0:
            print(f"replay: the program ended by signal {-code}", file=sys.stderr)
        return code if code >= 0 else 128 - code
    finally:
        signal.signal(signal.SIGINT, before)


def _hears() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
