"""A whole function as text: its name, its struct, its braces; and what a unit is made of."""

from __future__ import annotations

import pytest

from disttrain.backends.cuda.codegen.emit import _indented, function, symbol, unit
from disttrain.backends.cuda.codegen.forms import THREADS, Form
from disttrain.backends.cuda.codegen.prelude import COMMON
from disttrain.backends.device.structs import struct
from disttrain.backends.lang.expr import var
from disttrain.backends.lang.kernel import Array, Kernel, Loop, Put, Reduce, Store, elementwise

X = Array("x", "float32")
FLAT = elementwise("double", lambda x: x + x, (X,), "float32")
ROWS = Kernel(
    "centre",
    (X, Array("total", "float32", "one", True), Array("out", "float32", writes=True)),
    (
        Loop((Reduce("s", "sum", var("x")),)),
        Put("total", var("s"), add=True),
        Loop((Store("out", var("x") - var("s")),)),
    ),
)
FORMS = [
    (FLAT, Form("flat", 4)),
    (FLAT, Form("flat", 1, dims=2, wide=True)),
    (FLAT, Form("many", 4)),
    (ROWS, Form("rows", 4, team=32, teams=8, items=2)),
    (ROWS, Form("rows", 4, team=256, teams=1)),
    (ROWS, Form("rows", 1, dims=2, team=64, teams=2)),
    (ROWS, Form("fold", array="total")),
]


@pytest.mark.parametrize("kernel, form", FORMS, ids=[f"{k.name}-{f.suffix}" for k, f in FORMS])
def test_a_function_takes_its_struct_and_closes_what_it_opens(kernel, form):
    text, fields = function(kernel, form, "f")
    assert text.startswith(struct("f_args", fields))
    assert "void" in text and " f(const __grid_constant__ f_args a) {" in text
    assert text.count("{") == text.count("}") and text.count("(") == text.count(")")
    assert text.endswith("\n}")
    inside = text.split(" f(const", 1)[1]
    unused = [f.name for f in fields if f"a.{f.name}" not in inside]
    assert not unused, "a member that nothing reads"


@pytest.mark.parametrize("kernel, form", FORMS, ids=[f"{k.name}-{f.suffix}" for k, f in FORMS])
def test_blocks_are_bounded_by_the_form_s_threads(kernel, form):
    text, _ = function(kernel, form)
    assert f"__launch_bounds__({form.threads}" in text
    assert form.threads == (form.team * form.teams if form.kind == "rows" else THREADS)
    assert f" {symbol(kernel, form)}(" in text


def test_functions_of_one_kernel_have_different_names():
    names = [symbol(k, f) for k, f in FORMS]
    assert len(set(names)) == len(names)
    assert symbol(FLAT, Form("flat", 4, step=1)) == "double_flat_v4_c_s1"
    assert symbol(ROWS, Form("rows", 2, 3, True, team=64, teams=2, items=5)) == (
        "centre_rows_v2_d3_w_t64x2i5"
    )


def test_a_kernel_without_meaning_becomes_no_text():
    with pytest.raises(AssertionError, match="y is used before"):
        function(Kernel("k", (X, ROWS.params[-1]), (Loop((Store("out", var("y")),)),)), FORMS[3][1])


def test_a_unit_begins_with_what_all_may_call():
    made = unit(["// one", "// two"], native="// native\n")
    assert made == f"// native\n{COMMON}\n// one\n// two\n"


def test_lines_are_indented_by_their_braces():
    lines = ["if (x) {  // {", "y;", "} else {", "z;", "}", "w;"]
    assert _indented(lines) == ["  if (x) {  // {", "    y;", "  } else {", "    z;", "  }", "  w;"]
