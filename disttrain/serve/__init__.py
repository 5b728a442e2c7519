"""``disttrain serve``: results of saved programs over HTTP, by KServe's V2 protocol.

Three kinds of processes. The supervisor (``supervisor``) holds the listening socket, starts the
others and watches them. The front (``front``, ``protocol``, ``app``) speaks HTTP and forms batches
(``batches``, pure). Workers (``worker``) run programs; requests and results lie in memory that a
worker shares with the front (``slabs``), and messages say where (``messages``). A worker that dies
takes nothing with it but what it was running, since no connection is its own.

``signature`` (pure) says what a model takes and gives, ``coding`` (pure) how that stands in
requests and answers, ``models`` opens files, ``rows`` (pure) reads from a program whether its rows
leave each other alone, ``pool`` is what the front knows of workers and their generations: a reload
starts new workers beside the old ones, which end when they have nothing left.
"""
