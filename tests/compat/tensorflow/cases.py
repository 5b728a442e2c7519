"""Calls that are compared with TensorFlow: expressions of ``tf`` and ``np``, drawn from tables.

``python tests/compat/tensorflow/cases.py`` where TensorFlow is installed compares all of them live
(disttrain's answers come from a process of their own); ``--record`` writes what TensorFlow says to
``recorded.json``, for every few of them. Recorded from tensorflow-cpu 2.21.0 (PyPI, CPython 3.11).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

RECORDED = Path(__file__).parent / "recorded.json"
EVERY = 5  # of the drawn ones so many are recorded once

X = "tf.constant([[0.5, -1.25, 2.0], [3.5, 0.0, -0.75]])"
P = "tf.constant([[0.5, 0.25, 0.75], [0.125, 0.9, 0.3]])"
D = "tf.constant([[0.5, -1.25, 2.0], [3.5, 0.0, -0.75]], tf.float64)"
I = "tf.constant([[5, -3, 2], [7, 1, -4]])"
B = "tf.constant([[True, False, True], [False, False, True]])"
M = "tf.constant([[4.0, 1.0], [1.0, 3.0]])"
VALUES = {"X": X, "P": P, "D": D, "I": I, "B": B, "M": M}

UNARY = """"abs negative exp expm1 log log1p sqrt rsqrt square reciprocal sin cos tan asin acos
atan sinh cosh tanh asinh acosh atanh sigmoid erf erfc erfinv ndtri lgamma digamma floor
ceil rint sign bessel_i0 bessel_i0e bessel_i1 bessel_i1e softplus softsign log_sigmoid
is_nan is_inf is_finite logical_not conj real imag round cumsum cumprod reduce_sum
reduce_mean reduce_prod reduce_max reduce_min reduce_any reduce_all reduce_logsumexp
reduce_variance reduce_std reduce_euclidean_norm argmax argmin zero_fraction l2_normalize
softmax log_softmax""".split()
BINARY = """add subtract multiply divide floordiv floormod divide_no_nan
multiply_no_nan maximum minimum pow squared_difference atan2 xlogy xlog1py xdivy igamma igammac zeta
less less_equal greater greater_equal equal not_equal logical_and logical_or logical_xor""".split()
OPERATORS = [
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "**",
    "<",
    "<=",
    ">",
    ">=",
    "==",
    "!=",
    "&",
    "|",
    "^",
    "@",
]
NN = """relu relu6 leaky_relu elu selu gelu silu softplus softsign softmax log_softmax crelu l2_loss
sigmoid tanh swish zero_fraction""".split()
AXES = ["None", "0", "1", "-1", "[0, 1]", "[]", "2", "-3"]
KEYS = ["0", "-1", "1:", "::-1", "..., 0", "None", "..., None", ":, 1:", ":, ::-1", "1, 2", "5",
    "0, 7",
        "::2, ::2", "'x'", "tf.constant(1)", "0.5", "0, 0, 0", "tf.newaxis, 1"]  # fmt: skip
CONSTANTS = ["1", "1.5", "True", "1j", "[1, 2.5]", "[[1], [2]]", "[[1], [1, 2]]", "'abc'",
    "['a', 'b']",
             "[1, 'a']", "None", "2**40", "[]", "np.float64(2)", "np.arange(3)", "np.ones(2)",
             "np.float16(1.5)", "(1, 2)", "[True, False]", "[tf.constant(1.0), 2.0]",
             "np.uint8(3)", "b'x'", "[np.float32(1), 2]", "range(3)"]  # fmt: skip
TYPES = [
    "float32",
    "float64",
    "int32",
    "int64",
    "bool",
    "uint8",
    "float16",
    "complex64",
    "bfloat16",
]
SINGLE = """tf.reshape(X, [3, 2]) | tf.reshape(X, [-1]) | tf.reshape(X, [4]) | tf.reshape(X, [-1, 4])
tf.transpose(X) | tf.transpose(X, [0, 1]) | tf.transpose(X, [0]) | tf.expand_dims(X, 1)
tf.expand_dims(X, 5) | tf.squeeze(tf.ones([1, 2, 1])) | tf.squeeze(tf.ones([2, 1]), 0)
tf.concat([X, X], 0) | tf.concat([X, X], -1) | tf.concat([X, I], 0) | tf.concat([X, M], 0)
tf.stack([X, P], 1) | tf.stack([X, M]) | tf.unstack(X, axis=1) | tf.split(X, 3, 1) | tf.split(X, 2, 1)
tf.split(X, [1, 2], 1) | tf.tile(X, [1, 2]) | tf.tile(X, [2]) | tf.repeat(X, 2, axis=0)
tf.repeat([1, 2], [2, 1]) | tf.pad(X, [[1, 0], [0, 2]]) | tf.pad(X, [[0, 1], [1, 1]], 'REFLECT')
tf.pad(X, [[0, 1], [1, 1]], 'SYMMETRIC') | tf.pad(X, [[0, 1], [1, 1]], constant_values=7.0)
tf.reverse(X, [1]) | tf.roll(X, 1, 0) | tf.broadcast_to(X, [2, 2, 3]) | tf.slice(X, [0, 1], [2, 2])
tf.slice(X, [0, 1], [-1, -1]) | tf.slice(X, [0, 1], [2, 5]) | tf.shape(X) | tf.size(X) | tf.rank(X)
tf.fill([2, 2], 3) | tf.zeros([2, 3], tf.int32) | tf.ones_like(I) | tf.zeros_like(X, tf.int64)
tf.eye(2) | tf.eye(2, 3, [2]) | tf.range(5) | tf.range(1, 10, 3) | tf.range(0.0, 1.0, 0.25)
tf.range(5, 1) | tf.range(5, 1, -2) | tf.linspace(0.0, 1.0, 5) | tf.where(B) | tf.where(B, X, P)
tf.where(B, X, 0.0) | tf.where([True, False], 1, 2) | tf.gather(X, [1, 0]) | tf.gather(X, [2])
tf.gather(X, [0, 2], axis=1) | tf.gather(X, [[0, 1], [2, 0]], axis=1, batch_dims=1)
tf.gather_nd(X, [[0, 1], [1, 2]]) | tf.scatter_nd([[0], [2], [0]], [1, 2, 3], [4])
tf.tensor_scatter_nd_update(X, [[0, 1]], [9.0]) | tf.tensor_scatter_nd_add(X, [[0], [0]], X)
tf.tensor_scatter_nd_max([1, 2, 3], [[0], [2]], [5, 1]) | tf.boolean_mask(X, B)
tf.boolean_mask(X, [True, False]) | tf.boolean_mask(X, [True, False, True], axis=1)
tf.one_hot([0, 2, -1], 3) | tf.one_hot([0, 1], 2, 5.0, -1.0) | tf.one_hot([0, 1], 3, axis=0)
tf.one_hot([0, 1], 2, dtype=tf.int32) | tf.unique([3, 1, 3, 2]) | tf.sort([[3, 1, 2]])
tf.sort([3, 1, 2], direction='DESCENDING') | tf.argsort([3.0, 1.0, 2.0]) | tf.math.top_k([1.0, 3.0, 2.0], 2)
tf.math.top_k([1.0], 2) | tf.searchsorted([1, 3, 5], [2, 3, 9]) | tf.sequence_mask([1, 3]) | tf.meshgrid([1, 2], [3, 4, 5])
tf.cast(X, tf.int32) | tf.cast(X, tf.bool) | tf.cast([1, 2], tf.complex64) | tf.cast(B, tf.float32)
tf.clip_by_value(X, -1.0, 1.0) | tf.clip_by_norm(X, 1.0) | tf.matmul(M, M, transpose_a=True)
tf.matmul(X, X) | tf.matmul(X, X, transpose_b=True) | tf.einsum('ij,kj->ik', X, P) | tf.tensordot(X, P, [[1], [1]])
tf.linalg.inv(M) | tf.linalg.det(M) | tf.linalg.cholesky(M) | tf.linalg.solve(M, M) | tf.linalg.trace(M)
tf.linalg.inv(tf.zeros([2, 2])) | tf.linalg.diag([1.0, 2.0]) | tf.linalg.diag_part(M) | tf.linalg.norm(X)
tf.linalg.band_part(tf.ones([3, 3]), 1, 0) | tf.norm(X, axis=1) | tf.norm(X, ord=1) | tf.linalg.matvec(M, [1.0, 2.0])
tf.linalg.slogdet(M) | tf.linalg.expm(M) | tf.linalg.logdet(M) | tf.linalg.triangular_solve(M, M) | tf.linalg.cross([1.0, 0.0, 0.0], [0.0, 1.0, 0.0])
tf.linalg.eigvalsh(M) | tf.linalg.set_diag(M, [9.0, 9.0]) | tf.linalg.lstsq(M, M) | tf.linalg.pinv(M)
tf.math.segment_sum([1.0, 2.0, 3.0], [0, 0, 1]) | tf.math.segment_max([1, 2, 3], [0, 0, 2])
tf.math.unsorted_segment_sum([1, 2, 3], [1, 1, 0], 3) | tf.math.unsorted_segment_mean([1.0, 2.0, 3.0], [1, 1, 0], 3)
tf.math.unsorted_segment_max([1.0, 2.0, 3.0], [2, 0, -1], 4) | tf.math.bincount([1, 1, 3]) | tf.math.confusion_matrix([0, 1, 1], [0, 0, 1])
tf.math.cumsum(X, 1, exclusive=True) | tf.math.cumsum(X, 0, reverse=True) | tf.math.cumprod(X, 1, True, True)
tf.math.in_top_k([1, 0], [[1.0, 2.0], [3.0, 4.0]], 1) | tf.math.accumulate_n([X, P]) | tf.add_n([X, M])
tf.complex(1.0, 2.0) | tf.math.angle(tf.constant([1 + 1j])) | tf.math.polygamma(1.0, 2.0) | tf.math.nextafter(1.0, 2.0)
tf.bitwise.bitwise_and(5, 3) | tf.bitwise.left_shift(I, 2) | tf.bitwise.invert(I) | tf.identity(X) | ~I | ~B | -X | abs(I)
tf.nn.conv2d(tf.ones([1, 5, 5, 1]), tf.ones([3, 3, 1, 2]), 2, 'SAME') | tf.nn.conv2d(tf.ones([1, 5, 5, 1]), tf.ones([3, 3, 1, 2]), [1, 2, 2, 1], 'VALID')
tf.nn.conv2d(tf.ones([1, 5, 5, 1]), tf.ones([3, 3, 2, 2]), 1, 'SAME') | tf.nn.conv1d(tf.ones([1, 5, 2]), tf.ones([3, 2, 4]), 1, 'SAME')
tf.nn.max_pool2d(tf.reshape(tf.range(25.0), [1, 5, 5, 1]), 2, 2, 'SAME') | tf.nn.avg_pool2d(tf.reshape(tf.range(25.0), [1, 5, 5, 1]), 3, 2, 'SAME')
tf.nn.depthwise_conv2d(tf.ones([1, 4, 4, 2]), tf.ones([2, 2, 2, 1]), [1, 1, 1, 1], 'SAME') | tf.nn.space_to_depth(tf.ones([1, 4, 4, 1]), 2)
tf.nn.conv2d_transpose(tf.ones([1, 2, 2, 1]), tf.ones([3, 3, 2, 1]), [1, 4, 4, 2], 2, 'SAME') | tf.nn.moments(X, [0]) | tf.nn.bias_add(X, [1.0, 2.0, 3.0])
tf.nn.bias_add(X, [1.0]) | tf.nn.batch_normalization(X, 0.5, 2.0, 1.0, 3.0, 0.001) | tf.nn.l2_normalize(X, 1) | tf.nn.local_response_normalization(tf.ones([1, 1, 1, 4]))
tf.nn.softmax_cross_entropy_with_logits(P, X) | tf.nn.sparse_softmax_cross_entropy_with_logits([0, 2], X) | tf.nn.sparse_softmax_cross_entropy_with_logits([0, 5], X)
tf.nn.sigmoid_cross_entropy_with_logits(P, X) | tf.nn.weighted_cross_entropy_with_logits(P, X, 2.0) | tf.nn.embedding_lookup(X, [1, 0]) | tf.nn.log_poisson_loss(P, X)
tf.image.resize(tf.reshape(tf.range(16.0), [1, 4, 4, 1]), [2, 3]) | tf.image.resize(tf.reshape(tf.range(16.0), [1, 4, 4, 1]), [6, 5], 'nearest') | tf.image.flip_left_right(tf.ones([2, 2, 1]))
tf.image.rgb_to_grayscale(tf.ones([2, 2, 3])) | tf.image.per_image_standardization(tf.reshape(tf.range(12.0), [2, 2, 3])) | tf.image.adjust_contrast(tf.ones([2, 2, 3]), 2.0) | tf.image.central_crop(tf.ones([4, 4, 1]), 0.5)
tf.signal.rfft([1.0, 2.0, 3.0, 4.0]) | tf.signal.irfft(tf.signal.rfft([1.0, 2.0, 3.0, 4.0])) | tf.signal.frame([1.0, 2.0, 3.0, 4.0, 5.0], 2, 2) | tf.signal.hann_window(4) | tf.signal.stft(tf.ones([8]), 4, 2)
tf.signal.fft(tf.constant([1 + 0j, 2, 3], tf.complex64)) | tf.strings.length(['a', 'bcd']) | tf.strings.upper('abc') | tf.strings.join(['a', 'b'], '-') | tf.strings.to_number('1.5') | tf.strings.as_string([1, 2])
tf.random.stateless_uniform([3], [1, 2]) | tf.random.stateless_normal([3], [1, 2]) | tf.random.stateless_uniform([3], [5, -2], 0, 9, tf.int32) | tf.random.stateless_truncated_normal([5], [3, 4])
tf.random.stateless_uniform([2], [1, 2], dtype=tf.float64) | tf.random.split([1, 2], 2) | tf.random.fold_in([1, 2], 3) | tf.random.Generator.from_seed(1).normal([3]) | tf.random.Generator.from_seed(7).uniform([3], 0, 10, tf.int32)
tf.Variable([1.0, 2.0]) | tf.Variable(1.0).assign([1.0]) | tf.Variable(1).assign_add(2) | tf.Variable([1.0, 2.0]) * 2 | tf.Variable(1.0).assign(2) | tf.Variable(1.0).assign(tf.constant(2))
tf.constant(1.0, shape=(2, 2)) | tf.constant([1, 2, 3], shape=(2, 2)) | tf.convert_to_tensor(X, tf.int32) | tf.ensure_shape(X, [2, 3]) | tf.ensure_shape(X, [3, 3]) | tf.debugging.assert_equal(1, 2)
tf.debugging.check_numerics(tf.constant([1.0, np.nan]), 'bad') | tf.cond(True, lambda: 1.0, lambda: 2.0) | tf.while_loop(lambda i: i < 3, lambda i: [i + 1], [tf.constant(0)]) | tf.map_fn(lambda x: x * 2, I)
tf.scan(lambda a, x: a + x, tf.range(4)) | tf.foldl(lambda a, x: a * x, tf.constant([1, 2, 3])) | tf.vectorized_map(lambda x: tf.reduce_sum(x), X) | tf.switch_case(tf.constant(1), [lambda: 5, lambda: 6])
bool(X) | len(X) | float(X[0, 0]) | hash(X) | list(tf.constant(1)) | len(tf.constant(1)) | X.numpy() | int(I[0, 0]) | str(X) | repr(I) | str(tf.float32) | repr(tf.TensorShape([None, 2])) | f'{X[0, 0]:.2f}'
tf.stop_gradient(X) | tf.linalg.global_norm([X, P]) | tf.clip_by_global_norm([X, P], 1.0) | tf.function(lambda x: x * 2 + 1)(X) | tf.nest.flatten({'b': 1, 'a': [2, 3]}) | tf.nest.map_structure(lambda a: a + 1, {'a': 1, 'b': (2,)})"""  # noqa: E501


# What differs: classes of errors for types that neither takes, and numbers at poles.
DIFFERENT = """tf.math.reciprocal(I) | tf.math.digamma(X) | tf.math.digamma(D) | tf.math.conj(B)
tf.math.real(B) | tf.math.reduce_variance(I) | tf.math.reduce_std(I)
tf.math.reduce_euclidean_norm(I)
tf.math.l2_normalize(I) | tf.math.divide_no_nan(X, I) | tf.math.divide_no_nan(D, X)
tf.math.divide_no_nan(B, B) | tf.math.multiply_no_nan(X, I) | tf.math.multiply_no_nan(D, X)
tf.math.igamma(X, P) | tf.math.igamma(D, D) | tf.math.igammac(X,
    P) | X * B | X | 2j | I | 1.5 | I | 2j
tf.nn.gelu(I) | tf.constant([tf.constant(1.0), 2.0])"""
DIFFERENT_KINDS = ("tf.reduce_any(X", "tf.reduce_any(I", "tf.reduce_all(X", "tf.reduce_all(I")


def known_to_differ(expression: str) -> bool:
    """Whether an expression is one of those."""
    return expression in " ".join(DIFFERENT.split()) or expression.startswith(DIFFERENT_KINDS)


def cases() -> list[str]:
    """All expressions."""
    out = [f"tf.math.{f}({v})" for f in UNARY for v in "XPDIB"]
    out += [f"tf.math.{f}({a}, {b})" for f in BINARY
            for a, b in ("XP", "PX", "II", "XI", "DX", "BB", "XM", "DD")]  # fmt: skip
    numbers = ["2", "1.5", "True", "2j", "np.float64(2)", "np.int64(2)", "np.ones(3)", "[1, 2, 3]"]
    out += [f"X {o} {v}" for o in OPERATORS for v in ("P", "I", "B", "M", *numbers)]
    out += [f"I {o} {v}" for o in OPERATORS for v in ("I", "X", *numbers)]
    out += [f"{v} {o} I" for o in OPERATORS[:12] for v in numbers]
    out += [f"tf.nn.{f}({v})" for f in NN for v in "XPDI"]
    reductions = [f for f in UNARY if f.startswith("reduce_")]
    out += [f"tf.{r}({v}, {a}, {k})" for r in reductions if hasattr_(r) for v in "XIB" for a in AXES
            for k in (True, False)]  # fmt: skip
    out += [f"tf.argmax({v}, {a})" for v in "XI" for a in ("0", "1", "-1", "2")]
    out += [f"{v}[{k}]" for v in "XI" for k in KEYS]
    out += [f"tf.constant({c})" for c in CONSTANTS]
    out += [f"tf.constant({c}, tf.{t})" for c in CONSTANTS[:16] for t in TYPES]
    out += [f"tf.cast({v}, tf.{t})" for v in "XIBP" for t in TYPES]
    out += [part.strip() for line in SINGLE.splitlines() for part in line.split(" | ")]
    return list(dict.fromkeys(out))


def hasattr_(reduction: str) -> bool:
    return reduction not in ("reduce_variance", "reduce_std", "reduce_euclidean_norm")


def told(value: object) -> object:
    """A result as JSON: type, shape and numbers of tensors."""
    if isinstance(value, (list, tuple)):
        return [told(v) for v in value]
    if isinstance(value, dict):
        return {k: told(v) for k, v in value.items()}
    if not hasattr(value, "numpy") and not isinstance(value, np.ndarray):
        return value if isinstance(value, (bool, int, float, str)) else repr(value)
    array = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
    flat = array.astype(np.complex128).view(np.float64) if array.dtype.kind == "c" else array
    flat = flat.astype(np.float64) if flat.dtype.name == "bfloat16" else flat
    numbers = [v.decode() if isinstance(v, bytes) else v for v in flat.reshape(-1).tolist()]
    return {"dtype": array.dtype.name, "shape": list(array.shape), "values": numbers}


def evaluate(tf: object, expression: str) -> object:
    """What ``expression`` gives, or the class of what it raises."""
    names = {"tf": tf, "np": np}
    names |= {word: eval(text, names) for word, text in VALUES.items()}
    try:
        return told(eval(expression, names))
    except Exception as error:
        return {"error": type(error).__name__}


def same(a: object, b: object, tolerance: float = 2e-5) -> bool:
    """Whether two results are alike."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k], tolerance) for k in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(same(x, y, tolerance) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b) or abs(a - b) <= tolerance * max(1.0, abs(a))
    return a == b


def main() -> int:
    """Compare live, or record."""
    if "--ours" in sys.argv:
        import disttrain.compat.tensorflow as ours  # (not where TensorFlow is)

        print(json.dumps({e: evaluate(ours, e) for e in cases()}))
        return 0
    import tensorflow as theirs

    answers = {e: evaluate(theirs, e) for e in cases()}
    if "--record" in sys.argv:
        single = [p.strip() for line in SINGLE.splitlines() for p in line.split(" | ")]
        kept = {e: a for i, (e, a) in enumerate(answers.items()) if i % EVERY == 0 or e in single}
        lines = ",\n".join(f"{json.dumps(e)}: {json.dumps(a)}" for e, a in kept.items())
        RECORDED.write_text("{\n" + lines + "\n}\n")
        return 0
    done = subprocess.run([sys.argv[1] if len(sys.argv) > 1 else sys.executable, __file__,
        "--ours"],
                          capture_output=True, text=True, check=True)  # fmt: skip
    found = json.loads(done.stdout.splitlines()[-1])
    wrong = [
        e
        for e in answers
        if not known_to_differ(e) and not same(json.loads(json.dumps(answers[e])), found[e])
    ]
    for e in wrong:
        print(f"{e}\n  TensorFlow {str(answers[e])[:300]}\n  disttrain  {str(found[e])[:300]}")
    print(f"{len(answers)} compared, {len(wrong)} differ")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
