"""What programs do between two steps of a training: each function adds its statements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

EDITS = (
    "with T.no_grad(): {p}.mul_(0.9)", "{p}.data.add_(0.1)", "{p}.data = {p}.data.clone()",
    "{p}.data = {p}.data * 0.5", "{p}.grad = None", "{p}.grad = T.ones_like({p})",
    "with T.no_grad(): {p}.copy_({p} * 0.5)", "{p}.data[..., :1] = 0.25", "{p}.detach().mul_(1.1)",
    "T.nn.init.constant_({p}, 0.3)", "{p}.data.clamp_(-0.5, 0.5)", "{p}.grad.mul_(0.5)",
    "{p}.data.copy_({p}.data.flip(0))", "with T.no_grad(): {p}.set_({p}.clone())",
)  # fmt: skip
HOOKS = (
    "{o}.register_step_pre_hook(lambda o, a, k: log.append('before'))",
    "{o}.register_step_post_hook(lambda o, a, k: log.append(o.param_groups[0]['params'][0]"
    ".detach().clone()))",
    "{p}.register_hook(lambda g: g * 0.5)",
    "{p}.register_post_accumulate_grad_hook(lambda p: log.append(p.grad.to_dense().clone()))",
    "{p}.register_post_accumulate_grad_hook(lambda p: (p.grad.mul_(0.5), None)[1])",
    "{m}.register_forward_hook(lambda m, i, o: o * 1.5)",
    "{m}.register_full_backward_hook(lambda m, gi, go: log.append(go[0].clone()))",
    "{o}.register_state_dict_post_hook(lambda o, s: log.append(sorted(s)) or None)",
)  # fmt: skip
COPIES = {
    "copy.deepcopy({m}.state_dict())": "copy.deepcopy({o}.state_dict())",
    "{m}.state_dict()": "{o}.state_dict()",
    "again_from({m}.state_dict())": "again_from({o}.state_dict())",
}
FILE = """\
def again_from(x):
    f = io.BytesIO(); T.save(x, f); f.seek(0)
    return T.load(f)
"""


def between(t: Any) -> None:
    """One of them."""
    ways: tuple[Callable, ...] = (
        _edit, _edit, _hook, _load, _load, _copy, _freeze, _rate, _group, _average, _mode, _clear,
        _load_model, _rewind,
    )  # fmt: skip
    t.d.choice(ways)(t)


def _parameter(t: Any) -> str:
    count = len(list(t.d[t.model].parameters()))
    return f"list({t.model}.parameters())[{t.d.rng.randrange(count)}]"


def _edit(t: Any) -> None:
    edit = t.d.choice(EDITS)
    if t.made.sparse and "grad" in edit:
        return
    p = f"v{t.d.count}"
    if t.d.let(_parameter(t).replace("list", "[*").replace("())[", "()][")) is None:
        return
    if t.d[p].grad is None and ".grad.mul_" in edit:
        return
    t.d.add(edit.format(p=p))
    t.d.add(f"del {p}")


def _hook(t: Any) -> None:
    p, form = _parameter(t), t.d.choice(HOOKS)
    if t.made.sparse and "{p}" in form and "to_dense" not in form:
        return
    t.d.add(form.format(p=p, o=t.opt, m=t.model))


def _load(t: Any) -> None:
    """Another model, of another type now and then, and another optimizer that go on."""
    d = t.d
    d.add(FILE)
    how = d.choice(list(COPIES))
    saved = d.let(how.format(m=t.model)), d.let(COPIES[how].format(o=t.opt))
    if d.chance(0.3) and d.dtypes[0] == "float64" and not t.function:
        d.dtypes = ("float32",)
        t.x = t.x.replace("T.float64", "T.float32")
        t.loss = t.loss.replace("T.float64", "T.float32")
    new = d.let(f"new({t.x}, T.{d.dtypes[0]})")
    if new is None or None in saved or not d.add(f"{new}.load_state_dict({saved[0]})"):
        return
    opt = d.let(t.made_of(new))
    if opt is None or not d.add(f"{opt}.load_state_dict(copy.deepcopy({saved[1]}))"):
        return
    _go_on(t, new, opt)


def _go_on(t: Any, model: str, opt: str) -> None:
    """With another model and optimizer."""
    t.model, t.opt, t.schedule, t.function = model, opt, None, None
    t.frozen = True


def _load_model(t: Any) -> None:
    d = t.d
    name = d.let(f"{{k: x.clone() * 0.5 if x.is_floating_point() else x for k, x in "
                 f"{t.model}.state_dict().items()}}")  # fmt: skip
    d.add(f"{t.model}.load_state_dict({name}{d.choice(('', ', assign=True', ', strict=False'))})")


def _rewind(t: Any) -> None:
    """The optimizer's own state, saved and loaded into it."""
    name = t.d.let(f"copy.deepcopy({t.opt}.state_dict())")
    if name and t.step():
        t.d.add(f"{t.opt}.load_state_dict(copy.deepcopy({name}))")


def _copy(t: Any) -> None:
    """Model and optimizer are copied together, or the model alone with an optimizer of its own."""
    d = t.d
    if d.chance(0.7):
        pair = d.let(f"copy.deepcopy(({t.model}, {t.opt}))")
        if pair is None:
            return
        _go_on(t, d.let(f"{pair}[0]"), d.let(f"{pair}[1]"))
        return
    new = d.let(f"copy.deepcopy({t.model})")
    opt = new and d.let(t.made_of(new))
    if opt:
        _go_on(t, new, opt)


def _freeze(t: Any) -> None:
    p = _parameter(t)
    t.d.add(f"{p}.requires_grad_({t.d.choice(('True', 'False'))})")


def _rate(t: Any) -> None:
    d = t.d
    kind = d.choice(("['lr'] = 0.05", "['lr'] *= 0.5", "['lr'] = T.tensor(0.02, dtype=T.float64)"))
    if ("foreach=True" in t.options and "tensor" in kind) or t.kind == "LBFGS":
        return
    d.add(f"{t.opt}.param_groups[-1]{kind}")


def _group(t: Any) -> None:
    """One more parameter, in a group of its own; it gets gradients from outside of the model."""
    d = t.d
    if t.kind == "LBFGS" or "named" in t.grouping or t.made.sparse or hasattr(t, "extra"):
        return
    if t.schedule and not t.scheduling.startswith(("StepLR", "ExponentialLR")):
        return  # (the others have something for every group)
    t.extra = f"v{d.count}"
    d.add(f"e = T.nn.Parameter(T.ones(2, 2, dtype=T.{d.dtypes[0]}))")
    d.add("e.grad = T.full_like(e, 0.5)")
    d.add(f"{t.opt}.add_param_group({{'params': [e], 'lr': 0.3}})")


def _average(t: Any) -> None:
    d = t.d
    if t.average or "Lazy" in str(d.lines[1]) or "weight_norm" in str(d.lines[1]):
        return
    how = d.choice((
        "", ", use_buffers=True", ", avg_fn=lambda a, p, n: 0.9 * a + 0.1 * p",
        ", multi_avg_fn=swa.get_ema_multi_avg_fn(0.8)",
    ))  # fmt: skip
    t.average = d.let(f"swa.AveragedModel({t.model}{how})")
    if t.average:
        d.add(f"{t.average}.update_parameters({t.model})")
        if d.chance(0.3) and t.kind != "LBFGS":
            d.let(f"SWALR({t.opt}, 0.05, 2)")


def _mode(t: Any) -> None:
    same = f"to(T.{t.d.dtypes[0]})"
    t.d.add(f"{t.model}.{t.d.choice(('eval()', 'train()', 'requires_grad_(True)', same))}")


def _clear(t: Any) -> None:
    t.d.add(f"{t.d.choice((t.opt, t.model))}.zero_grad({t.d.choice(('True', 'False'))})")
