"""The walk back: which nodes run, in which order, on what, and whose the gradients are."""

from __future__ import annotations

import numpy as np
import pytest

import disttrain as dt
from disttrain import autograd
from disttrain.context import thread
from disttrain.core.backward.engine import Walk, discard, on_finish
from disttrain.core.node import GraphNode, Output
from disttrain.errors import AnomalyError, AutogradError

F4 = np.dtype("f4")


class Made(GraphNode):
    """A node of one output that runs ``rule``; notes when it ran."""

    def __init__(self, log, seq, edges=(), rule=None, shape=(2,)):
        self.log, self.seq, self.edges = log, seq, tuple(edges)
        self.rule = rule or (lambda g: (g,) * len(self.edges))
        self.shape, self.dtype, self.released = shape, F4, 0

    def run(self, g, tensors, wanted=None):
        self.log.append((self.seq, g.tolist()))
        self.wanted = wanted
        return self.rule(g)

    def run_without(self, tensors):
        self.log.append((self.seq, None))
        return super().run_without(tensors)

    def release(self):
        self.released += 1


class Pair(Made):
    """A node of two outputs."""

    num_outputs = 2

    def __init__(self, log, seq, edges=(), wants_none=False):
        super().__init__(log, seq, edges)
        self.shapes, self.wants_none = (((2,), F4), ((3,), F4)), wants_none

    def run(self, g, tensors, wanted=None):
        self.log.append((self.seq, [x is not None and x.tolist() for x in g]))
        return (np.zeros(2, F4),) * len(self.edges)


def ones(n=2):
    return np.ones(n, F4)


def leaf_of(*values):
    x = dt.tensor(list(values), requires_grad=True)
    return x, x.graph_node()


def walked(root, g=None, sink=lambda *said: None, **settings):
    walk = Walk([root], sink, **settings)
    walk.feed(root, ones() if g is None else g)
    walk.run()
    return walk


def test_the_latest_made_runs_first_and_each_node_once_when_all_has_come():
    log = []
    bottom = Made(log, 1)
    left, right = Made(log, 2, [bottom]), Made(log, 5, [bottom])
    top = Made(log, 9, [left, right, None])
    walked(top)
    assert log == [(9, [1, 1]), (5, [1, 1]), (2, [1, 1]), (1, [2, 2])]
    assert [n.released for n in (top, left, right, bottom)] == [1] * 4


def test_what_is_kept_is_not_released():
    node = Made([], 1)
    walked(node, keep=True)
    assert node.released == 0


def test_a_leaf_runs_as_soon_as_its_gradient_is_complete():
    log, (_, leaf) = [], leaf_of(1.0, 2.0)
    below = Made(log, 1)
    walked(Made(log, 9, [leaf, below]), sink=lambda acc, g, own: log.append(("leaf", g.tolist())))
    assert log == [(9, [1, 1]), ("leaf", [1, 1]), (1, [1, 1])]


def test_gradients_are_made_to_fit_what_the_forward_had():
    log = []
    wide, narrow = Made(log, 1), Made(log, 2, shape=(1,))
    rule = lambda g: (np.ones((3, 2), np.float64), np.ones((5, 1), F4))
    walked(Made(log, 9, [wide, narrow], rule))
    assert log[1:] == [(2, [5]), (1, [3, 3])], "summed over what was broadcast"


def test_outputs_get_their_own_gradients_and_zeros_where_none_has_come():
    log = []
    pair, strict = Pair(log, 1), Pair(log, 2, wants_none=True)
    rule = lambda g: (ones(3), ones(3))
    walked(Made(log, 9, [Output(pair, 1), Output(strict, 1)], rule))
    assert log[1:] == [(2, [False, [1, 1, 1]]), (1, [[0, 0], [1, 1, 1]])]


def test_a_node_to_which_nothing_has_come_runs_without():
    log = []
    below = Made(log, 1)
    silent = Made(log, 2, [below])
    walked(Made(log, 9, [silent], lambda g: (None,)))
    assert log == [(9, [1, 1]), (2, None), (1, None)]
    pair = Pair(log := [], 2, [Made(log, 1)])
    walked(Made(log, 9, [Output(pair, 0)], lambda g: (None,)))
    assert log[1:] == [(2, None), (1, None)]


def test_only_ways_to_targets_are_walked():
    log = []
    target, other = Made(log, 1), Made(log, 2)
    middle = Made(log, 5, [target, other])
    aside = Made(log, 6, [other])
    top = Made(log, 9, [middle, aside])
    walk = walked(top, targets={target}, sink=discard)
    assert [seq for seq, _ in log] == [9, 5] and middle.wanted == (True, False)
    assert walk.reaches(target) and walk.reaches(middle)
    assert not walk.reaches(aside) and not walk.reaches(other)
    log.clear()
    walked(top, targets={target}, sink=discard, through=True)
    assert [seq for seq, _ in log] == [9, 5, 1]


def test_what_a_target_gets_is_captured():
    log = []
    target = Made(log, 1)
    walk = Walk([Made(log, 9, [target], lambda g: (g * 3,))], discard, targets={target})
    walk.captures[target] = {0: None}
    (root,) = [n for n in walk.pending if n is not target]
    walk.feed(root, ones())
    walk.run()
    assert walk.captures[target][0].tolist() == [3, 3]


def of_leaf(rule, hook=None):
    """(gradient, whether the leaf may keep it) of a node that leads to a leaf."""
    _, leaf = leaf_of(1.0, 2.0)
    came = []
    node = Made([], 9, [leaf], rule)
    node.makes = True
    if hook is not None:
        node.register_hook(hook)
    walked(node, sink=lambda acc, g, own: came.append((g, own)))
    return came[0]


def test_a_leaf_may_keep_what_was_made_for_it_alone():
    assert of_leaf(lambda g: (g * 2,))[1], "made there"
    assert not of_leaf(lambda g: (g,))[1], "what the program fed is the program's"
    seen = lambda inputs, outputs: None
    assert not of_leaf(lambda g: (g * 2,), hook=seen)[1], "a hook may have kept it"


def test_what_goes_to_two_places_is_nobody_s_alone():
    _, first = leaf_of(1.0, 2.0)
    _, second = leaf_of(1.0, 2.0)
    came = []
    below = Made([], 5, [first, second], lambda g: (g, g))
    top = Made([], 9, [below], lambda g: (g * 2,))
    below.makes = top.makes = True
    walked(top, sink=lambda acc, g, own: came.append(own))
    assert came == [False, False]


class Keeping(Pair):
    """A node as a program's own function is: it may give what it keeps."""

    def run(self, g, tensors, wanted=None):
        return (self.mine,)


def test_sums_do_not_write_into_what_others_have():
    log, came = [], []
    _, leaf = leaf_of(1.0, 2.0)
    first, second = Keeping(log, 8, [leaf]), Made(log, 7, [leaf], lambda g: (ones(),))
    first.mine = ones()
    walked(Made(log, 9, [Output(first, 0), second]), sink=lambda acc, g, own: came.append((g, own)))
    ((g, own),) = came
    assert g.tolist() == [2, 2] and own and first.mine.tolist() == [1, 1]


def test_what_a_program_s_function_gives_is_not_the_leaf_s_to_keep():
    _, leaf = leaf_of(1.0, 2.0)
    came, node = [], Keeping([], 8, [leaf])
    node.mine = ones()
    walked(Output(node, 0), sink=lambda acc, g, own: came.append((g is node.mine, own)))
    assert came == [(True, False)]


def test_the_thread_s_state_and_callbacks():
    seen = []

    def rule(g):
        seen.append((thread.walk, thread.walking, thread.depth))
        on_finish(lambda: seen.append("through"), lambda: seen.append("broken"))
        return ()

    walk = walked(Made([], 1, [], rule))
    assert seen == [(walk, walk, 1), "through"]
    assert (thread.walk, thread.walking, thread.depth) == (None, None, 0)
    with pytest.raises(AutogradError, match="no backward pass is running"):
        on_finish(lambda: None)


def test_a_walk_that_breaks_says_so_and_puts_the_thread_back():
    told = []

    def rule(g):
        on_finish(lambda: told.append("through"), lambda: told.append("broken"))
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        walked(Made([], 1, [], rule))
    assert told == ["broken"] and thread.walk is None and thread.depth == 0


def test_a_node_that_is_marked_runs_when_all_above_it_is_done():
    log = []
    late = Pair(log, 3)
    late.run = lambda g, tensors, wanted=None: log.append((3, g)) or ()
    walk = Walk([top := Made(log, 9, [Made(log, 5, [Made(log, 1)])])], lambda *said: None)
    walk.mark(late)
    walk.feed(top, ones())
    walk.run()
    assert [seq for seq, _ in log] == [9, 5, 3, 1] and log[2] == (3, ())


def test_anomaly_detection_names_the_node():
    with autograd.set_detect_anomaly(True):
        with pytest.raises(AnomalyError, match="Function 'Made' returned nan values in its 0th"):
            walked(Made([], 9, [Made([], 1)], lambda g: (g * np.nan,)))


def test_deep_graphs_need_no_deep_stack():
    log = []
    node = Made(log, 0)
    for seq in range(1, 20_000):
        node = Made(log, seq, [node])
    walked(node)
    assert len(log) == 20_000


def test_walks_inside_walks_go_on_with_an_empty_stack():
    def rule(depth):
        def run(g):
            if depth:
                walked(Made([], 1, [], rule(depth - 1)))
            else:
                done.append(thread.depth)
            return ()

        return run

    done = []
    walked(Made([], 1, [], rule(60)))
    assert done == [61] and thread.depth == 0
