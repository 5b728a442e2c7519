"""The table of primitives (``cases.table``) on devices: each rule there is what it is on the CPU,
and neither copies between host and device nor waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from disttrain import func
from disttrain.core import Tensor, grad
from disttrain.ops.declare import REGISTRY
from support.cases.table import call, floating, samples, smooth_outputs, tensor

Put = Callable[[Any], Any]
UNBATCHED = {("cross_entropy", 2), ("cross_entropy_backward", 3)}  # refused: class weights
TOLERANCE = {8: 1e-10, 4: 2e-4, 2: 6e-2}


def there(a: Any) -> Any:
    """Arrays as tensors on the device over copies of them, the rest as it is."""
    return tensor(a).to("cuda") if isinstance(a, np.ndarray) else a


def typed(a: Any, kind: np.dtype) -> Any:
    return a.astype(kind) if isinstance(a, np.ndarray) and a.dtype == np.float64 else a


def weights(outs: Any, put: Put, seed: int = 7) -> list:
    """A fixed cotangent for every output."""
    rng = np.random.default_rng(seed)
    return [put(rng.normal(size=tuple(o.shape)).astype(o.meta()[1])) for o in outs]


class Rules:
    """What is compared: each method gives the results of one rule, for arguments put where ``put``
    puts them. ``quiet`` is called before each piece of work and ``told`` after it."""

    def __init__(self, double: Any, kind: np.dtype) -> None:
        self.double, self.kind = double, kind

    def check(self, rule: str, name: str, most: int | None = None) -> None:
        """Compare one rule of a primitive for its samples (the first ``most``)."""
        for args, params in samples(name)[:most]:
            places = floating(REGISTRY[name], args)
            if rule != "forward" and not places:
                continue
            args = tuple(typed(a, self.kind) for a in args)
            try:
                want = getattr(self, rule)(name, args, params, places, tensor)
            except TypeError:  # not for this type
                with pytest.raises((TypeError, ValueError)):
                    getattr(self, rule)(name, args, params, places, there)
                continue
            got = getattr(self, rule)(name, args, params, places, there)
            assert len(got) == len(want)
            for g, w in zip(got, want, strict=True):
                self._same(g, w, rule)

    def _same(self, got: Tensor | None, want: Tensor | None, rule: str) -> None:
        assert (got is None) == (want is None)
        if got is None or want is None:
            return
        assert got.is_cuda, f"{rule}: the result is on the CPU"
        mine = self.double.download(got.array.data)
        assert (mine.shape, mine.dtype) == (want.array.shape, want.array.dtype)
        wide = "c16" if mine.dtype.kind == "c" else "f8"
        tol = TOLERANCE[self.kind.itemsize]
        np.testing.assert_allclose(mine.astype(wide), want.array.astype(wide), rtol=tol, atol=tol)

    def _quiet(self) -> None:
        counts = self.double.counts
        assert not counts.transfers and not counts.waits and not counts.unordered, f"{counts}"

    def forward(self, name: str, args: tuple, params: dict, places: list, put: Put) -> list:
        inputs = [put(a) for a in args]
        self.double.counts.clear()
        outs = call(REGISTRY[name], inputs, params)
        self._quiet()
        return list(outs[:1] if name == "attention" else outs)  # what it keeps, each has its own

    def _pulled(self, name: str, args: tuple, params: dict, places: list, put: Put,
                again: bool) -> tuple[list, list]:  # fmt: skip
        prim, inputs = REGISTRY[name], [put(a) for a in args]
        for i in places:
            inputs[i].requires_grad_()
        outs = call(prim, inputs, params)
        live = [outs[k] for k in smooth_outputs(prim, outs) if outs[k].requires_grad]
        chosen = [inputs[i] for i in places]
        if not live:
            return chosen, [None] * len(chosen)
        seeds = weights(live, put)
        self.double.counts.clear()
        rows = grad(live, chosen, seeds, create_graph=again, allow_unused=True)
        self._quiet()
        return chosen, list(rows)

    def vjp(self, name: str, args: tuple, params: dict, places: list, put: Put) -> list:
        return self._pulled(name, args, params, places, put, False)[1]

    def second(self, name: str, args: tuple, params: dict, places: list, put: Put) -> list:
        inputs, rows = self._pulled(name, args, params, places, put, True)
        rows = [r for r in rows if r is not None]
        seeds = weights(rows, put, 8)
        self.double.counts.clear()
        live = [(r, s) for r, s in zip(rows, seeds, strict=True) if r.requires_grad]
        if not live:
            return []
        found = grad([r for r, _ in live], inputs, [s for _, s in live], allow_unused=True)
        self._quiet()
        return list(found)

    def jvp(self, name: str, args: tuple, params: dict, places: list, put: Put) -> list:
        prim, rng = REGISTRY[name], np.random.default_rng(5)
        moves = [put(rng.normal(size=args[i].shape).astype(self.kind)) for i in places]
        inputs = [put(a) for a in args]
        if not smooth_outputs(prim, call(prim, inputs, params)):
            return []
        self.double.counts.clear()

        def run(*values: Any) -> tuple:
            full = list(inputs)
            for i, v in zip(places, values, strict=True):
                full[i] = v
            outs = call(prim, full, params)
            return tuple(outs[k] for k in smooth_outputs(prim, outs))

        moved = func.jvp(run, tuple(inputs[i] for i in places), tuple(moves))[1]
        self._quiet()
        return list(moved)

    def batch(self, name: str, args: tuple, params: dict, places: list, put: Put) -> list:
        """All arrays mapped; then the first alone."""
        prim = REGISTRY[name]
        arrays = [
            i
            for i, a in enumerate(args)
            if isinstance(a, np.ndarray) and (name, i) not in UNBATCHED
        ]
        found: list = []
        for mapped in (arrays, arrays[:1]) if len(arrays) > 1 else (arrays,):
            inputs = [put(a) for a in args]
            stacked = [put(np.stack([args[i], args[i]])) for i in mapped]
            self.double.counts.clear()

            def run(*values: Any, mapped: Any = mapped, inputs: Any = inputs) -> tuple:
                full = list(inputs)
                for i, v in zip(mapped, values, strict=True):
                    full[i] = v
                return call(prim, full, params)

            outs = func.vmap(run)(*stacked)
            found += outs[:1] if name == "attention" else outs
            self._quiet()
        return found
