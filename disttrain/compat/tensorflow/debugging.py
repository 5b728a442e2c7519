"""``tf.debugging``: assertions, now or at every run of a traced function; and ``tf.test``."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np

import disttrain as dt

from ...arrays import texts
from ...graphs import effect
from ...partial_shape import fits
from ...testing.cases import TensorCase
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


def Assert(condition: Any, data: Any, summarize: Any = None, name: Any = None) -> None:  # noqa: N802
    """Raise with ``data`` unless ``condition`` holds."""

    def call(ok: Any, *values: Any) -> None:
        if not bool(ok.all()):
            shown = "\n".join(str(wrap(v).numpy()) for v in values)
            raise InvalidArgumentError(
                None, None, "Expected 'tf.Tensor(False, shape=(), dtype=bool)' to be true. "
                f"Summarized data: {shown}",
            )  # fmt: skip

    effect("Assert", call, [convert(condition), *map(convert, data)])


def assert_shapes(shapes: Any, data: Any = None, summarize: Any = None, message: str | None = None,
                  name: Any = None) -> None:  # fmt: skip
    """Raise unless tensors have the shapes that go with them, in which equal letters are equal."""
    known: dict[Any, int] = {}
    for t, wanted in shapes.items() if isinstance(shapes, dict) else shapes:
        sizes, symbols = tuple(convert(t).shape), tuple(wanted)
        if not fits(sizes, symbols, known):
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


class TestCase(TensorCase):
    """A test with assertions on tensors."""

    def array(self, value: Any) -> Any:
        return np.asarray(convert(value).numpy() if is_tensor(value) else value)

    def assertDTypeEqual(self, target: Any, expected: Any) -> None:  # noqa: N802
        self.assertEqual(as_dtype(target.dtype), as_dtype(expected))
