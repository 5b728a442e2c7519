"""all_reduce between two network namespaces of this machine, beside PyTorch's gloo there.

    PYTHONPATH=scripts .venv/bin/python -m benchmarks.hosts_reduce --peer PYTHON [--rounds N]

Needs root and ip(8). One rank a host. The runs alternate; medians over the rounds are printed.
"""

from __future__ import annotations

import importlib

from benchmarks.hosts import compare
from benchmarks.models import median_time

SIZES = {"4 KB": (1 << 10, 15, 40), "64 KB": (16 << 10, 15, 20), "25 MB": (25 << 18, 9, 1)}
PEER = "gloo"


def worker(variant: str) -> dict[str, float]:
    """One of the two ranks."""
    T = importlib.import_module("torch" if variant == PEER else "disttrain")
    dist = importlib.import_module(f"{T.__name__}.distributed")
    dist.init_process_group("gloo")
    rows = {}
    for name, (count, repeats, calls) in SIZES.items():
        x = T.ones(count)
        rows[name] = 1e6 * median_time(lambda x=x: dist.all_reduce(x), repeats, calls)
    dist.destroy_process_group()
    return rows


if __name__ == "__main__":
    about = __doc__.partition("\n")[0]
    compare("benchmarks.hosts_reduce", about, worker, ("ours", "ours, TLS"), PEER, "microseconds")
