"""mutmut, without the record of who calls whom: in threads, that record ends CPython 3.11.

What is lost is a shorter run after a change of one function.
"""

from __future__ import annotations

from mutmut.__main__ import cli
from mutmut.core import MutmutCallStack

if __name__ == "__main__":
    # On the class: others have it by name already.
    MutmutCallStack.get = staticmethod(lambda: (None, 0))
    MutmutCallStack.set = staticmethod(lambda _caller: None)
    MutmutCallStack.reset = staticmethod(lambda _token: None)
    cli()
