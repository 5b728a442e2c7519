"""Links: streams of bytes between two processes of one job on two hosts, proved and sealed.

``certificates`` makes what TLS asks for from the job's token, ``opening`` is the conversation that
a link begins with (pure), ``sealing`` its cipher, ``link`` a link in use, and ``door`` brings both
ends together: ``Door`` listens, ``call_on`` connects. Knows no messages, ranks or workers: a number
names each end.
"""
