"""Random kernels with arguments, for holding one evaluator of the language against another."""

from __future__ import annotations

import ml_dtypes
import numpy as np

from disttrain.backends.lang import expr as E
from disttrain.backends.lang.expr import Expr, cast, const, index, load, var, where
from disttrain.backends.lang.kernel import (
    Array,
    Kernel,
    Let,
    Loop,
    Put,
    Reduce,
    Scalar,
    Store,
    check,
)

TYPES = ("float32", "float64", "bfloat16", "float16", "int32", "int64", "int8", "bool")
# No functions that grow without bounds, or jump where rounding decides (a comparison of results).
_ONE = (abs, E.tanh, E.sigmoid, E.sin, E.cos, E.erf, lambda a: -a, lambda a: E.sqrt(abs(a)))
_TWO = (
    lambda a, b: a + b,
    lambda a, b: a - b,
    lambda a, b: a * 0.5 * E.tanh(b),
    lambda a, b: a / (abs(b) + 1),
    E.max,
    E.min,
)


class Draw:
    """One kernel drawn from ``seed``, and arguments for it in various layouts."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.flat = self.rng.random() < 0.4
        self.row_values: list[str] = []
        self.params = self._params()
        self.names = [p.name for p in self.params]
        self.written: set[str] = set()
        self.summed: set[str] = set()
        steps = self._steps()
        self.kernel = Kernel(f"random{seed}", tuple(self.params), steps, self.flat)
        check(self.kernel)

    def pick(self, *choices):
        return choices[self.rng.integers(len(choices))]

    def _params(self) -> list:
        reads = [Array(f"x{k}", self.pick(*TYPES)) for k in range(self.pick(1, 2, 3))]
        reads[0] = Array("x0", self.pick("float32", "float64", "bfloat16"))
        writes = [
            Array(f"y{k}", self.pick("float32", "float64", "float16"), writes=True)
            for k in range(self.pick(1, 1, 2))
        ]
        scalars = [Scalar("s0", self.pick("float32", "float64", "int64"))]
        spaces = ("one",) if self.flat else ("row", "col", "one")
        extra = [Array(f"e{s}", "float32", s) for s in spaces]
        sums = [Array(f"t{s}", self.pick("float32", "float64"), s, writes=True) for s in spaces]
        return [*reads, *writes, *scalars, *extra, *sums]

    def leaf(self, moves: bool) -> Expr:
        rows = [n for n in ("s0", "erow", "eone") if n in self.names] + self.row_values
        there = ["x0", "x1", "x2", "ecol", *(w for w in self.written if w[0] == "y")]
        columns = [n for n in there if n in self.names]
        if moves and self.rng.random() < 0.8:
            kind = self.rng.random()
            if kind < 0.1:
                return cast(index(), "float32") * 0.01
            return var(self.pick(*columns))
        if self.rng.random() < 0.2:
            return const(self.pick(0.5, 2, -1.25, 3))
        if self.rng.random() < 0.15:
            value = load("x0", self.pick(0, 1, 2))
            return where(E.isnan(value), 0.25, value)
        return var(self.pick(*rows))

    def value(self, moves: bool, depth: int) -> Expr:
        kind = self.rng.random()
        if depth == 0 or kind < 0.15:
            return self.leaf(moves)
        if kind < 0.4:
            return self.pick(*_ONE)(self.value(moves, depth - 1))
        if kind < 0.85:
            a, b = self.value(moves, depth - 1), self.value(moves, depth - 1)
            return self.pick(*_TWO)(a, b)
        if kind < 0.92:
            return cast(self.value(moves, depth - 1), self.pick("float32", "float64"))
        chosen = self.value(moves, depth - 1), self.value(moves, depth - 1)
        return where(self.leaf(moves) > 0.5, *chosen)

    def _steps(self) -> tuple:
        steps: list = []
        for k in range(self.pick(1, 2, 3)):
            if self.rng.random() < 0.3:
                steps.append(self._let(f"l{k}"))
            steps.append(self._loop(k))
            if self.rng.random() < 0.5:
                steps.append(self._let(f"m{k}"))
            steps += self._puts()
        if not self.written:
            steps.append(Loop((Store("y0", self.value(True, 2)),)))
        return tuple(steps)

    def _let(self, name: str) -> Let:
        step = Let(name, self.value(False, 2))
        self.row_values.append(name)
        return step

    def _loop(self, k: int) -> Loop:
        body: list = []
        made = []
        targets = [p.name for p in self.params if p.name[0] == "y"]
        for name in targets:
            if self.rng.random() < 0.5:
                body.append(Store(name, self.value(True, 3), add=bool(self.rng.random() < 0.2)))
        for r in range(self.pick(0, 1, 2)):
            op = self.pick("sum", "max", "min", "maxnum")
            value = self.value(True, 2)
            body.append(Reduce(f"r{k}{r}", op, value * 0.1 if op == "sum" else value * 1.0))
            made.append(f"r{k}{r}")
        if "tcol" in self.names and "tcol" not in self.summed and self.rng.random() < 0.5:
            body.append(Store("tcol", self.value(True, 2), add=True))
            self.summed.add("tcol")
        body = body or [Store(targets[0], self.value(True, 3))]
        self.row_values += made
        self.written |= {s.array for s in body if isinstance(s, Store)}
        return Loop(tuple(body))

    def _puts(self) -> list:
        puts = []
        for name in ("trow", "tone"):
            if name in self.names and name not in self.summed and self.rng.random() < 0.4:
                add = name == "tone" or bool(self.rng.random() < 0.5)
                puts.append(Put(name, self.value(False, 2), add=add))
                self.summed.add(name)
                self.written.add(name)
        return puts

    def arguments(self, shape: tuple[int, ...]) -> list:
        """For rows and columns of ``shape``: values of modest size, lying in various ways."""
        out: list = []
        for p in self.params:
            if isinstance(p, Scalar):
                out.append(2.0 if "int" in p.dtype else 0.75)
                continue
            there = {"full": shape, "row": shape[:-1], "col": shape[-1:], "one": (1,)}[p.space]
            if p.space == "full" and not p.writes and self.flat and self.rng.random() < 0.2:
                there = tuple(1 if self.rng.random() < 0.5 else n for n in there)
            out.append(self._lying(self._numbers(p.dtype, there)))
        return out

    def _numbers(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name == "bool":
            return self.rng.random(shape) < 0.5
        if "int" in name:
            return self.rng.integers(-9, 9, shape).astype(name)
        kind = getattr(ml_dtypes, name) if name == "bfloat16" else name
        return self.rng.standard_normal(shape).astype(kind)

    def _lying(self, a: np.ndarray) -> np.ndarray:
        how = self.rng.random()
        if how < 0.6 or a.ndim == 0:
            return a
        if how < 0.7:
            return np.ascontiguousarray(a.T).T
        if how < 0.8:
            return np.ascontiguousarray(a[..., ::-1])[..., ::-1]
        wide = np.zeros((*a.shape[:-1], a.shape[-1] * 2 + 1), a.dtype)
        wide[..., 1::2] = a
        return wide[..., 1::2]
