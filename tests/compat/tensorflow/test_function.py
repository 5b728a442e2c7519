"""Traced functions: tapes in loops and over other functions, branches that are not taken, threads,
saved functions. The numbers are TensorFlow 2.21's."""

from __future__ import annotations

import threading

import pytest

from disttrain.compat import tensorflow as tf
from disttrain.context import thread


def numbers(*values):
    return [v.numpy().tolist() for v in tf.nest.flatten(values)]


def test_each_turn_of_a_loop_has_its_own_tape():
    w = tf.Variable(2.0)

    @tf.function
    def train(n):
        for _ in tf.range(n):
            with tf.GradientTape() as tape:
                loss = (w - 5.0) ** 2
            w.assign_sub(0.1 * tape.gradient(loss, w))
        return w.read_value()

    found = numbers(train(tf.constant(3)), train(tf.constant(0)), train(tf.constant(2)))
    assert found == pytest.approx([3.464, 3.464, 4.01696])


@pytest.mark.parametrize("known", [False, True])
def test_gradients_through_functions_in_functions(known):
    w, other = tf.Variable(2.0), tf.Variable(5.0)

    @tf.function
    def inner(x):
        return w * x * x if x > 0.0 else other * x

    if known:
        inner(tf.constant(3.0))

    @tf.function
    def outer(x):
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = inner(x) * 3.0
        return tape.gradient(y, [x, w, other], unconnected_gradients="zero")

    assert numbers(outer(tf.constant(2.0))) == [24, 12, 0]
    assert numbers(outer(tf.constant(-1.0))) == [15, 0, -3]


def test_functions_of_gradients_and_values_computed_again():
    v = tf.Variable(2.0)

    @tf.custom_gradient
    def square(x):
        return x * x, lambda upstream: upstream * 100.0 * x

    again = tf.recompute_grad(lambda x: tf.sin(x * v))

    @tf.function
    def traced(x):
        with tf.GradientTape(persistent=True) as tape:
            tape.watch(x)
            y, z = square(x) * 2, again(x)
        return tape.gradient(y, x), tape.gradient(z, [x, v])

    assert numbers(traced(tf.constant(1.0))) == pytest.approx([200, -0.8322937, -0.4161468])


def test_dicts_of_branches_and_loops_go_by_their_keys():
    @tf.function
    def traced(yes, n):
        found = tf.cond(yes, lambda: {"a": 1.0, "b": 2.0}, lambda: {"b": 20.0, "a": 10.0})
        state = {"i": tf.constant(0), "s": tf.constant(0)}
        while state["i"] < n:
            state = {"s": state["s"] + state["i"], "i": state["i"] + 1}
        return found["a"], found["b"], state["i"], state["s"]

    assert numbers(traced(tf.constant(True), tf.constant(4))) == [1, 2, 4, 6]
    assert numbers(traced(tf.constant(False), tf.constant(2))) == [10, 20, 2, 1]


def test_branches_that_are_not_taken_do_not_fail():
    @tf.function
    def traced(x, i):
        if i > 0:
            return x[i - 1] + tf.gather(x, i - 1) // i
        return tf.constant(0)

    x = tf.constant([4, 6])
    assert numbers(*[traced(x, tf.constant(i)) for i in range(3)]) == [0, 8, 9]


def test_rows_and_parts_of_variables():
    table = tf.Variable(tf.ones([4, 2]))

    @tf.function
    def rows(i):
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(tf.gather(table, i) ** 2)
        return tape.gradient(loss, table)

    @tf.function
    def assign(n):
        for i in tf.range(n):
            table[i, 0].assign(tf.cast(i, tf.float32) * 10.0)

    found = rows(tf.constant([3, 1]))
    assert isinstance(found, tf.IndexedSlices)
    assert numbers(found.values, found.indices) == [[[2, 2], [2, 2]], [3, 1]]
    assign(tf.constant(2))
    assert numbers(table) == [[[0, 1], [10, 1], [1, 1], [1, 1]]]


def test_threads_share_one_first_call_and_add_whole():
    class Counter(tf.Module):
        def __init__(self):
            self.total = None

        @tf.function
        def add(self, x):
            if self.total is None:
                self.total = tf.Variable(tf.zeros([100]))
            self.total.assign_add(x)

    counter, failed = Counter(), []

    def run():
        try:
            for _ in range(20):
                counter.add(tf.ones([100]))
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not failed
    assert counter.total.numpy().tolist() == [80.0] * 100


def test_saved_functions_train_loop_and_draw(tmp_path):
    module = tf.Module()
    module.parts, x = {"v": tf.Variable(2.0)}, tf.TensorSpec([])

    @tf.function(input_signature=[x])
    def train(y):
        with tf.GradientTape() as tape:
            loss = (module.parts["v"] - y) ** 2
        module.parts["v"].assign_sub(0.1 * tape.gradient(loss, module.parts["v"]))
        return loss

    @tf.function(input_signature=[x, tf.TensorSpec([], tf.int32)])
    def loop(x, n):
        for _ in tf.range(n):
            x = x - 1.0 if x > 10.0 else x * 2.0
        return x

    module.train, module.loop = train, loop
    module.draw = tf.function(lambda x: x + tf.random.normal([3]), input_signature=[x])
    tf.saved_model.save(module, str(tmp_path))
    found = tf.saved_model.load(str(tmp_path))
    out = found.train(5.0), found.train(5.0), found.parts["v"], module.parts["v"]
    assert numbers(out) == pytest.approx([9, 5.76, 3.08, 2])
    assert numbers(found.loop(3.0, 4), found.loop(3.0, 2)) == [10, 12]
    assert numbers(found.draw(0.0)) != numbers(found.draw(0.0))


def test_an_error_leaves_no_tape_open():
    v = tf.Variable(2.0)

    @tf.function
    def traced(i):
        with tf.GradientTape() as tape:
            y = v * v
            with tape.stop_recording():
                y = y * tf.gather([1.0, 2.0], i)
            y = y * v
        return y, tape.gradient(y, v)

    assert numbers(traced(tf.constant(1))) == [16, 8]
    with pytest.raises(tf.errors.InvalidArgumentError):
        traced(tf.constant(7))
    assert not thread.tapes
    assert numbers(traced(tf.constant(1))) == [16, 8]


def test_loaded_functions_in_traced_functions(tmp_path):
    module = tf.Module()
    module.v = tf.Variable(3.0)

    @tf.function(input_signature=[tf.TensorSpec([])])
    def square(x):
        module.v.assign_add(1.0)
        return x * module.v * module.v

    module.f = square
    tf.saved_model.save(module, str(tmp_path))
    found = tf.saved_model.load(str(tmp_path))

    @tf.function
    def traced(x):
        with tf.GradientTape() as tape:
            y = found.f(x) * 2.0
        return y, tape.gradient(y, found.v)

    assert numbers(traced(tf.constant(1.0))) == [32, 16]
    assert numbers(traced(tf.constant(2.0)), found.v) == [100, 40, 5]
