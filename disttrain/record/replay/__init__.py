"""One rank of a recorded job once more, alone in one process: what others sent it is answered from
its log (``record/log``).

``options`` has what is asked for; ``program`` runs the program again; ``transport`` and ``outside``
answer from the log (``session``), ``checking`` compares what it computes with the rows, ``stops``
opens the debugger, and ``bundle`` puts a recording into one file.
"""
