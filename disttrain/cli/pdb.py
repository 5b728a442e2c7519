"""``disttrain pdb``."""

from __future__ import annotations

import argparse

from .attach import sit


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", help="its name or pid (disttrain jobs)")
    parser.add_argument("rank", type=int, help="the rank that is to stop")


def run(options: argparse.Namespace) -> int:
    return sit(options.job, options.rank, stop=True)
