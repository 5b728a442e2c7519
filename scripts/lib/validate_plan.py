"""How far the cost model is from published measurements; see scripts/validate_plan."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from disttrain.distributed.planning.calibration import (
    Bench,
    Error,
    fit,
    memory_error,
    miss,
    step_error,
    without,
)
from disttrain.distributed.planning.constants import DATA, constants
from disttrain.distributed.planning.measurements import TABLES, Case, cases

CLUSTERS = Path(__file__).parents[2] / "configs" / "clusters"


def shown(error: Error) -> str:
    if not error.count:
        return f"{'':>4} {'':>7} {'':>7}"
    return f"{error.count:>4} {100 * error.mean:>5.1f} % {100 * error.worst:>5.0f} %"


def line(name: str, bench: Bench, half: Sequence[Case], values: dict[str, float]) -> str:
    steps, memory = step_error(bench, half, values), memory_error(bench, half, values)
    return f"{name:<28} {shown(steps)}   {shown(memory)}"


HEAD = f"{'':<28} {'rows':>4} {'mean':>7} {'worst':>7}   {'rows':>4} {'mean':>7} {'worst':>7}"


def print_errors(bench: Bench, everything: list[Case], values: dict[str, float]) -> None:
    print(f"{'':<28} {'steps':<20}   memory")
    print(HEAD)
    for half in (True, False):
        chosen = [c for c in everything if c.scored == half]
        kind = "scored" if half else "fitted"
        for table in TABLES:
            rows = [c for c in chosen if c.table == table]
            print(line(f"{table}, {kind}", bench, rows, values))
        print(line(f"all, {kind}", bench, chosen, values))


def print_left_out(bench: Bench, everything: list[Case], values: dict[str, float]) -> None:
    """Each table, and each kind of device, by constants that know nothing of it."""
    print("left out of the fit, then scored as a whole:")
    print(HEAD)
    groups = {f"table {t}": [c for c in everything if c.table == t] for t in TABLES}
    families: dict[str, list[Case]] = {}
    for case in everything:
        family = bench.clusters[case.cluster].device.family
        families.setdefault(f"devices {family}", []).append(case)
    for name, out in (groups | families).items():
        rest = [c for c in everything if not c.scored and c not in out]
        print(line(name, bench, out, without(bench, out, rest, values)))


def print_rows(bench: Bench, everything: list[Case], values: dict[str, float], table: str) -> None:
    for case in sorted(
        (c for c in everything if c.table == table),
        key=lambda c: -miss(bench.seconds(c, values), c.seconds),
    ):
        seconds = bench.seconds(case, values)
        memory = ""
        if case.memory:
            needed = bench.bytes(case, values)
            memory = (
                f"  {case.memory / 2**30:7.2f} GiB, predicted {needed / 2**30:7.2f} "
                f"({100 * (needed / case.memory - 1):+.0f} %)"
            )
        print(
            f"{case.key:<58} {'scored' if case.scored else 'fitted'} {case.seconds:9.3f} s, "
            f"predicted {seconds:9.3f} ({100 * (seconds / case.seconds - 1):+.0f} %){memory}"
        )


def refit(bench: Bench, everything: list[Case], values: dict[str, float]) -> dict[str, float]:
    """Fit, and keep what was found with the package."""
    found = fit(bench, [c for c in everything if not c.scored], values, 16)
    path = DATA / "constants.json"
    table = json.loads(path.read_text())
    for name, value in found.items():
        table[name]["value"] = value
    path.write_text(json.dumps(table, indent=1) + "\n")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="scripts/validate_plan", description=__doc__)
    parser.add_argument("--fit", action="store_true", help="fit the constants first, keep them")
    parser.add_argument("--left-out", action="store_true", help="fit without each table and device")
    parser.add_argument("--rows", choices=tuple(TABLES), help="each row of a table, worst first")
    options = parser.parse_args()
    bench, everything = Bench.of(CLUSTERS), cases()
    values = dict(constants().values)
    if options.fit:
        values = refit(bench, everything, values)
    if options.rows:
        print_rows(bench, everything, values, options.rows)
        return
    print_errors(bench, everything, values)
    if options.left_out:
        print_left_out(bench, everything, values)


if __name__ == "__main__":
    main()
