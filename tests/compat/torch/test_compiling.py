"""``torch.compiler``, ``torch._dynamo`` and ``torch._inductor``, as programs touch them."""

from __future__ import annotations

import pytest

import disttrain as dt
from disttrain import nn
from disttrain.compat.publish import MissingName
from disttrain.compat.torch import compiling
from disttrain.compile.passes import ORDER, recomputing

MODULES = compiling.modules()


def test_settings_are_kept_and_told_once():
    config = compiling.Config("torch._dynamo.config", {"cache_size_limit": 8, "verbose": False})
    with pytest.warns(UserWarning, match=r"torch\._dynamo\.config\.cache_size_limit has no effect"):
        config.cache_size_limit = 64
    config.cache_size_limit = 65  # told before; a warning would be an error here
    assert config.cache_size_limit == 65 and config.save_config() == b""
    with pytest.warns(UserWarning, match="verbose"), config.patch("verbose", True):
        assert config.verbose
    with config.patch({"verbose": True}, cache_size_limit=1):
        assert config.verbose and config.cache_size_limit == 1
    assert not config.verbose and config.cache_size_limit == 65
    with pytest.raises(MissingName):
        config.no_such_setting


def test_a_budget_of_memory_is_the_compilers():
    config = MODULES["torch._functorch.config"]
    with config.patch(activation_memory_budget=0.5):  # has an effect: no warning
        run = compiling.compile(model=lambda x: x * 2)
        kept = compiling.compile(run.fn, mode="default")
    assert config.activation_memory_budget == 1.0
    assert run.settings.passes == recomputing(0.5, ORDER) != kept.settings.passes == ORDER


def test_a_counting_backend_counts():
    counter = MODULES["torch._dynamo.testing"].CompileCounter()
    run = dt.compile(lambda x: (x * 2).sum(), backend=counter)
    run(dt.ones(3))
    run(dt.ones(3))
    run(dt.ones(4))
    assert (counter.frame_count, counter.op_count, len(counter.graphs)) == (2, 4, 2)
    counter.clear()
    assert counter.frame_count == 0


def test_explain_tells_of_graphs_and_breaks():
    explain = MODULES["torch._dynamo"].explain
    whole = explain(lambda x: x * 2 + 1)(dt.ones(3))
    assert (whole.graph_count, whole.graph_break_count, whole.op_count) == (1, 0, 1)
    broken = explain(lambda x: x * 2 if x.sum() > 0 else x, dt.ones(3))
    assert broken.graph_break_count == 1 and "a number is read: True at" in str(broken)
    with pytest.warns(UserWarning, match="runs eagerly"):
        broken = explain(lambda x: x * 2 if x.sum().numpy() > 0 else x, dt.ones(3))
    assert broken.graph_break_count == 1 and "Graph Count: 0" in str(broken)


def test_compiled_modules_are_known_as_such():
    model = nn.Linear(2, 2)
    kind = MODULES["torch._dynamo.eval_frame"].OptimizedModule
    assert isinstance(dt.compile(model), kind) and not isinstance(model, kind)


def test_what_has_no_meaning_changes_nothing():
    dynamo, compiler = MODULES["torch._dynamo"], MODULES["torch.compiler"]

    @dynamo.disable
    def one(x):
        return x + 1

    @compiler.disable(recursive=False)
    def two(x):
        return one(x) + 1

    x = dt.ones(2)
    dynamo.mark_dynamic(x, 0)
    dynamo.reset()
    with compiler.set_stance("force_eager"):
        assert dynamo.optimize("eager")(two)(x).tolist() == [3.0, 3.0]
    assert not compiler.is_compiling() and "inductor" in compiler.list_backends()


def test_marks_say_which_dimensions_are_captured_for_all_sizes():
    dynamo = MODULES["torch._dynamo"]
    run = compiling.compile(lambda x: x * 2)
    x = dt.ones(3, 2)
    dynamo.mark_dynamic(x, 0)
    for n in (3, 4, 5):
        run(x if n == 3 else dt.ones(n, 2))
    assert len(run.reasons) == 1
    run = compiling.compile(lambda x: x * 2, dynamic=True)
    for n in (3, 4, 3):
        y = dt.ones(n, 2)
        dynamo.mark_static(y, 0)
        dynamo.maybe_mark_dynamic(y, 1)
        run(y)
    assert len(run.reasons) == 2


def test_control_flow_is_where_programs_look_for_it():
    whole = MODULES["torch._higher_order_ops"]
    for name in ("cond", "while_loop", "scan", "map"):
        assert getattr(MODULES[f"torch._higher_order_ops.{name}"], name) is getattr(whole, name)
    assert whole.cond(dt.ones(1) > 0, lambda a: a + 1, lambda a: a, (dt.ones(2),)).tolist() == [
        2,
        2,
    ]


def test_checks_raise_what_they_are_named_after():
    checks = compiling.checks()
    for end, error in (("", RuntimeError), ("_index", IndexError), ("_value", ValueError)):
        checks[f"_check{end}"](True)
        with pytest.raises(error, match="Expected cond to be True"):
            checks[f"_check{end}"](False)
    with pytest.raises(RuntimeError, match="rows"):
        checks["_check"](False, lambda: "rows")
    with pytest.raises(TypeError, match="cond must be a bool"):
        checks["_check"](dt.tensor(True))
    with pytest.raises(RuntimeError, match="a size is needed, 3 given"):
        checks["_check_is_size"](3, max=2)
    with pytest.raises(RuntimeError, match="Expected"):
        checks["_check_tensor_all"](dt.tensor([True, False]))

    @dt.compile(dynamic=True)
    def run(x):
        checks["_check"](x.shape[0] > 2)
        return x * x.shape[0]

    assert run(dt.ones(3)).tolist() == [3] * 3 and run(dt.ones(4)).tolist() == [4] * 4
    assert len(run.graphs) == 1
    with pytest.raises(RuntimeError, match="Expected"):
        run(dt.ones(2))
