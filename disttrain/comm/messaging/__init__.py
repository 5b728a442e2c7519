"""Messages between workers: requests and their answers, bytes and arrays, over any wire.

``message`` says what a message is and how large one may be, ``endpoint`` what a transport does;
``local`` carries messages between the processes of one host, ``remote`` between hosts,
``simulated`` between simulated ranks. Knows workers by number only; what a message means is the
affair of ``distributed.calls``.
"""
