"""What LAPACK's numbers say."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.errors import LinAlgError
from disttrain.ops.primitives import failures


def test_zeros_say_nothing():
    failures.no_failure("here", np.zeros((2, 3), np.int32), failures.singular)
    failures.no_failure("here", np.zeros((), np.int32), failures.singular)


@pytest.mark.parametrize(("said", "text"), [
    (failures.singular, "diagonal element 2 is zero"), (failures.unsolvable, "matrix is singular"),
    (failures.indefinite, "minor of order 2 is not positive"), (failures.flat, r"U\[2,2\] is zero"),
])  # fmt: skip
def test_the_first_failure_is_named(said, text):
    with pytest.raises(LinAlgError, match=rf"here: .*{text}"):
        failures.no_failure("here", np.array(2), said)
    with pytest.raises(LinAlgError, match=rf"here: \(Batch element 1\): .*{text}"):
        failures.no_failure("here", np.array([0, 2, 1]), said)
