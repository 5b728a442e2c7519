"""all_reduce between two network namespaces of this machine, beside PyTorch's gloo there.

    PYTHONPATH=scripts .venv/bin/python -m benchmarks.hosts_reduce --peer PYTHON [--rounds N]

Needs root and ip(8). One rank a host. The runs alternate; medians over the rounds are printed.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.hosts import ADDRESSES, LINK, PORT, TIMEOUT, Hosts
from benchmarks.models import median_time

SIZES = {"4 KB": (1 << 10, 15, 40), "64 KB": (16 << 10, 15, 20), "25 MB": (25 << 18, 9, 1)}
VARIANTS = {"ours": "disttrain", "ours, TLS": "disttrain", "gloo": "torch"}


def worker(variant: str) -> dict[str, float]:
    """One of the two ranks."""
    T = importlib.import_module(VARIANTS[variant])
    dist = importlib.import_module(f"{T.__name__}.distributed")
    dist.init_process_group("gloo")
    rows = {}
    for name, (count, repeats, calls) in SIZES.items():
        x = T.ones(count)
        rows[name] = 1e6 * median_time(lambda x=x: dist.all_reduce(x), repeats, calls)
    dist.destroy_process_group()
    return rows


def run(hosts: Hosts, variant: str, python: str, token_file: str) -> dict[str, float]:
    """Microseconds of one run; empty, with a note, where it failed."""
    env = {
        **os.environ,
        "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": PORT, "OMP_NUM_THREADS": "1",
        "DISTTRAIN_TOKEN_FILE": token_file, "PYTHONWARNINGS": "ignore", "WORLD_SIZE": "2",
        "GLOO_SOCKET_IFNAME": LINK, "DISTTRAIN_TLS": str(int("TLS" in variant)),
    }  # fmt: skip
    started = [
        subprocess.Popen(
            ["ip", "netns", "exec", name, python, "-m", "benchmarks.hosts_reduce", "--worker",
             variant],
            env={**env, "RANK": str(rank)}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True,
        )
        for rank, name in enumerate(hosts.names)
    ]  # fmt: skip
    try:
        said = [process.communicate(timeout=TIMEOUT) for process in started]
    finally:
        for process in started:
            process.kill()
    if any(process.returncode for process in started):
        print(f"{variant} failed:\n{said[0][1][-1500:]}\n{said[1][1][-1500:]}", file=sys.stderr)
        return {}
    return json.loads(said[0][0].splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--peer", help="the Python with PyTorch to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", metavar="VARIANT", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(worker(given.worker)))
        return
    pythons = {"ours": sys.executable, "ours, TLS": sys.executable}
    if given.peer:
        pythons["gloo"] = given.peer
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder, Hosts() as hosts:
        token = Path(folder) / "token"
        token.touch(0o600)
        token.write_bytes(secrets.token_bytes(32))
        for _ in range(given.rounds):
            for variant, python in pythons.items():
                for row, value in run(hosts, variant, python, str(token)).items():
                    found.setdefault(row, {}).setdefault(variant, []).append(value)
    print(f"{'microseconds, medians':24}", *(f"{v:>12}" for v in pythons))
    for row, by in found.items():
        middle = [statistics.median(by[v]) if v in by else float("nan") for v in pythons]
        print(f"{row:24}", *(f"{value:12.5g}" for value in middle))


if __name__ == "__main__":
    main()
