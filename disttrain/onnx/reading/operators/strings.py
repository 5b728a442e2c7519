"""Texts, as arrays of objects on the host."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....errors import OperatorError
from ....ops import api
from ..table import operator


def _each(how: Any, *given: np.ndarray) -> np.ndarray:
    full = np.broadcast_arrays(*given)
    out = np.empty(full[0].shape, object)
    for place in np.ndindex(out.shape):
        out[place] = how(*[a[place] for a in full])
    return out


@operator("StringConcat")
def _concat(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return _each(lambda x, y: x + y, a, b)


@operator("StringSplit")
def _split(x: np.ndarray, *, delimiter: str = "", maxsplit: int | None = None) -> Any:
    most = -1 if maxsplit is None else maxsplit
    parts = [t.split(delimiter or None, most) if t else [] for t in x.ravel()]
    width = max(map(len, parts), default=0)
    out = np.full((len(parts), width), "", object)
    for row, words in zip(out, parts):
        row[: len(words)] = words
    counts = np.array([len(p) for p in parts], np.int64).reshape(x.shape)
    return out.reshape(*x.shape, width), api.tensor(counts)


@operator("RegexFullMatch")
def _full_match(x: np.ndarray, *, pattern: str) -> Tensor:
    if re.search(r"\\[1-9]|\(\?[=!<]", pattern):
        raise OperatorError(f"pattern {pattern!r} looks back or ahead, which RE2 has not")
    found = re.compile(pattern)
    return api.tensor(np.vectorize(lambda t: found.fullmatch(t) is not None, otypes=[bool])(x))


@operator("StringNormalizer")
def _normalize(
    x: np.ndarray, *, case_change_action: str = "NONE", is_case_sensitive: int = 0,
    locale: str = "", stopwords: Any = (),
) -> np.ndarray:  # fmt: skip
    left_out = set(stopwords) if is_case_sensitive else {s.lower() for s in stopwords}
    change = {"LOWER": str.lower, "UPPER": str.upper}.get(case_change_action, str)
    rows = [
        [change(t) for t in row if (t if is_case_sensitive else t.lower()) not in left_out]
        for row in x.reshape(-1, x.shape[-1])
    ]
    rows = [row or [""] for row in rows]
    out = np.empty((len(rows), len(rows[0])), object)
    out[:] = rows
    return out if x.ndim == 2 else out[0]


@operator("TfIdfVectorizer")
def _tf_idf(
    x: Any, *, max_gram_length: int, max_skip_count: int, min_gram_length: int, mode: str,
    ngram_counts: Any, ngram_indexes: Any, pool_int64s: Any = None, pool_strings: Any = None,
    weights: Any = None,
) -> Tensor:  # fmt: skip
    """Counts of n-grams of a pool, skips included, with weights."""
    pool = list(pool_strings if pool_strings is not None else pool_int64s)
    grams: dict[tuple, int] = {}
    starts = [*ngram_counts, len(pool)]
    number = 0
    for n, (first, last) in enumerate(itertools.pairwise(starts), 1):
        for at in range(first, last, n):
            grams[tuple(pool[at : at + n])] = number
            number += 1
    array = x if isinstance(x, np.ndarray) else x.numpy()
    rows = array.reshape(1, -1) if array.ndim <= 1 else array
    out = np.zeros((len(rows), max(ngram_indexes) + 1), np.float32)
    for row, words in zip(out, rows):
        counts = _counted(words.tolist(), grams, min_gram_length, max_gram_length, max_skip_count)
        for number, count in counts.items():
            weight = 1.0 if weights is None else weights[number]
            share = {"TF": count, "IDF": weight, "TFIDF": count * weight}[mode]
            row[ngram_indexes[number]] = share
    return api.tensor(out[0] if array.ndim <= 1 else out)


def _counted(words: list, grams: dict, least: int, most: int, skips: int) -> Counter:
    found: Counter = Counter()
    for n in range(least, most + 1):
        for skip in range(1 if n == 1 else skips + 1):
            step = skip + 1
            for first in range(len(words) - (n - 1) * step):
                gram = tuple(words[first + i * step] for i in range(n))
                if gram in grams:
                    found[grams[gram]] += 1
    return found
