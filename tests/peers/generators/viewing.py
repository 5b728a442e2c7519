"""Views of every kind and what is written through them, with gradients of any layout."""

from __future__ import annotations

from peers.generators.draw import Draw, smooth
from peers.generators.finish import backward, hook


def program(d: Draw) -> None:
    """A base (often not a leaf), views of views, writes to some of them, then backward."""
    d.dtypes = d.choice(
        (("float32",), ("float64",), ("float64",), ("complex128", "float64"), ("bfloat16",
        "float32"),
         ("int64", "float32"))
    )  # fmt: skip
    x = d.leaf(d.shape(1, 4, sizes=(1, 2, 2, 3, 4)), grad=d.chance(0.75))
    if d.chance(0.8):
        d.let(
            d.choice((f"{x} * 1", f"{x}.clone()", f"{x} + 0.5", f"{x}.exp()", f"{x}.sin()")),
            rough=True,
        )
    for _ in range(d.rng.randint(3, 9)):
        d.choice((view, view, view, write, write, assign, use, hook, several))(d)
    backward(d)


def view_text(d: Draw, x: str) -> str:
    """One view operation on ``x``; some of those drawn are impossible."""
    t = d[x]
    shape, n = list(t.shape), t.dim()
    a, b = d.dim(t), d.dim(t)
    size = shape[a] if -n <= a < n else 1
    start = d.rng.randint(0, max(0, size - 1))
    factors = d.factors(t.numel()) if t.numel() else [*shape[::-1]]
    order = d.rng.sample(range(n), n)
    steps = d.rng.choice((None, 1, 2))
    texts = [
        f"{x}.view({factors})", f"{x}.reshape({factors})", f"{x}.view(-1)", f"{x}.reshape(-1)",
        f"{x}.view_as({x})", f"{x}.flatten({min(a % n, b % n) if n else 0}, -1)", f"{x}.ravel()",
        f"{x}.transpose({a}, {b})", f"{x}.swapaxes({a}, {b})", f"{x}.permute({order})",
        f"{x}.movedim({a}, {b})", f"T.moveaxis({x}, {a}, {b})", f"{x}.squeeze()",
        f"{x}.squeeze({a})",
        f"{x}.unsqueeze({a})", f"{x}.select({a}, {start})",
        f"{x}.narrow({a}, {start}, {max(0, size - start)})",
        f"{x}[{start}:]", f"{x}[..., ::2]", f"{x}[..., {start}:{size}]", f"{x}[None]",
        f"{x}[..., None, :]",
        f"{x}[:{d.rng.randint(0, 3)}:{steps}]", f"{x}[0]", f"{x}[-1]", f"{x}[..., -1]", f"{x}[...]",
        f"{x}.diagonal()", f"{x}.diagonal({d.rng.randint(-1, 1)}, {a}, {b})", f"{x}.t()",
        f"{x}.T", f"{x}.mT",
        f"{x}.unfold({a}, {d.rng.randint(1, 3)}, {d.rng.randint(1, 2)})", f"{x}.detach()",
        f"{x}.expand({[-1, *shape]})" if d.chance(0.2) else f"{x}.expand({[2, *shape]})",
        f"{x}.expand({[3 if k == 1 else k for k in shape]})", f"{x}.expand_as({x})",
        f"{x}.broadcast_to({[2, *shape]})", f"{x}.unflatten({a}, {d.factors(size, 2)})",
        f"{x}.chunk(2, {a})[-1]", f"{x}.split({d.rng.randint(1, 2)}, {a})[0]",
        f"{x}.unbind({a})[-1]",
        f"{x}.tensor_split(2, {a})[0]", f"{x}.real", f"{x}.imag" if t.is_complex() else f"{x}.H",
        f"{x}.contiguous()", f"{x}.to({x}.dtype)", f"{x}.conj()", f"T.einsum('ij->ji', {x})",
        f"T.einsum('ii->i', {x})", f"{x}.swapdims({a}, {b})", f"T.atleast_2d({x})",
        f"T.adjoint({x})",
        f"T.view_as_real({x})", f"{x}.view({x}.dtype)", f"T.as_strided({x}, (2,), (1,))",
        f"{x}.hsplit(1)[0]",
        f"{x}.data", f"T.atleast_1d({x})", f"T.broadcast_tensors({x}, {x})[0]", f"{x}.flip({a})",
        f"{x}.roll(1, {a})", f"T.select({x}, {a}, {start})",
        f"T.squeeze({x}, {(a % n if n else 0,)})",
        f"{x}.type_as({x})", f"{x}.reshape_as({x})", f"{x}.float()", f"{x}.positive()",
    ]  # fmt: skip
    return d.choice(texts)


def known(d: Draw, text: str) -> bool:
    """Whether both have the name in ``v1.name`` or ``T.name``."""
    owner, _, rest = text.partition(".")
    name = rest.partition("(")[0].partition("[")[0]
    if not name.isidentifier():
        return True
    return d.has(name) if owner == "T" else d.has(f"Tensor.{name}")


def view(d: Draw) -> None:
    x = d.pick()
    text = view_text(d, x)
    if known(d, text):
        d.let(text, keep_errors=0.15)


def several(d: Draw) -> None:
    """All the parts of a tensor at once; they may be read but not written to."""
    x = d.pick()
    t = d[x]
    if t.dim() == 0:
        return
    a = d.dim(t, wrong=0)
    if not 1 < t.shape[a] < 4:
        return
    names = ", ".join(f"v{d.count + i}" for i in range(t.shape[a]))
    if d.add(
        f"{names} = {x}.{d.choice((f'unbind({a})', f'split(1, {a})', f'chunk({t.shape[a]}, {a})'))}"
    ):
        d.count += t.shape[a]


def writable(d: Draw) -> str | None:
    return d.pick(lambda x: not (x.requires_grad and x.is_leaf) or d.chance(0.05))


def operand(d: Draw, x: str) -> str:
    kind = d.rng.random()
    if kind < 0.4:
        return repr(d.number())
    if kind < 0.55:
        found = d.pick(lambda t: t.dim() <= d[x].dim())
        if found is not None:
            return found
    shape = list(d[x].shape)
    if d.chance(0.3):
        shape = [1 if d.chance(0.4) else k for k in shape][d.rng.randint(0, len(shape)) :]
    return d.leaf(shape)


def write(d: Draw) -> None:
    """An in-place operation, most often on a view."""
    x = writable(d)
    if x is None:
        return
    t, n = d[x], max(1, d[x].dim())
    a, b = d.dim(t), d.dim(t)
    kind = d.rng.random()
    if kind < 0.35:
        d.add(f"{x} {d.choice(('+', '-', '*', '/'))}= {operand(d, x)}")
    elif kind < 0.6:
        name = d.choice("add_ mul_ sub_ div_ copy_ fill_ pow_ clamp_min_ clamp_max_ atan2_".split())
        y = repr(d.choice((0, 1, 0.5, 2, -1.5))) if name in ("fill_", "pow_") else operand(d, x)
        if d.has(f"Tensor.{name}"):
            d.add(f"{x}.{name}({y})")
    elif kind < 0.9:
        mask = d.literal(list(t.shape), "bool")
        calls = [
            "zero_()", "neg_()", "sin_()", "tanh_()", "sigmoid_()", "exp_()", "square_()",
            "relu_()", "abs_()",
            "clamp_(-1, 1.5)", f"masked_fill_({mask}, 0.5)", "mul_(0.)", "sqrt_()", "cos_()",
            "log1p_()",
            f"index_fill_({a}, T.tensor([0]), 2.)", "tril_()", "triu_(1)",
            "addcmul_(T.tensor(2.), T.tensor(.5))",
            f"cumsum_({a})", "nan_to_num_()", "lerp_(T.tensor(1.), 0.25)",
            f"flatten().zero_() if {x}.dim() else 0",
            "view(-1).mul_(0.)", "detach().add_(1)", "data.mul_(2)", "requires_grad_()",
            "detach_()",
        ]  # fmt: skip
        call = d.choice(calls)
        if d.has(f"Tensor.{call.partition('(')[0].partition('.')[0]}"):
            d.add(f"{x}.{call}", keep_errors=0.2)
    else:
        call = d.choice((f"unsqueeze_({a})", "squeeze_()", f"transpose_({a}, {b})", "t_()",
        f"swapaxes_({a}, {b})",
                         f"squeeze_({a})"))  # fmt: skip
        if d.has(f"Tensor.{call.partition('(')[0]}") and n < 4:
            d.add(f"{x}.{call}", keep_errors=0.2)


def assign(d: Draw) -> None:
    """Assignment to a part: a basic index, sometimes of a view taken on the spot."""
    x = writable(d)
    if x is None or d[x].dim() == 0:
        return
    size = d[x].shape[0]
    index = d.choice(
        ("0", "-1", ":", "...", "1:", "::2", f":{size}", "..., 0", "..., ::2", "None", "..., -1:")
    )
    target = (
        x if d.chance(0.7) else f"{x}.{d.choice(('t()', 'view(-1)', 'reshape(-1)', 'T', 'mT'))}"
    )
    y = d.pick(lambda t: t.dim() < d[x].dim()) if d.chance(0.3) else None
    y = y or d.choice((repr(d.number()), "T.tensor(1.5)", f"{x}[{index}] * 2", f"{x}[{index}]"))
    sign = d.choice(("=", "=", "*=", "+="))
    d.add(f"{target}[{index}] {sign} {y}", keep_errors=0.3)


def use(d: Draw) -> None:
    """Compute something new, which saves what it is given."""
    x = d.pick(smooth)
    if x is None:
        return
    y = d.pick(lambda t: smooth(t) and list(t.shape) == list(d[x].shape))
    d.let(d.choice((f"{x} * {y}", f"{x} + {y}", f"{x}.sin()", f"{x} * {x}", f"{x}.sum()",
    f"{x}.exp()",
                    f"{x} / 2", f"{x}.sum(-1)", f"{x}.pow(2)",
                    f"{x}.relu()" if d[x].is_floating_point()
                    else f"{x} * 1j")), rough=True)  # fmt: skip
