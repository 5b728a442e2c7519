"""``disttrain blackbox``: what a job's ranks did last, also after it has died."""

from __future__ import annotations

import argparse
import os

from ..comm.job.blackbox import Box
from ..errors import ConfigError
from ..watch import running, summary
from ..watch.reading import SHOWN, opened


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", metavar="FILE", help="a black box, a log directory (dtrun --log-dir), or a job"
    )
    parser.add_argument("--rank", type=int, action="append", help="only this one (again and again)")
    parser.add_argument(
        "-n", "--last", type=int, default=SHOWN, metavar="N", help="operations of each rank"
    )


def run(options: argparse.Namespace) -> int:
    for i, box in enumerate(_boxes(options.file)):
        text = summary.report(box, max(1, options.last), options.rank)
        print("\n".join([*([""] if i else []), *text]))
        box.close()
    return 0


def _boxes(name: str) -> list[Box]:
    if not os.path.exists(name):
        jobs = [j for j in running.jobs() if name in (j.job, str(j.pid)) or j.job.startswith(name)]
        if len(jobs) == 1:
            return [jobs[0].open_box()]
    try:
        return [opened(path) for path in summary.find(name)]
    except OSError as error:
        raise ConfigError(f"{name}: cannot be read: {error.strerror}") from None
