"""Programs that train as they should, most of them in ways that look odd: nothing is to be found.

Each row of ``PROGRAMS`` is a function without arguments, named after what it does. They are small
forms of public programs (PyTorch's examples and tutorials) and of common recipes.
"""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable
from typing import Any

import disttrain as dt
from disttrain import nn
from disttrain.data import DataLoader, Dataset, TensorDataset
from disttrain.nn import functional as F
from disttrain.nn.utils import clip_grad_norm_
from disttrain.optim import lr_scheduler as schedules

from .sanitized import Net, batch

PROGRAMS: list[Callable[[], Any]] = []
STEPS = 45  # more than any check waits for


def program(fn: Callable[[], Any]) -> Callable[[], Any]:
    """Add a row."""
    PROGRAMS.append(fn)
    return fn


def mlp(*sizes: int, act: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), act()]
    return nn.Sequential(*layers[:-1])


def sgd(*modules: nn.Module, lr: float = 0.01, **how: Any) -> dt.optim.SGD:
    return dt.optim.SGD([p for m in modules for p in m.parameters()], lr=lr, **how)


@program
def mnist():
    model, data = Net(), TensorDataset(*batch(64))
    optimizer = dt.optim.Adadelta(model.parameters(), lr=1.0)
    scheduler = schedules.StepLR(optimizer, step_size=1, gamma=0.7)
    for _ in range(4):
        model.train()
        for x, y in DataLoader(data, batch_size=8, shuffle=True):
            optimizer.zero_grad()
            F.nll_loss(F.log_softmax(model(x), 1), y).backward()
            optimizer.step()
        model.eval()
        with dt.no_grad():
            [F.nll_loss(F.log_softmax(model(x), 1), y).item() for x, y in DataLoader(data, 16)]
        scheduler.step()


@program
def imagenet_with_meters_and_warm_up():
    model = Net()
    optimizer = sgd(model, momentum=0.9, weight_decay=1e-4)
    scheduler = schedules.LambdaLR(optimizer, lambda e: min(1.0, e / 10))
    total = 0.0
    for _ in range(STEPS):
        x, y = batch()
        loss = F.cross_entropy(model(x), y)
        total += loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()


@program
def one_cycle_per_batch():
    model = Net()
    optimizer = sgd(model)
    scheduler = schedules.OneCycleLR(optimizer, 0.1, epochs=3, steps_per_epoch=15)
    for _ in range(STEPS):
        x, y = batch()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()


@program
def variational_autoencoder():
    encode, decode = mlp(8, 16, 4), mlp(2, 16, 8)
    optimizer = dt.optim.Adam([*encode.parameters(), *decode.parameters()], lr=1e-3)
    for _ in range(STEPS):
        x = dt.rand(8, 8)
        mu, log = encode(x).chunk(2, 1)
        z = mu + dt.randn(8, 2) * (0.5 * log).exp()
        loss = F.binary_cross_entropy(decode(z).sigmoid(), x, reduction="sum")
        loss = loss - 0.5 * (1 + log - mu.pow(2) - log.exp()).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program
def dcgan():
    g = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8), nn.Tanh())
    d = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.LeakyReLU(0.2), nn.Linear(16, 1))
    steps = [dt.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (d, g)]
    ones, zeros = dt.ones(8, 1), dt.zeros(8, 1)
    fixed = dt.randn(8, 4)
    for i in range(STEPS):
        d.zero_grad()
        F.binary_cross_entropy_with_logits(d(dt.randn(8, 8)), ones).backward()
        fake = g(dt.randn(8, 4))
        F.binary_cross_entropy_with_logits(d(fake.detach()), zeros).backward()
        steps[0].step()
        g.zero_grad()
        F.binary_cross_entropy_with_logits(d(fake), ones).backward()
        steps[1].step()
        if i % 10 == 0:
            with dt.no_grad():
                g(fixed)  # in training mode, as in the original


@program
def wasserstein_gan_with_a_gradient_penalty():
    g, d = mlp(4, 16, 8), mlp(8, 16, 1)
    opt_g, opt_d = (dt.optim.Adam(m.parameters(), lr=1e-4) for m in (g, d))
    for _ in range(12):
        for _ in range(5):
            real = dt.randn(8, 8)
            with dt.no_grad():
                fake = g(dt.randn(8, 4))
            opt_d.zero_grad()
            mixed = (real + fake).div(2).requires_grad_()
            (grad,) = dt.autograd.grad(d(mixed).sum(), mixed, create_graph=True)
            (d(fake).mean() - d(real).mean() + (grad.norm(2, 1) - 1).pow(2).mean()).backward()
            opt_d.step()
        for p in d.parameters():
            p.requires_grad_(False)
        opt_g.zero_grad()
        d(g(dt.randn(8, 4))).mean().neg().backward()
        opt_g.step()
        for p in d.parameters():
            p.requires_grad_(True)


@program
def discriminator_in_evaluation_mode_for_the_generator():
    g, d = mlp(4, 16, 4), Net()
    opt_g, opt_d = sgd(g), sgd(d)
    for _ in range(STEPS):
        d.train()
        opt_d.zero_grad()
        F.cross_entropy(d(g(dt.randn(8, 4)).detach()), batch()[1]).backward()
        opt_d.step()
        d.eval()
        opt_g.zero_grad()
        F.cross_entropy(d(g(dt.randn(8, 4))), batch()[1]).backward()
        opt_g.step()


@program
def word_language_model():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.drop = nn.Dropout(0.2)
            self.encoder, self.rnn = nn.Embedding(20, 8), nn.LSTM(8, 8, 2, dropout=0.2)
            self.decoder = nn.Linear(8, 20)
            self.decoder.weight = self.encoder.weight  # tied

        def forward(self, x, hidden):
            out, hidden = self.rnn(self.drop(self.encoder(x)), hidden)
            return self.decoder(self.drop(out)), hidden

    model = Model()
    hidden = (dt.zeros(2, 4, 8), dt.zeros(2, 4, 8))
    for _ in range(STEPS):  # updates by hand
        x = dt.randint(0, 20, (6, 4))
        hidden = tuple(h.detach() for h in hidden)
        model.zero_grad()
        out, hidden = model(x, hidden)
        F.cross_entropy(out.view(-1, 20), x.view(-1)).backward()
        clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-0.1)


@program
def transformer_language_model():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    model, head = nn.TransformerEncoder(layer, 2), nn.Linear(8, 5)
    optimizer = dt.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-3)
    mask = nn.Transformer.generate_square_subsequent_mask(6)
    for _ in range(STEPS):
        x = dt.randn(4, 6, 8)
        optimizer.zero_grad()
        out = head(model(x, mask=mask, is_causal=True))
        F.cross_entropy(out.reshape(-1, 5), dt.randint(0, 5, (24,))).backward()
        optimizer.step()


@program
def reinforce():
    policy = nn.Sequential(nn.Linear(4, 16), nn.Dropout(0.6), nn.ReLU(), nn.Linear(16, 2))
    optimizer = dt.optim.Adam(policy.parameters(), lr=1e-2)
    for _ in range(12):
        saved = []
        for _ in range(30):
            log = policy(dt.randn(1, 4)).log_softmax(1)
            saved.append(log[0, int(dt.multinomial(log.exp(), 1))])
        returns = dt.randn(30)
        optimizer.zero_grad()
        dt.stack([-log * r for log, r in zip(saved, returns)]).sum().backward()
        optimizer.step()


@program
def actor_critic():
    base, actor, critic = nn.Linear(4, 16), nn.Linear(16, 2), nn.Linear(16, 1)
    optimizer = dt.optim.Adam([*base.parameters(), *actor.parameters(), *critic.parameters()])
    for _ in range(STEPS):
        h = base(dt.randn(8, 4)).relu()
        value, log = critic(h)[:, 0], actor(h).log_softmax(1)[:, 0]
        returns = dt.randn(8)
        advantage = returns - value.detach()
        optimizer.zero_grad()
        (-(log * advantage).mean() + F.smooth_l1_loss(value, returns)).backward()
        optimizer.step()


@program
def deep_q_learning():
    policy = mlp(4, 16, 2)
    target = copy.deepcopy(policy)
    optimizer = dt.optim.AdamW(policy.parameters(), lr=1e-4, amsgrad=True)
    for _ in range(STEPS):
        with dt.no_grad():
            for _ in range(10):
                policy(dt.randn(1, 4)).max(1)
            wanted = target(dt.randn(8, 4)).max(1)[0] * 0.99 + dt.randn(8)
        found = policy(dt.randn(8, 4)).gather(1, dt.randint(0, 2, (8, 1)))
        optimizer.zero_grad()
        F.smooth_l1_loss(found, wanted.unsqueeze(1)).backward()
        optimizer.step()
        state = target.state_dict()
        for key, value in policy.state_dict().items():
            state[key] = value * 0.005 + state[key] * 0.995
        target.load_state_dict(state)


@program
def deep_deterministic_policy_gradient():
    actor, critic = mlp(4, 8, 2), mlp(6, 8, 1)
    opt_a, opt_c = sgd(actor), sgd(critic)
    for _ in range(STEPS):
        s = dt.randn(8, 4)
        opt_c.zero_grad()
        with dt.no_grad():
            a = actor(s)
        critic(dt.cat([s, a], 1)).pow(2).mean().backward()
        opt_c.step()
        opt_a.zero_grad()
        critic(dt.cat([s, actor(s)], 1)).mean().neg().backward()  # fills the critic's gradients
        opt_a.step()


@program
def proximal_policy_optimisation():
    model = mlp(4, 16, 2, act=nn.Tanh)
    optimizer = dt.optim.Adam(model.parameters(), lr=3e-4, eps=1e-5)
    for _ in range(6):
        with dt.no_grad():
            states = dt.randn(64, 4)
            old = model(states).log_softmax(1)[:, 0]
        for _ in range(8):
            ratio = (model(states).log_softmax(1)[:, 0] - old).exp()
            loss = -dt.minimum(ratio, ratio.clamp(0.8, 1.2)).mean()
            optimizer.zero_grad()
            loss.backward()
            clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()


@program
def siamese_network():
    model = Net()
    optimizer = dt.optim.Adadelta(model.parameters())
    loss = nn.TripletMarginLoss()
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss(*[model(batch()[0]) for _ in range(3)]).backward()
        optimizer.step()


@program
def time_sequence_prediction():
    cell, head = nn.LSTMCell(1, 8), nn.Linear(8, 1)
    optimizer = dt.optim.LBFGS([*cell.parameters(), *head.parameters()], lr=0.8, max_iter=5)
    data = dt.sin(dt.arange(12).float()).repeat(3, 1)

    def run(x):
        h, c, outs = dt.zeros(3, 8), dt.zeros(3, 8), []
        for t in x.split(1, dim=1):
            h, c = cell(t, (h, c))
            outs.append(head(h))
        return dt.cat(outs, 1)

    for _ in range(12):

        def closure():
            optimizer.zero_grad()
            loss = F.mse_loss(run(data[:, :-1]), data[:, 1:])
            loss.backward()
            return loss

        optimizer.step(closure)
        with dt.no_grad():
            run(data)


@program
def style_transfer():
    features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)).eval()
    image = dt.randn(1, 3, 8, 8, requires_grad=True)
    optimizer = dt.optim.LBFGS([image], max_iter=4)
    with dt.no_grad():
        wanted = features(dt.randn(1, 3, 8, 8))
    for _ in range(12):

        def closure():
            optimizer.zero_grad()
            with dt.no_grad():
                image.clamp_(0, 1)
            loss = F.mse_loss(features(image), wanted)
            loss.backward()
            return loss

        optimizer.step(closure)


@program
def adversarial_attack():
    model = Net().eval()
    for _ in range(STEPS):
        x, y = batch()
        x.requires_grad = True
        loss = F.nll_loss(model(x).log_softmax(1), y)
        model.zero_grad()
        loss.backward()
        model(x + 0.1 * x.grad.sign())


@program
def transfer_learning():
    model = Net()
    for p in model.parameters():
        p.requires_grad = False
    model.last = nn.Linear(16, 3)
    optimizer = dt.optim.SGD(model.last.parameters(), lr=0.01, momentum=0.9)
    for _ in range(STEPS):
        x, y = batch()
        optimizer.zero_grad()
        with dt.set_grad_enabled(True):
            F.cross_entropy(model(x), y).backward()
        optimizer.step()


@program
def adapters_of_low_rank():
    class Adapted(nn.Module):
        def __init__(self, base):
            super().__init__()
            self.base = base.requires_grad_(False)
            self.down, self.up = nn.Linear(4, 2, bias=False), nn.Linear(2, 3, bias=False)
            nn.init.zeros_(self.up.weight)

        def forward(self, x):
            return self.base(x) + self.up(self.down(x))

    model = Adapted(nn.Linear(4, 3))
    optimizer = dt.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-3)
    for _ in range(STEPS):
        x, y = batch()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@program
def accumulated_gradients():
    model = Net()
    optimizer = sgd(model)
    scheduler = schedules.CosineAnnealingLR(optimizer, STEPS)
    for i in range(4 * STEPS):
        x, y = batch()
        (F.cross_entropy(model(x), y) / 4).backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad(set_to_none=False)
            scheduler.step()


@program
def several_losses_and_a_graph_that_is_kept():
    body, heads = nn.Linear(4, 8), [nn.Linear(8, 1) for _ in range(3)]
    optimizer = sgd(body, *heads)
    for _ in range(STEPS):
        h = body(dt.randn(8, 4)).tanh()
        optimizer.zero_grad()
        for head in heads:
            head(h).mean().backward(retain_graph=True)
        optimizer.step()


@program
def mixed_precision():
    model = Net()
    optimizer = sgd(model)
    scaler = dt.amp.GradScaler("cpu", init_scale=2.0**14)
    scheduler = schedules.StepLR(optimizer, 10)
    for _ in range(STEPS):
        x, y = batch()
        optimizer.zero_grad(set_to_none=True)
        with dt.autocast("cpu", dtype=dt.bfloat16):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()


@program
def averages_of_weights():
    model = Net()
    average = dt.optim.swa_utils.AveragedModel(model) if hasattr(dt.optim, "swa_utils") else None
    average = average or copy.deepcopy(model).requires_grad_(False)
    optimizer = sgd(model)
    for _ in range(STEPS):
        x, y = batch()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
        with dt.no_grad():
            for a, p in zip(average.parameters(), model.parameters()):
                a.mul_(0.99).add_(p, alpha=0.01)
            average(x)


@program
def mean_teacher():
    student = Net()
    teacher = copy.deepcopy(student).requires_grad_(False)
    optimizer = sgd(student)
    for _ in range(STEPS):
        x, y = batch()
        with dt.no_grad():
            wanted = teacher(x)  # in training mode, with dropout
        optimizer.zero_grad()
        out = student(x)
        (F.cross_entropy(out, y) + F.mse_loss(out.softmax(1), wanted.softmax(1))).backward()
        optimizer.step()


@program
def a_network_that_teaches_itself():
    online, head = Net(), mlp(3, 8, 3)
    target = copy.deepcopy(online)
    optimizer = sgd(online, head)
    for _ in range(STEPS):
        x = dt.randn(8, 4)
        loss = F.mse_loss(head(online(x)), target(x).detach())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program
def meta_learning():
    model = mlp(1, 16, 1)
    meta = dt.optim.Adam(model.parameters(), lr=1e-3)
    for _ in range(15):
        meta.zero_grad()
        for _ in range(3):
            fast = dict(model.named_parameters())
            for _ in range(3):
                x = dt.randn(8, 1)
                loss = F.mse_loss(dt.func.functional_call(model, fast, (x,)), x.sin())
                grads = dt.autograd.grad(loss, list(fast.values()), create_graph=True)
                fast = {n: p - 0.01 * g for (n, p), g in zip(fast.items(), grads)}
            x = dt.randn(8, 1)
            F.mse_loss(dt.func.functional_call(model, fast, (x,)), x.sin()).backward()
        meta.step()


@program
def reptile():
    model = mlp(1, 16, 1)
    for _ in range(8):
        before = {k: v.clone() for k, v in model.state_dict().items()}
        inner = sgd(model)
        for _ in range(5):
            x = dt.randn(8, 1)
            inner.zero_grad()
            F.mse_loss(model(x), x.sin()).backward()
            inner.step()
        after = model.state_dict()
        model.load_state_dict({k: before[k] + 0.1 * (after[k] - before[k]) for k in before})


@program
def sharpness_aware_minimisation():
    model = Net(norm=False)
    optimizer = sgd(model)
    for _ in range(STEPS):
        x, y = batch()
        F.cross_entropy(model(x), y).backward()
        with dt.no_grad():
            moves = [0.05 * p.grad / (p.grad.norm() + 1e-12) for p in model.parameters()]
            for p, m in zip(model.parameters(), moves):
                p.add_(m)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        with dt.no_grad():
            for p, m in zip(model.parameters(), moves):
                p.sub_(m)
        optimizer.step()
        optimizer.zero_grad()


@program
def gradients_that_are_set_by_hand():
    model = Net()
    optimizer = sgd(model)
    for _ in range(STEPS):
        found = []
        for _ in range(2):
            x, y = batch()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            found.append([p.grad.clone() for p in model.parameters()])
        optimizer.zero_grad()
        for p, a, b in zip(model.parameters(), *found):
            p.grad = (a + b) / 2
        optimizer.step()


@program
def an_optimizer_step_in_backward():
    model = Net()
    steps = {p: dt.optim.SGD([p], lr=0.01) for p in model.parameters()}

    def hook(p):
        steps[p].step()
        steps[p].zero_grad()

    for p in model.parameters():
        p.register_post_accumulate_grad_hook(hook)
    for _ in range(STEPS):
        x, y = batch()
        F.cross_entropy(model(x), y).backward()


@program
def truncated_backward_through_time():
    cell, head = nn.GRUCell(4, 8), nn.Linear(8, 3)
    optimizer = sgd(cell, head)
    h = dt.zeros(8, 8)
    for _ in range(STEPS):
        h, loss = h.detach(), dt.zeros(())
        for _ in range(4):
            x, y = batch()
            h = cell(x, h)
            loss = loss + F.cross_entropy(head(h), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program
def checkpointed_layers():
    layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
    head = nn.Linear(4, 3)
    optimizer = sgd(layers, head)
    for _ in range(STEPS):
        x, y = batch()
        for layer in layers:
            x = dt.autograd.checkpoint(layer, x) if hasattr(dt.autograd, "checkpoint") else layer(x)
        optimizer.zero_grad()
        F.cross_entropy(head(x), y).backward()
        optimizer.step()


@program
def layers_trained_one_after_the_other():
    """Each by a loss of its own: the forward-forward algorithm."""
    layers = [nn.Linear(4, 8), nn.Linear(8, 8)]
    steps = [dt.optim.Adam(m.parameters(), lr=0.03) for m in layers]
    x, other = dt.randn(32, 4), dt.randn(32, 4)
    for layer, optimizer in zip(layers, steps):
        for _ in range(STEPS):
            good = layer(x).relu().pow(2).mean(1)
            bad = layer(other).relu().pow(2).mean(1)
            loss = F.softplus(dt.cat([2 - good, bad - 2])).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        x, other = layer(x).relu().detach(), layer(other).relu().detach()


@program
def a_part_that_is_trained_first():
    class Auto(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder, self.decoder, self.head = mlp(4, 8), mlp(8, 4), nn.Linear(8, 3)

        def forward(self, x):
            return self.head(self.encoder(x).relu())

    model = Auto()
    optimizer = sgd(model)
    for i in range(2 * STEPS):
        x, y = batch()
        if i < STEPS:
            loss = F.mse_loss(model.decoder(model.encoder(x)), x)
        else:
            loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@program
def a_mixture_of_experts():
    experts, gate = nn.ModuleList([nn.Linear(4, 3) for _ in range(6)]), nn.Linear(4, 6)
    optimizer = sgd(experts, gate)
    for _ in range(STEPS):
        x, y = batch(4)
        weights = gate(x).softmax(1)
        best = weights.argmax(1).tolist()
        out = dt.stack([experts[k](row) * w[k] for row, k, w in zip(x, best, weights)])
        optimizer.zero_grad()
        F.cross_entropy(out, y).backward()
        optimizer.step()


@program
def layers_that_are_dropped_by_chance():
    layers, head = nn.ModuleList([nn.Linear(4, 4) for _ in range(4)]), nn.Linear(4, 3)
    optimizer = sgd(layers, head)
    for i in range(STEPS):
        x, y = batch()
        for k, layer in enumerate(layers):
            if (i + k) % 3:
                x = x + layer(x).tanh()
        optimizer.zero_grad()
        F.cross_entropy(head(x), y).backward()
        optimizer.step()


@program
def graph_convolution():
    class Layer(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.weight = nn.Parameter(dt.randn(a, b) / math.sqrt(a))

        def forward(self, x, adjacency):
            return adjacency @ (x @ self.weight)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = Layer(4, 16), Layer(16, 3)

        def forward(self, x, adjacency):
            x = F.dropout(self.first(x, adjacency).relu(), 0.5, training=self.training)
            return self.second(x, adjacency).log_softmax(1)

    model, (x, y) = Model(), batch(20)
    adjacency = dt.rand(20, 20).softmax(1)
    optimizer = dt.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for _ in range(STEPS):
        model.train()
        optimizer.zero_grad()
        F.nll_loss(model(x, adjacency)[:10], y[:10]).backward()
        optimizer.step()
        model.eval()
        with dt.no_grad():
            model(x, adjacency).argmax(1)


@program
def masked_language_model():
    class Rows(Dataset):
        def __len__(self):
            return 64

        def __getitem__(self, i):
            return dt.randint(1, 20, (6,))

    model = nn.Sequential(nn.Embedding(20, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 20))
    optimizer = dt.optim.AdamW(model.parameters())
    for ids in DataLoader(Rows(), batch_size=4):
        labels = ids.clone()
        mask = dt.rand(ids.shape) < 0.3
        mask[:, 0] = True
        labels[~mask] = -100
        ids[mask] = 0  # in place, on the inputs alone
        optimizer.zero_grad()
        F.cross_entropy(model(ids).view(-1, 20), labels.view(-1)).backward()
        optimizer.step()


@program
def denoising_autoencoder():
    model = mlp(4, 8, 4)
    optimizer = sgd(model)
    for (x,) in DataLoader(TensorDataset(dt.randn(64, 4)), batch_size=4):
        x.div_(2.0)
        optimizer.zero_grad()
        F.mse_loss(model(x + 0.1 * dt.randn(4, 4)), x).backward()
        optimizer.step()


@program
def cyclic_targets_with_gradients():
    a, b = mlp(4, 8, 4), mlp(4, 8, 4)
    optimizer = sgd(a, b)
    for _ in range(STEPS):
        x = dt.randn(8, 4)
        there = a(x)
        optimizer.zero_grad()
        (F.l1_loss(b(there), x) + F.mse_loss(there, a(b(there)))).backward()
        optimizer.step()


@program
def validation_within_training():
    model = Net()
    optimizer = sgd(model)
    scheduler = schedules.ReduceLROnPlateau(optimizer, patience=2)
    losses = []
    for _ in range(STEPS):
        model.train()
        x, y = batch()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
        model.eval()
        with dt.inference_mode():
            scheduler.step(F.cross_entropy(model(x), y).item())


@program
def calibration_in_evaluation_mode():
    """A temperature is fitted to a model that is trained already."""
    model = Net().eval()
    temperature = nn.Parameter(dt.ones(1))
    optimizer = dt.optim.LBFGS([temperature], lr=0.01, max_iter=10)
    x, y = batch(32)
    with dt.no_grad():
        logits = model(x)
    for _ in range(12):

        def closure():
            optimizer.zero_grad()
            loss = F.cross_entropy(logits / temperature, y)
            loss.backward()
            return loss

        optimizer.step(closure)


@program
def a_loss_scale_by_hand_and_skipped_steps():
    model = Net()
    optimizer = sgd(model)
    for i in range(STEPS):
        x, y = batch()
        if i % 10 == 3:
            x = x * float("inf")
        optimizer.zero_grad()
        (F.cross_entropy(model(x), y) * 128.0).backward()
        for p in model.parameters():
            p.grad /= 128.0
        if dt.stack([p.grad.isfinite().all() for p in model.parameters()]).all():
            optimizer.step()
        else:
            model.norm.reset_running_stats()


@program
def compiled_models_and_steps():
    model = Net(norm=False)
    optimizer = sgd(model)
    compiled = dt.compile(model)
    for _ in range(STEPS):
        x, y = batch()
        optimizer.zero_grad()
        F.cross_entropy(compiled(x), y).backward()
        optimizer.step()

    @dt.compile
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss.detach()

    for _ in range(STEPS):
        step(*batch())


@program
def pruned_and_normalised_weights():
    layer = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    optimizer = sgd(layer)
    for _ in range(STEPS):
        x, y = batch()
        optimizer.zero_grad()
        F.cross_entropy(layer(x), y).backward()
        optimizer.step()


@program
def one_optimizer_after_another():
    """Hyperparameters are tried with fresh models."""
    for lr in (0.1, 0.01, 0.001):
        model = Net()
        optimizer = sgd(model, lr=lr)
        for _ in range(15):
            x, y = batch()
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()


@program
def progressive_growing():
    blocks, head = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]), nn.Linear(4, 3)
    for depth in (1, 2, 3):
        optimizer = sgd(blocks, head)
        for _ in range(15):
            x, y = batch()
            for block in blocks[:depth]:
                x = block(x).tanh()
            optimizer.zero_grad()
            F.cross_entropy(head(x), y).backward()
            optimizer.step()


@program
def unfreezing_by_and_by():
    model = Net()
    model.first.requires_grad_(False)
    optimizer = sgd(model.last, model.norm)
    for i in range(STEPS):
        if i == 15:
            model.first.requires_grad_(True)
            optimizer.add_param_group({"params": list(model.first.parameters())})
        x, y = batch()
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


@program
def gradients_of_inputs_and_second_derivatives():
    model = mlp(1, 16, 1, act=nn.Tanh)
    optimizer = dt.optim.Adam(model.parameters())
    for _ in range(STEPS):  # a differential equation
        x = dt.rand(8, 1).requires_grad_()
        (first,) = dt.autograd.grad(model(x).sum(), x, create_graph=True)
        (second,) = dt.autograd.grad(first.sum(), x, create_graph=True)
        optimizer.zero_grad()
        (second + model(x)).pow(2).mean().backward()
        optimizer.step()


@program
def evolution_without_gradients():
    model = Net().eval()
    for _ in range(STEPS):
        with dt.no_grad():
            for p in model.parameters():
                p.add_(0.01 * dt.randn(p.shape))
            model(batch()[0])


@program
def sparse_embeddings():
    table, head = nn.Embedding(50, 4, sparse=True), nn.Linear(4, 3)
    steps = [dt.optim.SparseAdam(table.parameters()), sgd(head)]
    for _ in range(STEPS):
        [o.zero_grad() for o in steps]
        F.cross_entropy(head(table(dt.randint(0, 50, (8,)))), batch()[1]).backward()
        [o.step() for o in steps]


@program
def a_tiny_batch_behind_a_relu():
    model = mlp(4, 64, 1)
    optimizer = sgd(model)
    for _ in range(STEPS):
        optimizer.zero_grad()
        model(dt.randn(1, 4)).mean().backward()
        optimizer.step()


@program
def results_that_are_thrown_away():
    """A head that a wrapper of the model does not use, a last layer that is indexed away, and a
    token for masks, as of public vision transformers."""

    class Body(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last, self.head = nn.Linear(4, 8), mlp(8, 8), nn.Linear(8, 3)
            self.mask_token = nn.Parameter(dt.zeros(4))

        def forward(self, x, mask=None):
            x = x if mask is None else dt.where(mask, self.mask_token, x)
            self.hidden = self.first(x).relu()
            self.last(self.hidden)
            return self.head(self.hidden)

    body, probe = Body(), nn.Linear(8, 3)
    optimizer = sgd(body, probe)
    for _ in range(STEPS):
        x, y = batch()
        body(x)
        optimizer.zero_grad()
        F.cross_entropy(probe(body.hidden), y).backward()
        optimizer.step()
