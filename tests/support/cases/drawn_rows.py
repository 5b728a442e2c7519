"""Drawn programs of operations on rows (softmax, norms, losses) with elementwise ones around them,
sums over rows and products, and their gradients."""

from __future__ import annotations

import random

SHAPES = [
    (5, 6), (33, 7), (70, 40), (1, 9), (530, 5), (1030, 4), (2, 3, 16), (3, 40, 33), (2, 2, 3, 8),
    (40, 2), (64, 1), (17, 129),
]  # fmt: skip
EMPTY = [(0, 6), (4, 0), (2, 0, 3)]
F = "dt.nn.functional"
ROWS = [
    f"{F}.softmax({{a}}, -1)", f"{F}.log_softmax({{a}}, -1)", f"{F}.softmax({{a}} * {{n}}, -1)",
    f"{F}.layer_norm({{a}}, (C,), w, b)", f"{F}.layer_norm({{a}}, (C,), w)",
    f"{F}.layer_norm({{a}}, (C,))", f"{F}.layer_norm({{a}} + {{b}}, (C,), w, b)",
    f"{F}.rms_norm({{a}}, (C,), w)", f"{F}.rms_norm({{a}}, (C,))",
    f"{F}.linear({{a}}, m, b)", f"{F}.linear({F}.gelu({{a}}), m, b)", f"{F}.linear({{a}}, m)",
    f"{F}.softmax({{a}}.masked_fill({{b}} > 0, float('-inf')), -1)", f"{F}.softmax({{a}}, 0)",
    f"{F}.gelu({F}.layer_norm({{a}}, (C,), w, b)) + {{b}}",
]  # fmt: skip
ELEMENTS = [
    "{a} * {n}", "{a} + {b}", "{a} * {b}", "{a} - b", "{a} * w", f"{F}.gelu({{a}})",
    f"{F}.silu({{a}})", "{a}.relu()", "{a}.tanh()", "{a} + {a}.mean(-1, keepdim=True)",
    "dt.where({a} > {b}, {a}, {b})", "{a} * s", "{a} + r", "{a} / {n}", "{a}.exp()",
    "{a} + {a}.sum(0)", "{a}.detach() * {b}", "{a}.T.contiguous().T", "{a}.clone()",
    "{a} + {a}.amax(-1, keepdim=True)", "{a}.reshape({a}.shape)", "{a}.add_(1)",
]  # fmt: skip


def draw(seed, types=("f4", "f4", "f4", "f8", "bfloat16", "f2"), shapes=SHAPES):
    """The text of a function, the shapes, types and layouts of what it is given: x and y of one
    shape, w and b of its columns, a matrix m, s per row, r that repeats; and whether it has
    gradients."""
    rng = random.Random(seed)
    shape, kind = rng.choice(shapes), rng.choice(types)
    names, lines, grads = ["x", "y"], [f"    C = {shape[-1]}"], rng.random() < 0.8
    for i in range(rng.randint(1, 7)):
        rule = rng.choice(ROWS if rng.random() < 0.5 else ELEMENTS)
        if (".T" in rule and len(shape) != 2) or ("add_(" in rule and grads):
            rule = "{a} * {n}"
        a, b = rng.choice(names[-3:]), rng.choice(names)
        lines.append(f"    v{i} = {rule.format(a=a, b=b, n=rng.choice([2, 0.5, -1.5, 0.125]))}")
        names.append(f"v{i}")
    results = sorted({names[-1], *rng.sample(names[2:], rng.randint(0, min(2, len(names) - 2)))})
    source = ["def fn(x, y, w, b, m, s, r):", *lines]
    if grads:
        source.append(f"    total = sum((v * {rng.choice(['y', '1.5', 'v'])}).sum() for v in")
        source.append(f"                [{', '.join(results)}] if v.requires_grad)")
        source.append("    got = [t for t in (x, y, w, b, m, s, r) if t.requires_grad]")
        source.append("    gs = dt.autograd.grad(total, got, allow_unused=True)")
    source.append(f"    return [{', '.join(results)}{', *gs' if grads else ''}]")
    columns = shape[-1]
    repeated = shape[rng.randint(0, len(shape) - 1) :]
    kinds = [
        (shape, kind, rng.random() < 0.15),
        (shape, kind, rng.random() < 0.15),
        ((columns,), kind, False),
        ((columns,), kind, False),
        ((columns, columns), kind, False),
        ((*shape[:-1], 1), kind, False),
        (repeated, kind, False),
    ]
    return "\n".join(source), kinds, grads
