"""Whole trainings: a model of several parts, an optimizer with any of its options, and what
programs do between steps: clip, accumulate, schedule, save and load, copy, average, edit, freeze.

In the end all is compared that a training has: losses, parameters, gradients and how they lie in
memory, and the states of optimizers, schedulers and scalers with their types and keys.
"""

from __future__ import annotations

from peers.generators.between import between
from peers.generators.draw import Draw
from peers.generators.models import model

START = """\
import copy, io
swa = T.nn.utils.swa if hasattr(T.nn.utils, 'swa') else T.optim.swa_utils
SWALR = getattr(T.optim.lr_scheduler, 'SWALR', None) or swa.SWALR
def numbers(m, nudge=0.0):
    nudge *= T.finfo(next(m.parameters()).dtype).eps
    with T.no_grad():
        for i, p in enumerate(m.parameters()):
            n = T.arange(p.numel(), dtype=T.float64) * 0.7 + i
            p.copy_(n.sin().reshape(tuple(p.shape)).mul(0.6 * (1 + nudge)).to(p.dtype))
    return m
def new(x, dtype):
    m = Net().to(dtype)
    if 'Lazy' in repr(m):
        held = [b.clone() for b in m.buffers()]
        m(x)
        for b, h in zip(m.buffers(), held): b.copy_(h)  # (of random numbers)
    return numbers(m)
def kept(x): return [None if p.grad is None else grad(p.grad) for p in x.parameters()]
def grad(g): return [g.is_sparse, *(sparse(g) if g.is_sparse else (g.detach().clone(),))]
def sparse(g): return g.is_coalesced(), g.coalesce().indices(), g.to_dense()
def state(o):
    out = o.state_dict()
    for s in out['state'].values():
        if 't' in s: s['t'] = float(s['t'])  # of L-BFGS: a number or a tensor
    return out
def shared(ps): return [[a.data_ptr() == b.data_ptr() for a in ps] for b in ps]
def again(f): return T.compile(f) if T.__name__ == 'disttrain' else f
"""
COMMON = {"maximize": ("True",), "foreach": ("True", "False")}
DECAY = {"weight_decay": ("0.1", "0.01")}
MOMENTS = {**COMMON, **DECAY, "betas": ("(0.8, 0.9)", "(0.5, 0.6)", "(0.0, 0.9)"),
           "eps": ("1e-3", "1e-6")}  # fmt: skip
ADAM = {**MOMENTS, "amsgrad": ("True",), "fused": ("True", "False")}
OPTIMIZERS = {
    "SGD": {**COMMON, **DECAY, "momentum": ("0.9", "0.5"), "dampening": ("0.2",),
            "nesterov": ("True",), "fused": ("True", "False")},
    "Adam": {**ADAM, "decoupled_weight_decay": ("True",)},
    "AdamW": ADAM,
    "NAdam": {**MOMENTS, "momentum_decay": ("0.1",), "decoupled_weight_decay": ("True",)},
    "RAdam": {**MOMENTS, "decoupled_weight_decay": ("True",)},
    "Adamax": MOMENTS,
    "RMSprop": {**COMMON, **DECAY, "momentum": ("0.9",), "centered": ("True",),
                "alpha": ("0.5",), "eps": ("1e-3",)},
    "Adagrad": {**COMMON, **DECAY, "lr_decay": ("0.1",), "initial_accumulator_value": ("0.5",),
                "eps": ("1e-4",), "fused": ("True",)},
    "Adadelta": {**COMMON, **DECAY, "rho": ("0.5",), "eps": ("1e-3",)},
    "ASGD": {**COMMON, **DECAY, "lambd": ("0.1",), "alpha": ("0.5",), "t0": ("1", "2.0")},
    "Rprop": {**COMMON, "etas": ("(0.4, 1.3)",), "step_sizes": ("(1e-3, 0.2)",)},
    "Adafactor": {**DECAY, "maximize": ("True",), "beta2_decay": ("-0.5",), "d": ("0.5",),
                  "eps": ("(None, 1e-2)", "(1e-6, 1e-2)"), "foreach": ("True", "False")},
    "LBFGS": {"max_iter": ("3", "5"), "history_size": ("2",), "tolerance_grad": ("1e-3",),
              "line_search_fn": ("'strong_wolfe'",)},
    "SparseAdam": {"betas": ("(0.8, 0.9)",), "eps": ("1e-3",), "maximize": ("True",)},
    "Muon": {**DECAY, "momentum": ("0.5",), "nesterov": ("False",), "ns_steps": ("3",),
             "adjust_lr_fn": ("'match_rms_adamw'", "'original'")},
}  # fmt: skip
SCHEDULERS = (
    "StepLR({o}, 2, 0.5)", "ExponentialLR({o}, 0.8)", "CosineAnnealingLR({o}, 3)",
    "LinearLR({o}, 0.2, total_iters=3)", "MultiStepLR({o}, [1, 3], 0.3)", "ConstantLR({o}, 0.5, 2)",
    "LambdaLR({o}, lambda e: 0.9 ** e)", "MultiplicativeLR({o}, lambda e: 0.9)",
    "OneCycleLR({o}, 0.1, total_steps=20)", "CyclicLR({o}, 0.01, 0.1, 2, cycle_momentum=False)",
    "CosineAnnealingWarmRestarts({o}, 2)", "PolynomialLR({o}, 4, 2.0)",
    "SequentialLR({o}, [T.optim.lr_scheduler.ConstantLR({o}, 0.1), "
    "T.optim.lr_scheduler.ExponentialLR({o}, 0.9)], [2])",
    "ChainedScheduler([T.optim.lr_scheduler.ConstantLR({o}, 0.1), "
    "T.optim.lr_scheduler.ExponentialLR({o}, 0.9)])",
)  # fmt: skip
LOSSES = (
    "F.mse_loss({y}, {t})", "F.smooth_l1_loss({y}, {t})", "F.huber_loss({y}, {t}, delta=0.5)",
    "({y} * {t}).sum()", "F.cross_entropy({y}, {c})", "F.nll_loss(F.log_softmax({y}, 1), {c})",
    "F.cross_entropy({y}, {c}, label_smoothing=0.1)", "F.l1_loss({y}, {t})",
    "F.binary_cross_entropy_with_logits({y}, {t}.sigmoid())",
    "F.kl_div(F.log_softmax({y}, 1), {t}.softmax(1), reduction='batchmean')",
    "F.cosine_embedding_loss({y}, {t}, T.ones({n}))", "T.nn.MSELoss(reduction='sum')({y}, {t})",
    "F.cross_entropy({y}, {t}.softmax(1))", "{y}.pow(2).mean().sqrt()",
)  # fmt: skip
CLIPS = (
    "clip_grad_norm_({p}, 0.5)", "clip_grad_value_({p}, 0.1)", "clip_grad_norm_({p}, 1.0, 1)",
    "clip_grad_norm_({p}, 0.3, float('inf'), foreach=False)", "get_total_norm({g})",
)  # fmt: skip


def nudged(line: str) -> str:
    """A statement that begins a training some roundings away."""
    return line.replace("nudge=0.0", "nudge=30.0")


class Training:
    """What a program has: names of its model, its optimizer and what else there is."""

    def __init__(self, d: Draw) -> None:
        self.d = d
        d.dtypes = ("float32",) if d.chance(0.2) else ("float64",)
        d.lines.append(START)
        exec(START, d.names)
        self.n = d.rng.randint(2, 4)
        self.made = model(d, self.n)
        self.model, self.x = self.made.name, self.made.input
        self.frozen = False
        self.schedule = self.scaler = self.average = None
        self.scheduling = ""
        self.loss, self.function = self._objective(), None

    def _objective(self) -> str:
        d = self.d
        target = d.literal([self.n, 2], d.dtypes[0])
        classes = f"T.tensor({[d.rng.randint(0, 1) for _ in range(self.n)]})"
        return d.choice(LOSSES).format(y="{y}", t=target, c=classes, n=self.n)

    def optimizer(self) -> str | None:
        """A new optimizer of the model, by its name."""
        d = self.d
        kinds = [k for k in OPTIMIZERS if d.has(f"optim.{k}") and k not in ("SparseAdam", "Muon")]
        if self.made.sparse:
            kinds = ["SGD", "SGD", "Adagrad", "SparseAdam"]
        self.kind = d.choice(kinds)
        known = OPTIMIZERS[self.kind]
        taken = d.rng.sample(list(known), d.rng.randint(0, min(3, len(known))))
        if "nesterov" in taken and self.kind == "SGD":
            taken = [*(k for k in taken if k not in ("dampening", "momentum")), "momentum"]
        if "nesterov" in taken and "foreach" in taken:
            taken.remove("foreach")  # (which leaves its sum in the peer's gradients)
        if {"foreach", "fused"} <= {*taken}:
            taken.remove("fused")
        options = {k: d.choice(known[k]) for k in taken}
        rate = str(d.choice((0.1, 0.01, 0.03)))
        if d.chance(0.15) and options.get("foreach") != "True" and self.kind != "LBFGS":
            rate = f"T.tensor({rate}, dtype=T.float64)"  # (the peer computes in its type)
        self.options = ", ".join([f"lr={rate}", *(f"{k}={v}" for k, v in options.items())])
        return self.named(d.let(self.made_of(self.model)))

    def named(self, opt: str | None) -> str | None:
        self.opt = opt
        return opt

    def made_of(self, m: str) -> str:
        """The text of the optimizer, for a model."""
        if not hasattr(self, "grouping"):
            self.grouping = self._grouping()
        return f"T.optim.{self.kind}({self.grouping.format(m=m)}, {self.options})"

    def _grouping(self) -> str:
        d = self.d
        forms = ["{m}.parameters()", "{m}.parameters()", "list({m}.parameters())"]
        if self.kind != "LBFGS":
            second = ", 'weight_decay': 0.2" if self.kind not in ("SparseAdam", "LBFGS") else ""
            forms += [
                "{m}.named_parameters()", "[p for p in {m}.parameters() if p.requires_grad]",
                "[{{'params': list({m}.parameters())[:1], 'lr': 0.02}}, "
                f"{{{{'params': list({{m}}.parameters())[1:]{second}}}}}]",
                "[{{'params': [p]}} for p in {m}.parameters()]",
            ]  # fmt: skip
        return d.choice(forms)

    # --- steps -----------------------------------------------------------------------------------

    def step(self) -> bool:
        """One step of one of the ways to make one; whether the program goes on."""
        d, kind = self.d, self.d.rng.random()
        if self.kind == "LBFGS" or kind < 0.12:
            return self._closure()
        times = 2 if d.chance(0.15) else 1
        ok = all(self._backward() for _ in range(times))
        if not ok:
            return False
        self._clip()
        if d.chance(0.15):
            d.let(f"kept({self.model})")
        if self.scaler:
            if d.chance(0.3):
                d.add(f"{self.scaler}.unscale_({self.opt})")
            ok = d.add(f"{self.scaler}.step({self.opt})") and d.add(f"{self.scaler}.update()")
        else:
            ok = d.add(f"{self.opt}.step()")
        if self.average and d.chance(0.7):
            d.add(f"{self.average}.update_parameters({self.model})")
        if self.schedule:
            d.add(f"{self.schedule}.step()")
        if d.chance(0.85):
            which = self.opt if d.chance(0.8) else self.model
            d.add(f"{which}.zero_grad({d.choice(('', '', 'set_to_none=False'))})")
        return ok

    def _backward(self) -> bool:
        d = self.d
        if self.function and d.chance(0.7):
            loss = d.let(f"{self.function}()", rough=True)
        elif self.kind == "SGD" and d.dtypes[0] == "float32" and d.chance(0.2):
            d.let("T.zeros(1, dtype=T.bfloat16)")  # (as exact as that is what follows)
            if not d.add(f"with T.autocast('cpu', dtype=T.bfloat16): y = {self.forward()}"):
                return False
            loss = d.let(self.loss.format(y="y.float()"), rough=True)
        else:
            y = d.let(self.forward(), rough=True)
            loss = y and d.let(self.loss.format(y=y), rough=True)
        if loss is None:
            return False
        return d.add(f"{self.scaler}.scale({loss}).backward()" if self.scaler
                     else f"{loss}.backward()")  # fmt: skip

    def forward(self) -> str:
        return f"{self.model}({self.x})"

    def _closure(self) -> bool:
        d, y = self.d, self.loss.format(y=self.forward())
        name = f"v{d.count}"
        d.count += 1
        body = f"{self.opt}.zero_grad(); l = {y}; l.backward(); return l"
        d.add(f"def {name}(): {body}")
        return d.let(f"{self.opt}.step({name})", rough=True) is not None

    def _clip(self) -> None:
        d, m = self.d, self.model
        if not d.chance(0.2):
            return
        gradients = f"[p.grad for p in {m}.parameters() if p.grad is not None]"
        form = d.choice(CLIPS)
        if self.made.sparse and ("value" in form or "inf" in form):
            return
        d.let(f"T.nn.utils.{form.format(p=m + '.parameters()', g=gradients)}")


def program(d: Draw) -> None:
    t = Training(d)
    if t.optimizer() is None:
        return
    if d.chance(0.5):
        t.scheduling = d.choice(SCHEDULERS)
        t.schedule = d.let(f"T.optim.lr_scheduler.{t.scheduling.format(o=t.opt)}")
    if d.chance(0.1) and t.kind not in ("LBFGS", "SparseAdam") and not t.made.sparse:
        t.scaler = d.let("T.amp.GradScaler('cpu', init_scale=8.0, growth_interval=2)")
    if d.chance(0.1):
        t.function = "f"
        d.add(f"f = again(lambda: {t.loss.format(y=t.forward())})")
    for _ in range(d.rng.randint(2, 5)):
        if not t.step():
            break
        if d.chance(0.6):
            between(t)
    finish(t)


def finish(t: Training) -> None:
    """Name all that is left, to be compared."""
    d = t.d
    d.let(f"dict({t.model}.state_dict())")
    d.let(f"kept({t.model})")
    d.let(f"state({t.opt})")
    d.let(f"[(p.requires_grad, p.is_leaf, list(p.stride())) for p in {t.model}.parameters()]")
    d.let(f"shared(list({t.model}.parameters()))")
    if t.schedule:
        names = "('last_epoch', 'base_lrs', '_last_lr', '_step_count', 'T_cur', 'T_i')"
        d.let(f"{{k: x for k, x in {t.schedule}.state_dict().items() if k in {names}}}")
    for other in (t.scaler, t.average):
        if other:
            d.let(f"dict({other}.state_dict())")
