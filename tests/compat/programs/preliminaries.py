"""The first pages of a deep-learning book: tensors, linear algebra, calculus, autograd."""

import numpy as np
import torch

print("== tensors")
x = torch.arange(12, dtype=torch.float32)
assert x.numel() == 12 and x.shape == torch.Size([12]) and len(x) == 12
X = x.reshape(3, 4)
assert X.reshape(-1, 4).shape == (3, 4) and X[-1].tolist() == [8.0, 9.0, 10.0, 11.0]
X[1, 2] = 17
X[:2, :] = 12
assert X.sum() == 12 * 8 + 8 + 9 + 10 + 11
a, b = torch.tensor([1.0, 2, 4, 8]), torch.tensor([2, 2, 2, 2])
for value in (a + b, a - b, a * b, a / b, a**b, torch.exp(a)):
    print(value)
Y = torch.tensor([[2.0, 1, 4, 3], [1, 2, 3, 4], [4, 3, 2, 1]])
print(torch.cat((X, Y), dim=0).shape, torch.cat((X, Y), dim=1).shape, X == Y)
before = id(Y)
Y += X
assert id(Y) == before
Z = torch.zeros_like(Y)
before = id(Z)
Z[:] = X + Y
assert id(Z) == before
A = X.numpy()
B = torch.from_numpy(A)
assert type(A) is np.ndarray and type(B) is torch.Tensor
A[0, 0] = -1.0
assert X[0, 0] == -1 and B[0, 0].item() == -1.0
s = torch.tensor([3.5])
assert (s.item(), float(s), int(s)) == (3.5, 3.5, 3) and f"{s.item():.1f}" == "3.5"
print(torch.arange(3).reshape((3, 1)) + torch.arange(2).reshape((1, 2)))

print("== linear algebra")
A = torch.arange(6).reshape(3, 2)
assert torch.equal(A.T, torch.tensor([[0, 2, 4], [1, 3, 5]]))
S = torch.tensor([[1, 2, 3], [2, 0, 4], [3, 4, 5]])
assert (S == S.T).all()
A = torch.arange(6, dtype=torch.float32).reshape(2, 3)
B = A.clone()
print(A * B, A.sum(axis=0), A.sum(axis=[0, 1]), A.mean(axis=0), A.cumsum(axis=0))
print(A / A.sum(axis=1, keepdims=True))
x, y = torch.arange(3, dtype=torch.float32), torch.ones(3, dtype=torch.float32)
assert torch.dot(x, y) == torch.sum(x * y)
assert torch.mv(A, x).tolist() == (A @ x).tolist() and torch.mm(A, torch.ones(3, 4)).shape == (2, 4)
u = torch.tensor([3.0, -4.0])
assert torch.norm(u) == 5 and torch.abs(u).sum() == 7 and torch.norm(torch.ones((4, 9))) == 6

print("== calculus")
for h in 10.0 ** np.arange(-1, -4, -1):
    print(f"h={h:.3f}, limit={((3 * (1 + h) ** 2 - 4 * (1 + h)) - (3 - 4)) / h:.3f}")
grid = torch.linspace(0, 3, 7)
assert np.where(grid.numpy() > 1)[0].tolist() == [3, 4, 5, 6]
assert np.asarray(grid).dtype == np.float32 and np.array(grid, dtype=np.float64).sum() == 10.5

print("== autograd")
x = torch.arange(4.0)
x.requires_grad_(True)
assert x.grad is None
y = 2 * torch.dot(x, x)
print(y)
y.backward()
assert (x.grad == 4 * x).all()
x.grad.zero_()
x.sum().backward()
assert x.grad.tolist() == [1, 1, 1, 1]
x.grad.zero_()
y = x * x
y.backward(gradient=torch.ones(len(y)))
assert (x.grad == 2 * x).all()
x.grad.zero_()
u = (x * x).detach()
(u * x).sum().backward()
assert (x.grad == u).all()


def f(a):
    b = a * 2
    while b.norm() < 1000:
        b = b * 2
    return b if b.sum() > 0 else 100 * b


torch.manual_seed(0)  # of some values, d / a is rounded
a = torch.randn(size=(), requires_grad=True)
d = f(a)
d.backward()
assert a.grad == d / a
print("D2L DONE")
