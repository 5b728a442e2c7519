"""What ``sys.remote_exec`` runs in a rank that is to stop (Python 3.14): as if the signal had come, but
without one, so that no system call of the program returns early."""

import _thread
import signal

_thread.interrupt_main(signal.SIGRTMAX - 4)  # as in ``stopping``, which need not be loaded here
