"""Effects in graphs: done again at their place, kept by every pass, with what they write to."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import disttrain as dt
from disttrain import distributed as dist
from disttrain.compile import capture
from disttrain.compile.effects import ReplayedWalk
from disttrain.compile.passes import ORDER, optimize
from disttrain.core.backward.engine import on_finish
from disttrain.core.effects import Effect, performed
from disttrain.errors import CaptureError
from disttrain_launcher import launch


class Doubling(Effect):
    """Doubles what it is given, and counts. One of this package's own, for who looks."""

    __module__ = Effect.__module__
    __moving__ = ("log",)

    def __init__(self, log: list[str], name: str = "double") -> None:
        self.log, self.name = log, name

    def __call__(self, *tensors):
        self.log.append(self.name)
        for t in tensors:
            t.mul_(2)
            print("seen by nobody", end="")

    def settle(self, results):
        self.log.append(f"settled {len(results)}")


def test_an_effect_is_called_by_every_replay_and_its_writes_count():
    log: list[str] = []
    effect = Doubling(log)

    def f(x):
        y = x + 1
        before = y * 3
        performed("double", effect, (y,), (0,))
        return before, y * 3

    result, graph = capture(f)(dt.ones(2))
    assert [r.tolist() for r in result] == [[6.0, 6.0], [12.0, 12.0]]
    for each in (graph, optimize(graph, ORDER)):
        assert "double!(" in str(each)
        again = each.run(dt.ones(2) * 2)
        assert [r.tolist() for r in again] == [[9.0, 9.0], [18.0, 18.0]]
    assert log == ["double"] * 3


def test_effects_keep_their_order_and_are_neither_merged_nor_dropped():
    log: list[str] = []
    first, second = Doubling(log, "a"), Doubling(log, "b")

    def f(x):
        for effect in (first, second, first, first):
            performed("effect", effect)
        return x * 2

    graph = optimize(capture(f)(dt.ones(2))[1], ORDER)
    del log[:]
    graph.run(dt.ones(2))
    assert log == ["a", "b", "a", "a"]


def test_a_compiled_function_settles_its_effects_and_is_never_run_twice():
    log: list[str] = []
    effect = Doubling(log)
    table = dt.ones(3, 2)

    def f(x, i):
        performed("double", effect, (x,), (0,))
        return dt.nn.functional.embedding(i, table) + x

    run = dt.compile(f)
    for _ in range(4):
        x = dt.ones(2)
        assert run(x, dt.tensor([0])).tolist() == [[3.0, 3.0]] and x.tolist() == [2.0, 2.0]
    assert log.count("settled 1") >= 2, run.explain()
    del log[:]
    with pytest.raises(Exception, match="7"):
        run(dt.ones(2), dt.tensor([7]))
    assert log == ["double"]  # the function itself did not run after it


def test_an_effect_that_raises_is_not_tried_again():
    class Failing(Doubling):
        __module__ = Effect.__module__

        def __call__(self, *tensors):
            super().__call__()
            if len([name for name in self.log if name == self.name]) > 3:
                raise RuntimeError("a peer is gone")

    log: list[str] = []
    effect = Failing(log)

    def f(x):
        performed("fail", effect)
        return x * 2

    run = dt.compile(f)
    for _ in range(3):
        run(dt.ones(2))
    with pytest.raises(RuntimeError, match="a peer is gone"):
        run(dt.ones(2))
    assert "0 eager" in run.explain() and log.count("double") == 4


def test_a_write_that_an_effect_did_not_tell_is_no_capture():
    effect, outside = Doubling([]), dt.ones(2)

    class Sly(Effect):
        def __call__(self, *tensors):
            effect(outside)

    def f(x):
        performed("sly", Sly())
        return x + outside

    with pytest.raises(CaptureError, match="is written to by the hooks"):
        capture(f)(dt.ones(2))


# --- leaves that take their gradients in a way of their own -----------------------------------
class Averaging:
    """As data parallel training does it: gradients go to a buffer, and are halved at the end."""

    def __init__(self, leaf):
        self.leaf, self.begun, self.log = leaf, False, []
        leaf._node.store = self.store

    def store(self, leaf, g):
        if not self.begun:
            self.begun = True
            on_finish(self.finish)
        array = getattr(g, "array", g)
        if leaf._grad is None:
            leaf._grad = dt.tensor(np.array(array))
        else:
            leaf._grad.array[...] += array
        self.log.append("stored")

    def finish(self):
        self.begun = False
        self.leaf._grad.array[...] *= 0.5
        self.log.append("finished")


@pytest.mark.parametrize("keep", [False, True], ids=["dropped", "added"])
def test_gradients_are_stored_as_they_come_and_read_at_the_end(keep):
    def run(compiled):
        w = dt.ones(2, requires_grad=True)
        own = Averaging(w)

        def step(x):
            if not keep:
                w.grad = None
            (w * x).sum().backward()
            with dt.no_grad():
                w.sub_(w.grad * 0.1)
            return w.grad.sum()

        step = dt.compile(step) if compiled else step
        seen = [step(dt.ones(2) * i).item() for i in range(5)]
        return seen, w.tolist(), w.grad.tolist(), own.log, compiled and step.explain()

    eager, compiled = run(False), run(True)
    assert eager[:4] == compiled[:4] and "0 eager" in compiled[4]


def test_a_gradient_that_the_program_makes_for_such_a_leaf_is_no_capture():
    w = dt.ones(2, requires_grad=True)
    Averaging(w)

    def step(x):
        w.grad = x * 2
        (w * x).sum().backward()

    with pytest.raises(CaptureError, match="was replaced by another"):
        capture(step)(dt.ones(2))


def test_higher_derivatives_do_not_pass_such_a_leaf_by():
    w = dt.ones(2, requires_grad=True)
    Averaging(w)

    def step(x):
        (w * w * x).sum().backward(create_graph=True)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(CaptureError, match="is read at"):
            capture(step)(dt.ones(2))


def test_a_walk_answers_as_when_it_was_captured():
    class Real:
        pending: dict = {}

        def reaches(self, node):
            return node == 1

    told: list[str] = []
    walk = ReplayedWalk(Real(), [], told.append)
    answers = iter([True, False])
    assert walk.now.reaches(1) and walk.now.answer(answers.__next__)
    walk.now.vary("because")
    walk.settle()
    walk.now.vary("of nothing")
    first = walk.now
    walk.begin()  # who counts by passes sees another one
    assert told == ["because"] and not walk.now.reaches(1) and walk.now is not first
    assert len(walk.answers) == 1


def told_of_ranks() -> list[str]:
    """What captured functions say that ask for ranks and groups, after they were checked."""
    dist.init_process_group()
    both = dist.new_group([0, 1])
    mesh = dist.init_device_mesh("cpu", (2,), mesh_dim_names=("rows",))

    def by_name(x):
        if dist.is_available() and dist.is_initialized():
            x = x * dist.get_rank() + dist.get_world_size()
            dist.all_reduce(x)
        return x

    def of_group(x):
        x = x * both.rank() + both.size() + len(dist.get_process_group_ranks(both))
        if dist.get_rank(both) == 0 and dist.get_backend() == "gloo":
            x = x + dist.group.WORLD.size()
        return x + dist.get_global_rank(both, 1) + dist.get_node_local_rank()

    def of_mesh(x):
        x = x * mesh.get_rank() + mesh.get_local_rank() + mesh.size()
        return x + mesh.get_local_rank("rows") + dist.get_rank(mesh.get_group())

    said, x = [], dt.arange(3.0)
    for fn in (by_name, of_group, of_mesh):
        run = dt.compile(fn)
        for _ in range(4):
            assert run(x).tolist() == fn(x).tolist()
        said.append(run.explain())
        if fn is by_name:
            alone = run
    dist.destroy_process_group()
    assert alone(x).tolist() == alone(x).tolist() == x.tolist()
    return [*said, alone.explain()]


def test_what_a_rank_is_told_of_itself_is_compared_by_replays():
    for rank in launch(told_of_ranks, 2):
        assert all("1 captured, 0 eager" in said for said in rank[:3]), rank
        assert "2 captured, 0 eager" in rank[3]
        assert "is_initialized(): True became False" in rank[3]
