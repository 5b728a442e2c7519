"""A scalar autograd engine in forty lines, held against torch in float64."""

import torch


class Value:
    def __init__(self, data, parents=(), op=""):
        self.data, self.grad, self._parents, self._op = data, 0.0, parents, op
        self._pull = lambda: None

    def __add__(self, other):
        other = other if isinstance(other, Value) else Value(other)
        out = Value(self.data + other.data, (self, other), "+")

        def pull():
            self.grad += out.grad
            other.grad += out.grad

        out._pull = pull
        return out

    def __mul__(self, other):
        other = other if isinstance(other, Value) else Value(other)
        out = Value(self.data * other.data, (self, other), "*")

        def pull():
            self.grad += other.data * out.grad
            other.grad += self.data * out.grad

        out._pull = pull
        return out

    def __pow__(self, exponent):
        out = Value(self.data**exponent, (self,), "**")

        def pull():
            self.grad += exponent * self.data ** (exponent - 1) * out.grad

        out._pull = pull
        return out

    def relu(self):
        out = Value(max(0.0, self.data), (self,), "relu")

        def pull():
            self.grad += (out.data > 0) * out.grad

        out._pull = pull
        return out

    def backward(self):
        order, seen = [], set()

        def visit(v):
            if v not in seen:
                seen.add(v)
                for p in v._parents:
                    visit(p)
                order.append(v)

        visit(self)
        self.grad = 1.0
        for v in reversed(order):
            v._pull()

    def __neg__(self):
        return self * -1.0

    def __sub__(self, other):
        return self + (-other)

    def __truediv__(self, other):
        return self * other**-1.0

    __radd__, __rmul__ = __add__, __mul__

    def __rsub__(self, other):
        return (-self) + other

    def __rtruediv__(self, other):
        return other * self**-1.0


def simple(x):
    z = 2 * x + 2 + x
    q = z.relu() + z * x
    h = (z * z).relu()
    return h + q + q * x


def mixed(a, b):
    c = a + b
    d = a * b + b**3
    c += c + 1
    c += 1 + c + (-a)
    d += d * 2 + (b + a).relu()
    d += 3 * d + (b - a).relu()
    e = c - d
    f = e**2
    g = f / 2.0
    g += 10.0 / f
    return g


def check(name, fn, *points):
    ours = [Value(p) for p in points]
    out = fn(*ours)
    out.backward()
    theirs = []
    for p in points:
        t = torch.Tensor([p]).double()
        t.requires_grad = True
        theirs.append(t)
    ref = fn(*theirs)
    ref.backward()
    assert abs(out.data - ref.data.item()) < 1e-6
    for mine, t in zip(ours, theirs):
        assert abs(mine.grad - t.grad.item()) < 1e-6, (name, mine.grad, t.grad)
    print(f"{name} ok")


if __name__ == "__main__":
    check("simple", simple, -4.0)
    check("mixed", mixed, -4.0, 2.0)
