"""Arrays of devices moved by NCCL, through NVIDIA's binding nccl4py.

engine          whether it can be used here; the transport beside a CPU's
library         the binding's calls, element types and operators
communicator    one communicator: connected, used, divided, ended
transport       the verbs
reductions      what NCCL reduces itself, and how the rest is reduced
agreement       headers compared over the CPU's transport, beside the device's work
works           an operation in flight, tied to events
watch           who looks after what is in flight while nobody waits
"""
