"""Classic machine learning (domain ai.onnx.ml): scaling, encodings, linear models, trees."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....core.types import dtypes
from ....errors import DTypeError, ShapeError
from ....nn import functional as F
from ....ops import api
from ..table import ML, operator
from .trees import after

_MOST_PLACES = 1 << 20  # of a dictionary that becomes a row


@operator("ArrayFeatureExtractor", domain=ML)
def _extract(x: Any, places: Tensor) -> Any:
    x = x.reshape(1, -1) if x.ndim == 1 else x
    if isinstance(x, np.ndarray):
        return np.take(x, places.numpy().ravel(), -1)
    return api.index_select(x, x.ndim - 1, places.reshape(-1).long())


@operator("Binarizer", domain=ML)
def _binarize(x: Tensor, *, threshold: float = 0.0) -> Tensor:
    return (x > threshold).to(x.dtype)


def row(values: Any) -> Tensor:
    """Numbers of an attribute, as a row."""
    return api.tensor(np.array(values, np.float32))


@operator("Scaler", domain=ML)
def _scale(x: Tensor, *, offset: Any = (0.0,), scale: Any = (1.0,)) -> Tensor:
    return (x.to(dtypes.float32) - row(offset)) * row(scale)


@operator("Normalizer", domain=ML)
def _normalize(x: Tensor, *, norm: str = "MAX") -> Tensor:
    x = x.to(dtypes.float32)
    size = {"MAX": lambda: x.amax(-1, True), "L1": lambda: abs(x).sum(-1, True),
            "L2": lambda: api.sqrt((x * x).sum(-1, True))}[norm]()  # fmt: skip
    return api.where(size == 0, x, x / api.where(size == 0, api.ones_like(size), size))


@operator("Imputer", domain=ML)
def _impute(
    x: Tensor, *, imputed_value_floats: Any = None, imputed_value_int64s: Any = None,
    replaced_value_float: float = 0.0, replaced_value_int64: int = 0,
) -> Tensor:  # fmt: skip
    if x.dtype.is_floating_point:
        gone = (
            api.isnan(x)
            if replaced_value_float != replaced_value_float
            else x == replaced_value_float
        )
        return api.where(gone, row(imputed_value_floats).to(x.dtype), x)
    filled = api.tensor(np.array(imputed_value_int64s, np.int64)).to(x.dtype)
    return api.where(x == replaced_value_int64, filled, x)


def _first(words: dict[str, Any], names: str) -> Any:
    return next((words[n] for n in names.split() if words.get(n) is not None), None)


@operator("LabelEncoder", domain=ML)
def _encode_labels(x: Any, **words: Any) -> Any:
    keys = _first(words, "keys_strings keys_int64s keys_floats keys_tensor")
    values = _first(words, "values_strings values_int64s values_floats values_tensor")
    classes = words.get("classes_strings")
    if classes is not None:  # version 1: between texts and their places
        texts = isinstance(x, np.ndarray)
        keys, values = (classes, range(len(classes))) if texts else (range(len(classes)), classes)
    keys, values = np.asarray(keys), np.asarray(values)
    array = x if isinstance(x, np.ndarray) else x.numpy()
    table = {_key(k): v for k, v in zip(keys.tolist(), values.tolist())}
    kind = (
        "string" if values.dtype.kind in "UO" else "int64" if values.dtype.kind == "i" else "float"
    )
    usual = words.get(f"default_{kind}", {"string": "_Unused", "int64": -1, "float": -0.0}[kind])
    if words.get("default_tensor") is not None:
        usual = words["default_tensor"].ravel()[0]
    found = [table.get(_key(v), usual) for v in array.ravel().tolist()]
    if kind == "string":
        out = np.empty(len(found), object)
        out[:] = found
        return out.reshape(array.shape)
    given = words.get("values_tensor")
    exact = given.dtype if given is not None else np.int64 if kind == "int64" else np.float32
    return api.tensor(np.array(found).astype(exact).reshape(array.shape))


def _key(value: Any) -> Any:
    return "nan" if isinstance(value, float) and value != value else value


@operator("CategoryMapper", domain=ML)
def _map_categories(
    x: Any, *, cats_int64s: Any, cats_strings: Any, default_int64: int = -1,
    default_string: str = "_Unused",
) -> Any:  # fmt: skip
    words = {"default_int64": default_int64, "default_string": default_string}
    if isinstance(x, np.ndarray):
        return _encode_labels(x, keys_strings=cats_strings, values_int64s=cats_int64s, **words)
    return _encode_labels(x, keys_int64s=cats_int64s, values_strings=cats_strings, **words)


@operator("ZipMap", domain=ML)
def _zip_map(
    x: Tensor, *, classlabels_int64s: Any = None, classlabels_strings: Any = None
) -> list[dict]:
    """For each row a dictionary from labels to scores."""
    labels = classlabels_int64s if classlabels_int64s is not None else classlabels_strings
    return [dict(zip(labels, row)) for row in x.tolist()]


@operator("DictVectorizer", domain=ML)
def _vectorize(x: Any, *, int64_vocabulary: Any = None, string_vocabulary: Any = None) -> Any:
    """A row of what a dictionary, or each of a list of them, has for the keys."""
    keys = int64_vocabulary if int64_vocabulary is not None else string_vocabulary
    rows = [_dictionary(d) for d in (x if isinstance(x, list) else [x])]
    texts = any(isinstance(v, str) for d in rows for v in d.values())
    return _of_values([[d.get(k, "" if texts else 0) for k in keys] for d in rows])


def _dictionary(x: Any) -> dict:
    if not isinstance(x, dict):
        raise DTypeError(f"a dictionary is needed; given is {type(x).__name__}")
    return x


def _of_values(values: list) -> Any:
    array = np.array(values)
    if array.dtype.kind == "U":
        return array.astype(object)
    return api.tensor(array.astype(np.int64 if array.dtype.kind in "iu" else np.float32))


@operator("CastMap", domain=ML)
def _cast_map(
    x: Any, *, cast_to: str = "TO_FLOAT", map_form: str = "DENSE", max_map: int = 1
) -> Any:
    """The values of a dictionary in the order of its keys, or at the places that these are."""
    given = dict(sorted(_dictionary(x).items()))
    if map_form == "SPARSE":
        if max_map > _MOST_PLACES:
            raise ShapeError(f"{max_map} values would be made; at most {_MOST_PLACES} are")
        outside = [k for k in given if not 0 <= k < max_map]
        if outside:
            raise ShapeError(f"key {outside[0]}; needed are keys of 0 to {max_map - 1}")
        usual = "0" if cast_to == "TO_STRING" else 0
        given = {i: given.get(i, usual) for i in range(max_map)}
    values = list(given.values())
    if cast_to == "TO_STRING":
        return np.array([[v if isinstance(v, str) else f"{v:g}" for v in values]], object)
    numbers = np.array([[float(v) for v in values]], np.float64)
    return api.tensor(numbers.astype(np.int64 if cast_to == "TO_INT64" else np.float32))


@operator("LinearRegressor", domain=ML)
def _linear_regressor(
    x: Tensor, *, coefficients: Any, intercepts: Any = None, post_transform: str = "NONE",
    targets: int = 1,
) -> Tensor:  # fmt: skip
    weights = row(coefficients).reshape(targets, -1)
    bias = None if intercepts is None else row(intercepts)
    return after(F.linear(x.to(dtypes.float32), weights, bias), post_transform)


@operator("LinearClassifier", domain=ML)
def _linear_classifier(
    x: Tensor, *, classlabels_ints: Any = None, classlabels_strings: Any = None, coefficients: Any,
    intercepts: Any = None, multi_class: int = 0, post_transform: str = "NONE",
) -> Any:  # fmt: skip
    labels = classlabels_ints if classlabels_ints is not None else classlabels_strings
    rows = max(1, len(coefficients) // x.shape[-1])
    scores = F.linear(
        x.to(dtypes.float32), row(coefficients).reshape(rows, -1),
        None if intercepts is None else row(intercepts),
    )  # fmt: skip
    if rows == 1 and len(labels) == 2:
        scores = api.cat([-scores, scores], -1)
        if post_transform == "LOGISTIC":
            chosen = api.argmax(scores, -1)
            return labelled(labels, chosen), api.sigmoid(scores)
    chosen = api.argmax(scores, -1)
    return labelled(labels, chosen), after(scores, post_transform)


def labelled(labels: Any, chosen: Tensor) -> Any:
    """The labels of the classes that were chosen."""
    table = np.array(labels, object if isinstance(labels[0], str) else np.int64)
    found = table[chosen.numpy()]
    return found if found.dtype == object else api.tensor(found)


@operator("FeatureVectorizer", domain=ML)
def _features(*given: Tensor, inputdimensions: Any = None) -> Tensor:
    return api.cat([x.reshape(x.shape[0], -1).to(dtypes.float32) for x in given], 1)


@operator("OneHotEncoder", domain=ML)
def _one_hot(
    x: Any, *, cats_int64s: Any = None, cats_strings: Any = None, zeros: int = 1
) -> Tensor:
    array = x if isinstance(x, np.ndarray) else x.numpy()
    kinds = np.array(cats_int64s if cats_int64s is not None else cats_strings)
    return api.tensor((array[..., None] == kinds).astype(np.float32))
