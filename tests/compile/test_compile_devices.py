"""Compiled functions of a device's tensors, on the double: the bits of eager runs, step by step."""

import pytest

import disttrain as dt
from disttrain import nn, optim

pytestmark = pytest.mark.usefixtures("double")
F = nn.functional
MODES = [None, "reduce-overhead"]


def trained(mode, compiled=True, steps=10, dropout=0.3, make=None, amp=False):
    """Losses, weights and gradients of a few steps with a schedule, clipping and dropout."""
    dt.manual_seed(0)
    layers = [nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Dropout(dropout), nn.Linear(8, 3)]
    model = nn.Sequential(*layers).cuda()
    params = list(model.parameters())
    optimizer = (make or (lambda p: optim.AdamW(p, lr=0.01)))(params)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)

    def step(x, y):
        optimizer.zero_grad()
        with dt.autocast("cuda", dt.bfloat16, enabled=amp):
            loss = F.mse_loss(model(x), y)
        loss.backward()
        nn.utils.clip_grad_norm_(params, 1.0)
        optimizer.step()
        return loss

    run = dt.compile(step, mode=mode) if compiled else step
    numbers = dt.Generator().manual_seed(3)
    losses = []
    for _ in range(steps):
        x, y = (dt.randn(4, n, generator=numbers).cuda() for n in (6, 3))
        losses.append(run(x, y))
        schedule.step()
    kept = [*losses, *params, *[p.grad for p in params]]
    return [t.detach().cpu().tolist() for t in kept], run


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_training_step_is_the_eager_one(mode, amp):
    got, run = trained(mode, amp=amp)
    assert got == trained(mode, compiled=False, amp=amp)[0]
    assert len(run.graphs) == 2 and not run.eager, run.explain()


OPTIMIZERS = [
    lambda p: optim.SGD(p, lr=0.1),
    lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    lambda p: optim.AdamW([{"params": p[:2]}, {"params": p[2:], "lr": 0.1}], amsgrad=True),
    lambda p: optim.NAdam(p),
    lambda p: optim.RMSprop(p, centered=True),
    lambda p: optim.Adafactor(p),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("number", range(len(OPTIMIZERS)))
def test_optimizers(number, mode):
    make = OPTIMIZERS[number]
    got, run = trained(mode, steps=5, make=make)
    assert got == trained(mode, compiled=False, steps=5, make=make)[0], run.explain()
    assert not run.eager, run.explain()
