"""Direction numbers of Sobol's sequence, in up to 21201 dimensions. Knows numpy, no tensors.

They are those of S. Joe and F. Y. Kuo, Constructing Sobol sequences with better two-dimensional
projections, SIAM J. Sci. Comput. 30 (2008), published as ``new-joe-kuo-6.21201``:

    Copyright (c) 2008, Frances Y. Kuo and Stephen Joe. All rights reserved. Redistribution and use
    in source and binary forms, with or without modification, are permitted provided that
    redistributions keep this notice, these conditions and the disclaimer in documentation or other
    materials provided with the distribution, and that neither the names of the copyright holders
    nor the names of the University of New South Wales and the University of Waikato and its
    contributors are used to endorse or promote products derived from it without permission.
    THIS SOFTWARE IS PROVIDED BY THE COPYRIGHT HOLDERS "AS IS" AND ANY EXPRESS OR IMPLIED WARRANTIES
    ARE DISCLAIMED; IN NO EVENT ARE THEY LIABLE FOR ANY DAMAGES ARISING IN ANY WAY OUT OF ITS USE.

The dimensions after the first belong to the primitive polynomials over GF(2) of degrees 1 to 18 in
their order. ``directions.bin`` has for each the inner coefficients of its polynomial and its
initial numbers m_2, m_3, ... without their last bit, which is 1 (m_k has k bits): bits of all
dimensions of a degree as rows of one length, the highest first.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

BITS = 30  # of each number
# How many primitive polynomials there are, by degree.
_POLYNOMIALS = (1, 1, 2, 2, 6, 6, 18, 16, 48, 60, 176, 144, 630, 756, 1800, 2048, 7710, 7776)
MOST = 1 + sum(_POLYNOMIALS)
_FILE = Path(__file__).with_name("directions.bin")


def directions(dimension: int) -> np.ndarray:
    """For each dimension (rows) the ``BITS`` numbers that points are xor-ed with."""
    found = np.zeros((dimension, BITS), np.int64)
    found[0] = 1
    bits = np.unpackbits(np.frombuffer(_FILE.read_bytes(), np.uint8))
    row, at = 1, 0
    for degree, count in enumerate(_POLYNOMIALS, 1):
        if row >= dimension:
            break
        width = degree - 1 + degree * (degree - 1) // 2
        taken = min(count, dimension - row)
        block = bits[at : at + taken * width].reshape(taken, width).astype(np.int64)
        found[row : row + taken] = _continued(degree, block)
        row, at = row + taken, at + count * width
    return found << np.arange(BITS - 1, -1, -1)


def _continued(degree: int, block: np.ndarray) -> np.ndarray:
    """The numbers m_1, m_2, ... of dimensions of one degree: the first ones as ``block`` has them,
    the others by the recurrence of the polynomial."""
    numbers = np.ones((len(block), BITS), np.int64)
    inner, at = block[:, : degree - 1], degree - 1
    for k in range(1, degree):
        weights = 1 << np.arange(k, 0, -1)
        numbers[:, k] = (block[:, at : at + k] * weights).sum(1) + 1
        at += k
    for j in range(degree, BITS):
        before = numbers[:, j - degree]
        new = before ^ (before << degree)
        for k in range(1, degree):
            new = new ^ ((numbers[:, j - k] << k) * inner[:, k - 1])
        numbers[:, j] = new
    return numbers
