"""``out=`` of everything that takes it: other types, other shapes, memory that it shares."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

PARTS = {"": 8, "linalg": 2, "fft": 2, "special": 2}  # of a space, for tests of their own
CALLS = """f|f f|f k|f z|v|v v|i|i i|b b|b|f3|ff|f z iv|f z ii f|sq|sq sq|i k|f m1|s|v ii1|f f f|f b
c|fl|k|t|sq sq sq|f3 f3 f3|b f f|v k z|f k1|sq3 sq3 sq3|f ii|v sq v""".replace("\n", "|").split("|")
TYPES = "float32 float64 float16 int64 int32 uint8 bool complex64".split()
DRAWN = """rand randn randint randperm empty empty_like rand_like randn_like normal bernoulli
multinomial randint_like arange""".split()
EACH = 3  # calls of one function

# Functions, and what is given for ``out``, where ours differs on purpose: every element of a result
# has a place of its own; a product of matrices may be written over its factors (the peer then reads
# what it has written); what is half overwritten is not read. Where it takes more types; and
# where the peer writes nothing (ihfftn).
MEANT = {
    ("*", "expanded"), ("*", "overlaps"), ("*", "transposed"), ("mm", "is input"),
    ("spmm", "is input"), ("dsmm", "is input"),  # other names of mm
    ("matmul", "is input"), ("addmm", "is input"), ("addmv", "is input"), ("baddbmm", "is input"),
    ("all", "type uint8"), ("any", "type uint8"), ("nansum", "type"), ("std", "type complex64"),
    ("var", "type complex64"), ("topk", "same twice"), ("diff", "type"), ("qr", "same twice"),
    ("lu", "same twice"), ("geqrf", "same twice"), ("triangular_solve", "same twice"),
    ("ihfftn", ""),
}  # fmt: skip


def given(T: Any) -> dict[str, Any]:
    f = T.arange(6.0).reshape(2, 3) / 7 + 0.1
    i = T.arange(6).reshape(2, 3)
    return {
        "f": f, "i": i + 1, "b": i > 2, "v": T.arange(3.0) / 4 + 0.1, "k": 3, "k1": 1, "z": 0,
        "f3": T.arange(12.0).reshape(2, 2, 3) / 13, "ff": [f, f * 2], "m1": -1, "s": T.tensor(0.5),
        "iv": T.tensor([1, 0]), "ii": T.tensor([[0, 1, 1], [1, 0, 0]]), "ii1": T.tensor([0, 2, 1]),
        "sq": T.arange(9.0).reshape(3, 3) / 9 + T.eye(3), "sq3": T.arange(8.0).reshape(2, 2, 2),
        "c": T.tensor([1 + 1j, 2 - 1j]), "fl": 0.5, "t": (2, 3),
    }  # fmt: skip


def arguments(T: Any, call: str) -> list:
    values = given(T)
    return [values[name] for name in call.split()]


def numbers(x: Any) -> Any:
    if isinstance(x, (tuple, list)):
        return [numbers(y) for y in x]
    return str(x.dtype).rpartition(".")[2], tuple(x.shape), x.tolist()


def alike(a: Any, b: Any) -> bool:
    if isinstance(a, list):
        return len(a) == len(b) and all(alike(x, y) for x, y in zip(a, b, strict=True))
    if a[:2] != b[:2]:
        return False
    return np.allclose(np.array(a[2]), np.array(b[2]), rtol=2e-3, atol=1e-4, equal_nan=True)


def _shifted(T: Any, args: list, i: int) -> Any:
    """Put input ``i`` where the tensor that comes back begins one element later."""
    x = args[i]
    base = T.zeros(x.numel() + 1, dtype=x.dtype)
    args[i] = base[:-1].reshape(tuple(x.shape))
    args[i].copy_(x)
    return base[1:].reshape(tuple(x.shape))


def outputs(T: Any, args: list, results: tuple) -> Iterator[tuple[str, Any]]:
    """What to give as ``out``: a name, and what makes the tensors. Input tensors may be moved."""
    first, rest = results[0], [lambda r=r: T.zeros_like(r) for r in results[1:]]
    shape = tuple(first.shape)

    def one(make: Any) -> Any:
        return lambda: (make(), *[r() for r in rest])

    for kind in TYPES:
        yield f"type {kind}", one(lambda k=kind: T.ones(shape, dtype=getattr(T, k)))
    if rest:
        second = results[1]
        for kind in ("float32", "int32"):
            yield (
                f"second {kind}",
                lambda k=kind: (
                    T.zeros_like(first), T.zeros(tuple(second.shape), dtype=getattr(T, k)),
                ),
            )  # fmt: skip
        yield "same twice", lambda: (T.zeros_like(first),) * len(results)
    yield "empty", one(lambda: T.empty(0, dtype=first.dtype))
    yield "other shape", one(lambda: T.zeros(5, dtype=first.dtype))
    yield "strided", one(lambda: T.zeros((*shape, 2), dtype=first.dtype)[..., 0])
    row = (1,) * len(shape)
    yield "expanded", one(lambda: T.zeros(row, dtype=first.dtype).expand(shape))
    for i, x in enumerate(args):
        if hasattr(x, "dtype") and tuple(x.shape) == shape and x.dtype == first.dtype:
            yield f"is input {i}", one(lambda x=x: x)
            yield f"overlaps input {i}", one(lambda i=i: _shifted(T, args, i))
            if len(shape) == 2 and shape[0] == shape[1]:
                yield f"transposed input {i}", one(lambda x=x: x.t())


def written(T: Any, function: Any, call: str, which: str) -> Any:
    """What ``function`` writes to the output of that name; None when it raises."""
    args = arguments(T, call)
    result = function(*arguments(T, call))
    several = isinstance(result, tuple)
    make = dict(outputs(T, args, result if several else (result,)))[which]
    out = make()
    try:
        function(*args, out=out if several else out[0])
    except (RuntimeError, TypeError, ValueError, IndexError):
        return None
    return numbers(out)


def _samples(ours: Any, theirs: Any, one: Any, two: Any) -> Iterator[tuple[str, Any]]:
    """Calls that both can do, also with ``out``, with the peer's results."""
    found = 0
    for call in CALLS:
        if found == EACH:
            return
        try:
            expected = two(*arguments(theirs, call))
            results = expected if isinstance(expected, tuple) else (expected,)
            empty = [theirs.empty(0, dtype=r.dtype) for r in results]
            two(*arguments(theirs, call), out=empty if len(empty) > 1 else empty[0])
            same = alike(numbers(results), numbers(_several(one(*arguments(ours, call)))))
        except Exception:
            continue
        if same:
            found += 1
            yield call, results


def _several(result: Any) -> tuple:
    return result if isinstance(result, tuple) else (result,)


def misfits(space: str, part: int, ours: Any, theirs: Any) -> list[str]:
    """Where ``out=`` does not do the same, of one part of the functions there."""
    one, two = (getattr(T, space) if space else T for T in (ours, theirs))
    out = []
    names = sorted(set(dir(one)) & set(dir(two)) - set(DRAWN))
    for name in names[part :: PARTS[space]]:
        mine, other = getattr(one, name), getattr(two, name)
        if name.startswith(("_", "set_")) or not callable(mine) or isinstance(other, type):
            continue  # (what sets something has no output, and would be set for who comes next)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for call, results in _samples(ours, theirs, mine, other):
                for which, _ in outputs(theirs, arguments(theirs, call), results):
                    a, b = (written(T, f, call, which) for T, f in ((ours, mine), (theirs, other)))
                    same = a is b is None or (a is not None and b is not None and alike(a, b))
                    if not same and not _meant(name, which, a is None):
                        out.append(f"{space}.{name}({call}, out={which}): {a}; theirs {b}"[:240])
    return out


def _meant(name: str, which: str, refused: bool) -> bool:
    return any(
        which.startswith(text) and n in (name, "*" if refused else name) for n, text in MEANT
    )
