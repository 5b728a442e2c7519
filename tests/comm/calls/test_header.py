"""Headers: what must differ is told apart, what may differ fits, texts name both sides."""

from __future__ import annotations

import numpy as np
import pytest

from disttrain.comm.calls import header
from disttrain.comm.calls.header import Call
from disttrain.comm.calls.headers import Calls
from disttrain.comm.calls.reduce_ops import ReduceOp
from disttrain.errors import DTypeError

F4 = np.dtype("f4")


def print_of(call, seq=1):
    data = seq.to_bytes(8, "little") + call.tail
    assert len(data) == header.SIZE == 40
    return data


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"op": "broadcast"}, "op"),
        ({"dtype": np.dtype("f8")}, "dtype"),
        ({"reduce_code": 2}, "reduce op"),
        ({"flags": 1}, "kind"),
        ({"root": 0}, "root"),
        ({"numel": 5}, "numel"),
        ({"common": "other"}, "shape"),
        ({"line": 8}, "line"),
    ],
)
def test_a_difference_is_named(change, field):
    usual = {"op": "all_reduce", "dtype": F4, "reduce_code": 1, "numel": 4, "line": 7}
    a, b = Call(**usual), Call(**(usual | change))
    prints = [print_of(a), print_of(a), print_of(b)]
    assert header.difference(prints) == header.difference(prints[::-1]) == field
    assert header.difference([print_of(a)] * 3) == ""


def test_no_line_fits_every_line():
    prints = [print_of(Call("broadcast", root=0, line=n)) for n in (0, 5, 5)]
    assert header.difference(prints) == ""
    prints.append(print_of(Call("broadcast", root=0, line=6)))
    assert header.difference(prints) == "line"


def test_positions_differ():
    call = Call("barrier")
    assert header.difference([print_of(call, 1), print_of(call, 2)]) == "position"


def test_message_puts_the_odd_one_last():
    text = header.mismatch_text("group g", 3, "numel", {0: "a()", 1: "b()", 2: "a()"})
    lines = text.splitlines()
    assert "operation 3" in lines[0] and "numel differs" in lines[0]
    assert lines[1:3] == ["  ranks 0, 2 called a()", "  rank 1 called b()"]


def test_texts_cross_whole_or_without_their_middle():
    assert header.told_text(Call("send", args="x", site="f:1").told) == "send(x) at f:1"
    long = Call("send", args="a" * 900, site="file.py:12 in f")
    told = header.told_text(long.told)
    assert told.startswith("send(aaa") and told.endswith("file.py:12 in f") and " ... " in told
    assert len(long.told) <= 2 + header.TEXT_BYTES


def test_types_that_cannot_be_sent():
    with pytest.raises(DTypeError, match=r"<U3.*needed is one of bool, .*bfloat16"):
        header.dtype_code(np.array(["abc"]).dtype)
    assert len(set(header.DTYPE_CODE.values())) == len(header.DTYPES)


def verb(calls, array, **kwargs):
    """Stands where a group's verb stands: its caller's line counts."""
    return calls.get("all_reduce", array, op=ReduceOp.SUM, **kwargs)[0]


def test_calls_are_kept_by_line_and_arguments():
    calls = Calls("world", 0, 1, [0, 1])
    made = [verb(calls, np.ones(n, F4)) for n in (3, 3, 4)]
    assert made[0] is made[1] and made[0] is not made[2]
    assert "all_reduce(float32[3], op=SUM) at " in made[0].text
    assert "test_header.py:" in made[0].text


def test_lines_and_shapes_count_in_strict_groups_only():
    x, y = np.ones((2, 3)), np.ones((3, 2))
    easy, strict = (Calls("world", 0, 1, [0, 1], strict=s) for s in (False, True))
    a = verb(easy, x)
    b = verb(easy, y)
    assert a.tail == b.tail and a.text != b.text
    c = verb(strict, x)
    d = verb(strict, x)
    assert header.difference([print_of(c), print_of(d)]) == "line"
    e, f = (verb(strict, z) for z in (x, y))
    assert header.difference([print_of(e), print_of(f)]) == "shape"
    assert header.difference([print_of(a), print_of(c)]) == "kind"


def test_the_root_may_call_from_anywhere():
    root, other = (
        Calls("world", 0, rank, [0, 1], strict=True).get("broadcast", np.ones(3), root=0)[0]
        for rank in (0, 1)
    )
    assert header.difference([print_of(root), print_of(other)]) == ""
    assert root.tail != other.tail
