"""Python's statements over tensors as branches and loops of a program.

PYTEST_DONT_REWRITE: what pytest puts into functions with ``assert`` reaches all of pytest, which an
export would look through.
"""

from __future__ import annotations

import io

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compat.torch import scripted
from disttrain.errors import CaptureError
from support.cases.exported import drawn, reread, same


def chosen(x):
    if x.sum() > 0:
        y, k = x * 2, 1
    else:
        y, k = x - 1, 2
    return y * k


def returned(x):
    if x.sum() > 0:
        return x * 2
    return x - 1


def halved(x):
    n = 0
    while x.abs().sum() > 1 and n < 50:
        x = x * 0.5
        n += 1
    return x, n + dt.tensor(0)


def shown(x):
    return x if x.mean() > 0 and not x.max() > 3 else -x


def rows(x):
    out = dt.zeros(3)
    for i in range(2):
        if x[i].sum() > 0:
            out = out + x[i]
        else:
            out = out - x[i] * i
    return out


class Inner(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            x = x + 1
        return x.relu()


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc, self.inner = nn.Linear(3, 3), Inner()

    def forward(self, x):
        return self.inner(self.fc(x))


FUNCTIONS = {
    "chosen": chosen, "returned": returned, "halved": halved, "shown": shown, "rows": rows,
    "modules": Outer(),
}  # fmt: skip


@pytest.mark.parametrize("dynamic", [None, {"x": {0: "n"}}])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_same_bits(name, dynamic):
    fn = FUNCTIONS[name]
    program = reread(dt.export(fn, (drawn(0, 4, 3),), dynamic=dynamic))
    assert {n.primitive for n in program.nodes} & {"cond", "while"}
    for i in range(5):
        x = drawn(i, 4 if dynamic is None else i + 2, 3)
        with dt.no_grad():
            assert same(fn(x), program(x))
    if isinstance(fn, nn.Module):
        assert "forward" not in vars(fn.inner)  # it is as it was


def test_a_script_that_branches_is_saved():
    jit = scripted.jit()
    script = jit.script(returned, example_inputs=[(drawn(0, 4, 3),)])
    file = io.BytesIO()
    script.save(file)
    file.seek(0)
    again = jit.load(file)
    for x in (drawn(1, 2, 3).abs(), -drawn(1, 5, 3).abs()):
        assert same(again(x), returned(x))


def other_shapes(x):
    return x if x.sum() > 0 else x[:1]


def other_types(x):
    y = x
    if x.sum() > 0:
        y = x.long()
    return y


def read(x):
    return x * x.sum().item() if x.sum() > 0 else x


def asserted(x):
    assert x.sum() > 0
    return x


@pytest.mark.parametrize("fn", [other_shapes, other_types, read, asserted])
def test_what_no_program_can_do_is_told_with_its_line(fn):
    with pytest.raises(
        CaptureError, match=rf"is read at .*test_statements.py:\d+ in {fn.__name__}"
    ):
        dt.export(fn, (drawn(0, 4, 3),))


def test_the_truth_of_a_tensor_is_one():
    def f(x):
        y = x * 2 if bool(x.sum() > 0) else -x
        return y + 1 if bool(3) and not bool(0) else y

    program = dt.export(f, (dt.ones(3),))
    for x in (dt.ones(3), -dt.ones(3)):
        assert program(x).tolist() == f(x).tolist()
