#!/usr/bin/env python3
"""Runs a program with sockets passed as a service manager passes them: from descriptor 3 on, named by variables.

    pass_sockets.py FD,FD… NAME:NAME… PROGRAM [ARGUMENT]…
"""

import fcntl
import os
import sys

descriptors = [int(text) for text in sys.argv[1].split(",")]
# Out of the way first: none may lie where another one belongs.
high = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 100) for descriptor in descriptors]
for index, descriptor in enumerate(high):
    os.dup2(descriptor, 3 + index, inheritable=True)
    os.close(descriptor)
for descriptor in descriptors:
    if descriptor >= 3 + len(descriptors):
        os.close(descriptor)
os.environ.update(LISTEN_PID=str(os.getpid()), LISTEN_FDS=str(len(descriptors)), LISTEN_FDNAMES=sys.argv[2])
os.execv(sys.argv[3], sys.argv[3:])
