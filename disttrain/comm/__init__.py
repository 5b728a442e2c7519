"""Communication between ranks: the store, process groups, and the transports that move arrays.

Knows numpy arrays; no tensors. Read ``calls.transport`` first: what a transport is and promises.
"""

__outward__ = ("disttrain.comm", "")
