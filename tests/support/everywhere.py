"""Run a file of the interpreter's own `test` package, over plain sockets or over ours.

    python everywhere.py plain|ours MODULE [PATTERN ...]

Ours: every socket that the tests make is a `DeadlineSocket`, with a deadline that is far away. Only
tests are run whose class matches one of the patterns. The last line that is printed is a list: how
many were run, and which failed.
"""

from __future__ import annotations

import faulthandler
import importlib
import io
import json
import os
import re
import socket
import ssl
import sys
import unittest
import warnings

# They need what no machine here has, or hang over plain sockets, too.
SKIPPED = re.compile(r"VSOCK|CAN|RDS|QIPCRTR|Bluetooth|UDPLITE|Hyperv", re.IGNORECASE)
# More than the slowest of them takes, in seconds.
HANGS_AFTER = int(os.environ.get("HA", "240"))


def install():
    """Make every socket from here on obey a far deadline."""
    from timebounds import Deadline, DeadlineSocket
    from timebounds.blocking.deadline_socket import DeadlineTlsSocket

    plain = socket.socket
    far = Deadline.after(3600)

    class Everywhere(DeadlineSocket):
        def __new__(cls, *args, **kwargs):
            return plain.__new__(cls)

        def __init__(self, *args, **kwargs):
            plain.__init__(self, *args, **kwargs)
            self._begin(far, plain.gettimeout(self))

    class EverywhereTls(DeadlineTlsSocket):
        _bound = far

    socket.socket = Everywhere
    ssl.SSLContext.sslsocket_class = EverywhereTls


class Watched(unittest.TextTestResult):
    """A test that hangs ends the run, and shows where it hung."""

    def startTest(self, test):
        faulthandler.dump_traceback_later(HANGS_AFTER, exit=True)
        super().startTest(test)


def tests(suite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from tests(each)
        else:
            yield each


def main(mode, module, *patterns):
    if mode == "ours":
        install()
    warnings.simplefilter("ignore")
    from test import support

    support.use_resources = ["cpu", "walltime", "subprocess"]
    loaded = unittest.defaultTestLoader.loadTestsFromModule(importlib.import_module(module))
    wanted = re.compile("|".join(patterns) or ".")
    chosen = [
        each
        for each in tests(loaded)
        if not SKIPPED.search(each.id()) and wanted.search(each.id().split(".")[-2])
    ]
    told = io.StringIO()
    runner = unittest.TextTestRunner(stream=told, verbosity=0, resultclass=Watched)
    result = runner.run(unittest.TestSuite(chosen))
    wrong = [(str(test), text) for test, text in result.failures + result.errors]
    sys.stdout.write("\n" + json.dumps([result.testsRun, wrong]) + "\n")
    sys.stdout.flush()
    # Threads that a failed test has left behind are not waited for.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
