"""Write down what CuPy has: its public functions and their parameters, its ufuncs and their types,
its arrays' methods. Run where CuPy is installed (no driver is needed):

    python -m standins.device_double.record            # from tests/; writes cupy.json beside this

Types are those that a ufunc has loops for, as in numpy's ``types``; "E" is bfloat16. A parameter is
its name, with "=" behind where it may be left out and "*" before where it takes many; "/" and "*"
alone mean what they mean in Python.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("cupy.json")
# Functions that are ufuncs inside, and where.
INNER = {
    "where": ("cupy._sorting.search", "_where_ufunc"),
    "clip": ("cupy._core._routines_math", "_clip"),
    "round": ("cupy._core.core", "_round_ufunc"),
    "nan_to_num": ("cupy._math.misc", "_nan_to_num"),
    "isclose": ("cupy._logic.comparison", "_is_close"),
}
ROOMS = ("", "linalg", "fft", "lib.stride_tricks", "random")


def taken(parameters: Any) -> str:
    """Parameters of a signature as text."""
    words, kinds = [], inspect.Parameter
    only = [p.kind == kinds.POSITIONAL_ONLY for p in parameters]
    for i, p in enumerate(parameters):
        if p.kind == kinds.KEYWORD_ONLY and not any(w.startswith("*") for w in words):
            words.append("*")
        stars = {kinds.VAR_POSITIONAL: "*", kinds.VAR_KEYWORD: "**"}.get(p.kind, "")
        words.append(stars + p.name + ("=" if p.default is not kinds.empty else ""))
        if only[i] and not any(only[i + 1 :]):
            words.append("/")
    return " ".join(words)


def of_text(text: str) -> str:
    """The same from the first line of a docstring that Cython wrote."""
    inside = re.match(r"[\w.]+\((.*)\)", text.strip().splitlines()[0])
    assert inside, text
    words = []
    for part in filter(None, re.split(r",\s*(?![^()\[\]]*[)\]])", inside[1])):
        left, _, default = part.partition("=")
        name = left.split()[-1]
        if name != "self":
            words.append(name + ("=" if default else ""))
    return " ".join(words)


def parameters(thing: Any) -> str | None:
    """What ``thing`` takes; None where it does not tell."""
    try:
        words = taken(inspect.signature(thing).parameters.values())
    except ValueError:
        return of_text(thing.__doc__) if "(" in (thing.__doc__ or "").split("\n")[0] else None
    return words.removeprefix("self").strip()


def methods(array: type) -> dict[str, str | None]:
    """The public methods of arrays."""
    members = {n: getattr(array, n) for n in dir(array) if not n.startswith("_")}
    return {n: parameters(m) for n, m in members.items() if callable(m)}


def record() -> dict[str, Any]:
    """All of it, as JSON's types."""
    import cupy
    import cupy.fft
    import cupy.lib.stride_tricks
    import cupyx.scipy.special

    functions, ufuncs = {}, {}
    for room in ROOMS:
        module: Any = cupy
        for part in filter(None, room.split(".")):
            module = getattr(module, part)
        for name in sorted(dir(module)):
            thing = getattr(module, name)
            full = f"{room}.{name}" if room else name
            if name.startswith("_") or isinstance(thing, type) or inspect.ismodule(thing):
                continue
            if isinstance(thing, cupy.ufunc):
                ufuncs[full] = " ".join(thing.types)
            elif callable(thing):
                functions[full] = parameters(thing)
    types = sorted(n for n in dir(cupy) if isinstance(getattr(cupy, n), type))
    values = [
        n for n in dir(cupy.ndarray)
        if not n.startswith("_") and not callable(getattr(cupy.ndarray, n))
    ]  # fmt: skip
    return {
        "version": cupy.__version__,
        "functions": functions,
        "ufuncs": ufuncs,
        "inner": {
            n: " ".join(getattr(importlib.import_module(m), u).types) for n, (m, u) in INNER.items()
        },
        "special": {
            n: " ".join(u.types)
            for n, u in vars(cupyx.scipy.special).items()
            if isinstance(u, cupy.ufunc)
        },
        "types": types,
        "methods": methods(cupy.ndarray),
        "values": values,
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(record(), indent=0, sort_keys=True) + "\n")
