"""What the examples learn from: handwritten digits, and Python's own help texts."""

from __future__ import annotations

import pydoc_data.topics
from pathlib import Path

import numpy as np

import disttrain as dt

_DIGITS = Path(__file__).parent.parent / "data" / "digits.csv"
_TRAIN = 1437  # of 1797 images


def digits() -> tuple[dt.Tensor, dt.Tensor, dt.Tensor, dt.Tensor]:
    """Images and labels to train with, then those to test with: float32 [n, 64], int64 [n]."""
    table = np.loadtxt(_DIGITS, delimiter=",", dtype=np.float32)
    table = table[np.random.default_rng(0).permutation(len(table))]
    images = dt.from_numpy(table[:, :64] / np.float32(16))
    labels = dt.from_numpy(table[:, 64].astype(np.int64))
    return images[:_TRAIN], labels[:_TRAIN], images[_TRAIN:], labels[_TRAIN:]


def characters(count: int) -> tuple[dt.Tensor, str]:
    """The first ``count`` characters of the texts as codes, int64 [count]; the alphabet."""
    topics = pydoc_data.topics.topics
    text = "\n".join(topics[name] for name in sorted(topics))[:count].lower()
    alphabet = "".join(sorted(set(text)))
    return dt.tensor([alphabet.index(character) for character in text]), alphabet
