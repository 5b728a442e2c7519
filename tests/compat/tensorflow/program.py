"""A program of TensorFlow's: tapes, variables, traced functions and AutoGraph. What it prints is
held in ``program.txt``, which tensorflow-cpu 2.21.0 has printed. (``python program.py`` prints it
anew.)"""

import numpy as np
import tensorflow as tf


def show(label, fn):
    try:
        print(label, repr(fn()))
    except Exception as error:
        kind = type(error)
        kind = kind if kind.__name__ != "InaccessibleTensorError" else TypeError
        print(label, kind.__name__)


# --- tapes
x = tf.constant([1.0, 2.0, 3.0])
v = tf.Variable([2.0, 3.0, 4.0])
with tf.GradientTape(persistent=True) as tape:
    tape.watch(x)
    y = tf.reduce_sum(x * x * v)
    z = tf.reduce_sum(tf.sin(x))
    with tape.stop_recording():
        hidden = tf.reduce_sum(v * 100.0)
    w = y + z + hidden
show("grad", lambda: tape.gradient(y, x))
show("grad both", lambda: tape.gradient(w, {"x": x, "v": v}))
show("hidden", lambda: tape.gradient(hidden, v))
show("zero", lambda: tape.gradient(z, v, unconnected_gradients=tf.UnconnectedGradients.ZERO))
show("none", lambda: tape.gradient(z, v))
show("weights", lambda: tape.gradient([y, z], x, output_gradients=[2.0, tf.constant(3.0)]))
show("intermediate", lambda: tape.gradient(w, [y, z]))
show("watched", lambda: [t.name for t in tape.watched_variables()])
with tf.GradientTape() as outer:
    with tf.GradientTape() as inner:
        cube = v**3
    first = inner.gradient(cube, v)
show("second", lambda: outer.gradient(first, v))
show("again", lambda: outer.gradient(first, v))
with tf.GradientTape() as tape:
    tape.watch(x)
    outer_product = tf.tensordot(x, x, 0)
show("jacobian", lambda: tape.jacobian(outer_product, x).shape)
rows = tf.constant([[1.0, 2.0], [3.0, 4.0]])
with tf.GradientTape() as tape:
    tape.watch(rows)
    squares = rows * rows
show("batch jacobian", lambda: tape.batch_jacobian(squares, rows))
with tf.GradientTape(watch_accessed_variables=False) as tape:
    untouched = v * 2.0
show("unwatched", lambda: tape.gradient(untouched, v))
table = tf.Variable(tf.ones([4, 2]))
with tf.GradientTape() as tape:
    picked = tf.reduce_sum(tf.gather(table, [1, 1, 3]) * 2.0)
slices = tape.gradient(picked, table)
show("slices", lambda: (type(slices).__name__, slices.values, slices.indices))
show("dense", lambda: tf.convert_to_tensor(slices))
with tf.GradientTape() as tape:
    before = tf.reduce_sum(v * v)
    v.assign([1.0, 1.0, 1.0])
    total = before + tf.reduce_sum(v * 3.0)
show("assigned", lambda: tape.gradient(total, v))
with tf.GradientTape() as tape:
    wrong = x * 2.0
show("string", lambda: tape.gradient(None, x))
with tf.GradientTape() as tape:
    forgotten = v * 2.0
    tape.reset()
    kept = v * 5.0
show("reset", lambda: tape.gradient([forgotten, kept], v))


@tf.custom_gradient
def clipped(t):
    def grad(upstream):
        return upstream * 10.0

    return t * 2.0, grad


with tf.GradientTape() as tape:
    custom = clipped(v)
show("custom", lambda: tape.gradient(custom, v))

# --- variables
show("scatter", lambda: v.scatter_nd_update([[0], [2]], [7.0, 8.0]))
show("slice assign", lambda: v[1].assign(5.0))
show("sub", lambda: v.assign_sub([1.0, 1.0, 1.0]))
show("shape", lambda: v.assign([1.0]))
show("type", lambda: v.assign(tf.constant([1, 2, 3])))
show("hash", lambda: {v: 1})

# --- functions
traces = []


@tf.function
def f(a, b=2.0):
    traces.append(1)
    print("tracing", a, b)
    if tf.reduce_sum(a) > 0:
        c = a * b
    elif tf.reduce_sum(a) < -10:
        c = a - b
    else:
        c = a + b
    return tf.nn.relu(c)


show("f1", lambda: f(x))
show("f2", lambda: f(-x))
show("f3", lambda: f(-10.0 * x))
show("f4", lambda: f(x, 3.0))
show("f5", lambda: f(tf.constant([[1.0]])))
show("traces", lambda: (len(traces), f.experimental_get_tracing_count()))


@tf.function
def loops(n, data):
    total = tf.constant(0)
    for i in tf.range(n):
        if i % 2 == 0:
            continue
        if i > 6:
            break
        total += i
    count = 0
    while total > count:
        count += 1
    best = data[0]
    for value in data:
        if value > best:
            best = value
    for k in range(2):
        total += k
    return total, count, best


show("loops", lambda: loops(tf.constant(5), tf.constant([3.0, 9.0, 4.0])))
show("loops again", lambda: loops(tf.constant(20), tf.constant([3.0, 1.0, 4.0])))


@tf.function
def early(a):
    if a > 10:
        return a * 100
    if a > 5:
        return a * 10
    return a


show("early", lambda: [int(early(tf.constant(n))) for n in (1, 7, 20)])


def helper(a):
    return a if a > 0 else -a


@tf.function
def nested(a):
    return helper(a) + (1.0 if a > 2.0 and not a > 5.0 else 0.0)


show("nested", lambda: [float(nested(tf.constant(n))) for n in (-3.0, 3.0, 6.0)])
counter = tf.Variable(0)


@tf.function(input_signature=[tf.TensorSpec([None, 2], tf.float32, name="batch")])
def signed(batch):
    print("signed", batch.shape)
    counter.assign_add(1)
    return tf.reduce_mean(batch, 0) + tf.cast(tf.shape(batch)[0], tf.float32)


show("signed", lambda: signed(tf.ones([3, 2])))
show("signed 5", lambda: signed([[1.0, 2.0]] * 5))
show("signed wrong", lambda: signed(tf.ones([3, 3])))
show("counter", lambda: counter)
concrete = signed.get_concrete_function()
show("concrete", lambda: (concrete.inputs[0].shape, concrete.outputs[0].dtype))
show("operations", lambda: next(op.type for op in concrete.graph.get_operations()))


@tf.function
def step(data):
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum((weights * data - 1.0) ** 2)
    (gradient,) = tape.gradient(loss, [weights])
    weights.assign_sub(0.1 * gradient)
    return loss


weights = tf.Variable([0.5, 0.5])
show("steps", lambda: [round(float(step(tf.constant([1.0, 2.0]))), 4) for _ in range(4)])
show("weights", lambda: weights)
with tf.GradientTape() as tape:
    through = tf.reduce_sum(f(v))
show("through", lambda: tape.gradient(through, v))


@tf.function
def hessian(a):
    with tf.GradientTape() as outer:
        outer.watch(a)
        with tf.GradientTape() as inner:
            inner.watch(a)
            cubes = tf.reduce_sum(a**3)
        gradient = inner.gradient(cubes, a)
    return outer.jacobian(gradient, a)


show("hessian", lambda: hessian(tf.constant([1.0, 2.0])))
leaked = []
tf.function(lambda a: leaked.append(a * 2))(tf.constant(1.0))
show("leaked", lambda: leaked[0] + 1)
show("bool", lambda: tf.function(lambda a: bool(a))(x))
show("undefined", lambda: tf.function(lambda a: a.numpy())(x))
show("while_loop", lambda: tf.function(
    lambda a: tf.while_loop(lambda i, s: i < 4, lambda i, s: (i + 1, s * 2.0), (0, a)))(
        tf.constant(1.0)))  # fmt: skip
show("case", lambda: tf.function(lambda i: tf.switch_case(i, [lambda: 1.0, lambda: 2.0]))(
    tf.constant(1)))  # fmt: skip
show("map", lambda: tf.function(lambda t: tf.map_fn(lambda e: e * e, t))(x))


class Layer(tf.Module):
    def __init__(self, name=None):
        super().__init__(name=name)
        self.scale = None

    @tf.function
    def __call__(self, a):
        if self.scale is None:
            self.scale = tf.Variable(tf.ones([3]), name="scale")
        return a * self.scale


layer = Layer("mine")
show("module", lambda: layer(x))
show("module names", lambda: (layer.name, [t.name for t in layer.trainable_variables]))
tf.random.set_seed(5)
show("random", lambda: np.round(tf.random.uniform([3]).numpy(), 5).tolist())
show("random 2", lambda: np.round(tf.random.uniform([3]).numpy(), 5).tolist())
show("print", lambda: (print(x), print(v), print(tf.constant("a")), print(tf.float32)))
