"""Primitives that see the same memory in another way: diagonals, windows, complex parts, strides.

    diagonal(a; offset, dim1, dim2)     diagonal_embed      adjoint of each other
    unfold(a; dim, size, step)          fold_windows        adjoint of each other
    real, imag, view_as_real, view_as_complex               between complex and real numbers
    as_strided(a; size, stride, offset, layout)  unstride   adjoint of each other

Every one is a view where numpy can make one, and a function of values in any case: given an array
with other strides it computes the same elements, in new memory if it must.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ...backends.array_kinds import ArrayKind
from ...backends.device.array import DeviceArray
from ...backends.memory import owner_of
from ...core.annotations import Value
from ...core.gate import Primitive
from ..declare import primitive
from .views import Batched, matrix_samples, up

ndarray = np.ndarray


# --- diagonals ---------------------------------------------------------------------------------
def _diagonal(a: np.ndarray, offset: int, dim1: int, dim2: int) -> Any:
    out = a.diagonal(offset, dim1, dim2)
    if a.flags.writeable:
        out.flags.writeable = True  # numpy marks diagonals read-only
    return out


def _diagonal_shape(a: Value, offset: int, dim1: int, dim2: int) -> tuple:
    sizes, n = list(a.shape), len(a.shape)
    rows, columns = sizes[dim1] + min(offset, 0), sizes[dim2] - max(offset, 0)
    length = columns if columns <= rows else rows
    lead = [size for d, size in enumerate(sizes) if d not in (dim1 % n, dim2 % n)]
    return (*lead, 0 if length < 0 else length), a.dtype


diagonal: Primitive = primitive(
    "diagonal", _diagonal, "a",
    vjp={
        "a": lambda g, offset, dim1, dim2, a_shape: diagonal_embed(
            g, offset=offset, dim1=dim1, dim2=dim2, shape=a_shape
        )
    },
    jvp="linear", shape=_diagonal_shape, view=True,
    samples=matrix_samples(offset=1, dim1=0, dim2=1),
    batch=Batched(lambda: diagonal, up("dim1", "dim2")),
)  # fmt: skip


def _diagonal_embed(a: np.ndarray, offset: int, dim1: int, dim2: int, shape: tuple) -> Any:
    out = np.zeros(shape, a.dtype)
    _diagonal(out, offset, dim1, dim2)[...] = a
    return out


diagonal_embed: Primitive = primitive(
    "diagonal_embed", _diagonal_embed, "a",
    vjp={
        "a": lambda g, offset, dim1, dim2: diagonal(g, offset=offset, dim1=dim1, dim2=dim2)
    },
    jvp="linear", shape=lambda a, offset, dim1, dim2, shape: (tuple(shape), a.dtype),
    samples=lambda rng: [
        ((rng.normal(size=(3,)), ), {"offset": 1, "dim1": 0, "dim2": 1, "shape": (3, 4)})
    ],
    batch=Batched(
        lambda: diagonal_embed,
        lambda p, n: {**up("dim1", "dim2")(p, n), "shape": (n, *p["shape"])},
    ),
)  # fmt: skip


# --- windows -----------------------------------------------------------------------------------
def _unfold(a: np.ndarray, dim: int, size: int, step: int) -> Any:
    """Windows of ``size`` every ``step`` along ``dim``, as a new last dimension."""
    if not a.ndim:
        return a.reshape(1)[:size]
    count = (a.shape[dim] - size) // step + 1
    shape = (*a.shape[:dim], count, *a.shape[dim + 1 :], size)
    along = a.strides[dim]
    strides = (*a.strides[:dim], along * step, *a.strides[dim + 1 :], along)
    return np.lib.stride_tricks.as_strided(a, shape, strides, writeable=a.flags.writeable)


def _unfold_shape(a: Value, dim: int, size: int, step: int) -> tuple:
    if not a.shape:
        return (min(size, 1),), a.dtype
    sizes = [*a.shape, size]
    sizes[dim] = (a.shape[dim] - size) // step + 1
    return tuple(sizes), a.dtype


def _fold_windows(g: np.ndarray, dim: int, size: int, step: int, shape: tuple) -> Any:
    """Add windows up where they came from."""
    if not shape:
        return g.sum().reshape(())
    out = np.zeros(shape, g.dtype)
    count = g.shape[dim]
    ahead = (slice(None),) * dim
    for i in range(size):
        out[(*ahead, slice(i, i + (count - 1) * step + 1, step))] += g[..., i]
    return out


unfold: Primitive = primitive(
    "unfold", _unfold, "a",
    vjp={
        "a": lambda g, dim, size, step, a_shape: fold_windows(
            g, dim=dim, size=size, step=step, shape=tuple(a_shape)
        )
    },
    jvp="linear", shape=_unfold_shape, view=True,
    samples=matrix_samples(dim=1, size=2, step=1), batch=Batched(lambda: unfold, up("dim")),
)  # fmt: skip

fold_windows: Primitive = primitive(
    "fold_windows", _fold_windows, "g",
    vjp={"g": lambda g, dim, size, step: unfold(g, dim=dim, size=size, step=step)},
    jvp="linear", shape=lambda g, dim, size, step, shape: (tuple(shape), g.dtype),
    samples=lambda rng: [
        ((rng.normal(size=(3, 3, 2)),), {"dim": 1, "size": 2, "step": 1, "shape": (3, 4)})
    ],
    batch=Batched(
        lambda: fold_windows, lambda p, n: {**up("dim")(p, n), "shape": (n, *p["shape"])}
    ),
)  # fmt: skip


# --- complex numbers and their parts -----------------------------------------------------------
def _part_type(kind: np.dtype) -> np.dtype:
    return np.dtype(f"f{kind.itemsize // 2}") if kind.kind == "c" else kind


def _complex_type(kind: np.dtype) -> np.dtype:
    return np.dtype(f"c{kind.itemsize * 2}")


def _complex_samples(rng: np.random.Generator) -> list:
    return [((rng.normal(size=(3, 4)) + 1j * rng.normal(size=(3, 4)),), {})]


real: Primitive = primitive(
    "real", lambda a: a.real, "a", vjp={"a": lambda g: g},
    shape=lambda a: (a.shape, _part_type(a.dtype)), view=True, jvp="linear",
)  # fmt: skip
real.elementwise = True
imag: Primitive = primitive(
    "imag", lambda a: a.imag, "a", vjp={"a": lambda g: g * 1j},
    shape=lambda a: (a.shape, _part_type(a.dtype)), view=True, jvp="linear",
    samples=_complex_samples, batch=Batched(lambda: imag, lambda p, n: {}),
)  # fmt: skip


def _view_as_real(a: np.ndarray) -> Any:
    part = _part_type(a.dtype)
    if a.ndim and a.strides[-1] == a.itemsize:
        return a.view(part).reshape(*a.shape, 2)
    return np.lib.stride_tricks.as_strided(
        a.real, (*a.shape, 2), (*a.strides, part.itemsize), writeable=a.flags.writeable
    )


def _view_as_complex(a: np.ndarray) -> Any:
    if a.dtype.kind != "f":
        raise TypeError(f"pairs of floating-point numbers are needed, not {a.dtype}")
    if a.strides[-1] != a.itemsize or any(s % (2 * a.itemsize) for s in a.strides[:-1]):
        a = np.ascontiguousarray(a)
    return a.view(_complex_type(a.dtype))[..., 0]


view_as_real: Primitive = primitive(
    "view_as_real", _view_as_real, "a", vjp={"a": lambda g: view_as_complex(g)},
    jvp="linear", shape=lambda a: ((*a.shape, 2), _part_type(a.dtype)), view=True,
    samples=_complex_samples, batch=Batched(lambda: view_as_real, lambda p, n: {}),
)  # fmt: skip
view_as_complex: Primitive = primitive(
    "view_as_complex", _view_as_complex, "a", vjp={"a": lambda g: view_as_real(g)},
    jvp="linear", shape=lambda a: (a.shape[:-1], _complex_type(a.dtype)), view=True,
    samples=lambda rng: [((rng.normal(size=(3, 2)),), {})],
    batch=Batched(lambda: view_as_complex, lambda p, n: {}),
)  # fmt: skip


# --- strides -----------------------------------------------------------------------------------
class Layout(NamedTuple):
    """How a tensor lies in its storage, in elements: where it begins, its strides, the storage."""

    first: int
    stride: tuple[int, ...]
    total: int


def address_of(a: np.ndarray) -> int:
    """Where ``a`` begins in its memory."""
    return a.address if isinstance(a, DeviceArray) else a.__array_interface__["data"][0]


def storage_of(a: np.ndarray) -> Any:
    """The whole memory that ``a`` lies in, as one dimension of bytes."""
    if isinstance(a, DeviceArray):
        return a.row()
    return owner_of(a).ravel("K").view(np.uint8)


def layout_of(a: np.ndarray) -> Layout:
    """The layout of ``a``."""
    item = a.itemsize
    memory = storage_of(a)
    first = address_of(a) - address_of(memory) if a.size else 0
    return Layout(first // item, tuple(s // item for s in a.strides), memory.size // item)


def _strided(cells: ndarray, size: tuple, stride: tuple, offset: int) -> ndarray:
    steps = tuple(s * cells.itemsize for s in stride)
    return np.lib.stride_tricks.as_strided(cells[offset:], size, steps)


def _cells(a: np.ndarray, layout: Layout) -> ndarray:
    """The storage of ``a`` if it lies as ``layout`` says, else a new one where it does."""
    if layout_of(a) == layout:
        memory = storage_of(a)
        return memory[: layout.total * a.itemsize].view(a.dtype)
    cells = np.zeros(layout.total, a.dtype)
    _strided(cells, a.shape, layout.stride, layout.first)[...] = a
    return cells


def own_place(region: ndarray, shape: tuple, layout: Layout) -> ndarray:
    """The tensor that ``region`` was taken from by ``as_strided``, in the storage of ``region``."""
    cells = storage_of(region).view(region.dtype)
    return _strided(cells, shape, layout.stride, layout.first)


def _as_strided(a: np.ndarray, size: tuple, stride: tuple, offset: int, layout: Layout) -> Any:
    return locked(_strided(_cells(a, layout), size, stride, offset))


def locked(a: np.ndarray) -> np.ndarray:
    """``a``; read-only, as expanded arrays are, where several of its elements are one."""
    if 0 in a.strides and a.flags.writeable:
        a = a.view()
        a.flags.writeable = not overlaps_itself(a)
    return a


def overlaps_itself(a: np.ndarray | ArrayKind) -> bool:
    """Whether ``a`` was expanded, so that several of its elements are one."""
    shape, strides = a.shape, a.strides
    if 0 not in strides or 0 in shape:
        return False
    return any(s == 0 and n > 1 for s, n in zip(strides, shape, strict=True))


def _unstride(
    g: np.ndarray, size: tuple, stride: tuple, offset: int, layout: Layout, shape: tuple
) -> Any:
    cells = np.zeros(layout.total, g.dtype)
    places = _strided(np.arange(layout.total), size, stride, offset)
    np.add.at(cells, places, g)
    own = _strided(np.arange(layout.total), shape, layout.stride, layout.first)
    out = _strided(cells, shape, layout.stride, layout.first).copy()
    if any(s == 0 and n > 1 for s, n in zip(layout.stride, shape, strict=True)):
        out /= np.bincount(own.reshape(-1), minlength=layout.total)[own]  # shared by equals
    return out


def _strided_samples(rng: np.random.Generator) -> list:
    how = {"size": (2, 2), "stride": (1, 3), "offset": 1, "layout": Layout(0, (4, 1), 12)}
    return [((rng.normal(size=(3, 4)),), how)]


def _rows(p: dict, n: int) -> dict:
    """The parameters for ``n`` storages in a row."""
    first, stride, total = p["layout"]
    more = {
        "size": (n, *p["size"]),
        "stride": (total, *p["stride"]),
        "layout": Layout(first, (total, *stride), total * n),
    }
    return {**more, "shape": (n, *p["shape"])} if "shape" in p else more


as_strided: Primitive = primitive(
    "as_strided", _as_strided, "a",
    vjp={
        "a": lambda g, size, stride, offset, layout, a_shape: unstride(
            g, size=size, stride=stride, offset=offset, layout=layout, shape=tuple(a_shape)
        )
    },
    jvp="linear", shape=lambda a, size, stride, offset, layout: (tuple(size), a.dtype), view=True,
    samples=_strided_samples, batch=Batched(lambda: as_strided, _rows),
)  # fmt: skip

unstride: Primitive = primitive(
    "unstride", _unstride, "g",
    vjp={
        "g": lambda g, size, stride, offset, layout: as_strided(
            g, size=size, stride=stride, offset=offset, layout=layout
        )
    },
    jvp="linear",
    shape=lambda g, size, stride, offset, layout, shape: (tuple(shape), g.dtype),
    samples=lambda rng: [
        ((rng.normal(size=(2, 2)),), {**_strided_samples(rng)[0][1], "shape": (3, 4)})
    ],
    batch=Batched(lambda: unstride, _rows),
)  # fmt: skip
