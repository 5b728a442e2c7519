"""The driver: runs each case in turn for us and for the peer, several rounds, and prints medians.

Every run is a process of its own, and the two libraries alternate, so that a drift of the machine
hits both alike. The table goes to standard output, the numbers to a JSON file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.catalogue import BARS, CASES, LIMITS, RANKS, WHOLE

TIMEOUT = 180.0
MEAN = "mean of all kernels"


def command(case: str, library: str, python: str) -> list[str]:
    """The command line of one run."""
    tail = ["benchmarks.run_case", case, library]
    ranks = RANKS.get(case)
    if ranks is None:
        return [python, "-m", *tail]
    start = ["disttrain_launcher"]
    if library == "torch":
        start = ["torch.distributed.run", "--standalone"]
    if case == "restart":
        start += ["--max-restarts", "1"]
        start += ["--rdzv-id", f"{os.getpid()}-{library}-{time.monotonic_ns()}"]
    return [python, "-m", *start, "--nproc-per-node", str(ranks), "-m", *tail]


def run(case: str, library: str, python: str) -> dict[str, float]:
    """One run of one case: its rows, or an empty dict with a note on standard error."""
    env = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    if case == "restart":  # else a restart of the peer meets the store of the start before
        env["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    env.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has its bytecode
    start = time.perf_counter()
    job = subprocess.Popen(
        command(case, library, python), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        output, errors = job.communicate(timeout=TIMEOUT)
    except BaseException as error:
        _end(job)
        if not isinstance(error, subprocess.TimeoutExpired):
            raise
        print(f"{case} with {library} took more than {TIMEOUT:.0f} s", file=sys.stderr)
        return {}
    seconds = time.perf_counter() - start
    if job.returncode:
        print(f"{case} with {library} failed:\n{errors[-2000:]}", file=sys.stderr)
        return {}
    if case in WHOLE:
        return {WHOLE[case]: seconds}
    line = next(part for part in output.splitlines() if "ROWS {" in part)
    return json.loads(line[line.index("{") :])


def _end(job: subprocess.Popen) -> None:
    """End a run that has not ended; a launcher gets the time to end its ranks."""
    job.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        job.communicate(timeout=10)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(job.pid, signal.SIGKILL)
    job.communicate()


def measure(cases: list[str], rounds: int, peer: str | None) -> dict[str, dict[str, list[float]]]:
    """Rows by name: the numbers of each library, one per round; Ctrl-C ends it with those there."""
    table: dict[str, dict[str, list[float]]] = {}
    with contextlib.suppress(KeyboardInterrupt):
        _measure(cases, rounds, peer, table)
    print("\r" + " " * 40 + "\r", end="", file=sys.stderr)
    return table


def _measure(
    cases: list[str], rounds: int, peer: str | None, table: dict[str, dict[str, list[float]]]
) -> None:
    total, done = len(cases) * rounds, 0
    for case in cases:
        for _ in range(rounds):
            for library, python in (("disttrain", sys.executable), ("torch", peer)):
                if python is None:
                    continue
                for row, value in run(case, library, python).items():
                    table.setdefault(row, {}).setdefault(library, []).append(value)
            done += 1
            print(f"\r{done}/{total} {case:<12}", end="", file=sys.stderr, flush=True)


def text(row: str, value: float) -> str:
    """A number with its unit."""
    if row.startswith("memory"):
        return f"{value:.1f} MB"
    if row.startswith("ratio"):
        return f"{value:.3f}"
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if value * scale >= 1:
            return f"{value * scale:.2f} {unit}"
    return f"{value * 1e9:.0f} ns"


def summary(table: dict[str, dict[str, list[float]]]) -> list[dict[str, Any]]:
    """One record per row: medians, their ratio, and whether the bar is met."""
    out = []
    for row, numbers in table.items():
        ours, peer = (
            statistics.median(numbers[lib]) if numbers.get(lib) else None
            for lib in ("disttrain", "torch")
        )
        bar, aim = BARS.get(row, (None, None))
        ratio = peer / ours if ours and peer else None
        out.append(
            {"row": row, "disttrain": ours, "torch": peer, "ratio": ratio, "bar": bar, "aim": aim}
        )
    kernels = [r["ratio"] for r in out if r["row"].startswith("kernel:") and r["ratio"]]
    if len(kernels) > 1:
        bar, aim = BARS[MEAN]
        mean = statistics.geometric_mean(kernels)
        out.append({"row": MEAN, "disttrain": None, "torch": None, "ratio": mean, "bar": bar,
                    "aim": aim})  # fmt: skip
    return out


def show(records: list[dict[str, Any]]) -> None:
    """The table."""
    print(f"{'':<46}{'disttrain':>12}{'PyTorch':>12}{'ratio':>9}   bar / aim")
    for r in records:
        cells = [text(r["row"], r[k]) if r[k] is not None else "-" for k in ("disttrain", "torch")]
        ratio = f"{r['ratio']:.2f}x" if r["ratio"] else "-"
        bar = ""
        if r["row"] in LIMITS and r["disttrain"]:
            limits = LIMITS[r["row"]]
            met = "met" if r["disttrain"] <= limits[0] else "MISSED"
            most, aim = (text(r["row"], limit) for limit in limits)
            bar, ratio = f"at most {most} / {aim}  {met}", "-"
        if r["bar"]:
            met = "" if not r["ratio"] else "  met" if r["ratio"] >= r["bar"] else "  MISSED"
            bar = f"{r['bar']:g}x / {r['aim']:g}x{met}"
        print(f"{r['row']:<46}{cells[0]:>12}{cells[1]:>12}{ratio:>9}   {bar}")


def has_torch(python: str) -> bool:
    return subprocess.run([python, "-c", "import torch"], capture_output=True).returncode == 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/bench", description=__doc__)
    parser.add_argument("cases", nargs="*", help=f"of {', '.join(CASES)} (default: all)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", metavar="PYTHON", help="an interpreter that has PyTorch")
    parser.add_argument("--json", default="bench.json", help="where the numbers go")
    options = parser.parse_args()
    unknown = [c for c in options.cases if c not in CASES]
    if unknown:
        parser.error(f"unknown case {unknown[0]!r}; there are {', '.join(CASES)}")
    peer = options.peer or sys.executable
    if not has_torch(peer):
        print(f"PyTorch is not installed for {peer}: our numbers only", file=sys.stderr)
        peer = None
    records = summary(measure(options.cases or list(CASES), options.rounds, peer))
    show(records)
    kernels = os.environ.get("OPENBLAS_CORETYPE")
    if kernels:
        print(f"Our products run by the kernels that OPENBLAS_CORETYPE asks for: {kernels}.")
    machine = {"cpu": platform.processor() or platform.machine(), "cores": os.cpu_count()}
    with open(options.json, "w", encoding="utf-8") as f:
        json.dump({"machine": machine, "rounds": options.rounds, "rows": records}, f, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
