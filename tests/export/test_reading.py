"""Programs read as graphs of ``torch.fx``."""

from __future__ import annotations

import operator

import disttrain as dt
from disttrain import nn
from disttrain.export.reading import GraphModule, graph_of
from support.cases.exported import made


def test_nodes(capsys):
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    program = dt.export(module, (dt.ones(2, 3),))
    graph = GraphModule(program).graph
    assert [(n.op, n.name, getattr(n.target, "name", n.target)) for n in graph.nodes] == [
        ("get_attr", "_0_weight" if graph.nodes[0].name[0] == "_" else "0_weight", "0.weight"),
        ("get_attr", graph.nodes[1].name, "0.bias"), ("placeholder", "input", "input"),
        ("call_function", "linear", "linear"), ("call_function", "relu", "relu"),
        ("output", "output", "output"),
    ]  # fmt: skip
    linear = graph.find_nodes(op="call_function")[0]
    assert [n.op for n in linear.all_input_nodes] == ["placeholder", "get_attr", "get_attr"]
    assert list(linear.users) == [graph.nodes[4]] and linear.next is graph.nodes[4]
    assert linear.prev is graph.nodes[2] and linear.meta["nn_module_stack"] == "0"
    assert "test_reading.py" in linear.stack_trace and linear.meta["val"].shape == (2, 4)
    graph.lint()
    graph.print_tabular()
    assert "opcode" in capsys.readouterr().out and "call_function" in graph.table()
    assert "relu = relu(linear)" in graph.python_code() and str(graph).startswith("graph():")
    assert graph.output_node().args[0] == (graph.nodes[4],)


def test_several_results_and_lifted_names():
    program = made("mixed")
    graph = graph_of(program, lifted=True)
    places = [n.name for n in graph.nodes if n.op == "placeholder"]
    assert places[-2:] == ["x", "i"] and "p_fc_weight" in places and "b_norm_running_mean" in places
    taken = [n for n in graph.nodes if n.target is operator.getitem]
    assert taken and all(n.args[0].name.endswith("_all") for n in taken)
    assert "cond(" in GraphModule(program).code and "graph of 1 nodes" in str(graph)
