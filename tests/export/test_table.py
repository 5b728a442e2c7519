"""Every declared primitive in a program: exported, saved, loaded, run, it gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain.core import wrap
from disttrain.export.vocabulary import find
from disttrain.ops.declare import REGISTRY
from support.cases.exported import reread, same
from support.cases.table import EXEMPT, NAMES, many, samples, settle

LAID_OUT = ("as_strided", "unstride")  # see how arguments lie, which no replay takes


@pytest.mark.parametrize("name", NAMES)
def test_the_same_bits_after_a_file(name):
    prim = REGISTRY[name]
    for given, params in samples(name):
        args = settle(name, given, params)

        def fn(*tensors, args=args, params=params):
            left = iter(tensors)
            return prim(*[next(left) if isinstance(a, np.ndarray) else a for a in args], **params)

        arrays = [a for a in args if isinstance(a, np.ndarray)]
        tensors = tuple(wrap(a.copy("K")) for a in arrays)
        want = many(fn(*tensors))
        program = reread(dt.export(fn, tensors))
        assert same(list(want), list(many(program(*tensors))))
        names = [v.name for v in program.inputs]
        found = program.run(dict(zip(names, arrays, strict=True)))
        assert same(list(want), [wrap(np.asarray(a)) for a in found.values()])
        if name not in LAID_OUT:
            assert same(list(want), list(many(program.compile()(*tensors))))


def test_writers_are_not_in_programs():
    writers = [n for n, p in REGISTRY.items() if p.mutates]
    assert writers and all(n in EXEMPT and find(n) is None for n in writers)
