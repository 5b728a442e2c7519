"""Remote calls between two network namespaces of this machine, which stand for two hosts.

    PYTHONPATH=scripts .venv/bin/python -m benchmarks.hosts [--peer PYTHON] [--rounds N]

Needs root and ip(8). Ours runs encrypted, as between hosts, and with less of it; PyTorch does not
encrypt, and is told to use TCP only (its other transports look past the namespaces). The runs
alternate, and the medians over the rounds are printed.
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
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from benchmarks.models import median_time

ADDRESSES = ("10.213.8.1", "10.213.8.2")
LINK, PORT = "wire", "29781"
MEGABYTES = 64
TIMEOUT = 120.0
SEALS = {
    "ours": {},
    "tensors plain": {"data_tls": False},
    "all plain": {"tls": False},
}  # what our options are in each variant


def add(a: int, b: int) -> int:
    return a + b


def length(tensor: Any) -> int:
    return tensor.numel()


def echo(tensor: Any) -> Any:
    return tensor


def worker(variant: str) -> dict[str, float]:
    """One of the two workers; the first one measures."""
    rank = int(os.environ["RANK"])
    T = importlib.import_module("disttrain" if variant in SEALS else "torch")
    rpc = importlib.import_module(f"{T.__name__}.distributed.rpc")
    if T.__name__ == "torch":
        options = rpc.TensorPipeRpcBackendOptions(
            init_method="env://", _transports=["uv"], _channels=["basic"]
        )
    else:
        options = rpc.TensorPipeRpcBackendOptions(**SEALS[variant])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=2, rpc_backend_options=options)
    rows: dict[str, float] = {}
    if rank == 0:
        large = T.ones(MEGABYTES << 18)
        rows["small call, microseconds"] = 1e6 * median_time(
            lambda: rpc.rpc_sync("worker1", add, (1, 2)), 15, 100
        )
        there = median_time(lambda: rpc.rpc_sync("worker1", length, (large,)), 9, 1)
        both = median_time(lambda: rpc.rpc_sync("worker1", echo, (large,)), 5, 1)
        rows[f"{MEGABYTES} MB there, GB/s"] = (MEGABYTES << 20) / 1e9 / there
        rows[f"{MEGABYTES} MB there and back, GB/s each way"] = (MEGABYTES << 21) / 1e9 / both
    rpc.shutdown()
    return rows


class Hosts:
    """Two network namespaces with a wire between them."""

    def __enter__(self) -> Hosts:
        self.names = [f"hosts{os.getpid()}{end}" for end in "ab"]
        a, b = self.names
        for name in self.names:
            _ip("netns", "add", name)
        _ip("-n", a, "link", "add", LINK, "type", "veth", "peer", "name", LINK, "netns", b)
        for name, address in zip(self.names, ADDRESSES):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", LINK)
            for link in ("lo", LINK):
                _ip("-n", name, "link", "set", link, "up")
        return self

    def __exit__(self, *exc: object) -> None:
        for name in self.names:
            _ip("netns", "del", name)

    def run(self, module: str, variant: str, python: str, token_file: str) -> dict[str, float]:
        """The rows of one run of ``module --worker VARIANT`` by ``python``, a rank on each host;
        empty, with a note, where it failed."""
        env = {
            **os.environ,
            "MASTER_ADDR": ADDRESSES[0], "MASTER_PORT": PORT, "OMP_NUM_THREADS": "1",
            "DISTTRAIN_TOKEN_FILE": token_file, "PYTHONWARNINGS": "ignore",
            "TP_SOCKET_IFNAME": LINK, "GLOO_SOCKET_IFNAME": LINK, "WORLD_SIZE": "2",
            "DISTTRAIN_TLS": str(int("TLS" in variant)),
        }  # fmt: skip
        started = [
            subprocess.Popen(
                ["ip", "netns", "exec", name, python, "-m", module, "--worker", variant],
                env={**env, "RANK": str(rank)},
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            )
            for rank, name in enumerate(self.names)
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


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def compare(
    module: str, about: str, worker: Callable[[str], dict[str, float]], ours: Iterable[str],
    peer: str, unit: str,
) -> None:  # fmt: skip
    """The program of a benchmark between two hosts: be one of its workers, or run the variants in
    turn and print their medians. ``ours``: the variants of this package; ``peer``: PyTorch's."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("--peer", help="the Python with PyTorch to compare with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--worker", metavar="VARIANT", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.worker:
        print(json.dumps(worker(given.worker)))
        return
    pythons = dict.fromkeys(ours, sys.executable)
    if given.peer:
        pythons[peer] = given.peer
    found: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder, Hosts() as hosts:
        token = Path(folder) / "token"
        token.touch(0o600)
        token.write_bytes(secrets.token_bytes(32))
        for _ in range(given.rounds):
            for variant, python in pythons.items():
                for row, value in hosts.run(module, variant, python, str(token)).items():
                    found.setdefault(row, {}).setdefault(variant, []).append(value)
    print(f"{f'{unit}, medians of {given.rounds} rounds':40}", *(f"{v:>14}" for v in pythons))
    for row, by in found.items():
        middle = [statistics.median(by[v]) if v in by else float("nan") for v in pythons]
        print(f"{row:40}", *(f"{value:14.4g}" for value in middle))


if __name__ == "__main__":
    compare("benchmarks.hosts", __doc__.partition("\n")[0], worker, SEALS, "PyTorch", "calls")
