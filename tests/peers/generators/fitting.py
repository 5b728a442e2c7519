"""Modules, optimizers and schedulers: training, then every parameter and state."""

from __future__ import annotations

from peers.generators.draw import Draw

ACTIVATIONS = "ReLU() Tanh() Sigmoid() GELU() SiLU() ELU() LeakyReLU(0.1) Softplus() Mish()".split()
OPTIMIZERS = {
    "SGD": ("", "momentum=0.9", "momentum=0.9, nesterov=True", "weight_decay=0.1",
    "momentum=0.5, dampening=0.2", "maximize=True"),
    "Adam": ("", "betas=(0.8, 0.9)", "weight_decay=0.1", "amsgrad=True", "eps=1e-3",
    "maximize=True"),
    "AdamW": ("", "weight_decay=0.2", "amsgrad=True", "betas=(0.5, 0.6)"),
    "RMSprop": ("", "momentum=0.9", "centered=True", "alpha=0.5, weight_decay=0.1"),
    "Adagrad": ("", "lr_decay=0.1", "initial_accumulator_value=0.5", "weight_decay=0.1"),
    "Adadelta": ("", "rho=0.5", "weight_decay=0.1"), "Adamax": ("", "weight_decay=0.1"),
    "NAdam": ("", "momentum_decay=0.1"), "RAdam": ("", "weight_decay=0.1"), "ASGD": ("",
    "lambd=0.1"),
    "Rprop": ("", "etas=(0.4, 1.3)"),
}  # fmt: skip
SCHEDULERS = (
    "StepLR({o}, 2, 0.5)", "ExponentialLR({o}, 0.8)", "CosineAnnealingLR({o}, 3)",
    "LinearLR({o}, 0.2, total_iters=3)",
    "MultiStepLR({o}, [1, 3], 0.3)", "ConstantLR({o}, 0.5, 2)", "PolynomialLR({o}, 4, 2.0)",
    "LambdaLR({o}, lambda e: 0.9 ** e)", "OneCycleLR({o}, 0.1, total_steps=5)",
    "CosineAnnealingWarmRestarts({o}, 2)",
)  # fmt: skip


def program(d: Draw) -> None:
    d.dtypes = ("float64",)  # steps of float32 divide rounding by rounding
    model, x, out = d.choice((dense, dense, image, sequence, recurrent))(d)
    if model is None:
        return
    if d.chance(0.3):
        d.add(
            f"for p in list({model}.parameters())[:{d.rng.randint(1, 2)}]: p.requires_grad_(False)"
        )
    if d.chance(0.3):
        d.add(
            f"{model}.register_forward_hook(lambda m, i, o: "
            + d.choice(("o * 2)", "log.append(o.detach()))", "None)"))
        )
    if d.chance(0.2):
        d.add(f"{model}.register_full_backward_hook(lambda m, gi, go: log.append(go))")
    train(d, model, x, out)


def modules(d: Draw, texts: list[str]) -> str | None:
    for text in texts:
        if not d.has(f"nn.{text.partition('(')[0]}"):
            return None
    return made(d, f"T.nn.Sequential({', '.join(f'T.nn.{text}' for text in texts)})")


def made(d: Draw, text: str) -> str | None:
    """A module in which both libraries have put the same numbers."""
    return d.let(f"fill({text}.to(T.{d.dtypes[0]}))")


def dense(d: Draw) -> tuple[str | None, str, str]:
    n, width = d.rng.randint(2, 4), d.choice((2, 4))
    bias = d.choice(("", ", bias=False"))
    texts = [f"Linear(3, {width}{bias})", d.choice(ACTIVATIONS)]
    texts += d.choice(([], [f"LayerNorm({width})"], [f"BatchNorm1d({width})"], ["Dropout(0.0)"],
                       [f"RMSNorm({width})"],
                       [f"BatchNorm1d({width}, momentum=None)"],
                       [f"BatchNorm1d({width}, affine=False)"]))  # fmt: skip
    if d.chance(0.6):
        texts += [f"Linear({width}, 2)"]
    return modules(d, texts), d.leaf([n, 3]), "{m}({x})"


def image(d: Draw) -> tuple[str | None, str, str]:
    # (No maxima: sums of these numbers are equal but for rounding.)
    texts = [
        f"Conv2d(2, 4, {d.rng.randint(1, 3)}, padding={d.chance(0.5):d}, groups={d.choice((1, 2))})"
    ]
    texts += d.choice(
        (
            [],
            ["BatchNorm2d(4)"],
            ["GroupNorm(2, 4)"],
            ["InstanceNorm2d(4, affine=True)"],
            ["AvgPool2d(2)"],
        )
    )
    texts += [d.choice(ACTIVATIONS)]
    texts += d.choice((["Flatten()"], ["AdaptiveAvgPool2d(1)",
    "Flatten()"], ["AvgPool2d(2)"], ["ConvTranspose2d(4, 1, 2)"],
                       ["Upsample(scale_factor=2)"]))  # fmt: skip
    return modules(d, texts), d.leaf([2, 2, 4, 4]), "{m}({x})"


def sequence(d: Draw) -> tuple[str | None, str, str]:
    layer = d.choice((
        "TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first={b}, norm_first={n})",
        "MultiheadAttention(4, 2, batch_first={b}, bias={n})",
    )).format(b=d.chance(0.5), n=d.chance(0.5))  # fmt: skip
    name = made(d, f"T.nn.{layer}")
    return name, d.leaf([2, 3, 4]), "{m}({x}, {x}, {x})[0]" if "Multi" in layer else "{m}({x})"


def recurrent(d: Draw) -> tuple[str | None, str, str]:
    kind = d.choice(("RNN", "GRU", "LSTM"))
    options = f"num_layers={d.rng.randint(1, 2)}, bidirectional={d.chance(0.3)}, "
    options += f"batch_first={d.chance(0.5)}, bias={d.chance(0.7)}"
    name = made(d, f"T.nn.{kind}(3, 2, {options})")
    return name, d.leaf([2, 3, 3]), "{m}({x})[0]"


def train(d: Draw, model: str, x: str, out: str) -> None:
    """Two to four steps; then what the model, the optimizer and its state have become."""
    # A bias before a normalisation or a softmax has gradient 0: of the noise there, the other
    # optimizers would make steps.
    noisy = any(word in line for word in ("Norm", "Attention", "Transf") for line in d.lines)
    kind = "SGD" if noisy else d.choice([k for k in OPTIMIZERS if d.has(f"optim.{k}")])
    options = d.choice(OPTIMIZERS[kind])
    if kind not in ("SGD", "ASGD", "Rprop") and "eps" not in options:
        options = ", ".join(filter(None, (options, "eps=1e-4")))  # (above the noise of sums)
    parameters = d.choice(
        (f"{model}.parameters()", f"[{{'params': list({model}.parameters()), 'lr': 0.02}}]")
    )
    opt = d.let(
        f"T.optim.{kind}({parameters}, lr={d.choice((0.1, 0.01, 0.5))}"
        + (f", {options})" if options else ")")
    )
    if opt is None:
        return
    schedule = None
    if d.chance(0.5):
        schedule = d.let(f"T.optim.lr_scheduler.{d.choice(SCHEDULERS).format(o=opt)}")
    forward = out.format(m=model, x=x)
    for step in range(d.rng.randint(2, 4)):
        y = d.let(forward, rough=True)
        if y is None:
            return
        target = d.literal(list(d[y].shape), d.dtypes[0])
        loss = d.let(d.choice((f"F.mse_loss({y}, {target})", f"({y} * {target}).sum()",
        f"F.smooth_l1_loss({y}, {target})",
                               f"{y}.pow(2).mean()")), rough=True)  # fmt: skip
        if loss is None or not d.add(f"{loss}.backward()"):
            return
        if d.chance(0.25):
            clip = d.choice(
                (
                    "clip_grad_norm_({p}, 0.5)",
                    "clip_grad_value_({p}, 0.1)",
                    "clip_grad_norm_({p}, 1.0, 1)",
                )
            )
            d.let(f"T.nn.utils.{clip.format(p=model + '.parameters()')}")
        d.add(f"{opt}.step()")
        if schedule:
            d.add(f"{schedule}.step()")
            d.let(f"{opt}.param_groups[0]['lr']")
        if d.chance(0.8):
            d.add(f"{opt}.zero_grad({d.choice(('', 'set_to_none=False'))})")
        if step == 0 and d.chance(0.2):
            d.add(f"{model}.{d.choice(('eval()', 'requires_grad_(True)', 'train(False)'))}")
    d.let(f"dict({model}.state_dict())")
    d.let(f"[p.grad for p in {model}.parameters()]")
    d.let(f"{opt}.state_dict()['state']")
    if schedule:
        d.let(f"{schedule}.get_last_lr()")
