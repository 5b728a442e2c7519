"""``disttrain stacks``."""

from __future__ import annotations

import argparse
import time

from ..watch import running, stacks
from ..watch.reading import each, read_rank
from ..watch.waiting import standings


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", nargs="?", help="its name or pid (disttrain jobs); default: the one")
    parser.add_argument("--rank", type=int, action="append", help="only this one (again and again)")


def run(options: argparse.Namespace) -> int:
    box = running.find(options.job).open_box()
    ranks = [read_rank(box, r) for r in each(box)]
    told = standings(ranks, time.monotonic_ns())
    for rank, standing in zip(ranks, told, strict=True):
        if options.rank is not None and rank.rank not in options.rank:
            continue
        words = rank.words
        print(f"rank {rank.rank} (pid {words.pid}), step {words.step}: {standing.text}")
        if words.ended:
            print(f"  (it has ended, with exit code {words.ended - 1})")
        else:
            print(_indented(stacks.ask(words.pid, words.stacks_fd)))
        print(flush=True)
    box.close()
    return 0


def _indented(text: str) -> str:
    return "\n".join("  " + line for line in stacks.of_program(text).splitlines())
