"""Random programs whose sizes change from call to call, compiled against eager, bit by bit."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import disttrain as dt
from support.cases import shape_programs as programs

PARTS, EACH = 8, 40


def _inputs(seed: int, sizes: list, grad: bool) -> list:
    gen = dt.Generator().manual_seed(seed)
    made = [dt.randn(*size, 4, generator=gen) for size in sizes]
    return [x.requires_grad_(grad) for x in made]


def _shown(value: Any) -> Any:
    if isinstance(value, dt.Tensor):
        array = value.detach().numpy()
        return array.shape, array.dtype, array.strides, array.tobytes(), value.requires_grad
    if isinstance(value, (tuple, list)):
        return type(value), [_shown(v) for v in value]
    return type(value), repr(value)


def ran(source: str, end: str, seed: int, sizes: list, dynamic: bool | None, compiled: bool) -> Any:
    """What calls give and leave behind, and the compiled function."""
    space: dict[str, Any] = {}
    exec(compile(source, f"<program {seed}>", "exec"), space)
    m, params = space["make"]()
    run = dt.compile(space["f"], dynamic=dynamic) if compiled else space["f"]
    backward = end in ("loss", "value") and seed % 2 == 0
    found = []
    dt.manual_seed(seed)
    for x in _inputs(seed, sizes, backward):
        try:
            out = run(x, m)
            if backward and isinstance(out, dt.Tensor) and out.requires_grad:
                out.sum().backward()
            found.append(_shown(out))
        except Exception as error:
            found.append((type(error).__name__, str(error)))
        found.append(_shown(x.grad))
        found.append([_shown(p.grad) for p in params])
        for p in params if backward else ():
            p.grad = None
    kept = [v for v in m.values() if isinstance(v, dt.Tensor)]
    kept += [b for v in m.values() if isinstance(v, dt.nn.Module) for b in v.buffers()]
    return found, [_shown(t) for t in (*params, *kept)], dt.rand(2).tolist(), run


def parts(seed: int, drawn: programs.Drawn, dynamic: bool | None) -> str | None:
    """Where a compiled program and the eager one part, if they do."""
    pieces, end, sizes = drawn
    source = programs.text(seed, pieces, end)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        plain = ran(source, end, seed, sizes, dynamic, False)
        other = ran(source, end, seed, sizes, dynamic, True)
    for i, (a, b) in enumerate(zip(plain[0], other[0], strict=True)):
        if a != b:
            return f"{source}\ncall {i // 3} of sizes {sizes}: {a!r:.400}\n{b!r:.400}"
    return None if plain[1:3] == other[1:3] else f"{source}\nwhat is left after {sizes}"


@pytest.mark.parametrize("part", range(PARTS))
def test_programs_of_changing_sizes_are_eager_ones(part):
    for seed in range(part * EACH, (part + 1) * EACH):
        drawn = programs.draw(seed)
        found = parts(seed, drawn, seed % 3 == 0 or None)
        assert found is None, f"seed {seed}\n{found}"
