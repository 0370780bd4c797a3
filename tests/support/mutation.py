"""mutmut, without the record of who calls whom: in threads, that record ends CPython 3.11.

What is lost is a shorter run after a change of one function.
"""

from __future__ import annotations

from mutmut import core
from mutmut.__main__ import cli


class NoCallStack:
    """Remembers nothing."""

    @staticmethod
    def get():
        return None, 0

    @staticmethod
    def set(_caller):
        return None

    @staticmethod
    def reset(_token):
        return None


if __name__ == "__main__":
    # Before the changed source takes it for its own.
    core.MutmutCallStack = NoCallStack
    cli()
