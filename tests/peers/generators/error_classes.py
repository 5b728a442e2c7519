"""Wrong calls of everything public, drawn from one table of arguments: an ``except`` clause that
catches PyTorch's error catches ours."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

SPACES = (
    "", "nn.functional", "Tensor", "nn", "nn.init", "linalg", "fft", "special", "nn.utils", "func",
)  # fmt: skip

# What is given, by the names below.
CALLS = """f|f v|f f|f k|f m|i|b|c|v|e|s|k|lf|ff|lf k|f t|f big|f z iv|f z i|f v v|f fl|f i|f b|e z
s k|f3 f|f3 v|f z m|f k k|c f|b b|f3 k|f3 t|i f|f3 i|f3 f3 f f|v i|c z|f z f|f m z|f3 fl|c c|i i|m|t
big""".replace("\n", "|").split("|")

# Not compared: what changes the process, and what says how many arguments there are.
LEFT_OUT = {
    "save", "load", "set_default_device", "set_default_dtype", "manual_seed", "seed", "compile",
    "set_num_threads", "set_num_interop_threads", "set_printoptions", "set_rng_state", "typename",
    "set_default_tensor_type", "use_deterministic_algorithms", "set_float32_matmul_precision",
    "set_flush_denormal", "from_file", "einsum", "broadcast_shapes",
}  # fmt: skip
UNCOMPARED = (
    "Boolean value of Tensor", "positional argument", "only one element tensors", "invalid type:",
    "'list' object has no attribute",
)  # fmt: skip

# (theirs, ours): a dimension that does not exist, where ours says how many are needed; a type that
# is refused before the shape, or after it; a number of dimensions that is refused as unwritten.
MEANT = {
    ("IndexError", "ShapeError"), ("ValueError", "DTypeError"), ("IndexError", "DTypeError"),
    ("NotImplementedError", "ShapeError"), ("NotImplementedError", "ConfigError"),
}  # fmt: skip
CAUGHT = (RuntimeError, ValueError, IndexError, NotImplementedError)


def values(T: Any) -> dict[str, Any]:
    """The arguments by name."""
    f = T.arange(6.0).reshape(2, 3)
    i, v = T.arange(6).reshape(2, 3), T.arange(4.0)
    return {
        "f": f, "i": i, "b": i > 2, "v": v, "e": T.zeros(0), "s": T.tensor(2.0), "k": 5, "z": 0,
        "c": T.ones(2, dtype=T.complex64), "iv": T.tensor([0, 9]), "f3": T.ones(2, 3, 4), "m": -7,
        "lf": [f, v], "ff": [f, f], "fl": 1.5, "t": (1, 2), "big": (9, 9),
    }  # fmt: skip


def raised(T: Any, function: Any, call: str) -> Exception | None:
    """What ``function`` of ``T`` raises."""
    given = values(T)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            function(*[given[name] for name in call.split()])
    except Exception as error:
        return error
    return None


def _builtin(error: Exception) -> type:
    return next(c for c in type(error).__mro__ if c.__module__ == "builtins")


def _space(T: Any, path: str) -> Any:
    for name in path.split(".") if path else ():
        T = getattr(T, name)
    return T


def pairs(path: str, ours: Any, theirs: Any) -> Iterator[tuple[str, Any, Any]]:
    """What both have there and can be called."""
    one, two = _space(ours, path), _space(theirs, path)
    for name in sorted(set(dir(one)) & set(dir(two))):
        mine, other = getattr(one, name), getattr(two, name)
        skipped = name.startswith("_") or name in LEFT_OUT or not callable(mine)
        if not (skipped or not callable(other) or (isinstance(other, type) and path == "")):
            yield name, mine, other


def misfits(path: str, ours: Any, theirs: Any) -> list[str]:
    """The calls whose errors are of other classes."""
    out = []
    for name, mine, other in pairs(path, ours, theirs):
        for call in CALLS:
            if path == "Tensor" and call[0] not in "fibcves":
                continue
            expected = raised(theirs, other, call)
            if not isinstance(expected, CAUGHT):
                continue
            error = raised(ours, mine, call)
            kind = _builtin(expected)
            if error is None or isinstance(error, kind):
                continue
            said = f"{expected} {error}"
            meant = (kind.__name__, type(error).__name__) in MEANT
            if not meant and not any(text in said for text in UNCOMPARED):
                out.append(f"{path}.{name}({call}): {error!r:.120}; theirs {expected!r:.120}")
    return out
