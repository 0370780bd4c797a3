"""Each rule of the house, tried on small sources that break it: it must not accept them."""

from __future__ import annotations

import pytest

import house_rules as rules

BASE = {
    "": "",
    "errors": "",
    "bounds": "",
    "bounds.clock": "",
    "bounds.deadline": "",
    "policies.plan": "",
}

BAD_FLOORS = {
    "upwards": {"bounds.clock": "import timebounds.policies.plan"},
    "to the right": {"bounds.clock": "from timebounds.bounds.deadline import Deadline"},
    "to the right, by the folder": {"bounds.clock": "from timebounds.bounds import deadline"},
    "to the right, relative": {"bounds.clock": "from .deadline import Deadline"},
    "to the right, from the folder's own file": {"bounds": "from . import deadline"},
    "to the right, two dots": {"bounds.clock": "from ..policies import plan"},
    "in a function": {"bounds.clock": "def f():\n    import timebounds.bounds.deadline"},
    "for types": {
        "bounds.clock": "if TYPE_CHECKING:\n    from timebounds.bounds.deadline import Deadline"
    },
    "of the facade": {"bounds.clock": "import timebounds"},
    "of the facade's names": {"bounds.clock": "from timebounds import Deadline"},
    "by a module that stands alone": {"_checks": "from timebounds.errors import ClockError"},
    "of itself": {"bounds.clock": "import timebounds.bounds.clock"},
    "from one colour to the other": {"aio.ports": "import timebounds.blocking.receiver"},
    "and back": {"blocking.cache": "from timebounds.aio import ports", "aio.ports": ""},
    "of testing by the facade": {"": "from timebounds.testing import FakeClock"},
    "of testing by the main module": {"__main__": "import timebounds.testing"},
    "by an unknown module": {"bounds.surprise": ""},
}


@pytest.mark.parametrize("change", BAD_FLOORS.values(), ids=BAD_FLOORS)
def test_a_wrong_import_is_rejected(change):
    assert rules.floor_complaints(BASE | change)


def test_right_imports_are_accepted():
    tree = BASE | {
        "bounds.deadline": "from .clock import Clock\nfrom timebounds import errors, _checks",
        "_checks": "import math",
        "policies.plan": "def f():\n    from timebounds.bounds import deadline",
        "blocking.receiver": "import timebounds.policies.plan",
        "": "from timebounds.blocking.receiver import BudgetedReceiver",
        "testing.fake_clock": "import timebounds",
        "testing": "from timebounds.testing.fake_clock import FakeClock",
        "demo": "from timebounds.demo.story import tell",
        "demo.story": "import timebounds\nfrom timebounds.testing import FakeClock",
        "__main__": "from timebounds.demo import main",
    }
    assert rules.floor_complaints(tree) == []
    assert rules.cycle_complaints(tree) == []


BAD_CYCLES = {
    "two": {"demo.a": "import timebounds.demo.b", "demo.b": "import timebounds.demo.a"},
    "hidden in functions": {
        "demo.a": "def f():\n    import timebounds.demo.b",
        "demo.b": "def f():\n    from .c import x",
        "demo.c": "async def f():\n    from timebounds.demo import a",
    },
}


@pytest.mark.parametrize("change", BAD_CYCLES.values(), ids=BAD_CYCLES)
def test_a_circle_is_rejected(change):
    assert rules.cycle_complaints(BASE | change)


BAD_IMPORTS = {
    "time": ("bounds.deadline", "import time"),
    "time in testing": ("testing.fake_clock", "from time import monotonic"),
    "time under another name": ("blocking.receiver", "import math, time as t"),
    "time in a function": ("blocking.receiver", "def f():\n    import time"),
    "asyncio": ("blocking.receiver", "import asyncio"),
    "asyncio by a part": ("policies.plan", "from asyncio import timeouts"),
    "asyncio by a part, dotted": ("policies.plan", "import asyncio.timeouts"),
    "asyncio in a function": ("bounds.stop", "def f():\n    import asyncio"),
    "asyncio at the top of the clock": ("bounds.clock", "import asyncio"),
    "asyncio in a class body of the clock": ("bounds.clock", "class C:\n    import asyncio"),
    "socket": ("policies.receiving", "import socket"),
    "socket for types": ("bounds.clock", "if TYPE_CHECKING:\n    import socket"),
    "select in a function": ("bounds.clock", "def f():\n    import select"),
    "ssl": ("aio.receiver", "from ssl import SSLSocket"),
    "random": ("policies.retrying", "import random"),
    "threading": ("policies.mailbox", "import threading"),
    "threading in a function": ("policies.mailbox", "def f():\n    from threading import Lock"),
}


@pytest.mark.parametrize(("name", "source"), BAD_IMPORTS.values(), ids=BAD_IMPORTS)
def test_a_banned_import_is_rejected(name, source):
    assert rules.ban_complaints(BASE | {name: source})


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("bounds.clock", "import time\nclass C:\n    async def f(self):\n        import asyncio"),
        ("bounds.clock", "if typing.TYPE_CHECKING:\n    from asyncio import Future"),
        ("bounds.stop", "import threading"),
        ("aio.offload", "import asyncio\nfrom timebounds.bounds import clock"),
        ("testing.loop", "import asyncio, socket"),
        ("policies.plan", "import timeit, socketserver"),
    ],
)
def test_imports_where_they_belong_are_accepted(name, source):
    assert rules.ban_complaints(BASE | {name: source}) == []


LONG = "def f():\n" + "    x = 1\n" * 70
BAD_FUNCTIONS = {
    "long": LONG,
    "long and async": "async " + LONG,
    "long method": "class C:\n" + "".join(f"    {line}\n" for line in LONG.splitlines()),
    "long beside its docstring": LONG.replace(":\n", ':\n    """Say."""\n', 1),
    "bare except": "try:\n    pass\nexcept:\n    pass",
}


@pytest.mark.parametrize("source", BAD_FUNCTIONS.values(), ids=BAD_FUNCTIONS)
def test_a_bad_function_is_rejected(source):
    assert rules.function_complaints("x", source)


def test_a_function_of_seventy_lines_and_a_long_docstring_is_accepted():
    source = "def f():\n" + '    """Say.\n' + "    more\n" * 50 + '    """\n' + "    x = 1\n" * 69
    assert rules.function_complaints("x", source) == []


def test_a_file_of_350_lines_is_accepted_and_one_more_is_rejected():
    assert rules.file_complaints("x", "x\n" * 350) == []
    assert rules.file_complaints("x", "x\n" * 351) == ["x has 351 lines"]


SAID = '"""Say."""\n'
BAD_DOCSTRINGS = {
    "module": "",
    "function": SAID + "def f(): ...",
    "async function": SAID + "async def f(): ...",
    "class": SAID + "class C: ...",
    "method": SAID + 'class C:\n    """Say."""\n    def f(self): ...',
    "property": SAID + 'class C:\n    """Say."""\n    @property\n    def f(self): ...',
}


@pytest.mark.parametrize("source", BAD_DOCSTRINGS.values(), ids=BAD_DOCSTRINGS)
def test_a_missing_docstring_is_rejected(source):
    assert rules.docstring_complaints("bounds.clock", source)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("bounds.clock", SAID + "def _f(): ...\nclass _C:\n    def f(self): ..."),
        ("bounds.clock", SAID + 'class C:\n    """Say."""\n    def __init__(self): ...'),
        ("bounds.clock", SAID + "@overload\ndef f(): ...\n" + 'def f():\n    """Say."""'),
        ("bounds._threads", ""),
    ],
)
def test_what_is_private_or_said_elsewhere_needs_no_docstring(name, source):
    assert rules.docstring_complaints(name, source) == []


@pytest.mark.parametrize(
    "source",
    [
        "import time\ntime.sleep(1)",
        "import time as t\nt.sleep(0.1)",
        "from time import sleep\nsleep(x)",
        "from asyncio import sleep as nap\nasync def f():\n    await nap(0.001)",
        "async def f():\n    import asyncio\n    await asyncio.sleep(delay=1)",
        "import time\ntime.sleep(-0)",
    ],
)
def test_a_sleeping_test_is_rejected(source):
    assert rules.sleep_complaints("x", source)


@pytest.mark.parametrize(
    "source",
    [
        "import asyncio\nasync def f():\n    await asyncio.sleep(0)",
        "def f(clock):\n    clock.sleep(1)",
        "def f(sleep):\n    sleep(1)",
        "import asyncio\nasync def f():\n    await asyncio.sleep(5)  # fake time",
    ],
)
def test_fake_and_empty_sleeps_are_accepted(source):
    assert rules.sleep_complaints("x", source) == []


SLASH = "/"


@pytest.mark.parametrize(
    "text",
    [
        f"see {SLASH}root{SLASH}x",
        f"{SLASH}work",
        f'"{SLASH}home{SLASH}me"',
        "--index-url https://pypi" + ".org/simple",
        "https://files.python" + "hosted.org/x",
        "https://registry.npm" + "js.org",
    ],
)
def test_a_text_with_a_machines_path_or_a_registry_is_rejected(text):
    assert rules.text_complaints("x", "fine\n" + text)


@pytest.mark.parametrize(
    "text", ["frame/work", "~/work", "https://example.org/home", "/workers", "/tmp/x"]
)
def test_other_texts_are_accepted(text):
    assert rules.text_complaints("x", text) == []


def test_a_second_version_and_a_silent_changelog_are_rejected():
    once = {"a": '__version__ = "1.2.3"'}
    assert rules.version_of(once["a"]) == "1.2.3"
    assert rules.version_complaints("1.2.3", once, "## [1.2.3]") == []
    assert rules.version_complaints("1.2.3", once | {"b": 'version = "1.2.3"'}, "## [1.2.3]")
    assert rules.version_complaints("1.2.3", {"a": ""}, "## [1.2.3]")
    assert rules.version_complaints("1.2.3", once, "## [1.2.2]")
    others = once | {"b": "11.2.3 1.2.34 1.2.3.4"}
    assert rules.version_complaints("1.2.3", others, "## 1.2.3") == []


PAGE = """
text
```python
a = 1
```
<!-- not run: it never ends -->
```python
b = 1
```
- in a list

  ```{code-block} python
  if a:
      c = 1
  ```
```text
d = 1
```
~~~py
e = 1
~~~
"""


def test_the_blocks_of_a_page_are_found_with_their_lines():
    assert [(block.line, block.code) for block in rules.python_blocks(PAGE)] == [
        (4, "a = 1\n"),
        (13, "if a:\n    c = 1\n"),
        (20, "e = 1\n"),
    ]
