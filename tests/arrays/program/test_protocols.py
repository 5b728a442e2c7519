"""What Python asks of arrays."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.arrays.program import protocols


def test_numbers():
    assert protocols.single(np.array(2.5)) == 2.5
    assert protocols.item(np.array([[7]])) == 7 and protocols.item(np.arange(3), 1) == 1
    assert protocols.index(np.array(3)) == 3 and protocols.length((4, 2)) == 4
    assert protocols.truth(np.array([1])) and not protocols.truth(np.array(0.0))


@pytest.mark.parametrize(
    ("ask", "array", "error", "words"),
    [
        (protocols.single, np.ones(1), TypeError, "Only scalar arrays"),
        (protocols.item, np.ones(2), ValueError, "size 1"),
        (protocols.truth, np.ones(2), ValueError, "more than one element"),
        (protocols.truth, np.ones(0), ValueError, "empty array"),
        (protocols.index, np.array(1.0), TypeError, "Only integer scalar"),
        (protocols.length, (), TypeError, "unsized"),
    ],
)
def test_what_has_no_answer(ask, array, error, words):
    with pytest.raises(error, match=words):
        ask(array)
