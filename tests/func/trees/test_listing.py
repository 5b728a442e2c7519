"""Programs as data and text."""

from __future__ import annotations

import numpy as np

import disttrain as dt
from disttrain.func.staging import stage
from disttrain.func.trees.listing import Literal, Style, Variable, listed, short_kind


def test_text_in_a_style():
    kind = np.dtype("float32")
    staged = stage(lambda x: dt.where(x > 0, x, dt.sin(x) * 2), [((2,), kind)])
    style = Style({"where": "choose"}, {"sin": lambda params, ins, outs: {"of": len(ins)}})
    program, consts = listed(style, staged.body, staged.consts)
    text = str(program)
    assert "sin[of=1] a" in text and "choose" in text and not consts
    assert all(isinstance(v, Variable) for v in program.invars)
    assert any(isinstance(v, Literal) for e in program.eqns for v in e.invars)
    assert program.eqns[0].outvars[0].type.str_short() == "bool[2]"
    assert short_kind(np.dtype("uint8")) == "u8"
