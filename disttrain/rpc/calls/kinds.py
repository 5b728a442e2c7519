"""The kinds of requests. One byte of every message; who handles a kind registers with the agent."""

from __future__ import annotations

# calls
FUNCTION = 1  # run a function, answer with what it returns
GATHER = 2  # tell the leader a value, answer with everybody's
MEMBER = 3  # a worker has joined or leaves

# remote references (``rpc.rref``)
REMOTE = 16  # run a function, keep what it returns
FETCH = 17  # the value of a reference
RREFS = 18  # who has which references, and who no longer

# distributed autograd (``rpc.autograd``)
GRADIENTS = 32  # gradients for what was sent
RELEASE = 33  # a context is over
PREPARE = 34  # count what will be sent before a backward pass

# what an answer says, in place of a kind
DONE, FAILED = 0, 1
