"""dt.autograd.graph: edges, nodes, hooks over several tensors, versions; batches of cotangents."""

import pytest

import disttrain as dt
from disttrain.autograd import grad, graph
from disttrain.errors import AutogradError


def leaf(*values):
    return dt.tensor(values, requires_grad=True)


def test_an_edge_stands_for_its_tensor():
    x = leaf(2.0)
    middle = x * 5
    out = middle * middle
    edge = graph.get_gradient_edge(middle)
    assert grad(out, edge, retain_graph=True)[0].item() == 20.0
    assert grad(edge, x)[0].item() == 5.0
    out = (x * 5) * 1
    dt.autograd.backward(graph.get_gradient_edge(out), inputs=[graph.get_gradient_edge(x)])
    assert x.grad.item() == 5.0
    parts = (leaf(1.0, 2.0) * 3).unbind()
    assert graph.get_gradient_edge(parts[1]).output_nr == 1


def test_edges_say_what_is_wrong():
    x = leaf(1.0, 2.0)
    edge = graph.get_gradient_edge(x * 2)
    with pytest.raises(AutogradError, match="only for scalar outputs"):
        grad(edge, x)
    with pytest.raises(RuntimeError, match="Mismatch in shape"):
        grad(edge, x, dt.ones(3))
    with pytest.raises(AutogradError, match="does not require"):
        graph.get_gradient_edge(dt.ones(1))


def test_nodes_can_be_looked_at_and_run():
    x = leaf(2.0)
    out = x * x
    node = out.grad_fn
    assert isinstance(node, graph.Node) and node.name() == "MulBackward0"
    node.metadata["note"] = 1
    assert out.grad_fn.metadata == {"note": 1}
    assert [g.item() for g in node(dt.ones(1))] == [2.0, 2.0]
    with pytest.raises(TypeError, match="expected 1 arguments, got 2"):
        node(1, 2)
    assert x.exp().grad_fn(dt.ones(1)).item() == pytest.approx(7.389056, rel=1e-6)


def test_a_hook_for_all_of_several_tensors():
    a, b, c = leaf(1.0), leaf(1.0), leaf(1.0)
    got = []
    tensors = (a, b, c)
    handle = graph.register_multi_grad_hook(
        tensors, lambda gs: got.append([None if g is None else g.item() for g in gs])
    )
    (a * 2 + b * 3).backward()
    (a * b * c * 4).backward()
    handle.remove()
    (a * 1).backward()
    assert got == [[2.0, 3.0, None], [4.0, 4.0, 4.0]]


def test_a_hook_for_any_of_several_tensors():
    a, b = leaf(1.0), leaf(1.0)
    got = []
    with graph.register_multi_grad_hook((a, b), lambda g: got.append(g.item()), mode="any"):
        (a * 2 + b * 2).backward()
        (b * 9).backward()
    (b * 9).backward()
    assert got == [2.0, 9.0]
    with pytest.raises(ValueError, match="'all' or 'any'"):
        graph.register_multi_grad_hook((a, b), print, mode="some")


def test_versions_can_be_raised():
    t = dt.ones(3)
    graph.increment_version(t)
    graph.increment_version([t, t])
    assert t._version == 3
