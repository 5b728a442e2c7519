"""Ensembles of decision trees (domain ai.onnx.ml)."""

from __future__ import annotations

import math
import operator as op
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....core.tensor import Tensor
from ....core.types import dtypes
from ....errors import OperatorError, SerializationError
from ....nn import functional as F
from ....ops import api
from ..table import ML, operator

_TESTS: dict[str, Callable[[float, float], bool]] = {
    "BRANCH_LEQ": op.le, "BRANCH_LT": op.lt, "BRANCH_GTE": op.ge, "BRANCH_GT": op.gt,
    "BRANCH_EQ": op.eq, "BRANCH_NEQ": op.ne,
}  # fmt: skip
_MODES = (*_TESTS, "BRANCH_MEMBER")


@dataclass
class Branch:
    """A node: what it asks of a feature. ``yes``, ``no``: (whether it is a leaf, its number)."""

    mode: str
    feature: int
    split: Any
    yes: tuple[bool, int]
    no: tuple[bool, int]
    missing: bool

    def choose(self, x: Any) -> tuple[bool, int]:
        """Where a row of features goes on."""
        value = x[self.feature]
        if value != value:
            return self.yes if self.missing else self.no
        if self.mode == "BRANCH_MEMBER":
            return self.yes if value in self.split else self.no
        return self.yes if _TESTS[self.mode](value, self.split) else self.no


def _leaf_of(x: Any, start: tuple[bool, int], branches: Any) -> int:
    at, steps = start, 0
    while not at[0]:
        at = branches[at[1]].choose(x)
        steps += 1
        if steps > len(branches):
            raise SerializationError("a tree whose branches lead back")
    return at[1]


_JOINS: dict[str, Callable[..., Any]] = {
    "SUM": np.sum,
    "AVERAGE": np.sum,
    "MIN": np.min,
    "MAX": np.max,
}


def _totals(
    x: np.ndarray, roots: list, branches: Any, leaves: dict[int, list], count: int, join: str,
    base: Any = None,
) -> tuple[np.ndarray, np.ndarray]:  # fmt: skip
    """For each row and target what the leaves of all trees say together, and whether any says
    something: without that it is 0."""
    out, voted = np.zeros((len(x), count), np.float64), np.zeros((len(x), count), bool)
    start = np.zeros(count) if base is None else np.broadcast_to(np.array(base, np.float64), count)
    for row, total, any_ in zip(x.tolist(), out, voted):
        found: list[list[float]] = [[] for _ in range(count)]
        for root in roots:
            for target, weight in leaves.get(_leaf_of(row, root, branches), ()):
                found[target].append(weight)
        for i, values in enumerate(found):
            any_[i] = bool(values)
            if values:
                joined = _JOINS[join](values)
                total[i] = (joined / len(roots) if join == "AVERAGE" else joined) + start[i]
    return out, voted


_POST: dict[str, Callable[[Tensor], Tensor]] = {
    "NONE": lambda x: x,
    "SOFTMAX": lambda x: F.softmax(x, -1),
    "LOGISTIC": api.sigmoid,
    "SOFTMAX_ZERO": lambda x: _softmax_zero(x),
    "PROBIT": lambda x: math.sqrt(2.0) * api.erfinv(2.0 * x - 1.0),
}


def _softmax_zero(x: Tensor) -> Tensor:
    """Shares of those that are not 0; the others stay so."""
    grown = api.where(abs(x) > 1e-7, api.exp(x - x.amax(-1, True)), api.zeros_like(x))
    return grown / grown.sum(-1, True)


def after(x: Tensor, name: str) -> Tensor:
    """Scores as ``post_transform`` says."""
    if name not in _POST:
        raise OperatorError(f"post_transform {name!r}; known are {', '.join(_POST)}")
    return _POST[name](x)


@operator("TreeEnsemble", domain=ML)
def _tree_ensemble(
    x: Tensor, *, aggregate_function: int = 1, leaf_targetids: Any, leaf_weights: Any,
    membership_values: Any = None, n_targets: int, nodes_falseleafs: Any, nodes_falsenodeids: Any,
    nodes_featureids: Any, nodes_hitrates: Any = None, nodes_missing_value_tracks_true: Any = None,
    nodes_modes: Any, nodes_splits: Any, nodes_trueleafs: Any, nodes_truenodeids: Any,
    post_transform: int = 0, tree_roots: Any,
) -> Tensor:  # fmt: skip
    sets = _sets(membership_values)
    missing = nodes_missing_value_tracks_true or [0] * len(nodes_featureids)
    branches = []
    for i, code in enumerate(nodes_modes.tolist()):
        split = next(sets) if _MODES[code] == "BRANCH_MEMBER" else float(nodes_splits[i])
        yes = bool(nodes_trueleafs[i]), nodes_truenodeids[i]
        no = bool(nodes_falseleafs[i]), nodes_falsenodeids[i]
        branches.append(Branch(_MODES[code], nodes_featureids[i], split, yes, no, bool(missing[i])))
    leaves = {i: [(t, float(w))] for i, (t, w) in enumerate(zip(leaf_targetids, leaf_weights))}
    join = ("AVERAGE", "SUM", "MIN", "MAX")[aggregate_function]
    roots = [(False, r) for r in tree_roots]
    total, _ = _totals(x.numpy(), roots, branches, leaves, n_targets, join)
    out = api.tensor(total).to(x.dtype)
    return after(out, ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")[post_transform])


def _sets(values: Any) -> Any:
    """Sets of numbers, with NaN between them."""
    found: set[float] = set()
    for v in () if values is None else values.tolist():
        if v != v:
            yield found
            found = set()
        else:
            found.add(v)
    yield found


def _parts(words: dict[str, Any], prefix: str) -> tuple[list, dict, dict]:
    """Of the older form, whose nodes are numbered within trees: roots, branches, leaves."""
    keys = list(zip(words["nodes_treeids"], words["nodes_nodeids"]))
    number = {key: i for i, key in enumerate(keys)}
    modes = words["nodes_modes"]
    missing = words.get("nodes_missing_value_tracks_true") or [0] * len(keys)
    splits = words.get("nodes_values")
    splits = splits if splits is not None else words["nodes_values_as_tensor"].tolist()
    branches: dict[int, Branch] = {}
    roots: dict[Any, tuple[bool, int]] = {}
    for i, (tree, _) in enumerate(keys):
        leaf = modes[i] == "LEAF"
        roots.setdefault(tree, (leaf, i))
        if not leaf:
            ends: list[tuple[bool, int]] = []
            for name in ("nodes_truenodeids", "nodes_falsenodeids"):
                at = number[tree, words[name][i]]
                ends.append((modes[at] == "LEAF", at))
            feature = words["nodes_featureids"][i]
            branches[i] = Branch(modes[i], feature, splits[i], ends[0], ends[1], bool(missing[i]))
    leaves: dict[int, list] = {}
    weights = words.get(f"{prefix}_weights")
    weights = weights if weights is not None else words[f"{prefix}_weights_as_tensor"].tolist()
    places = zip(words[f"{prefix}_treeids"], words[f"{prefix}_nodeids"], words[f"{prefix}_ids"])
    for (tree, node, target), weight in zip(places, weights):
        leaves.setdefault(number[tree, node], []).append((target, weight))
    return list(roots.values()), branches, leaves


@operator("TreeEnsembleRegressor", domain=ML)
def _tree_regressor(
    x: Tensor, *, aggregate_function: str = "SUM", n_targets: int = 1,
    post_transform: str = "NONE", **words: Any,
) -> Tensor:  # fmt: skip
    roots, branches, leaves = _parts(words, "target")
    base = words.get("base_values")
    total, _ = _totals(x.numpy(), roots, branches, leaves, n_targets, aggregate_function, base)
    return after(api.tensor(total).to(dtypes.float32), post_transform)


@operator("TreeEnsembleClassifier", domain=ML)
def _tree_classifier(x: Tensor, *, post_transform: str = "NONE", **words: Any) -> Any:
    labels: Any = words.get("classlabels_int64s") or words.get("classlabels_strings")
    roots, branches, leaves = _parts(words, "class")
    base = words.get("base_values")
    total, voted = _totals(x.numpy(), roots, branches, leaves, len(labels), "SUM", base)
    table = np.array(labels, object if isinstance(labels[0], str) else np.int64)
    if len(labels) == 2:
        weights = [w for rows in leaves.values() for _, w in rows]
        only = len({t for rows in leaves.values() for t, _ in rows}) == 1
        chosen, scores = _of_two(total, voted, only, min(weights) >= 0, post_transform)
    else:
        chosen = np.argmax(np.where(voted, total, -np.inf), -1)
        scores = after(api.tensor(total).to(dtypes.float32), post_transform)
    found = table[chosen]
    return found if found.dtype == object else api.tensor(found), scores


def _of_two(
    total: np.ndarray, voted: np.ndarray, only: bool, positive: bool, post_transform: str
) -> tuple[np.ndarray, Tensor]:
    """Of two classes, as onnxruntime chooses: by the second one's score, or the only one's; the
    score of a class that no tree names is made of the other's."""
    score = np.where(voted[:, 1], total[:, 1], np.where(voted[:, 0], total[:, 0], 0.0))
    chosen = (score > (0.5 if only and positive else 0.0)).astype(np.int64)
    both = api.tensor(total).to(dtypes.float32)
    first = both[:, :1]
    if post_transform == "LOGISTIC":
        made = api.sigmoid(api.cat([-first, first], -1))
    else:
        made = api.cat([1 - first if only and positive else -first, first], -1)
    return chosen, api.where(api.tensor(voted[:, 1:]), after(both, post_transform), made)
