"""tf.data: the same programs as TensorFlow's, its errors, what stands on it."""

from __future__ import annotations

import json

import numpy as np
import pytest
from data.pipeline.test_pipeline import PARTS

from disttrain.compat.tensorflow import operators as _operators  # (tensors' arithmetic)
from disttrain.compat.tensorflow.arrays import NAMES as arrays
from disttrain.compat.tensorflow.data import EXPERIMENTAL, NAMED, AutoShardPolicy, DatasetV2
from disttrain.compat.tensorflow.errors import NAMES as ERRORS
from disttrain.compat.tensorflow.function import function
from disttrain.compat.tensorflow.math import NAMES as MATH
from disttrain.compat.tensorflow.random import NAMES as RANDOM
from disttrain.compat.tensorflow.tensor import EagerTensor, convert
from disttrain.compat.tensorflow.types import DTYPES, TensorShape, TensorSpec
from support.dataset_chains import result

D = DatasetV2
INT = DTYPES["int32"]


@pytest.mark.parametrize("rows", PARTS, ids=range(8))
def test_programs_give_what_tensorflow_gives(rows):
    for row in rows:
        wanted = {k: v for k, v in row.items() if k != "program"}
        assert json.loads(json.dumps(result(row["program"], D))) == wanted, row["program"]


def test_elements_are_tensors():
    ((a, d),) = D.from_tensors((1, {"t": "x", "f": [1.5, 2]}))
    assert isinstance(a, EagerTensor) and (a.dtype, d["f"].dtype) == (INT, DTYPES["float32"])
    assert d["t"].numpy() == b"x"
    assert [int(x) for x in D.range(3).map(lambda x: x * 2 + 1)] == [1, 3, 5]
    assert int(D.range(4).reduce(np.int64(0), lambda s, x: s + x)) == 6
    assert next(D.from_tensor_slices(["a"]).as_numpy_iterator()) == b"a"


def test_specifications():
    spec = D.from_tensor_slices({"a": [1, 2], "b": [["x"], ["y"]]}).batch(2).element_spec
    assert spec["a"] == TensorSpec([None], INT)
    assert spec["b"] == TensorSpec([None, 1], DTYPES["string"])
    assert repr(D.range(3).window(2).element_spec) == (
        "DatasetSpec(TensorSpec(shape=(), dtype=tf.int64, name=None), TensorShape([]))"
    )
    assert repr(D.range(3).batch(2, drop_remainder=True)) == (
        "<_BatchDataset element_spec=TensorSpec(shape=(2,), dtype=tf.int64, name=None)>"
    )


def test_the_global_seed_sets_orders():
    """Recorded from TensorFlow 2.21."""
    RANDOM["set_seed"](7)
    orders = [[int(x) for x in D.range(10).shuffle(10)] for _ in range(2)]
    assert orders == [[8, 9, 2, 3, 1, 5, 4, 6, 7, 0], [4, 7, 1, 5, 3, 0, 6, 2, 8, 9]]
    own = [int(x) for x in D.range(10).shuffle(10, seed=2)]
    assert own == [4, 0, 8, 2, 7, 3, 6, 9, 5, 1]


INVALID = ERRORS["InvalidArgumentError"]


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    [
        (lambda: D.range(3).batch(0), INVALID, "batch_size=0"),
        (lambda: D.range(3).shuffle(0), INVALID, "buffer_size=0"),
        (lambda: D.range(3).shard(2, 5), INVALID, "index 5"),
        (lambda: D.range(3).batch("a"), TypeError, "Cannot convert 'a'"),
        (lambda: D.from_tensor_slices(([1, 2, 3], [1, 2])), ValueError, "Dimensions 3 and 2"),
        (lambda: D.from_tensor_slices(5), ValueError, "rank >= 1"),
        (lambda: D.from_generator(range), TypeError, "output signature"),
        (lambda: D.from_generator(5, output_signature=1), TypeError, "Python callable"),
        (lambda: D.range(3).map(5), ValueError, "must be a callable"),
        (lambda: D.range(3).map(lambda x, y: x).get_single_element(), TypeError, "missing 1"),
        (lambda: len(D.range(3).repeat()), TypeError, "is infinite"),
        (lambda: len(D.range(3).filter(lambda x: x > 1)), TypeError, "length is unknown"),
        (lambda: D.zip((D.range(3), 4)), TypeError, "Invalid input to `zip`"),
        (lambda: iter(D.range(0)).get_next(), ERRORS["OutOfRangeError"], "End of sequence"),
        (lambda: D.range(2).get_single_element(), INVALID, "more than one element"),
        (lambda: D.sample_from_datasets([]), ValueError, "should not be empty"),
        (lambda: list(NAMED["TFRecordDataset"]("/no/such")), ERRORS["NotFoundError"],
         "No such file"),
        (lambda: list(D.from_tensors([1, 2, 3]).padded_batch(2, [2])), INVALID, "2 at most"),
        (lambda: D.range(3).ragged_batch(2), INVALID, "no ragged tensors"),
        (lambda: D.list_files("/no/such/*"), INVALID, "no files match"),
        (lambda: list(D.range(3).filter(lambda x: x)), INVALID, "Invalid `predicate`"),
    ],
)  # fmt: skip
def test_errors_are_tensorflows(program, kind, words):
    with pytest.raises(kind, match=words):
        program()


def test_generators():
    signature = (TensorSpec([None], INT), TensorSpec([], DTYPES["string"]))
    made = D.from_generator(lambda n: iter([([1] * int(n), "a")]), args=[2],
                            output_signature=signature)  # fmt: skip
    ((a, t),) = made
    assert (a.numpy().tolist(), t.numpy()) == ([1, 1], b"a")
    old = D.from_generator(lambda: iter([1, 2]), output_types=INT, output_shapes=TensorShape([]))
    assert [int(x) for x in old] == [1, 2]
    for wrong, words in (
        ([([1], 2, 3)], "the expected structure"),
        ([(["a"], "b")], "expected type"),
    ):
        bad = D.from_generator(lambda rows=wrong: iter(rows), output_signature=signature)
        with pytest.raises(INVALID, match=words):
            list(bad)


def test_positions():
    make = lambda: D.range(9).shuffle(5, seed=1).batch(2)
    it = iter(make())
    next(it)
    state = it.state_dict()
    other = iter(make())
    for _ in other:  # from anywhere
        pass
    other.load_state_dict(state)
    rest = [x.numpy().tolist() for x in other]
    assert rest == [x.numpy().tolist() for x in it]


def test_options_and_experimental_names():
    options = NAMED["Options"]()
    options.experimental_distribute.auto_shard_policy = AutoShardPolicy.OFF
    made = D.range(3).with_options(options).batch(2)
    assert made.options().experimental_distribute.auto_shard_policy is AutoShardPolicy.OFF
    assert made.options().deterministic is None
    unique = D.from_tensor_slices([1, 1, 2]).apply(EXPERIMENTAL["unique"]())
    assert [int(x) for x in unique] == [1, 2]
    assert int(EXPERIMENTAL["cardinality"](D.range(3))) == 3
    counted = D.range(3).apply(EXPERIMENTAL["assert_cardinality"](2))
    with pytest.raises(INVALID, match="said to come"):
        list(counted)
    assert [int(x) for x in D.counter(3, 2).take(2)] == [3, 5]


def test_structures_and_padding():
    rows = D.from_tensor_slices([1, 3]).map(lambda n: arrays["zeros"]([int(n)], INT) + n)
    made = rows.padded_batch(2, padded_shapes=TensorShape([4]), padding_values=convert(-1))
    assert next(iter(made)).numpy().tolist() == [[1, -1, -1, -1], [3, 3, 3, -1]]
    assert _operators is not None


def test_what_is_not_there_is_said():
    with pytest.raises(AttributeError, match="snapshot is not part"):
        _ = D.range(3).snapshot
    assert not hasattr(D.range(3), "bach") and list(D.from_tensors(None)) == [None]


def test_iterators_in_traced_functions():
    data = DatasetV2.range(5).batch(2)

    @function
    def two(it):
        return next(it), it.get_next()

    @function
    def total(it):
        found = arrays["constant"](0, "int64")
        for x in it:
            found += MATH["reduce_sum"](x)
        return found

    for _ in range(2):
        it = iter(data)
        assert [x.numpy().tolist() for x in two(it)] == [[0, 1], [2, 3]]
        with pytest.raises(ERRORS["OutOfRangeError"]):
            two(it)
        assert int(total(iter(data))) == 10
    assert two.experimental_get_tracing_count() == total.experimental_get_tracing_count() == 1
