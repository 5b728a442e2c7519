"""Communication between ranks: the store, process groups, and the transports that move arrays.

Knows numpy arrays; no tensors. Read ``calls.transport`` first: what a transport is and promises.
From above; each transport has a folder, and none imports another one but shared memory:

transports         shm, sim, tcp, mpi, nccl, fake; ``selection``: which one a group gets
group              what programs and transports are joined by; arrays of devices on their way
sockets | meeting  sockets between hosts: proved, encrypted; who is there, who goes on
store              how ranks meet
calls              headers, work, reduce operators; what a transport promises
job                the segment that the launcher sees, black boxes, what workers are told
"""

__outward__ = ("disttrain.comm", "")
