"""The random programs once more, with every tensor sharded: DTensors mean what wholes mean.

    python -m peers.sharded PROFILE FIRST COUNT [RANKS ...]

A program runs on simulated ranks. Every new tensor in it, and every parameter of a module, gets
random placements; what it leaves behind is gathered and compared with PyTorch's plain tensors.
"""

from __future__ import annotations

import random
import sys
import warnings
from typing import Any

import torch
from peers.compare import Difference, compare
from peers.profiles import generate
from peers.program import HEAD, Lines, Outcome, code, describe, execute, given, run

import disttrain as dt
from disttrain import distributed as dist
from disttrain.distributed.tensor import (
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
    init_device_mesh,
)

MAKERS = """tensor zeros ones full arange eye linspace logspace tril_indices triu_indices
empty""".split()
# What a rank may not know of the whole: addresses, strides of parts, what the view of a part is.
REFUSED = (
    "has no rule for sharded",
    "a view of a DTensor",
    "was used as plain numbers",
)


class Sharding:
    """Gives tensors placements, the same ones on every rank for the same seed."""

    def __init__(self, mesh: Any, seed: int) -> None:
        self.mesh, self.rng = mesh, random.Random(seed)

    def spread(self, t: Any) -> Any:
        if isinstance(t, DTensor) or (t.ndim == 0 and self.rng.random() < 0.5):
            return t
        kinds = [*map(Shard, range(t.ndim)), Replicate()]
        kinds += [Partial()] if t.is_floating_point() and not t.requires_grad else []
        placed = [self.rng.choice(kinds) for _ in range(self.mesh.ndim)]
        whole = [Replicate() if p.is_partial() else p for p in placed]
        return distribute_tensor(t, self.mesh, whole).redistribute(placements=placed)

    def module(self, m: Any) -> Any:
        for sub in m.modules():
            for name, p in list(sub._parameters.items()):
                if p is not None and p.ndim:
                    sub._parameters[name] = self.spread(p)
            for name, b in list(sub._buffers.items()):
                if b is not None and b.ndim:
                    sub._buffers[name] = self.spread(b)
        return m


class Library:
    """``source`` (a module), whose new tensors and modules are spread."""

    def __init__(self, source: Any, sharding: Sharding) -> None:
        self.__dict__.update(source=source, sharding=sharding)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.source, name)
        if name in MAKERS and self.source is dt:
            return lambda *a, **k: self._made(found, a, k)
        if name in ("nn", "optim", "linalg", "autograd"):
            return Library(found, self.sharding)
        if isinstance(found, type) and issubclass(found, dt.nn.Module):
            return lambda *a, **k: self.sharding.module(found(*a, **k))
        return found

    def _made(self, make: Any, a: tuple, k: dict) -> Any:
        wanted = k.pop("requires_grad", False)
        out = self.sharding.spread(make(*a, **k).detach())
        return out.requires_grad_() if wanted else out


def whole(x: Any) -> Any:
    """``x`` with DTensors gathered, roles and gradients kept."""
    if isinstance(x, DTensor):
        out = x.detach().full_tensor()
        wanted, leaf, grad = x.requires_grad, x.is_leaf, x.grad if x.is_leaf else None
        if wanted:
            out = out.requires_grad_() if leaf else out.requires_grad_() * 1
        if grad is not None:
            out._grad = whole(grad)
        return out
    if isinstance(x, dict):
        return {k: whole(v) for k, v in x.items()}
    if isinstance(x, (list, tuple)):
        return [whole(v) for v in x]
    return x


def run_sharded(lines: Lines, shape: tuple, seed: int) -> Outcome:
    def rank() -> Outcome:
        dist.init_process_group()
        dt.manual_seed(0)
        sharding = Sharding(init_device_mesh("cpu", shape), seed)
        names: dict[str, Any] = {"T": Library(dt, sharding)}
        exec(code(HEAD), names)
        errors = [execute(line, names) for line in lines]
        kept = {n: x for n, x in names.items() if n == "log" or given(n)}
        found = {}
        for name, x in kept.items():
            try:
                found[name] = describe(whole(x))
            except Exception as error:  # noqa: BLE001
                found[name] = f"{type(error).__name__}: {error}"
        return Outcome(errors, found)

    size = 1
    for n in shape:
        size *= n
    return dist.simulate(rank, size).results[0]


def check(profile: str, seed: int, shape: tuple) -> tuple[Lines, Difference | str] | None:
    lines = generate(profile, seed)
    theirs = run(lines, torch)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = run_sharded(lines, shape, seed)
    except Exception as error:  # noqa: BLE001
        return lines, f"crash: {error.__cause__ or error}"[:400]
    found = compare(lines, ours, theirs)
    if found is None or "got mixed" in str(found) or compare(lines, ours, run(lines, dt)) is None:
        return None  # what differs on purpose differs without shards, too
    return lines, found


def main(profile: str, first: int, count: int, shapes: list[tuple]) -> None:
    warnings.simplefilter("ignore")
    groups: dict[str, list] = {}
    for seed in range(first, first + count):
        shape = shapes[seed % len(shapes)]
        found = check(profile, seed, shape)
        if found is not None:
            said = str(found[1])
            key = said[said.find("ours") :][:110] if " of " in said[:30] else said[:110]
            groups.setdefault(key, []).append((seed, shape, said))
    for cases in sorted(groups.values(), key=len, reverse=True):
        print(len(cases), cases[0][0], cases[0][1], cases[0][2][:420])
    print(f"{profile}: {sum(map(len, groups.values()))} of {count} differ")


if __name__ == "__main__":
    sizes = [tuple(map(int, s.split("x"))) for s in sys.argv[4:]] or [(2,), (3,), (2, 2)]
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sizes)
