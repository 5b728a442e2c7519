"""A tf.data pipeline."""

import tensorflow as tf

dataset = tf.data.Dataset.from_tensor_slices((tf.range(10), tf.range(10) * 10))
print(dataset.element_spec, dataset.cardinality().numpy())
pipeline = (
    dataset.map(lambda x, y: (tf.cast(x, tf.float32) / 2.0, y), num_parallel_calls=tf.data.AUTOTUNE)
    .filter(lambda x, y: y < 80)
    .cache()
    .batch(3, drop_remainder=False)
    .prefetch(tf.data.AUTOTUNE)
)
for x, y in pipeline:
    print(x.numpy(), y.numpy())
shuffled = tf.data.Dataset.range(20).shuffle(20, seed=1, reshuffle_each_iteration=False)
one, other = (list(shuffled.as_numpy_iterator()) for _ in range(2))
print("shuffled", one == other, sorted(one) == list(range(20)), one != list(range(20)))


def generate():
    for i in range(4):
        yield i, [1.0] * (i + 1)


ragged = tf.data.Dataset.from_generator(
    generate,
    output_signature=(
        tf.TensorSpec(shape=(), dtype=tf.int32),
        tf.TensorSpec(shape=(None,), dtype=tf.float32),
    ),
)
for i, row in ragged.padded_batch(2):
    print(i.numpy(), row.shape)
print(list(tf.data.Dataset.zip((dataset.take(2), dataset.skip(8))).as_numpy_iterator()))
nested = tf.data.Dataset.range(3).interleave(
    lambda x: tf.data.Dataset.from_tensors(x).repeat(2), cycle_length=2, block_length=1
)
print([int(v) for v in nested.as_numpy_iterator()])
print([list(w.as_numpy_iterator()) for w in tf.data.Dataset.range(7).window(3)])
print(tf.data.Dataset.range(5).reduce(tf.constant(0, tf.int64), lambda a, b: a + b).numpy())
print({k: v.numpy().tolist() for k, v in next(iter(
    tf.data.Dataset.from_tensor_slices({"a": [1, 2], "b": [3, 4]}).batch(2))).items()})
