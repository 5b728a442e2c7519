"""Run rows of the table of faults and print what came of them.

scripts/faults                   all rows, 20 trials each
scripts/faults R1 R5 --trials 5
scripts/faults --quick           a few trials each: does it still work?
scripts/faults --keep faults.json --write     put the table into docs/failures.md
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path

from disttrain.lifetime import adopt_orphans
from injections.rows.catalogue import ROWS
from injections.rows.row import Result, Row, Seen, Trial, table

DOC = Path(__file__).parents[3] / "docs" / "failures.md"
BEGIN, END = "<!-- rows: begin -->", "<!-- rows: end -->"
TRIALS, QUICK = 20, 2  # of a row


def run_trial(row: Row, number: int, quick: bool) -> Seen:
    """One trial in a folder of its own; what goes wrong in it is a complaint."""
    with tempfile.TemporaryDirectory(prefix=f"fault-{row.name}-{os.getpid()}-") as folder:
        try:
            return row.run(Trial(Path(folder), number, quick))
        except Exception as error:
            return Seen(wrong=[f"{type(error).__name__}: {error}"])


def run_row(
    row: Row, trials: int, quick: bool, show: Callable[[], None] = lambda: None,
    earlier: Result | None = None,
) -> Result:  # fmt: skip
    """All trials of a row, after those of ``earlier``; ``show`` is called after each."""
    result = earlier or Result()
    result.missing = row.why_not()
    for _ in range(0 if result.missing else trials):
        result.add(run_trial(row, result.trials, quick))
        show()
    return result


def read(path: Path | None) -> dict[str, Result]:
    """Earlier results."""
    if path is None or not path.exists():
        return {}
    return {name: Result(**found) for name, found in json.loads(path.read_text())["rows"].items()}


def write(path: Path, results: Mapping[str, Result], rows: Mapping[str, Row]) -> None:
    """For machines."""
    content = {
        "machine": {"cpus": os.cpu_count(), "kernel": platform.release(),
                    "python": platform.python_version()},
        "rows": {name: asdict(result) for name, result in results.items()},
        "holds": {name: result.passed(rows[name]) for name, result in results.items()},
    }  # fmt: skip
    path.write_text(json.dumps(content, indent=1))


class Bar:
    """How far it is, on a terminal."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._began = total, 0, time.monotonic()

    def __call__(self, name: str) -> None:
        self._done += 1
        passed = time.monotonic() - self._began
        left = passed / self._done * (self._total - self._done)
        filled = 30 * self._done // self._total
        if sys.stderr.isatty():
            bar = "#" * filled + "." * (30 - filled)
            text = f"[{bar}] {self._done}/{self._total} {name:<4} {passed:.0f} s, {left:.0f} s left"
            print(f"\r{text} ", end="", file=sys.stderr, flush=True)

    def say(self, text: str) -> None:
        print(("\r\033[K" if sys.stderr.isatty() else "") + text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/faults", description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="R", help="rows, as R1 R5; all without")
    parser.add_argument("--trials", type=int, help="of each row: 20, or as it says itself")
    parser.add_argument("--quick", action="store_true", help=f"{QUICK} short trials of each row")
    parser.add_argument("--keep", type=Path, help="a JSON file of results: earlier ones stay")
    parser.add_argument("--add", action="store_true", help="to the earlier trials of these rows")
    parser.add_argument("--write", action="store_true", help="put the table into docs/failures.md")
    options = parser.parse_args()
    unknown = [name for name in options.rows if name not in ROWS]
    if unknown:
        parser.error(f"no row {', '.join(unknown)}; there are {', '.join(ROWS)}")
    adopt_orphans()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    chosen = [ROWS[name] for name in options.rows] or list(ROWS.values())
    counts = {
        row.name: options.trials or (QUICK if options.quick else row.trials or TRIALS)
        for row in chosen
    }
    bar, results = Bar(sum(counts.values())), read(options.keep)
    for row in chosen:
        earlier = results.get(row.name) if options.add else None
        show = functools.partial(bar, row.name)
        result = run_row(row, counts[row.name], options.quick, show, earlier)
        if result.missing:
            bar.say(f"{row.name}: not run: {result.missing}")
            continue
        results[row.name] = result
        for text in [*result.over(row), *result.wrong]:
            bar.say(f"{row.name}: {text}")
        if options.keep is not None:
            write(options.keep, results, ROWS)
    text = table(ROWS, results)
    bar.say("")
    print(text)
    if options.write:
        before, after = DOC.read_text().split(BEGIN)[0], DOC.read_text().split(END)[1]
        DOC.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")
    failed = [row.name for row in chosen if row.name in results
              and not results[row.name].passed(row)]  # fmt: skip
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
