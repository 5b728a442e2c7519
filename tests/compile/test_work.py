"""What stands in a graph for an effect: what it is given, and what it says of itself."""

from __future__ import annotations

import numpy as np

from disttrain.compile.work import giving, on_arrays, on_tensors, work_of
from disttrain.core.effects import Effect
from disttrain.core.tensor import Tensor, wrap


class Doubled(Effect):
    """Gives twice what it is given."""

    made: tuple[Tensor, ...] = ()

    def __call__(self, *tensors: Tensor) -> None:
        self.made = tuple(wrap(t.array * 2) for t in tensors)

    def gives(self) -> tuple[Tensor, ...]:
        return self.made


def test_it_is_given_arrays_or_tensors_over_them():
    seen: list = []
    for how in (on_arrays, on_tensors):
        work_of("seen", how, ()).compute([np.ones(2)], {"effect": lambda a: seen.append(type(a))})
    assert seen == [np.ndarray, Tensor]


def test_what_it_gives_are_its_results():
    prim = work_of("doubled", giving, ())
    assert prim.multi and not prim.mutates
    (out,) = prim.compute([np.ones(2)], {"effect": Doubled()})
    assert out.tolist() == [2, 2]


def test_what_reaches_nobody_is_a_check():
    alone, others = work_of("x", on_arrays, (0,), True), work_of("x", on_arrays, (0,))
    assert alone.checks and not alone.outward
    assert others.outward and not others.checks and others.mutates == (0,)
    assert work_of("x", on_arrays, (0,)) is others
