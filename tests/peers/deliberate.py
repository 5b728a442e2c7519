"""Differences that are meant, each with its reason and an example; anything else fails."""

from __future__ import annotations

import re
from dataclasses import dataclass

from peers.compare import Difference


@dataclass(frozen=True)
class Deliberate:
    """A difference of this ``kind`` in a program in which ``text`` is found, where we do ``ours``
    and the peer ``theirs``; all three are patterns."""

    kind: str
    text: str
    ours: str
    theirs: str
    reason: str
    example: str

    def covers(self, difference: Difference, lines: tuple[str, ...]) -> bool:
        pairs = (
            (self.text, "\n".join(lines)),
            (self.ours, difference.ours),
            (self.theirs, difference.theirs),
        )
        return self.kind == difference.kind and all(re.search(p, s) for p, s in pairs)


MEANT = (
    Deliberate(
        "requires_grad",
        r"no_grad|set_grad_enabled\(False\)|inference_mode",
        r"False",
        r"True",
        "Without gradients, what is computed does not require them, as is documented; views do.",
        """
v0 = T.tensor([2.25, 1.0], requires_grad=True)
with T.no_grad(): v1 = v0.view(-1)
""",
    ),
    Deliberate(
        "value",
        r"(v\d+)\.register_hook(.|\n)*autograd\.grad\([^[]*\[[^]]*\b\1\b",
        r"",
        r"",
        "A gradient is what hooks made of it; the peer's only where nothing further is asked for.",
        """
v0 = T.tensor(0.25, requires_grad=True)
v1 = v0 * 3
v1.register_hook(lambda g: g * 2)
v2 = T.autograd.grad(v1, [v0, v1])
""",
    ),
    Deliberate(
        "requires_grad",
        r"create_graph",
        r"True",
        r"False",
        "Through which operations a constant gradient is computed is a matter of how rules are "
        "written; where the peer's does not require a gradient, ours may, of zeros.",
        """
v0 = T.tensor(0.5, requires_grad=True)
v1 = v0.prod()
v2 = T.autograd.grad(v1, [v0], create_graph=True)
""",
    ),
    Deliberate(
        "error",
        r"create_graph",
        r"was already run and its saved tensors were freed",
        r"raises nothing",
        "The same, of what the graph of a gradient saves: a second walk needs retain_graph.",
        """
v0 = T.tensor(1.5, requires_grad=True)
v1 = T.tensor(0.25, requires_grad=True)
v2 = T.autograd.grad(v0.mean(-1), [v0], v1, create_graph=True)[0].sum()
v2.backward(retain_graph=False)
v2.backward()
""",
    ),
    Deliberate(
        "requires_grad",
        r"\.(eq|logical_and)_\(",
        r"False",
        r"True",
        "Comparisons have no gradient, in place neither; the peer's numbers of 0 and 1 want one.",
        """
v0 = T.tensor([2.0])
v0.eq_(T.tensor([1.0], requires_grad=True))
""",
    ),
    Deliberate(
        "grad value",
        r"acosh\(",
        r"nan",
        r"",
        "Where acosh is nan, so is its gradient.",
        """
v0 = T.tensor([-1.5], requires_grad=True)
v0.acosh().sum().backward()
""",
    ),
    Deliberate(
        "error",
        r"",
        r"DimError: .*index \d+ is out of range",
        r"raises nothing",
        "An index that is out of range is one where nothing is read, too.",
        """
v0 = T.zeros((1, 0))
v1 = v0[T.tensor([1]), :]
""",
    ),
    Deliberate(
        "value",
        r"(v\d+) = (v\d+)\.(tensor_split|narrow|select|chunk|split)(.|\n)*\2 [-+*/]= \1",
        r"",
        r"",
        "A part of itself that is broadcast is read before anything is written.",
        """
v0 = T.arange(16.0).reshape(2, 2, 4).flip(1)
v1 = v0.tensor_split(2, -2)[0]
v0 -= v1
""",
    ),
    Deliberate(
        "grad",
        r"norm\(.*\b0\b",
        r"",
        r"None",
        "The norm of order 0 has a gradient of zeros, as other constants; the peer's none.",
        """
v0 = T.tensor([1.5, 2.0], requires_grad=True)
T.norm(v0, p=0).backward()
""",
    ),
    Deliberate(
        "grad value",
        r"uint8(.|\n)*addcmul\(.*value=-",
        r"",
        r"",
        "The peer computes value * tensor1 of the gradient in bytes, where -8 is 248.",
        """
v0 = T.tensor([1.5], requires_grad=True)
v1 = T.tensor([4], dtype=T.uint8)
T.addcmul(v0, v1, v0, value=-2).backward()
""",
    ),
    Deliberate(
        "no error",
        r"view_as_real",
        r"",
        r"a leaf Variable that requires grad",
        "A view of complex numbers as real ones goes along when its base gets a graph.",
        """
v0 = T.tensor([1j]).sin()
v1 = T.view_as_real(v0)
v0 *= T.tensor([2.0], requires_grad=True)
v1.pow_(2)
""",
    ),
    Deliberate(
        "grad value",
        r"(pow\(.*|\*\* )False",
        r"",
        r"nan",
        "x ** 0 has the gradient 0 at 0; the peer's is nan there when 0 is written as False.",
        """
v0 = T.tensor([0.0], requires_grad=True)
T.pow(v0, False).backward()
""",
    ),
    Deliberate(
        "no error",
        r"avg_pool3d\(|AvgPool3d",
        r"",
        r"smaller than kernel size",
        "avg_pool3d takes windows larger than its input, as those of one and two dimensions do.",
        """
v0 = T.nn.functional.avg_pool3d(T.ones(1, 1, 2, 3, 3), 3, 3, ceil_mode=True)
""",
    ),
)


# Differences that are to be mended: there is no reason for them.
OPEN = (
    Deliberate(
        "value",
        r"adjoint\(",
        r"",
        r"",
        "A write to the adjoint of complex numbers does not reach them: it is a copy.",
        """
v0 = T.tensor([[1 + 1j, 2j], [3j, 4j]])
T.adjoint(v0).fill_(2)
""",
    ),
    Deliberate(
        "error",
        r"expand(.|\n)*masked_fill_",
        r"more than one element",
        r"raises nothing",
        "masked_fill_ of an expanded tensor, of which the peer warns, is refused.",
        """
v0 = T.tensor([1.0]).expand(3)
v0.masked_fill_(T.tensor([True, True, True]), 2.0)
""",
    ),
    Deliberate(
        "grad",
        r"detach_\(",
        r"",
        r"None",
        "A part of a base that is detached in place keeps what was written to it as its history.",
        """
v0 = T.tensor([[2.0, 1.0], [3.0, 4.0]])
v1 = v0[-1]
v2 = T.tensor([2.0, 5.0], requires_grad=True)
v1.div_(v2)
v0.detach_()
v3 = v1.view(v1.dtype)
v3.sub_(1.0)
v1.backward(T.ones(2))
""",
    ),
)

TABLE = (*MEANT, *OPEN)


def deliberate(difference: Difference, lines: tuple[str, ...]) -> Deliberate | None:
    """The entry of the table that a shrunk difference falls under."""
    return next((entry for entry in TABLE if entry.covers(difference, lines)), None)
