"""Everything public called inside ``autocast`` of the CPU: the types of results, for arguments in
the lower type, in float32, in float64 and in several."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

# What is given, by the names of ``values``.
CALLS = """\
f|f f|f k|f z|v|v v|f v|sq|sq sq|sq v|v sq v|v v v|f f f|f fT|s|f3|f3 f3|f3 f3 f3|q3 q3 q3
sq sq sq|f sq|f sq v|f sq v p|fi fw|fi fw fv|im|im k2|im k2 k2|im iw|im iw v|se sw|se sw v|vo vw
im t22|f i1|f ones|v k|f fl|f l|ff|f z iv|f z ii f|sq z|f3 z|f v v|im k2 v|se k2|vo k2|f ii f
f b fl|b f f|s s|im grid|im grid z z F|f v v v v|f3 sq|f f3|m4 m4 m4 m4|e ff|e2 ff|im v v
im v v v v|iv f|v z k|f big|emb iv|iv emb|m1 f|pos|pos pos|pos pos pos|f i1 fl|hermitian|sq k
f c|c|c c|se v v|q4 q4 q4|f3 f3 sq|f z k|f z z f|f z iv fl|f z iv z|f m1|f z fl|f s|s f
im k2 k2 z|f fT v""".replace("\n", "|").split("|")
EACH = 4  # calls of one function
PARTS = {"": 20, "nn.functional": 8, "linalg": 2, "fft": 2}  # of a space, for tests of their own
KINDS = ("float32", "low", "float64", "mixed", "mixed back")
LEFT_OUT = {
    "save", "load", "set_default_device", "set_default_dtype", "manual_seed", "seed", "compile",
    "set_num_threads", "set_num_interop_threads", "set_printoptions", "set_rng_state", "typename",
    "set_default_tensor_type", "use_deterministic_algorithms", "set_float32_matmul_precision",
    "set_flush_denormal", "from_file", "broadcast_shapes", "set_grad_enabled", "result_type",
    "promote_types", "can_cast", "to_dlpack", "from_dlpack", "set_warn_always", "backward",
}  # fmt: skip
# Ours computes all that a decomposition consists of in float32, not its products apart.
MEANT = {"lobpcg", "pca_lowrank", "svd_lowrank", "pinv"}
UNSURE = ("set_", "is_", "sym_", "cudnn_", "mkldnn_", "miopen_", "quantize", "fbgemm", "get_")


def values(T: Any, kind: str, low: str) -> dict[str, Any]:
    """The arguments by name; ``mixed``: every second tensor in the lower type."""
    count = itertools.count(kind == "mixed back")
    kinds = {"low": low, "float32": "float32", "float64": "float64"}

    def given(x: Any) -> Any:
        one = kinds.get(kind) or ("float32", low)[next(count) % 2]
        return x.to(getattr(T, one))

    def of(*shape: int) -> Any:
        n = 1
        for size in shape:
            n *= size
        return given(((T.arange(float(n)) * 7 % 11 + 1) / 13).reshape(shape))

    f, g = of(2, 3), of(2, 3)
    return {
        "f": f, "g": g, "i1": T.tensor([1, 0]), "ones": T.ones(2), "i": T.arange(6).reshape(2, 3),
        "v": of(3), "sq": given(T.eye(3) + T.arange(9.0).reshape(3, 3) / 20), "fT": of(3, 2),
        "s": of(), "f3": of(2, 3, 3), "q3": of(2, 3, 4), "q4": of(1, 2, 3, 4), "k": 1, "z": 0,
        "p": of(3), "fi": of(2, 3), "fw": of(4, 3), "fv": of(4), "im": of(1, 3, 4, 4), "k2": 2,
        "iw": of(3, 3, 2, 2), "se": of(1, 3, 5), "sw": of(3, 3, 2), "vo": of(1, 3, 4, 4, 4),
        "vw": of(3, 3, 2, 2, 2), "t22": (2, 2), "fl": 0.5, "l": [0, 1], "ff": [of(3, 3), of(3, 3)],
        "iv": T.tensor([1, 0]), "ii": T.tensor([[0, 1, 1], [1, 0, 0]]), "b": T.tensor(True),
        "grid": of(1, 2, 2, 2), "F": False, "m4": of(4), "e": "ij,jk->ik", "e2": "ij,ij->i",
        "big": (2, 2, 3), "emb": of(4, 3), "m1": -1, "pos": of(2, 2), "c": T.ones(3, 3) + 1j,
        "hermitian": given(T.eye(3)),
    }  # fmt: skip


def kinds_of(result: Any) -> Any:
    """The types of the tensors of a result."""
    if isinstance(result, (tuple, list)):
        return tuple(map(kinds_of, result))
    return str(getattr(result, "dtype", type(result).__name__)).rpartition(".")[2]


def called(T: Any, function: Any, call: str, kind: str, low: str, within: bool) -> Any:
    """What types ``function`` gives, or "raises"."""
    given = values(T, kind, low)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with T.autocast("cpu", getattr(T, low), enabled=within):
                return kinds_of(function(*[given[name] for name in call.split()]))
    except Exception as error:
        return f"raises {error!r:.90}"


def _space(T: Any, path: str) -> Any:
    for name in path.split(".") if path else ():
        T = getattr(T, name)
    return T


def pairs(path: str, ours: Any, theirs: Any) -> Iterator[tuple[str, Any, Any]]:
    """What both have there and can be called."""
    one, two = _space(ours, path), _space(theirs, path)
    for name in sorted(set(dir(one)) & set(dir(two))):
        if name.startswith(("_", *UNSURE)) or name in LEFT_OUT | MEANT:
            continue
        mine, other = getattr(one, name), getattr(two, name)
        if callable(mine) and callable(other) and not isinstance(other, type):
            yield name, mine, other


def misfits(path: str, part: int, ours: Any, theirs: Any, low: str = "bfloat16") -> list[str]:
    """Calls of one part whose results have other types inside, of those that the peer can do."""
    out = []
    for name, mine, other in list(pairs(path, ours, theirs))[part :: PARTS[path]]:
        found = 0
        for call in CALLS:
            if found < EACH and not _raises(called(theirs, other, call, "float32", low, False)):
                found += 1
                differ = _of_kinds(mine, other, call, low, ours, theirs)
                out += [f"{path}.{name}({call}) of {told}" for told in differ]
    return out


def _of_kinds(mine: Any, other: Any, call: str, low: str, ours: Any, theirs: Any) -> Iterator[str]:
    for kind in KINDS:
        expected = called(theirs, other, call, kind, low, True)
        got = called(ours, mine, call, kind, low, True)
        if got == expected or _raises(expected):
            continue
        # what outside differs, too, is no affair of autocast
        plain = called(theirs, other, call, kind, low, False)
        if expected != plain or got != called(ours, mine, call, kind, low, False):
            yield f"{kind}: {got}; theirs {expected}"


def _raises(result: Any) -> bool:
    return isinstance(result, str) and result.startswith("raises")
