"""``disttrain ckpt prove-resume RUN``: goes on from an earlier checkpoint of a run, in a copy of
it, and compares what comes out with what the run had, bit by bit.

Knows the command line of ``scripts/train.py``, or of a program that has the same one: ``--resume
FOLDER`` goes on with the newest checkpoint of the folder, whose name ends in the epoch's number,
and ``--train.epochs N`` says when to stop.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from ..distributed.checkpoint import tools
from ..distributed.checkpoint.files.folder import MANIFEST
from ..errors import ConfigError


def configure(parser: argparse.ArgumentParser) -> None:
    """Its arguments."""
    parser.add_argument("--world", type=int, default=1, metavar="N", help="ranks that go on")
    parser.add_argument("--start", metavar="CHECKPOINT", help="its name (default: the first)")
    parser.add_argument("--program", default="scripts/train.py", metavar="FILE")
    parser.add_argument("--ignore", action="append", default=[], metavar="KEY",
                        help="leave out what lies under this name")  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Do it; 1 when anything differs."""
    run_folder = Path(options.run)
    found = sorted(p.parent for p in run_folder.glob(f"*/{MANIFEST}"))
    if len(found) < 2:
        raise ConfigError(
            f"prove-resume: {run_folder} has {len(found)} checkpoints; two or more are needed: one "
            "to go on from, and one to compare with. Keep more (--log.keep_checkpoints)"
        )
    start, end = found[0], found[-1]
    if options.start is not None:
        start = run_folder / options.start
    with tempfile.TemporaryDirectory(prefix="prove-resume-") as folder:
        copy = Path(folder, "0001")
        copy.mkdir()
        shutil.copytree(start, copy / start.name)
        if (run_folder / "config.toml").exists():
            shutil.copy(run_folder / "config.toml", copy)
        _go_on(options, copy)
        if not (copy / end.name / MANIFEST).exists():
            raise ConfigError(
                f"prove-resume: the resumed run wrote no {end.name}; it has "
                f"{', '.join(sorted(p.parent.name for p in copy.glob(f'*/{MANIFEST}')))}"
            )
        different = tools.diff(str(end), str(copy / end.name), tuple(options.ignore))
    told = f"from {start.name} to {end.name} on {options.world} ranks"
    for name in (*different.only_first, *different.only_second):
        print(f"only in one of them: {name}")
    for said in different.changed:
        print(said)
    if different:
        print(f"differs: {len(different.changed)} values ({told}); {different.equal} are equal")
        return 1
    print(f"bitwise equal: {different.equal} values ({told})")
    return 0


def _go_on(options: argparse.Namespace, copy: Path) -> None:
    launch = [sys.executable, "-m", "disttrain_launcher", "--nproc-per-node", str(options.world)]
    command = [*launch, options.program, "--resume", str(copy), *options.settings]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise ConfigError(
            f"prove-resume: {' '.join(command)} ended with {done.returncode}: "
            f"{(done.stderr or done.stdout).strip()[-1500:]}"
        )
