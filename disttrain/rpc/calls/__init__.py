"""Calls between workers: what travels, who runs it, what comes back.

    kinds       numbers of the kinds of requests
    workers     names and numbers of workers
    allowed     what others may name here
    packing     any value as bytes, its tensors beside it
    header      what travels before a call: how deep it is nested, what riders say
    restricted  values built of names that others may say, and nothing else
    overlaps    tensors of one message that share memory
    failures    exceptions that are raised on another worker
    kept_errors exceptions that are raised later
    answers     the Future of a call
    callbacks   threads that run what follows an answer
    deadlines   calls that take too long
    settings    what a worker allows, and whether it takes a call
    agent       one worker's part in all of it
    current     which agent is this rank's
    functions   requests that run a function
    locks       blocks that one thread of a worker runs at a time
    report      what is told of all that is under way
    gathering   all workers hear of all others; when nobody has anything left to do
    endpoints   which transport carries the messages

Knows Tensors and ``rpc.messages``; no RRef and no autograd context, which register what they
need with the agent: handlers, reducers and riders.
"""
