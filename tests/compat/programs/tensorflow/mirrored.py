"""MirroredStrategy: variables created in its scope, a step run on every replica."""

import numpy as np
import tensorflow as tf

strategy = tf.distribute.MirroredStrategy()
replicas = strategy.num_replicas_in_sync
print("replicas", replicas)
with strategy.scope():
    w = tf.Variable(tf.zeros((4, 1)))
    b = tf.Variable(tf.zeros((1,)))

rng = np.random.default_rng(0)
features = rng.standard_normal((64, 4)).astype("float32")
labels = features @ np.array([[1.0], [-2.0], [3.0], [0.5]], "float32") + 0.25
BATCH = 16
dataset = tf.data.Dataset.from_tensor_slices((features, labels)).batch(BATCH)
distributed = strategy.experimental_distribute_dataset(dataset)


def replica_step(inputs):
    x, y = inputs
    with tf.GradientTape() as tape:
        error = tf.square(x @ w + b - y)
        loss = tf.reduce_sum(error) / BATCH
    dw, db = tape.gradient(loss, [w, b])
    context = tf.distribute.get_replica_context()
    dw, db = context.all_reduce(tf.distribute.ReduceOp.SUM, [dw, db])
    w.assign_sub(0.1 * dw)
    b.assign_sub(0.1 * db)
    return loss


@tf.function
def train_step(inputs):
    losses = strategy.run(replica_step, args=(inputs,))
    return strategy.reduce(tf.distribute.ReduceOp.SUM, losses, axis=None)


for epoch in range(30):
    for inputs in distributed:
        loss = train_step(inputs)
print("fitted", np.round(w.numpy().ravel(), 2).tolist(), np.round(b.numpy(), 2).tolist())
print("loss", float(loss) < 1e-4)
