"""Files of programs: read again as they were, shared, and refused by name where they are damaged
or hostile."""

from __future__ import annotations

import copy
import io
import json
import os
import random

import numpy as np
import pytest

import disttrain as dt
from disttrain.errors import ConfigError, DisttrainError, SerializationError
from disttrain.export import files
from support.cases.exported import CASES, drawn, made, same

HERE = os.path.join(os.path.dirname(__file__), "version_1")
ARGS = CASES["mixed"][1](2, 3)


@pytest.fixture(scope="module")
def program():
    return made("mixed")


@pytest.fixture(scope="module")
def whole(program):
    file = io.BytesIO()
    program.save(file)
    return file.getvalue()


def rewritten(program, change):
    """A file whose checksums are right, of a graph that ``change`` was done to."""
    graph = json.loads(json.dumps(files.program_json(program)))
    graph = change(graph) or graph
    file = io.BytesIO()
    arrays = {n: t.detach().array for n, t in program.tensors()}
    text = graph if isinstance(graph, str) else json.dumps(graph)
    files.write(file, arrays, {files.FORMAT: text})
    file.seek(0)
    return file


@pytest.mark.parametrize("name", ["m.dtp", "m"])
def test_files_and_folders(tmp_path, program, name):
    path = tmp_path / name
    program.save(path)
    again = dt.load_program(path)
    assert same(again(*ARGS), program(*ARGS)) and str(again) == str(program)
    again.save(tmp_path / f"again{path.suffix}")
    third = dt.load_program(str(tmp_path / f"again{path.suffix}"))
    assert files.program_json(third) == files.program_json(program)
    if path.suffix:
        assert dict(dt.load(path)).keys() == {n for n, _ in program.tensors()}  # plain safetensors
    else:
        assert sorted(os.listdir(path)) == ["graph.json", "model.safetensors"]


def test_state_is_mapped_and_of_its_kind(tmp_path):
    module = dt.nn.Linear(3, 2)
    module.bias.requires_grad_(False)
    module.register_buffer("n", dt.tensor(3))
    dt.export(module, (dt.ones(1, 3),)).save(tmp_path / "m.dtp")
    again = dt.load_program(tmp_path / "m.dtp")
    assert again.parameters == ("weight", "bias")
    assert [p.requires_grad for p in again.state.values()] == [True, False]
    with dt.no_grad():
        again.state["weight"].zero_()
    assert not dt.equal(dt.load_program(tmp_path / "m.dtp").state["weight"], again.state["weight"])


def test_memory_that_lies_in_another_order():
    weight = dt.nn.Parameter(drawn(0, 4, 3).t())
    program = dt.export(lambda x: x @ weight, (dt.ones(2, 3),))
    file = io.BytesIO()
    program.save(file)
    file.seek(0)
    again = dt.load_program(file)
    assert next(iter(again.tensors()))[1].array.strides == weight.array.strides
    for kind in "bfloat16 float16 complex128 complex64 bool int8 uint16".split():
        held = drawn(1, 3).to(getattr(dt, kind))
        program = dt.export(lambda held=held: held.clone())
        file = io.BytesIO()
        program.save(file)
        file.seek(0)
        assert same(dt.load_program(file)(), held)


# --- files of older versions ----------------------------------------------------------------------
@pytest.mark.parametrize("name", CASES)
def test_files_of_version_1(name):
    """Written when that was the newest; whatever came since, they are read."""
    now = made(name)
    for path in (f"{name}.dtp", name):
        old = dt.load_program(os.path.join(HERE, path))
        for sizes in ((2, 3), (1, 1), (4, 2)):
            args = CASES[name][1](*sizes)
            assert same(old(*args), now(*args))


def test_files_of_a_newer_version(program):
    for change in (lambda g: g.update(version=2), lambda g: g.update(version="1")):
        with pytest.raises(SerializationError, match=r"reads 1\. Load it with a newer"):
            dt.load_program(rewritten(program, change))
    with pytest.raises(SerializationError, match=r"no operation is called 'relu99' here.*newer"):
        dt.load_program(rewritten(program, lambda g: g["graph"]["nodes"][0].update(op="relu99")))


# --- damaged ones ---------------------------------------------------------------------------------
def test_flips_and_truncations(whole):
    draw = random.Random(0)
    for i in range(5000):
        data = bytearray(whole)
        if i % 2:
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        else:
            del data[draw.randrange(len(data)) :]
        with pytest.raises(SerializationError, match="load_program: BytesIO"):
            dt.load_program(io.BytesIO(bytes(data)))


def test_damaged_folders(tmp_path, program):
    program.save(tmp_path / "m")
    draw = random.Random(1)
    for name in ("graph.json", "model.safetensors"):
        path = tmp_path / "m" / name
        good = path.read_bytes()
        for _ in range(40):
            data = bytearray(good)
            data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
            path.write_bytes(data)
            with pytest.raises(SerializationError, match="load_program: "):
                dt.load_program(tmp_path / "m")
        path.write_bytes(good)
    assert same(dt.load_program(tmp_path / "m")(*ARGS), program(*ARGS))
    os.remove(tmp_path / "m" / "graph.json")
    with pytest.raises(FileNotFoundError):
        dt.load_program(tmp_path / "m")


ODD = [None, True, 0, -1, 2**40, 2**70, 1.5, "", "x", "i", "reshape", [], {}, {"value": "x"},
       {"size": "b*b"}, {"size": "9**9**9"}, {"size": "t // 0"}, {"float": "nan"},
       {"slice": [0, 1, 2]}, {"dtype": "float64"}, [2**40], [-1], {"graph": {}},
       {"generator": "default"}, {"device": "cuda"}, "../../etc/passwd", {"size": "(" * 500},
       {"dict": []}, {"layout": [0, [1], 5]}, {"ellipsis": True},
       {"complex": ["1", "2"]}]  # fmt: skip


def places(x, path=()):
    pairs = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list) else ()
    for key, part in pairs:
        yield (*path, key)
        yield from places(part, (*path, key))


def put(graph, path, value):
    for key in path[:-1]:
        graph = graph[key]
    graph[path[-1]] = value


def test_graphs_whose_checksums_are_right(program):
    """What was changed on purpose is refused, or is another program: nothing else is raised."""
    draw = random.Random(2)
    known = list(places(json.loads(json.dumps(files.program_json(program)))))
    refused = 0
    for _ in range(300):
        path, value = draw.choice(known), draw.choice(ODD)
        file = rewritten(program, lambda g, p=path, v=value: put(g, p, copy.deepcopy(v)))
        try:
            dt.load_program(file)(*ARGS)
        except DisttrainError:
            refused += 1
    assert refused > 250


HOSTILE = {
    "a cycle": (lambda g: g["graph"]["nodes"].reverse(), "which nothing before it makes"),
    "itself": (lambda g: g["graph"]["nodes"][-1]["args"].__setitem__(
        0, {"value": g["graph"]["nodes"][-1]["outputs"][0]}), "which nothing before it makes"),
    "a large value": (lambda g: g["graph"]["values"][-1].__setitem__(2, [2**33, 2**33]),
                      "larger than any memory"),
    "a negative size": (lambda g: g["graph"]["values"][0].__setitem__(2, [-1]), "0 or more"),
    "a write": (lambda g: g["graph"]["nodes"][0].update(op="assign"), "no operation is called"),
    "memory": (lambda g: g["graph"]["nodes"].insert(0, {
        "op": "window", "args": [{"value": "x"}], "outputs": ["z"], "params": {}}),
        "no operation is called 'window'"),
    "beyond memory": (lambda g: strided(g), "element .* is asked for"),
    "a parameter": (lambda g: g["graph"]["nodes"][0]["params"].update(out={"value": "x"}),
                    "names a value|not known"),
    "code": (lambda g: g["graph"]["values"][0].__setitem__(2, ["__import__('os')"]), "understood"),
    "an expression": (lambda g: g["graph"]["values"][0].__setitem__(2, ["+".join(["b"] * 900)]),
                      "nested too deeply"),
    "another dimension": (lambda g: g["graph"]["values"][0].__setitem__(2, ["q"]), "no dimension"),
    "depth": (lambda g: g["graph"]["nodes"][0]["params"].update(stride=nested(200)),
              "nested too deeply"),
    "depth of all": (lambda g: '{"a":' * 200000 + "1" + "}" * 200000, "nested too deeply"),
    "names twice": (lambda g: json.dumps(g)[:-1] + ',"graph":1}', "stands twice"),
    "no number": (lambda g: json.dumps(g).replace('"positional": 2', '"positional": NaN'), "NaN"),
    "other tensors": (lambda g: g["state"].pop() and None, "names differ"),
    "another type": (lambda g: g["graph"]["values"][2].__setitem__(1, "object"), "not known"),
    "another shape": (lambda g: swap(g), "gives|needs|is needed|fit"),
    "a list of programs": (lambda g: json.dumps([g]), "a program needs"),
    "no format": (lambda g: g.pop("dims") and None, "a program needs"),
}  # fmt: skip


def nested(depth):
    x: list = []
    for _ in range(depth):
        x = [x]
    return x


def strided(g):
    shape = [2, 2]
    g["graph"]["nodes"].insert(0, {
        "op": "as_strided", "args": [{"value": "fc.weight"}], "outputs": ["z"], "params": {
            "size": shape, "stride": [1 << 20, 1], "offset": 0,
            "layout": {"layout": [0, [8, 1], 32]},
        }})  # fmt: skip
    g["graph"]["values"].append(["z", "float32", shape])


def swap(g):
    node = g["graph"]["nodes"][-1]["outputs"][0]
    next(v for v in g["graph"]["values"] if v[0] == node)[2] = [7, 7, 7]


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_graphs(program, name):
    change, told = HOSTILE[name]
    with pytest.raises(SerializationError, match=told):
        dt.load_program(rewritten(program, change))


def test_other_files(tmp_path):
    dt.save({"w": dt.ones(2)}, tmp_path / "w.safetensors")
    with pytest.raises(SerializationError, match=r"without a program; dt\.load reads its tensors"):
        dt.load_program(tmp_path / "w.safetensors")
    np.savez(tmp_path / "w.npz", w=np.ones(2))
    with pytest.raises(SerializationError, match="zip archive"):
        dt.load_program(tmp_path / "w.npz")
    for wrong in (3, None):
        with pytest.raises(ConfigError, match="a path or a file is needed"):
            dt.load_program(wrong)
        with pytest.raises(ConfigError, match="a path or a file is needed"):
            made("loop").save(wrong)
    with pytest.raises(FileNotFoundError):
        dt.load_program(tmp_path / "none.dtp")
