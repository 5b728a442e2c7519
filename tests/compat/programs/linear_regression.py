"""Linear regression from nothing, with layers, and with weight decay on too many inputs."""

import random

import torch
from torch import nn
from torch.utils import data


def synthetic_data(w, b, num_examples):
    X = torch.normal(0, 1, (num_examples, len(w)))
    y = torch.matmul(X, w) + b
    y += torch.normal(0, 0.01, y.shape)
    return X, y.reshape((-1, 1))


def data_iter(batch_size, features, labels):
    indices = list(range(len(features)))
    random.shuffle(indices)
    for i in range(0, len(indices), batch_size):
        batch = torch.tensor(indices[i : min(i + batch_size, len(indices))])
        yield features[batch], labels[batch]


def sgd(params, lr, batch_size):
    with torch.no_grad():
        for param in params:
            param -= lr * param.grad / batch_size
            param.grad.zero_()


torch.manual_seed(0)
random.seed(0)
true_w, true_b = torch.tensor([2, -3.4]), 4.2
features, labels = synthetic_data(true_w, true_b, 1000)
w = torch.normal(0, 0.01, size=(2, 1), requires_grad=True)
b = torch.zeros(1, requires_grad=True)
for epoch in range(3):
    for X, y in data_iter(10, features, labels):
        loss = (torch.matmul(X, w) + b - y.reshape((-1, 1))) ** 2 / 2
        loss.sum().backward()
        sgd([w, b], 0.03, 10)
    with torch.no_grad():
        train_l = ((torch.matmul(features, w) + b - labels) ** 2 / 2).mean()
        print(f"epoch {epoch + 1}, loss {float(train_l):f}")
print(f"error in estimating w: {true_w - w.reshape(true_w.shape)}")
assert (true_w - w.reshape(true_w.shape)).abs().max() < 0.05

loader = data.DataLoader(data.TensorDataset(features, labels), 10, shuffle=True)
net = nn.Sequential(nn.LazyLinear(1))
net(next(iter(loader))[0])
net[0].weight.data.normal_(0, 0.01)
net[0].bias.data.fill_(0)
criterion, trainer = nn.MSELoss(), torch.optim.SGD(net.parameters(), lr=0.03)
for epoch in range(3):
    for X, y in loader:
        l = criterion(net(X), y)
        trainer.zero_grad()
        l.backward()
        trainer.step()
    print(f"epoch {epoch + 1}, loss {criterion(net(features), labels):f}")
w = net[0].weight.data
print("error in estimating w:", true_w - w.reshape(true_w.shape))
assert (true_w - w.reshape(true_w.shape)).abs().max() < 0.05

num_inputs = 200
true_w, true_b = torch.ones((num_inputs, 1)) * 0.01, 0.05
train, test = (synthetic_data(true_w, true_b, n) for n in (20, 100))


def train_net(lambd):
    net = nn.Sequential(nn.Linear(num_inputs, 1))
    for param in net.parameters():
        param.data.normal_()
    trainer = torch.optim.SGD(
        [{"params": net[0].weight, "weight_decay": lambd}, {"params": net[0].bias}], lr=0.003
    )
    loss = nn.MSELoss(reduction="none")
    for _ in range(60):
        for X, y in data.DataLoader(data.TensorDataset(*train), 5, shuffle=True):
            trainer.zero_grad()
            loss(net(X), y).mean().backward()
            trainer.step()
    norm = net[0].weight.norm().item()
    print("L2 norm of w:", norm)
    return norm


norms = [train_net(lambd) for lambd in (0, 3, 30)]
assert norms[0] > norms[1] > norms[2]
print("D2L DONE")
