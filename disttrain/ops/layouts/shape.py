"""Layouts of what rearranges: views, joining, padding."""

from __future__ import annotations

import math

from ...core.annotations import Shaped
from .layout import Layout, names, together

_ALL = together(0)


def _reshape(a: Shaped, shape: tuple) -> Layout:
    """Groups of dimensions with equal products go over into each other. A dimension that is alone
    on both sides keeps its name; of others, the first of a group on either side lies in equal
    blocks, as long as the pieces are equal."""
    old = tuple(a.shape)
    new = _whole_shape(old, shape)
    ins: list = [None] * len(old)
    outs: list = [None] * len(new)
    even: dict = {}
    for mine, theirs in _groups(old, new):
        if len(mine) == len(theirs) == 1:
            ins[mine[0]] = outs[theirs[0]] = mine[0]
            continue
        long = [d for d in mine if old[d] != 1], [d for d in theirs if new[d] != 1]
        if not (long[0] and long[1]):
            continue
        i, o = long[0][0], long[1][0]
        ins[i] = outs[o] = i
        if len(long[0]) > 1 or len(long[1]) > 1:
            even[i] = math.gcd(old[i], new[o])
    return Layout((tuple(ins),), (tuple(outs),), linear=_ALL, even=even, shapes={"shape": 0})


def _whole_shape(old: tuple, shape: tuple) -> tuple:
    """``shape`` with -1 replaced."""
    known = math.prod(n for n in shape if n != -1)
    return tuple(math.prod(old) // max(known, 1) if n == -1 else n for n in shape)


def _groups(old: tuple, new: tuple) -> list[tuple[list[int], list[int]]]:
    """The shortest runs of dimensions on both sides that have equal products."""
    if 0 in old or 0 in new:
        return []
    found = []
    i = j = 0
    while i < len(old) and j < len(new):
        mine, theirs = [i], [j]
        have, want = old[i], new[j]
        while have != want:
            if have < want:
                i += 1
                mine.append(i)
                have *= old[i]
            else:
                j += 1
                theirs.append(j)
                want *= new[j]
        found.append((mine, theirs))
        i, j = i + 1, j + 1
    return found


def _permute(a: object, dims: tuple) -> Layout:
    return Layout((names(a),), (tuple(dims),), linear=_ALL)


def _expand(a: Shaped, shape: tuple) -> Layout:
    lead = len(shape) - len(a.shape)
    own = tuple(d + lead if n == shape[d + lead] else None for d, n in enumerate(a.shape))
    out = tuple(d if d - lead >= 0 and own[d - lead] == d else None for d in range(len(shape)))
    return Layout((own,), (out,), linear=_ALL, shapes={"shape": 0})


def _indexed(shape: tuple, index: tuple) -> tuple[tuple, tuple]:
    """(names of what is indexed, names of what comes out): dimensions taken whole have one."""
    used = sum(1 for i in index if i is not None and i is not Ellipsis)
    rest = len(shape) - used
    own: list = []
    out: list = []
    index = index if Ellipsis in index else (*index, Ellipsis)
    for i in index:
        if i is None:
            out.append(None)
        elif i is Ellipsis:
            for _ in range(rest):
                out.append(len(own))
                own.append(len(own))
        else:
            n = shape[len(own)]
            whole = isinstance(i, slice) and i.indices(n) == (0, n, 1)
            if isinstance(i, slice):
                out.append(len(own) if whole else None)
            own.append(len(own) if whole else None)
    return tuple(own), tuple(out)


def _basic(index: tuple) -> bool:
    return all(i is None or i is Ellipsis or isinstance(i, (int, slice)) for i in index)


def _getitem(a: Shaped, index: tuple) -> Layout | None:
    if not _basic(index):
        return None
    own, out = _indexed(tuple(a.shape), index)
    return Layout((own,), (out,), linear=_ALL)


def _embed(a: object, index: tuple, shape: tuple) -> Layout | None:
    if not _basic(index):
        return None
    out, own = _indexed(tuple(shape), index)
    return Layout((own,), (out,), linear=_ALL, shapes={"shape": 0})


def _cat(*arrays: object, dim: int, sizes: tuple) -> Layout:
    own = names(arrays[0], dim)
    return Layout((own,) * len(arrays), (own,), linear=together(*range(len(arrays))))


def _split(a: object, dim: int, sizes: tuple) -> Layout:
    own = names(a, dim)
    return Layout((own,), (own,) * len(sizes), linear=_ALL)


def _unbind(a: Shaped, dim: int) -> Layout:
    own = names(a, dim)
    return Layout((own,), ((*own[:dim], *own[dim + 1 :]),) * a.shape[dim], linear=_ALL)


def _pad(a: object, widths: tuple, value: float = 0.0) -> Layout:
    own = names(a, *(d for d, (lo, hi) in enumerate(widths) if lo or hi))
    return Layout((own,), (own,), linear=_ALL if value == 0 else ())


def _diagonal(a: Shaped, offset: int, dim1: int, dim2: int) -> Layout:
    own = names(a, dim1, dim2)
    return Layout((own,), ((*(n for n in own if n is not None), None),), linear=_ALL)


def _diagonal_embed(a: object, offset: int, dim1: int, dim2: int, shape: tuple) -> Layout:
    out = tuple(None if d in (dim1, dim2) else d for d in range(len(shape)))
    own = (*(n for n in out if n is not None), None)
    return Layout((own,), (out,), linear=_ALL, shapes={"shape": 0})


def _unfold(a: object, dim: int, size: int, step: int) -> Layout:
    own = names(a, dim)
    return Layout((own,), ((*own, None),), linear=_ALL)


def _fold_windows(g: object, dim: int, size: int, step: int, shape: tuple) -> Layout:
    out = tuple(None if d == dim else d for d in range(len(shape)))
    return Layout(((*out, None),), (out,), linear=_ALL, shapes={"shape": 0})


def _as_real(a: object) -> Layout:
    return Layout((names(a),), ((*names(a), None),), linear=_ALL)


def _as_complex(a: object) -> Layout:
    own = names(a)[:-1]
    return Layout(((*own, None),), (own,), linear=_ALL)


def _part(a: Shaped) -> Layout:
    return Layout((names(a),), (names(a),), linear=_ALL)


RULES = {
    "reshape": _reshape,
    "permute": _permute,
    "expand": _expand,
    "getitem": _getitem,
    "embed": _embed,
    "cat": _cat,
    "split": _split,
    "unbind": _unbind,
    "pad_constant": _pad,
    "diagonal": _diagonal,
    "diagonal_embed": _diagonal_embed,
    "unfold": _unfold,
    "fold_windows": _fold_windows,
    "view_as_real": _as_real,
    "view_as_complex": _as_complex,
    "imag": _part,
}
