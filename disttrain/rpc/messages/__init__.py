"""Messages between workers: requests and their answers, bytes and arrays, over any wire.

``contract`` says what a message is, how large one may be, and what a transport does; ``local``
carries messages between the processes of one host, ``hosts`` between hosts, ``simulated`` between
simulated ranks, and ``mixed`` takes the best that both ends have. Knows workers by number only;
what a message means is the affair of ``calls``.
"""
