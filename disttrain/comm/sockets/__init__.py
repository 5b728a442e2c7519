"""Streams of bytes between two processes of one job on two hosts, proved and encrypted.

``certificates`` makes what TLS asks for from the job's token, ``handshake`` is the conversation
that a link begins with (pure), ``encryption`` its cipher, ``link`` a link in use, and ``listener``
brings both ends together: ``Listener`` listens, ``call_on`` connects; ``proof`` is what both need
before. Knows no messages, ranks or workers: a number names each end.
"""
