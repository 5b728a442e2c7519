"""Pickles of plain values give what pickle gives; anything else is refused by name."""

from __future__ import annotations

import collections
import io
import os
import pickle
import pickletools

import pytest

from disttrain.errors import SerializationError
from disttrain.serialize.pytorch import opcodes
from disttrain.serialize.pytorch.opcodes import Global, Machine, Refused, set_of

SHARED = [1, 2]
MORE = """INST OBJ NEWOBJ_EX EXT1 PERSID DUP POP POP_MARK NEXT_BUFFER READONLY_BUFFER BYTEARRAY8
LONG4 STRING""".split()
VALUES = [
    None, True, False, 0, 255, 256, -1, 2**31, -(2**40), 2**100, 1.5, float("inf"), "", "ü\n",
    (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4), [], [[]], {}, {"a": {1: (2.5, None)}},
    [SHARED, SHARED], {(1, ("a", None)): 2}, [list(range(300))],
]  # fmt: skip


def machine(names=None, finish=None):
    table = names or {}

    def find(module, name):
        if f"{module}.{name}" not in table:
            raise Refused(f"{module}.{name}")
        return table[f"{module}.{name}"]

    return Machine("load: f", find, lambda given: ("outside", given), finish or (lambda a, b: None))


@pytest.mark.parametrize("protocol", [2, 4])
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values(value, protocol):
    found = machine().load(io.BytesIO(pickle.dumps(value, protocol)))
    assert found == value and type(found) is type(value)


def test_what_is_one_stays_one():
    found = machine().load(io.BytesIO(pickle.dumps([SHARED, SHARED], 2)))
    assert found[0] is found[1]
    loop: list = []
    loop.append(loop)
    found = machine().load(io.BytesIO(pickle.dumps(loop, 2)))
    assert found[0] is found


def test_names_are_looked_up_and_never_imported():
    class Evil:
        def __reduce__(self):
            return os.system, ("false",)

    for protocol in (2, 4):
        with pytest.raises(Refused, match=r"load: f: (posix|os|nt)\.system"):
            machine().load(io.BytesIO(pickle.dumps(Evil(), protocol)))
    names = {"collections.OrderedDict": Global("x", collections.OrderedDict)}
    text = pickle.dumps(collections.OrderedDict(a=1), 2)
    assert machine(names).load(io.BytesIO(text)) == {"a": 1}


def test_a_value_is_a_value_and_a_constructor_a_constructor():
    names = {"t.kind": Global("t.kind", value="K"), "t.make": Global("t.make", lambda *a: a)}
    assert machine(names).load(io.BytesIO(b"ct\nkind\n\x85.")) == ("K",)
    assert machine(names).load(io.BytesIO(b"ct\nmake\nK\x05\x85R.")) == (5,)
    for text, match in (
        (b"ct\nmake\n\x85.", "t.make stands where a value is due"),
        (b"ct\nmake\n.", "t.make stands where a value is due"),
        (b"ct\nkind\n)R.", "a call of t.kind"),
        (b"K\x01)R.", "a call of int"),
        (b"ct\nmake\nK\x01R.", "a call of t.make"),
    ):
        with pytest.raises(Refused, match=match):
            machine(names).load(io.BytesIO(text))


def test_references_and_state():
    assert machine().load(io.BytesIO(b"K\x07Q.")) == ("outside", 7)
    seen = []
    machine(finish=lambda *pair: seen.append(pair)).load(io.BytesIO(b"]}b."))
    assert seen == [([], {})]
    names = {"collections.OrderedDict": Global("x", collections.OrderedDict)}
    made = collections.OrderedDict(a=1)
    made._metadata, made.other = {"v": 1}, 2
    found = machine(names).load(io.BytesIO(pickle.dumps(made, 2)))
    assert found._metadata == {"v": 1} and not hasattr(found, "other")


@pytest.mark.parametrize(
    "text",
    [b"", b"N", b"\x80\x02", b".", b"(.", b"t.", b"K\x01a.", b"}K\x01K\x02a.", b"](u.", b"h\x00.",
     b"N\x86.", b"}(K\x01u.", b"}]K\x01s.", b"Kq", b"X\xff\xff\xff\x7fabc.", b"N(e.", b"\x93."],
)  # fmt: skip
def test_what_makes_no_sense(text):
    with pytest.raises(SerializationError, match="load: f: "):
        machine().load(io.BytesIO(text))


def test_operations_that_do_more_are_refused():
    for op in pickletools.opcodes:
        if op.name in MORE:
            argument = {"INST": b"os\nsystem\n", "PERSID": b"x\n", "STRING": b"'x'\n"}
            text = op.code.encode("latin1") + argument.get(op.name, bytes(8)) + b"."
            with pytest.raises(SerializationError, match=op.name):
                machine().load(io.BytesIO(text))


def test_keys_are_hashed_in_a_moment():
    deep = b"".join([b")"] + [b"q\x00h\x00\x86"] * 60)  # a tuple of two, of two, of two ...
    for text in (b"}" + deep + b"Ns.", b"(" + deep + b"Nd."):
        with pytest.raises(SerializationError):
            machine().load(io.BytesIO(text))
    with pytest.raises(TypeError, match="a key of type list"):
        set_of([[1]])
    with pytest.raises(TypeError, match="no list"):
        set_of("ab")
    assert set_of([1, (2, "a")]) == {1, (2, "a")}


@pytest.mark.parametrize("kind", [dict, set])
def test_keys_that_are_made_to_have_one_hash_are_refused(kind):
    keys = [k * (2**61 - 1) for k in range(2, 1000)]
    sets = machine({f"{m}.set": Global("set", set_of) for m in ("builtins", "__builtin__")})
    with pytest.raises(SerializationError, match="one hash"):
        sets.load(io.BytesIO(pickle.dumps(kind(dict.fromkeys(keys)), 2)))
    assert len(machine().load(io.BytesIO(pickle.dumps(dict.fromkeys(range(5000)), 2)))) == 5000


def test_containers_are_counted(monkeypatch):
    monkeypatch.setattr(opcodes, "_VALUES", 10)
    assert machine().load(io.BytesIO(pickle.dumps([[]] * 20, 2))) == [[]] * 20  # is one list
    for text in (pickle.dumps([[] for _ in range(10)], 2), pickle.dumps([(i,) for i in range(10)])):
        with pytest.raises(SerializationError, match="more than"):
            machine().load(io.BytesIO(text))
