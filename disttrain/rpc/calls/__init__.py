"""Calls between workers: what travels, who runs it, what comes back.

    kinds       numbers of the kinds of requests
    workers     names and numbers of workers
    allowed     what others may name here
    packing     any value as bytes, its tensors beside it
    heads       what travels before a call: how deep it is nested, what riders say
    failures    exceptions that are raised on another worker
    answers     the Future of a call
    deadlines   calls that take too long
    settings    what a worker allows, and whether it takes a call
    agent       one worker's part in all of it
    functions   requests that run a function
    gathering   all workers hear of all others; when nobody has anything left to do
    endpoints   which transport carries the messages

Knows Tensors and ``messaging``; no RRef and no autograd context, which register what they
need with the agent: handlers, reducers and riders.
"""
