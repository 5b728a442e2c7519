"""Numbers in place of expressions: what holds none stays the same object, all else is made anew."""

from __future__ import annotations

import disttrain as dt
from disttrain.compile.sized import is_sized
from disttrain.compile.sizes.substitution import Metas, all_numbers


def general(fn, *shapes):
    run = dt.compile(fn, dynamic=True)
    for shape in shapes:
        run(dt.ones(*shape))
    (form,) = run.forms.forms.values()
    return form.captures[0]


def test_numbers_of_a_capture_are_known_by_their_texts():
    capture = general(lambda x: x.reshape(-1, x.shape[0] * 2) * x.shape[1], (2, 4))
    texts = {n.text for n in all_numbers(capture.graph, capture.joint)}
    assert {"s0", "s1", "(2*s0)"} <= texts


def test_graphs_get_numbers():
    capture = general(lambda x: (x * x.shape[0]).relu() + 1, (3, 4))
    graph, joint = capture.made((5, 7))
    assert joint is None and not is_sized(graph.outputs)
    assert {tuple(shape) for shape, _ in graph.metas.values()} == {(5, 7)}
    assert graph.run(dt.ones(5, 7))[0].tolist() == [[6.0] * 7] * 5
    again, _ = capture.made((5, 7))
    same = [a is b for a, b in zip(graph.instructions, again.instructions, strict=True)]
    assert len(same) == len(capture.graph.instructions)


def test_walks_back_get_numbers():
    weight = dt.ones(4, requires_grad=True)
    capture = general(lambda x: (x * weight * x.shape[0]).sum(0), (3, 4))
    _, joint = capture.made((6, 4))
    assert (joint is not None and joint.shapes != capture.joint.shapes) or joint.sweeps
    assert not any(is_sized((ins.args, ins.params)) for s in joint.sweeps for ins in s.instructions)


def test_shapes_without_symbols_stay():
    capture = general(lambda x: x.sum(0) + x[0], (3, 4))
    plain = Metas({v: ((2, 2), kind) for v, (_, kind) in capture.graph.metas.items()})
    assert plain.sized == [] and plain.made({}) == plain.metas
