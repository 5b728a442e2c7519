"""Programs of tables whose gradients are sparse: looked into in several ways, with hooks, added,
scaled, copied, saved, clipped, stepped by optimizers, taken by ``autograd.grad``."""

from __future__ import annotations

from peers.generators.draw import Draw

START = """\
import copy, io
def look(g):  # what is sparse here may be dense there
    if g is None or not hasattr(g, 'is_sparse'): return g
    g = g.detach()
    return g.to_dense() if g.is_sparse else g.clone()
def rows(g):
    if not g.is_sparse: return g.clone()
    c = g.coalesce()
    return [g.is_coalesced(), g._nnz(), g.sparse_dim(), g.dense_dim(), c.indices(), c.values()]
def saved(x):
    b = io.BytesIO(); T.save(x, b); b.seek(0); return T.load(b)
"""
HOOKS = (
    "lambda g: log.append(look(g))", "lambda g: g * 2", "lambda g: g + g",
    "lambda g: g.clone()", "lambda g: -g", "lambda g: g / 2",
    "lambda g: None", "lambda g: g.detach()", "lambda g: g * 0.5 + g",
)  # fmt: skip
# Of a gradient; what has a result.
ASKED = (
    "look({g})", "look({g} + {g})", "look({g} * 2)", "look(2.0 * {g})", "look({g} / 4)",
    "look(-{g})", "look({g} - {g} * 0.5)", "{g}.sum()", "{g}.norm()", "look({g}.coalesce())",
    "look({g}.clone())", "look({g}.detach())", "look(saved({g}))",
    "look({g}.to_dense())", "{g}.abs().sum()", "look({g}.pow(2))",
    "look({g}.double())", "look({g}.to(T.float32))",
    "look({w}.detach() + {g})", "look(T.zeros_like({g}))", "look({g}.data)", "{g}.shape",
    "look({g}.add({g}, alpha=0.5))", "look(T.add({g}, {g}))", "look({g}.mul(T.tensor(2.0)))",
    "{g}.numel()", "len({g})", "look({g}.coalesce() * {g}.coalesce())",
    "look({g}.sqrt())", "look({g}.index_select(0, T.tensor([1, 0])))", "look({g}[1])",

    "look({g}.sum(0))", "look(T.cat([{g}, {g}]))", "look(T.stack([{g}, {g}]))",
    "look({g}.isnan())", "look({g}.to_sparse())",

    "{g}.dim()", "look({g}.to_dense().to_sparse())",
    "look({g}.to_dense().to_sparse(1))", "look({g}.float())", "look({g}.cpu())",
    "bool(({g}.to_dense() == 0).any())",
    "look({g}.resize_as_({g}))", "look({g}.unsqueeze(0))", "look({g}.neg())",
    "T.is_tensor({g})",
    "look({g}.div(2))", "look({g}.narrow(0, 0, 1))",
    "T.equal({g}.to_dense(), {g}.coalesce().to_dense())",
    "look({g}.sign())", "look({g}.abs())",
    "look({g}.sin())", "look({g}.zero_())",
)  # fmt: skip
# That change one.
CHANGED = (
    "{w}.grad = {g} * 2", "{w}.grad = {g}.coalesce()", "{w}.grad = {g}.clone()",
    "{w}.grad = saved({g})", "{g}.mul_(0.5)", "{g}.div_(2)",
    "{g}.zero_()", "{w}.grad = None", "{w}.grad = {w}.grad + {g}", "{g}.add_({g})",
    "{w}.grad += {g}", "{w}.grad *= 2", "{g}.detach_()", "{g}.copy_({g} * 3)", "{g}.neg_()",
    "{w}.grad.data = {g} * 3", "{g}._values().mul_(2)",
    "{w}.detach().add_({g})", "{w}.data.add_({g}, alpha=-0.1)",
    "{w}.data.sub_({g})", "{w}.grad /= 4",
    "{w}.grad = T.sparse_coo_tensor({g}._indices(), {g}._values() * 2, {g}.shape)",

    "{g}.sub_({g} * 0.5)", "{g}.add_({g}, alpha=2)",
    "h0 = {g}; {w}.grad = None", "h0 = {g}; {w}.grad = None", "{g}.add_(h0)",
    "{g}.sub_(h0, alpha=0.5)",
    "{g}.copy_(h0)", "{w}.grad = h0", "{w}.grad += h0", "{w}.grad = {g} + h0", "{g}.mul_(h0)",
    "h0.add_({g})", "{w}.grad = {w}.grad - h0", "{w}.grad = 0.5 * {g}", "{w}.grad = -{g}",
    "{w}.grad = {g} / 2", "{w}.grad.data = h0", "{w}.grad = {w}.grad.data",
    "{g}.to_dense(); {g}.add_(h0)",
    "{g}.to_dense(); {g}._values().mul_(2)", "{w}.grad = {g}.coalesce() + h0.coalesce()",
    "{w}.grad = {g}.mul(T.tensor(0.5))", "{g}.mul_(T.tensor(0.5))", "{g}.div_(T.tensor(2.0))",
)  # fmt: skip
MODELS = (
    "T.nn.Embedding({n}, 3, sparse=True)", "T.nn.Embedding({n}, 3, sparse=True, padding_idx=1)",
    "T.nn.Embedding({n}, 3, sparse=True, scale_grad_by_freq=True)",
    "T.nn.Embedding({n}, 3, sparse=True, max_norm=1.0)",
    "T.nn.EmbeddingBag({n}, 3, sparse=True, mode='sum')",
    "T.nn.EmbeddingBag({n}, 3, sparse=True)",
    "T.nn.EmbeddingBag({n}, 3, sparse=True, mode='sum', padding_idx=0)",
    "T.nn.EmbeddingBag({n}, 3, sparse=True, mode='mean', include_last_offset=True)",
    "T.nn.EmbeddingBag({n}, 3, sparse=True, mode='sum', scale_grad_by_freq=True)",
)  # fmt: skip
OPTIMIZERS = (
    "SGD({p}, lr=0.1)", "SGD({p}, lr=0.1, maximize=True)", "SGD({p}, lr=0.1, momentum=0.9)",
    "SGD({p}, lr=0.1, weight_decay=0.1)", "SGD({p}, lr=0.1, foreach=True)",
    "SGD({p}, lr=0.1, foreach=True, momentum=0.5)", "SGD({p}, lr=0.1, nesterov=True, momentum=0.5)",
    "Adagrad({p}, lr=0.1)", "Adagrad({p}, lr=0.1, lr_decay=0.2)", "Adagrad({p}, foreach=True)",
    "Adagrad({p}, lr=0.1, maximize=True)",
    "Adagrad({p}, lr=0.1, initial_accumulator_value=0.5)", "SparseAdam({p}, lr=0.1)",
    "SparseAdam({p}, lr=0.1, maximize=True)", "SparseAdam({p}, betas=(0.5, 0.6))",

)  # fmt: skip
CLIPS = (
    "clip_grad_norm_({p}, 0.5)", "clip_grad_norm_({p}, 100.0)", "clip_grad_norm_({p}, 0.5, 1)",
    "clip_grad_value_({p}, 0.1)", "clip_grad_norm_({p}, 0.5, error_if_nonfinite=True)",
    "clip_grad_norm_({p}, 0.5, float('inf'))", "clip_grad_norm_({p}, 0.5, foreach=False)",
    "clip_grads_with_norm_({p}, 0.5, T.tensor(2.0, dtype={w}.dtype))", "get_total_norm([{w}.grad])",
)  # fmt: skip


class Table:
    """The names of a module with a table, and what is made of it."""

    def __init__(self, d: Draw) -> None:
        self.d = d
        d.lines.append(START)
        exec(START, d.names)
        self.n = d.rng.randint(2, 5)
        made = d.choice(MODELS).format(n=self.n)
        self.bag, self.ended = "Bag" in made, "last_offset" in made
        self.dtype = d.choice(("float64", "float64", "float32"))
        d.add(f"m = fill({made}.to(T.{self.dtype})); w = m.weight", keep_errors=1)
        self.opt = False

    def input(self) -> str:
        d = self.d
        shape = d.choice(((1,), (3,), (4,), (2, 3), (0,)) if not self.bag else ((1, 2), (2, 3)))
        numbers = d.nested(shape, lambda: d.rng.randrange(self.n))
        text = f"T.tensor({numbers}, dtype=T.{d.choice(('int64', 'int64', 'int32'))})"
        if self.bag and d.chance(0.5):
            flat = [d.rng.randrange(self.n) for _ in range(5)]
            ends = sorted(d.rng.randint(0, 5) for _ in range(d.rng.randint(0, 2)))
            kind = d.choice(("int64", "int32"))
            ends = [0, *ends, *([5] if self.ended else [])]
            return f"T.tensor({flat}, dtype=T.{kind}), T.tensor({ends}, dtype=T.{kind})"
        return text

    def looked(self) -> str:
        d, x = self.d, self.input()
        out = f"m({x})"
        if not self.bag and d.chance(0.15):
            out = f"F.embedding({x}, w, sparse={True})"
        return out + d.choice(("", "", ".sin()", " * 2", ".pow(2)"))

    def loss(self) -> str:
        d = self.d
        parts = [f"{self.looked()}.sum()" for _ in range(d.choice((1, 1, 2)))]
        return " + ".join(parts)

    def step(self) -> None:
        d, kind = self.d, self.d.rng.random()
        if kind < 0.25:
            keep = d.choice(("", "", "retain_graph=True"))
            d.add(f"l = {self.loss()}; l.backward({keep})")
        elif kind < 0.3:
            d.add("l.backward()", keep_errors=0.1)
        elif kind < 0.36:
            option = d.choice(("", "", ", allow_unused=True"))
            d.let(f"look(T.autograd.grad({self.loss()}, w{option})[0])")
        elif kind < 0.42:
            how = d.choice(("register_hook", "register_post_accumulate_grad_hook"))
            hook = (
                d.choice(HOOKS) if how == "register_hook" else "lambda p: log.append(look(p.grad))"
            )
            d.add(f"h = w.{how}({hook})")
        elif kind < 0.45:
            d.add("h.remove()", keep_errors=0.0)
        elif kind < 0.6:
            d.let(d.choice(ASKED).format(g="w.grad", w="w"))
        elif kind < 0.72:
            d.add(d.choice(CHANGED).format(g="w.grad", w="w"))
        elif kind < 0.76:
            d.let("T.nn.utils." + d.choice(CLIPS).format(p="m.parameters()", w="w"))
        elif kind < 0.8:
            self.opt = d.add(f"o = T.optim.{d.choice(OPTIMIZERS).format(p='m.parameters()')}")
        elif kind < 0.93 and self.opt:
            d.add("o.step()")
        elif kind < 0.95:
            d.add(d.choice(("m.zero_grad()", "m.zero_grad(set_to_none=False)")))
        elif kind < 0.97 and self.opt:
            d.add("s = saved(o.state_dict()); o.load_state_dict(s)")
        elif kind < 0.98:
            d.add("m = copy.deepcopy(m); w = m.weight")
        else:
            d.add(d.choice(("w.requires_grad_()", "w.data.mul_(0.5)")))


def program(d: Draw) -> None:
    t = Table(d)
    t.opt = d.chance(0.6) and d.add(
        f"o = T.optim.{d.choice(OPTIMIZERS).format(p='m.parameters()')}"
    )
    for _ in range(d.rng.randint(3, 9)):
        t.step()
    d.let("[w.detach().clone(), look(w.grad), w.requires_grad]")
    if t.opt:
        d.let("[{k: look(x) if hasattr(x, 'is_sparse') else x for k, x in s.items()} "
              "for s in o.state_dict()['state'].values()]")  # fmt: skip
