"""The data sets of ``scripts/train.py``: digits, IDX images, text. Every split is fixed.

Each is a ``Task``: a training and a test set of (input, target) pairs, and how many classes the
targets have. Image inputs are float32 [1, height, width] between 0 and 1; text inputs and targets
are int64 [block_size].
"""

from __future__ import annotations

import pydoc_data.topics
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import disttrain as dt
from disttrain.errors import ConfigError

from .idx import read_folder
from .settings import Data

_DIGITS = Path(__file__).parent.parent / "data" / "digits.csv"
_DIGITS_TRAIN = 1437  # of 1797: four fifths
_TEXT_TRAIN = 0.9


class Images(dt.data.Dataset):
    """Images and their labels. ``images`` is float32 [n, 1, height, width]."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images, self.labels = images, labels.astype(np.int64)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int64]:
        return self.images[index], self.labels[index]


class Windows(dt.data.Dataset):
    """Windows of ``block_size`` characters of a text; the target is the text one character on."""

    def __init__(self, codes: np.ndarray, block_size: int, stride: int) -> None:
        self.codes, self.block_size, self.stride = codes, block_size, stride

    def __len__(self) -> int:
        return max(0, (len(self.codes) - 1 - self.block_size) // self.stride + 1)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        start = index * self.stride
        window = self.codes[start : start + self.block_size + 1]
        return window[:-1], window[1:]


@dataclass(frozen=True)
class Task:
    """What is to be learned. ``alphabet`` is the characters by code, "" for images."""

    train: dt.data.Dataset
    test: dt.data.Dataset
    num_classes: int
    image_size: tuple[int, int] = (0, 0)
    alphabet: str = ""


def make_task(data: Data) -> Task:
    """The task that the settings name."""
    if data.name == "text":
        return _text(data.block_size)
    if data.dir is not None:
        parts = read_folder(data.dir)
        scale = 255.0
    else:
        parts = _digits()
        scale = 16.0
    sets = {k: Images(_prepare(images, scale), labels) for k, (images, labels) in parts.items()}
    height, width = parts["train"][0].shape[1:]
    if parts["test"][0].shape[1:] != (height, width):
        raise ConfigError(
            f"data.dir: training images are {height} x {width}, test images are "
            f"{' x '.join(map(str, parts['test'][0].shape[1:]))}; one size is needed"
        )
    num_classes = 1 + max(int(labels.max()) for _, labels in parts.values())
    return Task(sets["train"], sets["test"], num_classes, (height, width))


def _prepare(images: np.ndarray, scale: float) -> np.ndarray:
    return images[:, None].astype(np.float32) / np.float32(scale)


def _digits() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """UCI digits, shuffled once and for all (``random.Random`` is the same in every Python)."""
    table = np.loadtxt(_DIGITS, delimiter=",", dtype=np.uint8)
    order = list(range(len(table)))
    random.Random(0).shuffle(order)
    table = table[order]
    images, labels = table[:, :64].reshape(-1, 8, 8), table[:, 64]
    cut = _DIGITS_TRAIN
    return {"train": (images[:cut], labels[:cut]), "test": (images[cut:], labels[cut:])}


def _text(block_size: int) -> Task:
    """Python's own help texts: the first nine tenths to learn from, the rest to be tested on.

    The text differs between versions of Python, and the numbers with it.
    """
    topics = pydoc_data.topics.topics
    text = "\n".join(topics[name] for name in sorted(topics))
    alphabet = "".join(sorted(set(text)))
    code_of = {character: code for code, character in enumerate(alphabet)}
    codes = np.fromiter((code_of[c] for c in text), np.int64, len(text))
    cut = int(len(codes) * _TEXT_TRAIN)
    # Overlapping windows to learn from; each character is tested once.
    train = Windows(codes[:cut], block_size, max(1, block_size // 2))
    test = Windows(codes[cut:], block_size, block_size)
    return Task(train, test, len(alphabet), alphabet=alphabet)
