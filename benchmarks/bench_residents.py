"""What residents cost: a scheduler's jobs as there are more and more of them."""

from __future__ import annotations

import math
import sched
import time

from harness import Claims, begin, table

from timebounds import Once
from timebounds.policies.agenda import Agenda


def main() -> None:
    quick = begin(__doc__)
    claims = Claims()
    bench_agenda(quick, claims)
    claims.end()


class Ours:
    """An agenda, without the waiting."""

    def __init__(self, count):
        self.agenda = Agenda()
        self.tables = [Once(1 + n * 7919 % count) for n in range(count)]

    def add(self):
        agenda, wall = self.agenda, no_wall
        self.jobs = [agenda.add(each, print, "job", None, 0, wall) for each in self.tables]
        agenda.take(0, wall)

    def cancel(self):
        for job in self.jobs[::2]:
            job.cancel()

    def fire(self):
        agenda, wall, now = self.agenda, no_wall, 1 << 60
        fired = 0
        while (due := agenda.take(now, wall)) is not None:
            agenda.ended(due, None, now, wall)
            fired += 1
        return fired


class Sched:
    """The standard library's."""

    def __init__(self, count):
        self.now = 0.0
        self.scheduler = sched.scheduler(lambda: self.now, lambda _: None)
        self.instants = [1 + n * 7919 % count for n in range(count)]

    def add(self):
        self.jobs = [self.scheduler.enterabs(each, 0, nothing) for each in self.instants]

    def cancel(self):
        # Each takes a walk over all of them: a hundred say enough.
        for job in self.jobs[:200:2]:
            self.scheduler.cancel(job)

    def fire(self):
        self.now = math.inf
        self.scheduler.run(blocking=False)
        return len(self.jobs) - len(self.jobs[:200:2])


def nothing():
    pass


def no_wall():
    return 0


def measure(kind, count, rounds):
    """Return the best seconds for one add, one cancel and one run."""
    best = [math.inf] * 3
    for _ in range(rounds):
        made = kind(count)
        began = time.perf_counter()
        made.add()
        added = time.perf_counter()
        made.cancel()
        cancelled = time.perf_counter()
        fired = made.fire()
        ended = time.perf_counter()
        gone = count - fired
        for n, cost in enumerate(
            ((added - began) / count, (cancelled - added) / gone, (ended - cancelled) / fired)
        ):
            best[n] = min(best[n], cost)
    return best


def bench_agenda(quick, claims) -> None:
    few, many = 1_000, 10_000 if quick else 100_000
    rows = []
    for name, kind in (("Scheduler", Ours), ("sched", Sched)):
        small = measure(kind, few, 3 if quick else 20)
        large = measure(kind, many, 1 if quick else 5)
        for verb, one, other in zip(("add", "cancel", "fire"), small, large, strict=True):
            rows.append((f"{name}: {verb}", f"{one * 1e9:,.0f}", f"{other * 1e9:,.0f}"))
            if kind is Ours:
                growth = other / one
                limit = 1.5 * math.log(many) / math.log(few)
                claims.at_most(f"{verb} of one job among {many:,} beside {few:,}", growth, limit)
    table("One job, among so many", ("", f"ns, {few:,}", f"ns, {many:,}"), rows)


if __name__ == "__main__":
    main()
