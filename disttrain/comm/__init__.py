"""Communication between ranks: the store, process groups, and the transports that move arrays.

Knows numpy arrays; no tensors. Read ``transport`` first: what a transport is and promises. Each has
a folder of its own (``shm``, ``sim`` ...); what stands here is what all of them share.
"""
