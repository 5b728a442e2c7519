"""Sparse tensors: places drawn with repetitions, and what is computed with them, then backward.

(Softmax is drawn without gradients: the peer's are wrong where dense ones come back to it.)
"""

from __future__ import annotations

from peers.generators.draw import Draw

OF_ONE = """\
-{s}|{s} * {n}|{s} / {p}|{s}.pow(2)|{s}.abs()|{s}.t()|{s}.transpose(0, 1)
{s}.coalesce()|T.cat([{s}, {s}], {d})|T.stack([{s}, {s}], 0)|{s}.unsqueeze({d})
T.sin({s})|T.relu({s})|{s} + {s}|{s}.index_select({d}, T.tensor([{i}, 0, {i}]))
T.sparse.softmax({s}.detach().coalesce(), {d})|{s} * {s}|{s}[{i}]
T.sparse.log_softmax({s}.detach().coalesce(), {d})|{s}.sparse_mask({s}.coalesce())
{s} @ {s}.t()|T.sparse.sum({s}, {d})|{s}.t() @ {s}|{s}.to(T.float64)
{s}.add({s}, alpha={n})|{s} - {s} * 2|{s}.clone()|{s}.sum({d})|{s}.narrow({d}, 0, 1)
{s}.to_sparse_csr().to_sparse()|T.sparse.sum({s}, [0, 1])|{s}.detach().sum()
{s}.mul({n})|{s}.neg().coalesce()""".replace("\n", "|").split("|")
WITH_DENSE = """{s} @ {b}|T.sparse.mm({s}, {b})|T.sparse.addmm({c}, {s}, {b}, beta={n}, alpha={p})
T.smm({s}, {b})|T.hspmm({s}, {b})|T.addmm({c}, {s}, {b})|{a} + {s}|{s} * {a}|{a}.sparse_mask({m})
T.mv({s}, {b}[:, 0])|T.sspaddmm({z}, {s}, {b}, beta={n}, alpha={p})|{s}.to_sparse_csr() @ {b}
{s}.to_sparse_csc() @ {b}|{a}.t() @ {s}""".replace("\n", "|").split("|")


def program(d: Draw) -> None:
    d.dtypes = d.choice((("float32",), ("float64",), ("float64",)))
    kind = d.dtypes[0]
    size = [d.rng.randint(1, 4), d.rng.randint(1, 4)]
    names = [_made(d, size, kind, 0)]
    for k in range(1, d.rng.randint(2, 4)):
        s = d.choice(names)
        shape = list(d[s].shape)
        if len(shape) != 2 or not d[s].is_sparse or d[s].dtype != getattr(d.peer, kind):
            continue
        text = d.choice(WITH_DENSE if d.chance(0.4) else OF_ONE).format(s=s, **_given(d, shape))
        if d.add(f"s{k} = {text}", keep_errors=0.0) and d[f"s{k}"].is_floating_point():
            names.append(f"s{k}")
    for s in names[-2:]:
        _looked_at(d, s)


def _made(d: Draw, size: list[int], kind: str, k: int) -> str:
    """A matrix; now and then a place is named twice."""
    count = d.rng.randint(0, 6)
    rows, columns = ([d.rng.randrange(n) for _ in range(count)] for n in size)
    values = d.leaf([count], kind)
    at = f"T.tensor([{rows}, {columns}], dtype=T.int64)"
    d.add(f"s{k} = T.sparse_coo_tensor({at}, {values}, {tuple(size)})")
    return f"s{k}"


def _given(d: Draw, shape: list[int]) -> dict[str, object]:
    """What may stand beside a matrix of this shape."""
    n, m = shape
    dim = d.rng.randrange(2)
    kind = d.dtypes[0]
    mask = f"T.ones({n}, {m}, dtype=T.{kind}).tril().to_sparse().coalesce()"
    return {
        "n": d.choice((-2, 0.5, 3)), "p": d.choice((2, 0.5)), "d": dim - 2 * d.chance(0.3),
        "i": d.rng.randrange(max(1, min(n, m))), "a": d.leaf(shape, kind), "m": mask,
        "b": d.leaf([m, 2], kind), "c": d.leaf([n, 2], kind),
        "z": f"T.ones({n}, 2, dtype=T.{kind}).to_sparse()",
    }  # fmt: skip


def _looked_at(d: Draw, s: str) -> None:
    """Its numbers and what is known of it; then gradients of the leaves."""
    x = d[s]
    if x.is_sparse:
        d.let(f"[{s}.sparse_dim(), {s}.dense_dim(), {s}.coalesce()._nnz(), {s}.requires_grad]")
    out = d.let(f"{s}.to_dense()" if x.layout != d.peer.strided else f"{s} * 1", rough=True)
    if out is not None and d[out].requires_grad and d[out].is_floating_point():
        d.add(f"{out}.pow(2).sum().backward(retain_graph=True)", keep_errors=0.3)
