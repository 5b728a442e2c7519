"""tf.function: when it traces, what it prints, signatures."""

import tensorflow as tf


@tf.function
def double(a):
    print("Tracing with", a)
    return a + a


print(double(tf.constant(1)))
print(double(tf.constant(2)))
print(double(tf.constant(1.1)))
print(double(tf.constant("a")) if False else "no strings")


@tf.function(input_signature=(tf.TensorSpec(shape=[None], dtype=tf.int32),))
def next_collatz(x):
    print("Tracing with", x)
    return tf.where(x % 2 == 0, x // 2, 3 * x + 1)


print(next_collatz(tf.constant([1, 2])))
print(next_collatz(tf.constant([1, 2, 3])))
try:
    next_collatz(tf.constant([[1, 2], [3, 4]]))
except TypeError as error:
    print("refused", type(error).__name__)


@tf.function
def power(x, n):
    print("Tracing n =", n)
    return x**n


print(power(tf.constant(3.0), 2).numpy(), power(tf.constant(4.0), 2).numpy())
print(power(tf.constant(2.0), 3).numpy())


@tf.function
def step(x):
    if tf.reduce_sum(x) > 0:
        return x * 2
    return -x


print(step(tf.constant([1.0, 2.0])), step(tf.constant([-1.0, -2.0])))


@tf.function
def count(n):
    total = tf.constant(0)
    for i in tf.range(n):
        total += i
    return total


print(count(tf.constant(5)), count(tf.constant(10)))
v = tf.Variable(1.0)


@tf.function
def bump(x):
    v.assign_add(x)
    return v.read_value()


print(bump(tf.constant(2.0)).numpy(), bump(tf.constant(3.0)).numpy(), v.numpy())
concrete = double.get_concrete_function(tf.TensorSpec(shape=[], dtype=tf.float32))
print(concrete(tf.constant(4.0)).numpy(), len(concrete.graph.get_operations()) > 0)
