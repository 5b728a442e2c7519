"""One two-layer net seven times: by hand, by autograd, with a custom Function, nn, optim, a Module,
and a graph that changes with every step."""

import random

import torch

N, D_in, H, D_out = 64, 100, 50, 10
device, dtype = torch.device("cpu"), torch.float


def data():
    torch.manual_seed(0)
    return (
        torch.randn(N, D_in, device=device, dtype=dtype),
        torch.randn(N, D_out, device=device, dtype=dtype),
    )


def report(t, loss):
    if t % 100 == 99:
        print(t, loss)


def by_hand():
    x, y = data()
    w1, w2 = torch.randn(D_in, H), torch.randn(H, D_out)
    for t in range(500):
        h = x.mm(w1)
        h_relu = h.clamp(min=0)
        y_pred = h_relu.mm(w2)
        loss = (y_pred - y).pow(2).sum().item()
        report(t, loss)
        grad_y_pred = 2.0 * (y_pred - y)
        grad_w2 = h_relu.t().mm(grad_y_pred)
        grad_h = grad_y_pred.mm(w2.t()).clone()
        grad_h[h < 0] = 0
        grad_w1 = x.t().mm(grad_h)
        w1 -= 1e-5 * grad_w1
        w2 -= 1e-5 * grad_w2


def by_autograd(relu=lambda h: h.clamp(min=0)):
    x, y = data()
    w1 = torch.randn(D_in, H, requires_grad=True)
    w2 = torch.randn(H, D_out, requires_grad=True)
    for t in range(500):
        loss = (relu(x.mm(w1)).mm(w2) - y).pow(2).sum()
        report(t, loss.item())
        loss.backward()
        with torch.no_grad():
            w1 -= 1e-5 * w1.grad
            w2 -= 1e-5 * w2.grad
            w1.grad.zero_()
            w2.grad.zero_()


class MyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, input):
        ctx.save_for_backward(input)
        return input.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        (input,) = ctx.saved_tensors
        grad_input = grad_output.clone()
        grad_input[input < 0] = 0
        return grad_input


def by_nn():
    x, y = data()
    model = torch.nn.Sequential(
        torch.nn.Linear(D_in, H), torch.nn.ReLU(), torch.nn.Linear(H, D_out)
    ).to(device)
    loss_fn = torch.nn.MSELoss(reduction="sum")
    for t in range(500):
        loss = loss_fn(model(x), y)
        report(t, loss.item())
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for param in model.parameters():
                param.data -= 1e-4 * param.grad


def by_optim():
    x, y = data()
    model = torch.nn.Sequential(
        torch.nn.Linear(D_in, H), torch.nn.ReLU(), torch.nn.Linear(H, D_out)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for t in range(500):
        loss = torch.nn.functional.mse_loss(model(x), y, reduction="sum")
        report(t, loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


class TwoLayerNet(torch.nn.Module):
    def __init__(self, D_in, H, D_out):
        super(TwoLayerNet, self).__init__()
        self.linear1 = torch.nn.Linear(D_in, H)
        self.linear2 = torch.nn.Linear(H, D_out)

    def forward(self, x):
        return self.linear2(self.linear1(x).clamp(min=0))


class DynamicNet(TwoLayerNet):
    def __init__(self, D_in, H, D_out):
        super().__init__(D_in, H, D_out)
        self.middle = torch.nn.Linear(H, H)

    def forward(self, x):
        h = self.linear1(x).clamp(min=0)
        for _ in range(random.randint(0, 3)):
            h = self.middle(h).clamp(min=0)
        return self.linear2(h)


def by_module(kind, lr, **options):
    x, y = data()
    random.seed(0)
    model = kind(D_in, H, D_out)
    loss_fn = torch.nn.MSELoss(reduction="sum")
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, **options)
    for t in range(500):
        loss = loss_fn(model(x), y)
        report(t, loss.item())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


for name, run in {
    "tensors": by_hand,
    "autograd": by_autograd,
    "function": lambda: by_autograd(MyReLU.apply),
    "nn": by_nn,
    "optim": by_optim,
    "module": lambda: by_module(TwoLayerNet, 1e-4),
    "dynamic": lambda: by_module(DynamicNet, 1e-5, momentum=0.9),
}.items():
    print("==", name)
    run()
