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
    chosen = [
        (rank, standing)
        for rank, standing in zip(ranks, told, strict=True)
        if options.rank is None or rank.rank in options.rank
    ]
    alive = [rank for rank, _ in chosen if not rank.words.ended]
    answers = stacks.ask([(rank.words.pid, rank.words.stacks_fd) for rank in alive])
    found = {rank.rank: answer for rank, answer in zip(alive, answers, strict=True)}
    for rank, standing in chosen:
        words = rank.words
        print(f"rank {rank.rank} (pid {words.pid}), step {words.step}: {standing.text}")
        ended = f"(it has ended, with exit code {words.ended - 1})"
        print(_indented(found.get(rank.rank, ended)), end="\n\n", flush=True)
    box.close()
    return 0


def _indented(text: str) -> str:
    return "\n".join("  " + line for line in stacks.of_program(text).splitlines())
