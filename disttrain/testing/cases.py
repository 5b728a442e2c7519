"""``TensorCase``: a ``unittest.TestCase`` with assertions on tensors and arrays."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import unittest
from collections.abc import Iterator
from typing import Any

import numpy as np

from .. import tree
from ..core.tensor import Tensor


class TensorCase(unittest.TestCase):
    """A test with assertions on tensors. A subclass may say what arrays they are (``array``)."""

    def array(self, value: Any) -> np.ndarray:
        """``value`` as numpy's array."""
        return np.asarray(value.detach().numpy() if isinstance(value, Tensor) else value)

    def evaluate(self, tensors: Any) -> Any:
        """The numbers of nested tensors."""
        return tree.map(lambda t: self.array(t)[()], tensors)

    def get_temp_dir(self) -> str:
        """A folder for this test."""
        if "_folder" not in self.__dict__:
            self._folder = tempfile.mkdtemp()
            self.addCleanup(shutil.rmtree, self._folder, ignore_errors=True)
        return self._folder

    def assertAllEqual(self, a: Any, b: Any, msg: Any = None) -> None:  # noqa: N802
        """The same shape and numbers."""
        first, second = self.array(a), self.array(b)
        self.assertEqual(first.shape, second.shape, msg)
        self.assertTrue(np.array_equal(first, second), msg or f"{first} != {second}")

    def assertAllClose(self, a: Any, b: Any, rtol: float = 1e-6, atol: float = 1e-6,  # noqa: N802
                       msg: Any = None) -> None:  # fmt: skip
        """The same shape, and numbers that are close; also of dicts of them."""
        if isinstance(a, dict):
            for k in a:
                self.assertAllClose(a[k], b[k], rtol, atol, msg)
            return
        first, second = self.array(a), self.array(b)
        self.assertEqual(first.shape, second.shape, msg)
        close = np.allclose(first.astype(np.float64), second.astype(np.float64), rtol, atol)
        self.assertTrue(close, msg or f"{first} is not close to {second}")

    def assertAllInRange(self, target: Any, low: Any, high: Any) -> None:  # noqa: N802
        """All numbers are in [low, high]."""
        found = self.array(target)
        self.assertTrue(bool(((found >= low) & (found <= high)).all()))

    def assertNear(self, f1: float, f2: float, err: float, msg: Any = None) -> None:  # noqa: N802
        """Two numbers differ by ``err`` at most."""
        self.assertLessEqual(abs(float(f1) - float(f2)), err, msg)

    def assertShapeEqual(self, a: Any, b: Any) -> None:  # noqa: N802
        """The same shape."""
        self.assertEqual(tuple(a.shape), tuple(b.shape))

    @contextlib.contextmanager
    def session(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """A block; nothing is to be opened."""
        yield self

    cached_session = session
