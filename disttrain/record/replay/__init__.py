"""One rank of a recorded job once more, alone in one process: what others sent it is answered from
the recording.

While it records, ``keeping`` writes what transports, stores and messages of RPC bring into the log
of the rank (``frames``). A replay runs the program again (``program``): ``transport`` and
``outside`` answer from the log (``session``), ``checking`` compares what it computes with the rows,
and ``stops`` opens the debugger. ``key`` has what logs are signed with, ``bundle`` puts a recording
into one file, ``surroundings`` says on what it was made.
"""
