"""``tf.debugging``: assertions, now or at every run of a traced function; and ``tf.test``."""

from __future__ import annotations

import unittest
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ...graphs import assertions, effect
from ...testing.cases import TensorCase
from ..tables import passing
from .errors import invalid
from .math import made
from .tensor import convert, is_tensor, wrap
from .types import as_dtype

_COMPARE = {"equal": "==", "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">="}


def _effect(call: Callable, inputs: list) -> None:
    def told(*values: Any) -> None:
        try:
            call(*values)
        except ValueError as error:
            raise invalid(str(error)) from None

    effect("Assert", told, inputs)


def _asserted(word: str) -> Callable:
    def function(x: Any, y: Any, message: str | None = None, summarize: Any = None,
                 name: str | None = None) -> Any:  # fmt: skip
        first = convert(x)
        call = partial(assertions.compared, _COMPARE[word], message=message)
        _effect(call, [first, convert(y, hint=first.dtype)])

    function.__name__ = f"assert_{word}"
    return function


def Assert(condition: Any, data: Any, summarize: Any = None, name: Any = None) -> None:  # noqa: N802
    """Raise with ``data`` unless ``condition`` holds."""
    call = partial(assertions.true, shown=lambda v: str(wrap(v).numpy()))
    _effect(call, [convert(condition), *map(convert, data)])


_NUMERICS = made("- check_numerics=finite assert_all_finite:CheckNumerics=finite | tensor! message",
                 (assertions,))  # fmt: skip
DEBUGGING: dict[str, Any] = {
    **{f"assert_{w}": _asserted(w) for w in _COMPARE}, **_NUMERICS, "Assert": Assert,
    **{word: passing(word, f"{text} message=None _name=None", fn) for word, text, fn in (
        ("assert_shapes", "shapes _data=None _summarize=None", assertions.shapes),
        ("assert_type", "tensor tf_type", lambda t, kind, message: assertions.kind(
            convert(t), as_dtype(kind), message)),
        ("assert_rank", "x rank", assertions.rank),
        ("assert_scalar", "tensor", lambda t, message: assertions.rank(t, 0, message)))},
    "assert_positive": lambda x, **k: _asserted("greater")(x, 0, **k),
    "assert_non_negative": lambda x, **k: _asserted("greater_equal")(x, 0, **k),
    "is_numeric_tensor": lambda t: is_tensor(t) and not convert(t).dtype.is_bool,
    "enable_check_numerics": lambda *a, **k: None, "disable_check_numerics": lambda: None,
}  # fmt: skip


class TestCase(TensorCase):
    """A test with assertions on tensors."""

    def array(self, value: Any) -> Any:
        return np.asarray(convert(value).numpy() if is_tensor(value) else value)

    def assertDTypeEqual(self, target: Any, expected: Any) -> None:  # noqa: N802
        self.assertEqual(as_dtype(target.dtype), as_dtype(expected))


TEST: dict[str, Any] = {
    "TestCase": TestCase, "main": unittest.main, "is_built_with_cuda": lambda: False,
    "is_gpu_available": lambda *a, **k: False,
}  # fmt: skip
