"""Indexing: slices, lists, masks and index tensors, read and written; scatter, joining, order."""

from __future__ import annotations

from typing import Any

from peers.generators.draw import Draw, smooth
from peers.generators.finish import backward

DTYPES = (("float32",), ("float64",), ("float64", "int64"), ("float16", "float32"), ("bfloat16",),
          ("int32", "bool", "uint8"), ("complex64", "float32"))  # fmt: skip


def program(d: Draw) -> None:
    d.dtypes = d.choice(DTYPES)
    x = d.leaf(d.shape(1, 3, sizes=(1, 2, 3, 4)), grad=d.chance(0.7))
    if d.chance(0.5):
        d.let(f"{x} * 1")
    for _ in range(d.rng.randint(3, 7)):
        d.choice(
            (read, read, write, pick, scatter, scatter, by_index, mask, join, order, shape, find)
        )(d)
    backward(d)


def integers(d: Draw, shape: list[int], size: int, wrong: bool = True) -> str:
    """The text of an index tensor for a dim of ``size``; seldom with an index that is not there."""
    count = 1
    for n in shape:
        count *= n
    wrong = count > 0 and size > 0 and wrong and d.chance(0.03)
    values = [
        d.rng.randrange(-1, max(1, size)) % max(1, size) + (size if wrong else 0)
        for _ in range(count)
    ]
    flat = iter(values)
    return (
        f"T.tensor({d.nested(shape, lambda: next(flat))}, dtype=T.int64)"
        if count
        else f"T.zeros({shape}, dtype=T.int64)"
    )


def item(d: Draw, size: int, length: int | None) -> str:
    """One position of an index."""
    kind = d.rng.random()
    if kind < 0.25:
        return str(d.rng.randint(-size - (1 if d.chance(0.02) else 0), size - 1)) if size else "0"
    if kind < 0.5:
        low, high = sorted(d.rng.randint(-1, size + 1) for _ in "ab")
        return d.choice(
            (":", f"{low}:", f":{high}", f"{low}:{high}", "::2", f"{low}::2", "-2:", ":-1")
        )
    if kind < 0.7:
        return integers(d, [length or d.rng.randint(1, 3)], size)
    if kind < 0.8:
        return str([d.rng.randrange(-size, size) for _ in range(length or 2)]) if size else ":"
    if kind < 0.87:
        return "None"
    if kind < 0.95 and size:
        return d.literal([size], "bool")
    return d.choice(("...", "True", integers(d, [], size), integers(d, [2, length or 1], size)))


def index(d: Draw, x: str) -> str:
    """A whole index for ``x``."""
    shape = list(d[x].shape)
    if d.chance(0.12):
        return d.literal(shape[: d.rng.randint(1, max(1, len(shape)))], "bool")
    length = d.rng.randint(1, 3) if d.chance(0.8) else None
    parts: list[str] = []
    for size in shape[: d.rng.randint(1, max(1, len(shape)))]:
        part = item(d, size, length)
        if part == "..." and "..." in parts:
            part = ":"
        parts.append(part)
        if part == "None":
            parts.append(":")
    return ", ".join(parts) or "..."


def read(d: Draw) -> None:
    x = d.pick(lambda t: t.dim() > 0)
    if x is not None:
        d.let(f"{x}[{index(d, x)}]", keep_errors=0.3)


def write(d: Draw) -> None:
    """Assignment, where no element is written to twice (then the order would matter)."""
    x = d.pick(lambda t: t.dim() > 0 and not (t.requires_grad and t.is_leaf))
    if x is None:
        return
    where = index(d, x)
    probe = d.peer.arange(d[x].numel()).reshape(d[x].shape)
    try:
        found = eval(f"x[{where}]", {"x": probe, "T": d.peer})
    except (IndexError, RuntimeError, TypeError):
        return
    if found.unique().numel() != found.numel():
        return
    value = d.choice((repr(d.number()), f"{x}[{where}] * 2", "T.tensor(2.5)", f"{x}[{where}]"))
    if d.chance(0.4):
        shape = list(found.shape)
        value = d.leaf(shape if d.chance(0.6) else [1 if d.chance(0.5) else n for n in shape])
    d.add(f"{x}[{where}] {d.choice(('=', '=', '+=', '*='))} {value}", keep_errors=0.3)


def pick(d: Draw) -> None:
    x = d.pick(lambda t: t.dim() > 0)
    if x is None:
        return
    t = d[x]
    a = d.dim(t)
    size = t.shape[a] if a < t.dim() else 1
    smaller = [d.rng.randint(1, n) if n else 0 for n in t.shape]
    along = integers(d, d.choice((smaller, list(t.shape))), size, False)
    texts = [
        f"T.gather({x}, {a}, {integers(d, smaller, size)})",
        f"{x}.index_select({a}, {integers(d, [d.rng.randint(1, 4)], size)})",
        f"T.take({x}, {integers(d, d.shape(0, 2), max(1, t.numel()))})",
        f"T.take_along_dim({x}, {along}, {a})",
        f"{x}.repeat_interleave({d.rng.randint(0, 3)}, {a})",
        f"{x}.repeat_interleave({integers(d, [size], 3)}, dim={a})",
        f"{x}[{integers(d, [2], t.shape[0])}]",
    ]
    d.let(d.choice(texts), keep_errors=0.3)


def scatter(d: Draw) -> None:
    """Scattering in all forms; overwriting ones without repeated places."""
    x = d.pick(lambda t: t.dim() > 0)
    if x is None:
        return
    t = d[x]
    a = d.dim(t, wrong=0)
    size = t.shape[a]
    shape = [d.rng.randint(1, n) if n else 0 for n in t.shape]
    dtype = str(t.dtype).rpartition(".")[2]
    source = d.leaf(shape, dtype)
    any_place = integers(d, shape, size)
    own_place = ordered(d, shape, a, size)
    rest = [n for i, n in enumerate(t.shape) if i != a % t.dim()]
    row = [*t.shape]
    row[a] = min(2, size)
    rows, part = d.leaf(row, dtype), d.rng.sample(range(size), row[a]) if size else []
    places = f"T.tensor({part}, dtype=T.int64)"
    in_place = "_" if not (t.requires_grad and t.is_leaf) and d.chance(0.5) else ""
    reduce = d.choice(("sum", "prod", "mean", "amax", "amin"))
    texts = [
        f"scatter{in_place}({a}, {own_place}, {source})",
        f"scatter{in_place}({a}, {own_place}, {d.number()})",
        f"scatter_add{in_place}({a}, {any_place}, {source})",
        f"scatter_reduce{in_place}({a}, {any_place}, {source}, {reduce!r}, "
        f"include_self={d.chance(0.5)})",
        f"scatter{in_place}({a}, {any_place}, {source}, reduce={d.choice(('add', 'multiply'))!r})",
        f"index_add{in_place}({a}, {places}, {rows}" + d.choice((")", ", alpha=2)")),
        f"index_copy{in_place}({a}, {places}, {rows})",
        f"index_fill{in_place}({a}, {places}, {d.number()})",
        f"index_put{in_place}(({integers(d, [3], t.shape[0])},), "
        f"T.tensor(1.5, dtype={x}.dtype), accumulate=True)",
        f"index_reduce{in_place}({a}, {places}, {rows}, "
        f"{d.choice(('prod', 'mean', 'amax', 'amin'))!r})",
        f"put{in_place}({places}, {d.literal([len(part)], dtype)})",
        f"select_scatter({d.literal(rest, dtype)}, "
        f"{a}, 0)",
        f"diagonal_scatter(T.tensor(0.5, dtype={x}.dtype).expand({x}.diagonal().shape))"
        if t.dim() > 1 else "t()",
        f"slice_scatter({x}, {a}) * 2",
    ]  # fmt: skip
    call = d.choice(texts)
    name, _, arguments = call.partition("(")
    if in_place and name.endswith("_"):
        if d.has(f"Tensor.{name}"):
            d.add(f"{x}.{call}", keep_errors=0.3)
    elif d.has(f"Tensor.{name}") or d.has(name):
        text = (
            f"{x}.{call}"
            if (d.has(f"Tensor.{name}") and d.chance(0.5)) or not d.has(name)
            else f"T.{name}({x}, {arguments}"
        )
        d.let(text, keep_errors=0.3)


def ordered(d: Draw, shape: list[int], a: int, size: int) -> str:
    """An index tensor that never names a place twice along dim ``a``."""
    start, count = d.rng.randint(0, max(0, size - 1)), shape[a]
    line = [(start + i) % max(1, size) for i in range(count)]
    view = [1] * len(shape)
    view[a] = count
    return f"T.tensor({line}, dtype=T.int64).view({view}).expand({shape})"


def by_index(d: Draw) -> None:
    """Tensors of places: nonzero, argwhere, where, masks from comparisons."""
    x = d.exact()
    if x is None:
        return
    t = d[x]
    compared = f"{x} > 0" if not t.is_complex() else f"{x} != 0"
    texts = [
        f"{x}.nonzero()", f"T.nonzero({x}, as_tuple=True)", f"T.argwhere({x})",
        f"T.where({compared})",
        f"{x}[{compared}]", f"{x}.masked_select({compared})", f"T.count_nonzero({x})",
        f"{x}[{x}.nonzero(as_tuple=True)]", f"{x}.count_nonzero({d.dim(t, wrong=0)})",
        f"{x}.unique()", f"T.unique({x}, return_inverse=True, return_counts=True)",
        f"T.unique_consecutive({x})",
    ]  # fmt: skip
    d.let(d.choice(texts), keep_errors=0.3)


def mask(d: Draw) -> None:
    x = d.pick()
    t = d[x]
    m = d.literal(d.fitting(list(t.shape)) if d.chance(0.4) else list(t.shape), "bool")
    in_place = not (t.requires_grad and t.is_leaf) and d.chance(0.5)
    if d.chance(0.5):
        value = d.choice((repr(d.number()), "T.tensor(1.5)"))
        call = f"masked_fill{'_' if in_place else ''}({m}, {value})"
    else:
        source = d.leaf([max(1, t.numel())], str(t.dtype).rpartition(".")[2])
        call = (
            f"masked_scatter{'_' if in_place else ''}({d.literal(list(t.shape), 'bool')}, {source})"
        )
    name = call.partition("(")[0]
    if not d.has(f"Tensor.{name}"):
        return
    if in_place:
        d.add(f"{x}.{call}", keep_errors=0.3)
    else:
        d.let(f"{x}.{call}", keep_errors=0.3)


def join(d: Draw) -> None:
    x = d.pick()
    t = d[x]
    y = d.pick(lambda u: u.dim() == t.dim()) if d.chance(0.5) else d.leaf(list(t.shape))
    a = d.dim(t)
    name = d.choice("cat stack concat hstack vstack dstack column_stack row_stack".split())
    with_dim = f", dim={a}" if name in ("cat", "stack", "concat") else ""
    if d.has(name):
        d.let(f"T.{name}([{x}, {y}{d.choice(('', ', ' + x))}]{with_dim})", keep_errors=0.3)


def distinct(t: Any, a: int) -> bool:
    """Whether no two values along a dim are equal, so that there is one order."""
    values = t.detach().sort(stable=True, dim=a).values
    return t.dim() == 0 or bool((values.diff(dim=a) != 0).all())


def order(d: Draw) -> None:
    """Sorting and what comes of it; with equal values only the stable sort is defined."""
    x = d.exact(lambda t: not t.is_complex() and t.dtype != d.peer.bool)
    if x is None:
        return
    t = d[x]
    a = d.dim(t, wrong=0)
    size = t.shape[a] if t.dim() else 1
    if not distinct(t, a):
        d.let(
            f"{x}.sort(stable=True, dim={a})"
            if d.chance(0.5)
            else f"T.sort({x}, stable=True, dim={a}, descending=True)"
        )
        return
    k = d.rng.randint(0 if t.dim() else 1, size)
    texts = [
        f"{x}.sort({a})", f"{x}.sort({a}, descending=True)", f"{x}.argsort({a})",
        f"{x}.topk({k}, {a})",
        f"T.topk({x}, {k}, {a}, largest=False)", f"{x}.kthvalue({max(1, k)}, {a})", f"{x}.max({a})",
        f"{x}.min({a}, keepdim=True)", f"{x}.argmax({a})", f"{x}.argmin({a}, keepdim=True)",
        f"T.msort({x})",
        f"{x}.median({a})", f"T.searchsorted({x}.flatten().sort().values, {x})",
        f"T.bucketize({x}, T.tensor([0., 1.]))",
        f"{x}.cummax({a})", f"{x}.cummin({a})", f"{x}.mode({a})", f"T.aminmax({x})",
    ]  # fmt: skip
    text = d.choice(texts)
    if d.has(f"Tensor.{text.partition('(')[0].partition('.')[2]}") or text.startswith(
        ("T.to", "T.s", "T.b")
    ):
        d.let(text, keep_errors=0.3)


def shape(d: Draw) -> None:
    x = d.pick()
    t = d[x]
    a, n = d.dim(t), t.dim()
    amounts = [d.rng.randint(-1, 2) for _ in range(2 * min(n, d.rng.randint(1, 2)))]
    texts = [
        f"{x}.flip({a})", f"{x}.roll({d.rng.randint(-2, 3)}, {a})", f"T.roll({x}, 1)",
        f"{x}.repeat({[2] + [1] * n})",
        f"{x}.tile(({d.rng.randint(1, 2)}, 2))", f"{x}.tril({d.rng.randint(-1, 1)})",
        f"{x}.triu({d.rng.randint(-1, 1)})",
        f"T.diag({x})", f"T.diag({x}, 1)", f"F.pad({x}, {amounts})",
        f"{x}.fliplr()", f"{x}.rot90()", f"T.diag_embed({x})", f"T.block_diag({x}, {x})",
        "T.tril_indices(3, 3)",
        f"T.cartesian_prod({x}, {x})", f"T.meshgrid({x}, {x}, indexing='ij')",
        f"{x}.unfold({a}, 1, 1)",
        f"T.combinations({x})", f"F.one_hot({x}.long().abs().clamp(0, 3), 4)", f"{x}.diff()",
        f"T.vander({x})",
        f"T.flip({x}, {d.dims(t)})", f"{x}.movedim({a}, 0)", f"F.pad({x}, (1, 1), value=2.5)",
        f"{x}.expand({[2, *t.shape]}) * 1", f"T.trace({x})", f"{x}.split_with_sizes([1], {a})",
        f"T.kron({x}, {x})",
    ]  # fmt: skip
    text = d.choice(texts)
    owner, _, rest = text.partition(".")
    name = rest.partition("(")[0]
    prefix = {"T": "", "F": "nn.functional."}.get(owner, "Tensor.")
    if d.has(prefix + name) and (smooth(t) or "one_hot" not in text):
        d.let(text, keep_errors=0.3)


def find(d: Draw) -> None:
    """Use something, so that what was saved matters."""
    x = d.pick(smooth)
    if x is not None:
        d.let(
            d.choice((f"{x} * {x}", f"{x} * 2", f"{x}.sum()", f"{x}.sum(-1)", f"{x} + 1")),
            rough=True,
        )
