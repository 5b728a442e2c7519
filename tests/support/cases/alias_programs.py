"""Random functions over one pool of tensors and their aliases, as text.

``text(seed)`` is a module with ``make()``, which gives (step, between, look) as ``support.agree``
wants them: the function reads and writes the pool under many names and returns some of them;
between calls the pool is changed from outside, results are written to, gradients run back.
"""

from __future__ import annotations

import random

HEAD = """
import numpy as np
import disttrain as dt
from disttrain import nn

def make():
    gen = dt.Generator().manual_seed({seed})
    rand = lambda *shape: dt.randn(*shape, generator=gen)
    lin = nn.Linear(3, 4)
    lin.register_buffer("center", rand(4, 3))
    with dt.no_grad():
        lin.weight.copy_(rand(4, 3)); lin.bias.copy_(rand(4))
    o = dt.optim.{optimizer}
    w = nn.Parameter(rand(4, 3))
    b, far = rand(4, 3), rand(30)
    s, d, e, v = b[1:3], b.detach(), b.data, far[2:14].view(4, 3)
    m = np.ones((4, 3), np.float32){numpy}
    held = []
    args = {args}
"""

# Tensors of shape (4, 3) that the function finds outside.
ROOTS = [
    "w", "w", "lin.weight", "lin.weight", "lin.center", "b", "b", "d", "e", "v", "x", "x", "y",
    "lin.state_dict()['weight']", "lin.state_dict()['center']",
    "dict(lin.named_parameters())['weight']",
    "next(iter(lin.parameters()))", "far[2:14].view(4, 3)", "far.as_strided((4, 3), (3, 1), 2)",
]  # fmt: skip
STATES = ["next(iter(o.state[lin.weight].values()))", "lin.weight.grad", "w.grad"]
SAME = [".detach()", ".data", ".detach().data", ".view(4, 3)", ".t().t()", "[:]", ".view_as(b)"]
PARTS = [
    "[1:3]", "[0]", "[:, 1]", ".t()", ".view(-1)", ".view(-1)[2:9:3]", ".T", ".diagonal()",
    ".narrow(0, 1, 2)", ".unsqueeze(0)", "[::2, 1:]", ".flatten()",
    ".as_strided((2, 2), (3, 1), 1)",
    ".reshape(2, 6)", ".unbind(0)[2]", ".chunk(2)[1]", ".view(dt.int32)",
]  # fmt: skip
NUMPY = ["dt.from_numpy({0}.detach().numpy())", "dt.from_numpy(m)", "dt.as_tensor(m)"]
WRITES = [
    "{0}.mul_(0.5)", "{0}.add_(1)", "{0}.sub_(2)", "{0}.zero_()", "{0}.fill_(3)", "{0}.neg_()",
    "{0}[0] = 2", "{0}[...] = {1}.sum()", "{0}.copy_({0} * 2)", "{0}.add_({1}.sum())",
    "{0}.clamp_(-1, 1)", "{0}.mul_({0}.detach().sum())",
]  # fmt: skip
PAIRS = ["{0}.copy_({1})", "{0}.lerp_({1}, 0.25)", "{0}.mul_(0.75).add_({1}, alpha=0.25)",
         "{0}.addcmul_({1}, {1}, value=0.5)", "{0}.add_({1})"]  # fmt: skip
TRAINING = [
    ["lin(x).square().sum().backward()", "o.step()", "o.zero_grad()"],
    ["(lin(x) * w.data.sum()).sum().backward()"], ["(w * w.detach()).sum().backward()"],
    ["w.grad = None"], ["o.zero_grad()"],
    ["g = dt.autograd.grad((w * b).sum() + (lin.weight ** 2).sum(), [w, lin.weight])",
     "out.append(g[1])"],
    ["g = dt.autograd.grad((w ** 3).sum(), [w], create_graph=True)", "out.append(g[0])"],
]  # fmt: skip
RECORDED = [
    "(x * {0}.detach()).sum()", "(w * {0}).sum()", "w + {0}.data", "({0} * {0}.detach()).sum(0)",
    "lin(x) + {0}.sum()",
]  # fmt: skip
OUTSIDE = [
    "b.add_(1)", "d.mul_(0.5)", "far.mul_(-1)", "lin.center.fill_(i)", "w.data = rand(4, 3)",
    "b.set_(rand(4, 3))", "v.set_(b)", "b.data = v.data", "lin.weight = nn.Parameter(rand(4, 3))",
    "w.requires_grad_(i % 2 == 0)", "lin.requires_grad_(i % 2 == 1)", "w.grad = None",
    "w.grad = rand(4, 3)", "lin.weight.data = w.data", "lin.center = rand(4, 3)", "m[1] = i",
    "lin.load_state_dict({k: t * 2 for k, t in lin.state_dict().items()})",
    "lin.center.resize_(5, 3).resize_(4, 3)", "s.zero_()", "d = b.detach()",
    "args = [args[1], args[0]]", "args[0] = rand(4, 3)", "args[1] = args[0]", "args[0] = b",
    "args[1] = args[0].data", "args[0] = rand(5, 3)[:4]", "args[1] = w.data",
    "args[0] = far[:12].view(4, 3)",
    "o.param_groups[0]['lr'] = 0.01 * i", "w.grad = lin.weight.grad", "b.t_().t_()",
    "args[0] = [b, *(t.detach() for r in held for t in r if t.shape == (4, 3))][-1]",
    "args[0] = [b, *(t for r in held for t in r if t.shape == (4, 3) and t.is_leaf)][-1]",
    "args[1] = b if lin.weight.grad is None else lin.weight.grad", "w.grad = b", "b = rand(4, 3)",
    "lin.weight.grad = w.data", "e = w.data", "v = lin.center[:]", "s.data = b[2:4]",
    "w = nn.Parameter(b.data)", "lin.bias.requires_grad_(i % 2 == 0)", "o.state.clear()",
]  # fmt: skip
ARGS = [
    "[rand(4, 3), rand(4, 3)]", "[rand(4, 3), rand(4, 3)]", "[b, rand(4, 3)]",
    "[rand(4, 3), w.data]",
    "[far[:12].view(4, 3), far[6:18].view(4, 3)]", "[v, v.data]",
    "(lambda t: [t, t.detach()])(rand(4, 3))",
    "(lambda t: [t[:4], t[1:]])(rand(5, 3))", "(lambda t: [t, t[:].view(4, 3)])(rand(4, 3))",
    "[rand(3, 4).t(), rand(4, 3)]", "[w, rand(4, 3)]", "[rand(4, 3), rand(1, 3).expand(4, 3)]",
    "[rand(4, 3).requires_grad_(), rand(4, 3)]",
]  # fmt: skip


class _Writer:
    """Draws the parts of one program."""

    def __init__(self, seed: int) -> None:
        self.r = random.Random(seed)
        self.seed, self.locals = seed, 0
        self.uses_numpy = self.r.random() < 0.06

    def whole(self) -> str:
        """A tensor of shape (4, 3)."""
        r = self.r
        if self.locals and r.random() < 0.3:
            root = f"t{r.randrange(self.locals)}"
        elif self.uses_numpy and r.random() < 0.2:
            return r.choice(NUMPY).format(r.choice(["w", "b"]))
        else:
            root = r.choice(ROOTS)
        for _ in range(r.choice([0, 1, 1, 1, 2])):
            root += r.choice(SAME)
        return root

    def place(self) -> str:
        """Any tensor."""
        found = self.whole()
        return found + self.r.choice(PARTS) if self.r.random() < 0.45 else found

    def float_place(self) -> str:
        """Any tensor of floats."""
        found = self.place()
        return found.replace(".view(dt.int32)", "")

    def statement(self) -> list[str]:
        """Lines under ``no_grad``."""
        r, kind = self.r, self.r.random()
        if kind < 0.18:
            line = f"t{self.locals} = {self.whole()}"
            self.locals += 1
            return [line]
        if kind < 0.42:
            return [r.choice(WRITES).format(self.float_place(), self.whole())]
        if kind < 0.58:
            return [r.choice(PAIRS).format(self.whole(), self.whole())]
        if kind < 0.62:
            return [f"{self.whole()}.view(dt.int32).bitwise_xor_(8)"]
        if kind < 0.66:
            state = r.choice(STATES)
            write = r.choice(WRITES).format(state + r.choice(SAME), self.whole())
            return [f"if o.state and {STATES[1]} is not None and {STATES[2]} is not None: {write}"]
        return [f"out.append({self.float_place()} * 2 + 1)"]

    def function(self) -> list[str]:
        """The lines of the function."""
        r, lines = self.r, ["out = []"]
        for _ in range(r.randint(2, 5)):
            kind = r.random()
            if kind < 0.1:
                lines += r.choice(TRAINING)
            elif kind < 0.2:
                lines.append(f"out.append({r.choice(RECORDED).format(self.whole())})")
            else:
                block = self.statement()
                lines += ["with dt.no_grad():", *(f"    {line}" for line in block)]
        ends = ["", ".detach()", ".data"]
        results = [f"{self.place()}{r.choice(ends)}" for _ in range(r.randint(0, 2))]
        return [*lines, f"return out + [{', '.join(results)}]"]

    def text(self) -> str:
        """The module."""
        r = self.r
        optimizer = r.choice(["SGD(lin.parameters(), lr=0.01, momentum=0.9)",
                              "Adam(lin.parameters(), lr=0.01)"])  # fmt: skip
        body = self.function()
        numpy = "; m = b.numpy()" if self.uses_numpy and r.random() < 0.5 else ""
        head = HEAD.format(seed=self.seed, optimizer=optimizer, numpy=numpy, args=r.choice(ARGS))
        changes = [r.choice(OUTSIDE) if r.random() < 0.6 else "pass" for _ in range(3)]
        use = r.choice(
            ["pass", "r[-1].detach().add_(1)", "r[0].data.mul_(2)", "back(r)", "back(r)"]
        )
        indent = "    "
        lines = [
            "def back(r):",
            "    found = [t for t in r if t.requires_grad and t.grad_fn is not None]",
            "    if found: sum(t.sum() for t in found).backward()",
            "def step(x, y):", *(f"    {line}" for line in body),
            "def between(i, step):",
            "    nonlocal b, s, d, e, v, w, args, held",
            "    try:",
            "        r = step(*args)",
            "        held.append(r)",
            f"        if r: {use}",
            "    except (dt.errors.DisttrainError, RuntimeError, ValueError) as error:",
            "        r = type(error).__name__",
            *[line for i, c in enumerate(changes) for line in
              (f"    if i == {i + 1}:", "        try:", "            with dt.no_grad():",
               f"                {c}", "        except dt.errors.DisttrainError: pass")],
            "    return r",
            "def look(): return [w, b, s, d, e, v, far, m, *lin.state_dict().values(),",
            "                    lin.weight.grad, *args, held,",
            "                    *(list(z.values()) for z in o.state.values())]",
            "return step, between, look",
        ]  # fmt: skip
        return head + "\n".join(indent + line for line in lines) + "\n"


def text(seed: int) -> str:
    """The program number ``seed``."""
    return _Writer(seed).text()
