"""Arrays of bytes, and arrays as short texts."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.arrays import texts

WORDS = np.array([b"ab", b"c"], object)


def test_texts():
    assert texts.each(bytes.upper, WORDS).tolist() == [b"AB", b"C"]
    assert texts.each(len, WORDS, kind=dt.int32).tolist() == [2, 1]
    assert texts.joined([WORDS, WORDS], b"-").tolist() == [b"ab-ab", b"c-c"]
    assert texts.equal(WORDS, np.array([b"ab", b"d"], object)).tolist() == [True, False]
    assert texts.number(b"1.5") == 1.5
    with pytest.raises(ValueError, match="convert string: x"):
        texts.number(b"x")


def test_numbers_as_texts():
    assert texts.of_numbers(dt.tensor([1.5]), 2).tolist() == [b"1.50"]
    assert texts.of_numbers(dt.tensor([True, False])).tolist() == [b"true", b"false"]
    assert texts.of_numbers(dt.tensor(7)).item() == b"7"


def test_short_texts():
    assert texts.brief(np.arange(9), 2) == "[0 1 ... 7 8]"
    assert texts.brief(np.arange(3), -1) == "[0 1 2]"
    assert texts.brief(np.array([[1.5, True]]), 3) == "[[1.5 1]]"
    assert texts.brief(np.array([[1.0], [2.0]]), 3) == "[[1]\n [2]]"


def test_differences():
    a, b = dt.tensor([1, 5, 2]), dt.tensor(3)
    said = texts.differences("<", a < b, a, b)
    assert said.startswith("Condition x < y did not hold.\nIndices of first 1 different values:")
    assert "Corresponding x values:\n[5]" in said
