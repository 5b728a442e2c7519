"""A Ray of this test run's own: a head and nodes beside it, on this machine.

    with RayCluster(nodes=2) as ray:
        ray.dtrun("--nnodes", "2", "train.py")
        ray.lose(0); ray.add()

The head has no processors to give, so that jobs run on the nodes. Needs the extra ``ray``.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
SMALL = {"object_store_memory": 80 << 20, "num_gpus": 0}


def why_not() -> str:
    """What is missing for a Ray here; "" where nothing is."""
    return "" if importlib.util.find_spec("ray") else "the extra `ray` is missing"


class RayCluster:
    """Begins with ``with``; nothing of it is left afterwards."""

    def __init__(self, nodes: int = 2) -> None:
        self.number = nodes
        self.nodes: list = []

    def __enter__(self) -> RayCluster:
        cluster = importlib.import_module("ray.cluster_utils").Cluster
        head = {**SMALL, "num_cpus": 0, "include_dashboard": False}
        self.cluster = cluster(initialize_head=True, head_node_args=head)
        for _ in range(self.number):
            self.add()
        return self

    def __exit__(self, *exc: object) -> None:
        self.cluster.shutdown()

    def add(self, cpus: int = 2) -> None:
        """Another machine."""
        self.nodes.append(self.cluster.add_node(num_cpus=cpus, **SMALL))

    def lose(self, number: int) -> None:
        """A machine is gone from one moment to the next."""
        self.cluster.remove_node(self.nodes.pop(number), allow_graceful=False)

    def dtrun(self, folder: Path, script: str, *flags: str) -> subprocess.Popen:
        """Start ``dtrun --cluster ray`` on a script."""
        (folder / "script.py").write_text(script)
        env = {**os.environ, "RAY_ADDRESS": self.cluster.address, "PYTHONPATH": str(ROOT)}
        words = [
            sys.executable,
            "-m",
            "disttrain_launcher",
            "--cluster",
            "ray",
            *flags,
            "script.py",
        ]
        pipe = subprocess.PIPE
        return subprocess.Popen(words, cwd=folder, env=env, text=True, stdout=pipe, stderr=pipe)
