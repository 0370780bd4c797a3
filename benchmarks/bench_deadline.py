"""What a deadline costs: reading it, making it, importing it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import timeit

from harness import Claims, Rounds, begin, table

from timebounds import Deadline

HEAVY = ("asyncio", "ssl", "logging", "concurrent.futures")


def main() -> None:
    quick = begin(__doc__)
    claims = Claims()
    bench_methods(quick, claims)
    bench_import(quick, claims)
    claims.end()


def bench_methods(quick: bool, claims: Claims) -> None:
    number = 5_000 if quick else 50_000
    names = {"d": Deadline.after(3600.0), "other": Deadline.after(1800.0)}
    names |= {"Deadline": Deadline, "time": time}
    # As a user writes them: a name of a local variable or module, and a call.
    statements = {
        "time.monotonic()": "time.monotonic()",
        "end - time.monotonic()": "end - time.monotonic()",
        "deadline.remaining()": "d.remaining()",
        "deadline.expired()": "d.expired()",
        "deadline.check()": "d.check()",
        "deadline.timeout(1.0)": "d.timeout(1.0)",
        "Deadline.after(2.0)": "Deadline.after(2.0)",
        "deadline.within(1.0)": "d.within(1.0)",
        "deadline.reserving(1.0)": "d.reserving(1.0)",
        "deadline.earliest(other)": "d.earliest(other)",
    }

    def contestant(statement):
        timer = timeit.Timer(statement, globals={**names, "end": time.monotonic() + 60})
        return lambda: timer.timeit(number) / number

    rounds = Rounds(
        {name: contestant(statement) for name, statement in statements.items()},
        3 if quick else 31,
    )
    base = "time.monotonic()"
    rounds.table("A call", "ns", base, scale=1e9)
    claims.at_most(
        "deadline.remaining() beside time.monotonic()",
        rounds.ratio("deadline.remaining()", base),
        5,
    )


def bench_import(quick: bool, claims: Claims) -> None:
    """Start fresh interpreters; bytecode is there from the first start on, as when installed."""
    with tempfile.TemporaryDirectory() as cache:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": cache}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        starts(quick, env, claims)


def starts(quick: bool, env: dict[str, str], claims: Claims) -> None:
    # Without site packages: what other installed packages hook into start-up is not ours.
    command = [sys.executable, "-S", "-c"]

    def contestant(code):
        def run():
            began = time.perf_counter()
            subprocess.run([*command, code], check=True, env=env)
            return time.perf_counter() - began

        return run

    codes = {
        "python": "pass",
        "import socket": "import socket",
        "import timebounds": "import timebounds",
        "import asyncio": "import asyncio",
    }
    rounds = Rounds({name: contestant(code) for name, code in codes.items()}, 3 if quick else 25)
    table(
        "A fresh process",
        ("", "ms", "ms beyond python"),
        [
            (
                name,
                f"{rounds.median(name) * 1e3:.1f}",
                f"{(rounds.median(name) - rounds.median('python')) * 1e3:.1f}",
            )
            for name in codes
        ],
    )
    code = f"import sys, timebounds; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    seen = subprocess.run([*command, code], check=True, env=env, capture_output=True, text=True)
    loaded = seen.stdout.strip()
    claims.state(
        f"import timebounds loads none of {', '.join(HEAVY)}"
        + f": it loads {loaded}" * bool(loaded),
        held=not loaded,
    )


if __name__ == "__main__":
    main()
