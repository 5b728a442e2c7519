"""Cut the description of a large run of a kernel into parts for several threads.

    for desc in parts(kernel, desc, work(kernel)):
        built.general(desc)                    # in any order, at the same time

Rows are shared out, or the elements of a flat kernel; each is computed as it would be in one part,
so bits do not depend on the number of threads.
"""

from __future__ import annotations

import numpy as np

from .. import threads
from ..lang.kernel import Kernel, rows_apart, sees_row
from .wrap import DESC_ARRAY, DESC_HEAD, work

SPLIT_WORK = 1 << 21  # runs of less take one thread: to wake another takes 0.05 ms (measured)
_LINE = 1024  # elements of a flat kernel that stay together
_TOTAL, _ROW_DIMS, _COLS, _OUTER, _ROWS = range(5)


def parts(kernel: Kernel, desc: np.ndarray, cost: int) -> list[np.ndarray]:
    """``desc`` (see ``wrap.py``) as one part for each thread, or whole where it is small or is one
    row that the kernel sees as such. ``cost``: the kernel's ``work``."""
    amount = int(desc[_TOTAL]) * cost
    if amount < SPLIT_WORK or not rows_apart(kernel):
        return [desc]
    count = min(threads.count(), 2 * amount // SPLIT_WORK)
    rows = desc[_ROWS : _ROWS + int(desc[_ROW_DIMS])]
    axis = int(rows.argmax())
    if count == 1:
        return [desc]
    if rows[axis] >= count:
        shares = threads.portions(int(rows[axis]), 1, count)
        return [_part(kernel, desc, axis, share) for share in shares]
    if not kernel.flat or sees_row(kernel):
        return [desc]
    cols = int(desc[_COLS])
    lines = [
        slice(s.start * _LINE, s.stop * _LINE)
        for s in threads.portions(-(-cols // _LINE), 1, count)
    ]
    return [_part(kernel, desc, None, slice(s.start, min(s.stop, cols))) for s in lines]


def _part(kernel: Kernel, desc: np.ndarray, axis: int | None, share: slice) -> np.ndarray:
    """The description of a share of a row axis, of the columns where that is None."""
    desc = desc.copy()
    size, stride = (_COLS, 1) if axis is None else (_ROWS + axis, 2 + axis)
    arrays = desc[DESC_HEAD : DESC_HEAD + DESC_ARRAY * len(kernel.arrays)].reshape(-1, DESC_ARRAY)
    arrays[:, 0] += share.start * arrays[:, stride]
    desc[size] = share.stop - share.start
    rows = desc[_ROWS : _ROWS + int(desc[_ROW_DIMS])]
    desc[_OUTER] = rows[:-1].prod()
    desc[_TOTAL] = rows.prod() * desc[_COLS]
    return desc


__all__ = ["SPLIT_WORK", "parts", "work"]
