"""Retries that nest multiply. One shared allowance is a total for all levels together."""

from timebounds import Backoff, BudgetedReceiver, Granted, IdleTimeout, RetryAllowance
from timebounds.testing import Data, FakeClock, ScriptedSocket

clock = FakeClock(auto_advance=True)
deadline = clock.deadline(60)

# As a plain value each operation starts from all of it; spending never changes the value.
three = RetryAllowance(3, Backoff.exponential(0.5, cap=4.0))
step = three.spend()
delays = []
while isinstance(step, Granted):
    delays.append(step.delay)
    step = step.rest.spend()
print("delays:", delays, "and still", three.retries, "retries in the value")

# Shared, it is one counter: two connections and their caller have three retries together.
shared = three.shared()
slow = ScriptedSocket(clock, Data(b"pong", after=2.5))
dead = ScriptedSocket(clock)
print(BudgetedReceiver(slow, idle_timeout=1.0, allowance=shared).receive_exactly(4, deadline))
print(shared)
try:
    BudgetedReceiver(dead, idle_timeout=1.0, allowance=shared).receive_exactly(4, deadline)
except IdleTimeout as error:
    print(error.report)
print(shared, "at", clock.now(), "s")
assert shared.retries == 0
