"""``tf.debugging``: assertions, now or at every run of a traced function; and ``tf.test``."""

from __future__ import annotations

import contextlib
import operator
import tempfile
import unittest
from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain as dt

from ... import tree
from ...arrays import texts
from .dispatch import execute
from .errors import InvalidArgumentError
from .tensor import GRAPH, convert, is_tensor, wrap
from .types import as_dtype

_COMPARE = {"equal": "==", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}


def _asserted(word: str, sign: str) -> Callable:
    holds = getattr(operator, {"equal": "eq", "less": "lt", "less_equal": "le", "greater": "gt",
                               "greater_equal": "ge"}[word])  # fmt: skip

    def function(x: Any, y: Any, message: str | None = None, summarize: Any = None,
                 name: str | None = None) -> Any:  # fmt: skip
        first = convert(x)

        def call(a: Any, b: Any) -> None:
            good = holds(a, b)
            if GRAPH.get() is None and not bool(good.all()):
                head = f"{message}\n" if message else ""
                raise InvalidArgumentError(None, None, head + texts.differences(sign, good, a, b))

        effect("Assert", call, [first, convert(y, hint=first.dtype)])

    function.__name__ = f"assert_{word}"
    return function


def effect(kind: str, call: Callable, inputs: list) -> None:
    """Do something now, or at every run of the function being traced."""
    graph = GRAPH.get()
    if graph is None:
        call(*[t._value for t in inputs])
    else:
        graph.record(kind, call, inputs, examples=())


def Assert(condition: Any, data: Any, summarize: Any = None, name: Any = None) -> None:  # noqa: N802
    """Raise with ``data`` unless ``condition`` holds."""
    given = [convert(d) for d in data]

    def call(ok: Any, *values: Any) -> None:
        if not bool(ok.all()):
            shown = "\n".join(str(wrap(v).numpy()) for v in values)
            raise InvalidArgumentError(None, None,
                f"Expected 'tf.Tensor(False, shape=(), dtype=bool)'"
                                       f" to be true. Summarized data: {shown}")  # fmt: skip

    effect("Assert", call, [convert(condition), *given])


def assert_shapes(shapes: Any, data: Any = None, summarize: Any = None, message: str | None = None,
                  name: Any = None) -> None:  # fmt: skip
    """Raise unless tensors have the shapes that go with them, in which equal letters are equal."""
    known: dict[Any, int] = {}
    for t, wanted in shapes.items() if isinstance(shapes, dict) else shapes:
        sizes, symbols = tuple(convert(t).shape), tuple(wanted)
        good = len(sizes) == len(symbols) and all(
            n is None
            or s is None
            or (n == s if isinstance(s, int) else known.setdefault(s, n) == n)
            for n, s in zip(sizes, symbols, strict=True)
        )
        if not good:
            raise ValueError(f"{message or ''} Tensor has shape {sizes}, which must be {symbols}")


def check_numerics(tensor: Any, message: str, name: Any = None) -> Any:
    """``tensor``; an error where it has a NaN or an infinity."""

    def call(v: Any) -> Any:
        if GRAPH.get() is None and not bool(dt.isfinite(v).all()):
            what = "NaN" if bool(dt.isnan(v).any()) else "Inf"
            raise InvalidArgumentError(None, None, f"{message} : Tensor had {what} values")
        return v.clone()

    return execute("CheckNumerics", call, [convert(tensor)])


def assert_rank(x: Any, rank: int, message: str | None = None, name: Any = None) -> None:
    """Raise unless ``x`` has ``rank`` dimensions."""
    t = convert(x)
    if t.ndim != rank:
        raise ValueError(f"{message or ''}Tensor must have rank {rank}.  Received rank {t.ndim}, "
                         f"shape {t.shape}")  # fmt: skip


def assert_type(tensor: Any, tf_type: Any, message: str | None = None, name: Any = None) -> None:
    """Raise unless ``tensor`` is of the type."""
    t = convert(tensor)
    if t.dtype is not as_dtype(tf_type):
        raise TypeError(f"{message or ''}tensor must be of type {as_dtype(tf_type)!r}; got "
                        f"{t.dtype!r}")  # fmt: skip


DEBUGGING: dict[str, Any] = {
    **{f"assert_{w}": _asserted(w, s) for w, s in _COMPARE.items()}, "Assert": Assert,
    "assert_shapes": assert_shapes, "check_numerics": check_numerics, "assert_rank": assert_rank,
    "assert_type": assert_type, "assert_all_finite": check_numerics,
    "assert_positive": lambda x, **k: _asserted("greater", ">")(x, 0, **k),
    "assert_non_negative": lambda x, **k: _asserted("greater_equal", ">=")(x, 0, **k),
    "is_numeric_tensor": lambda t: is_tensor(t) and not convert(t).dtype.is_bool,
    "assert_scalar": lambda t, message=None, name=None: assert_rank(t, 0, message),
    "enable_check_numerics": lambda *a, **k: None, "disable_check_numerics": lambda: None,
}  # fmt: skip


class TestCase(unittest.TestCase):
    """A test with assertions on tensors."""

    def evaluate(self, tensors: Any) -> Any:
        return tree.map(lambda t: convert(t).numpy(), tensors)

    def get_temp_dir(self) -> str:
        found = self.__dict__.setdefault("_folder", tempfile.mkdtemp())
        return found

    def _arrays(self, *values: Any) -> list:
        return [np.asarray(convert(v).numpy() if is_tensor(v) else v) for v in values]

    def assertAllEqual(self, a: Any, b: Any, msg: Any = None) -> None:  # noqa: N802
        first, second = self._arrays(a, b)
        self.assertEqual(first.shape, second.shape, msg)
        self.assertTrue(np.array_equal(first, second), msg or f"{first} != {second}")

    def assertAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6,  # noqa: N802
                       msg: Any = None) -> None:  # fmt: skip
        if isinstance(a, dict):
            for k in a:
                self.assertAllClose(a[k], b[k], rtol, atol, msg)
            return
        first, second = self._arrays(a, b)
        self.assertEqual(first.shape, second.shape, msg)
        close = bool(
            dt.isclose(dt.tensor(first).double(), dt.tensor(second).double(), rtol, atol).all()
        )
        self.assertTrue(close, msg or f"{first} is not close to {second}")

    def assertAllInRange(self, target: Any, low: Any, high: Any) -> None:  # noqa: N802
        (found,) = self._arrays(target)
        self.assertTrue(bool(((found >= low) & (found <= high)).all()))

    def assertNear(self, f1: float, f2: float, err: float, msg: Any = None) -> None:  # noqa: N802
        self.assertLessEqual(abs(float(f1) - float(f2)), err, msg)

    def assertShapeEqual(self, input_a: Any, input_b: Any, msg: Any = None) -> None:  # noqa: N802
        self.assertEqual(tuple(input_a.shape), tuple(input_b.shape), msg)

    def assertDTypeEqual(self, target: Any, expected: Any) -> None:  # noqa: N802
        self.assertEqual(as_dtype(target.dtype), as_dtype(expected))

    @contextlib.contextmanager
    def session(self, *args: Any, **kwargs: Any) -> Any:
        yield self

    cached_session = session
