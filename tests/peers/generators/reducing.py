"""Reductions and products: every dtype, narrow types over many elements, scans, norms, matrices."""

from __future__ import annotations

from peers.generators.draw import ALL, Draw, floating, smooth
from peers.generators.finish import backward

NAMES = """sum mean prod amax amin var std norm logsumexp nansum nanmean all any argmax argmin
max min median nanmedian softmax log_softmax cumsum cumprod logcumsumexp count_nonzero std_mean
var_mean quantile nanquantile aminmax cummax cummin diff dist renorm""".split()


def program(d: Draw) -> None:
    d.dtypes = d.choice(
        (("float32",), ("float64",), ("float16",), ("bfloat16",), ALL, ("complex64", "float32"))
    )
    d.leaf(d.shape(0, 3, sizes=(1, 2, 3, 4)), positive=d.chance(0.3))
    if d.chance(0.25):
        long(d)
    for _ in range(d.rng.randint(2, 6)):
        d.choice((reduction, reduction, reduction, product, vector, use, einsum))(d)
    backward(d)


def long(d: Draw) -> None:
    """Many elements, where narrow sums lose their low digits."""
    dtype = d.choice(("float16", "bfloat16", "float32", "float64"))
    n, k = d.choice((300, 1000, 5000)), d.choice((3, 5, 7))
    text = f"(T.arange({n}) % {k} * 0.5).to(T.{dtype})"
    if d.chance(0.4):
        text += f".reshape({n // 100}, 100)" + d.choice(("", ".t()"))
    name = d.let(text)
    if name and d.chance(0.6):
        d.add(f"{name}.requires_grad_()")


def many(d: Draw, x: str) -> bool:
    return d[x].numel() > 200


def tied(d: Draw, x: str) -> bool:
    """Whether some of more than 16 elements are equal: fewer are sorted in one way by all."""
    t = d[x].detach()
    return t.numel() > 16 and not t.is_complex() and t.unique().numel() < t.numel()


def reduction(d: Draw) -> None:
    name = d.choice(NAMES)
    jumps = name.startswith(("arg", "cumm", "a", "c", "max", "min", "med", "nanmed", "qua", "nanq"))
    x = d.exact() if jumps else d.pick()
    if x is None or not (d.has(name) or d.has(f"Tensor.{name}")):
        return
    t = d[x]
    if name in ("prod", "cumprod") and t.numel() > (6 if t.is_complex() else 30):
        return
    if name.endswith("quantile") and (many(d, x) or tied(d, x)):
        return  # which of equal elements is taken depends on how one sorts
    arguments = options(d, name, t)
    d.let(
        d.call(name, x, arguments),
        rough=name not in ("amax", "amin", "all", "any"),
        keep_errors=0.3,
    )


def options(d: Draw, name: str, t) -> str:
    """The arguments of one call; ties decide what has one order only."""
    a = d.dim(t)
    keep = d.choice(("", ", keepdim=True"))
    if name in ("cumsum", "cumprod", "softmax", "log_softmax", "cummax", "cummin", "logcumsumexp"):
        return f"{a}" + (
            f", dtype=T.{d.choice(ALL)}" if d.chance(0.15) and name != "logcumsumexp" else ""
        )
    if name in ("max", "min", "median", "nanmedian", "argmax", "argmin"):
        unique = t.numel() and not t.is_complex() and t.detach().unique().numel() == t.numel()
        return f"{a}{keep}" if unique and d.chance(0.7) else ""
    if name in ("quantile", "nanquantile"):
        return d.choice(
            (
                f"0.4, dim={a}",
                "0.25",
                f"T.tensor([0.1, 0.5], dtype=T.{str(t.dtype)[6:]}), dim={a}{keep}",
            )
        )
    if name == "norm":
        p = d.choice((1, 2, 3, 0, "float('inf')", "'fro'", "float('-inf')", 0.5))
        return d.choice(("", f"{p}", f"{p}, {a}{keep}", f"2, {d.dims(t)}"))
    if name in ("var", "std", "std_mean", "var_mean"):
        return d.choice(
            (
                "",
                f"{a}{keep}",
                f"unbiased={d.chance(0.5)}",
                f"{d.dims(t)}, correction={d.rng.randint(0, 2)}",
            )
        )
    if name in ("all", "any", "aminmax", "count_nonzero"):
        named = f"dim={a}" if name == "aminmax" else f"{a}"
        return d.choice(("", f"{named}{keep if name != 'count_nonzero' else ''}"))
    if name == "logsumexp":
        return d.choice((f"{a}{keep}", f"{d.dims(t)}"))
    if name == "dist":
        return "T.tensor(0.5)"
    if name == "renorm":
        return f"2, {a}, 1.5"
    if name == "diff":
        return f"dim={a}"
    dtype = (
        f", dtype=T.{d.choice(ALL)}"
        if name in ("sum", "mean", "prod", "nansum") and d.chance(0.25)
        else ""
    )
    if name == "prod":
        return d.choice(("", f"{a}{keep}{dtype}", dtype[2:]))
    return d.choice(
        ("", f"{a}{keep}{dtype}", f"{d.dims(t)}{keep}{dtype}", dtype[2:], f"dim={a}{dtype}")
    )


def product(d: Draw) -> None:
    """Products of matrices and vectors, batches, mixed dtypes and misfits included."""
    x = d.pick(lambda t: t.dim() > 0 and t.numel() < 200)
    if x is None:
        return
    t = d[x]
    inner = t.shape[-1] if not d.chance(0.03) else t.shape[-1] + 1
    dtype = str(t.dtype).rpartition(".")[2] if d.chance(0.9) else None
    kind = d.rng.random()
    if kind < 0.5:
        shape = d.choice(([inner], [inner, d.rng.randint(1, 3)], [*t.shape[:-2], inner, 2]))
        y = d.leaf(shape, dtype)
        texts = [f"{x} @ {y}", f"T.matmul({x}, {y})"]
        if t.dim() == 2 and len(shape) == 2:
            texts += [f"{x}.mm({y})", f"T.addmm({d.leaf([1], dtype)}, {x}, {y}, beta=0.5, alpha=2)"]
        if t.dim() == 3 and len(shape) == 3:
            texts += [f"{x}.bmm({y})", f"T.baddbmm({d.leaf([1], dtype)}, {x}, {y})"]
        if t.dim() == 2 and len(shape) == 1:
            texts += [f"{x}.mv({y})"]
    elif kind < 0.75:
        y = d.leaf([*t.shape[:-1], inner] if d.chance(0.5) else [inner], dtype)
        texts = [
            f"T.dot({x}, {y})",
            f"T.inner({x}, {y})",
            f"T.outer({x}, {y})",
            f"T.vdot({x}, {y})",
        ]
    else:
        w, b = d.leaf([2, inner], dtype), d.leaf([2], dtype)
        texts = [
            f"F.linear({x}, {w}, {b})",
            f"F.linear({x}, {w})",
            f"T.trace({x})",
            f"T.tensordot({x}, {x}, 1)",
        ]
    text = d.choice(texts)
    name = text.partition("(")[0].partition(".")
    if "(" not in text or d.has(
        {"F": "nn.functional."}.get(name[0], "" if name[0] == "T" else "Tensor.") + name[2]
    ):
        d.let(text, rough=True, keep_errors=0.3)


def einsum(d: Draw) -> None:
    x = d.pick(lambda t: 0 < t.dim() < 4 and t.numel() < 200 and smooth(t))
    if x is None:
        return
    n = d[x].dim()
    one = {1: ("i->", "i->i", "i,i->", "i,i->i", "i,j->ij", "i,i"), 2: ("ij->ji", "ij->j", "ij->",
    "ij,ij->i",
           "ij,kj->ik", "ii->i", "ii", "ij,ik", "...j->..."), 3: ("ijk->kji", "ijk,ijk->ik",
           "bij,bkj->bik",
           "...ij->...ji", "ijk->j", "bii->bi")}[n]  # fmt: skip
    text = d.choice(one)
    d.let(f"T.einsum({text!r}, {x}{', ' + x if ',' in text else ''})", rough=True, keep_errors=0.3)


def vector(d: Draw) -> None:
    """linalg: norms of vectors and matrices, det, inv."""
    x = d.pick(lambda t: smooth(t) and t.numel() < 200)
    if x is None:
        return
    t = d[x]
    p = d.choice((1, 2, "float('inf')", "float('-inf')", 0, 3, 0.5, -1, -2, "'fro'", "'nuc'"))
    texts = [
        f"T.linalg.vector_norm({x}, {p})",
        f"T.linalg.vector_norm({x}, {p}, dim={d.dim(t)}, keepdim=True)",
        f"T.linalg.norm({x}, {p})", f"T.linalg.norm({x})",
        f"T.linalg.norm({x}, {p}, dim={d.dims(t)})",
        f"T.linalg.matrix_norm({x}, {p})", f"F.normalize({x}, dim={d.dim(t)})",
        f"T.norm({x}, p={p})",
        f"F.cosine_similarity({x}, {x} + 1, dim={d.dim(t)})", f"T.cdist({x}, {x})",
        f"T.cov({x})", f"T.corrcoef({x})",
    ]  # fmt: skip
    text = d.choice(texts)
    if "corrcoef" in text and t.dim() and t.shape[-1] < 3:
        return  # two samples lie on a line: what is left of the gradient is rounding
    owner, _, rest = text.partition("(")[0].partition(".")
    if d.has({"F": "nn.functional."}.get(owner, "") + rest):
        d.let(text, rough=True, keep_errors=0.3)


def use(d: Draw) -> None:
    x = d.pick(floating)
    if x is not None:
        d.let(d.choice((f"{x} * 0.5", f"{x}.t()" if d[x].dim() < 3 else f"{x} + 1", f"{x} * {x}",
        f"{x}.double()",
                        f"{x}.sin()", f"{x}.expand({[2, *d[x].shape]})")), rough=True)  # fmt: skip
