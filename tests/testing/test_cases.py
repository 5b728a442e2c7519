"""Assertions on tensors."""

from __future__ import annotations

import os

import disttrain as dt
from disttrain.testing.cases import TensorCase


class TestTensors(TensorCase):
    def test_equal_and_close(self):
        x = dt.tensor([1.0, 2.0], requires_grad=True)
        self.assertAllEqual(x, [1.0, 2.0])
        self.assertAllClose({"a": x}, {"a": [1.0 + 1e-7, 2.0]})
        self.assertAllInRange(x, 1, 2)
        self.assertShapeEqual(x, x)
        self.assertNear(x[0], 1.1, 0.2)
        assert self.evaluate({"a": x[1]}) == {"a": 2.0}
        assert os.path.isdir(self.get_temp_dir())
        with self.session() as found:
            assert found is self
        for wrong in ([1.0], [1.0, 2.1]):
            with self.assertRaises(AssertionError):
                self.assertAllClose(x, wrong)
            with self.assertRaises(AssertionError):
                self.assertAllEqual(x, wrong)
