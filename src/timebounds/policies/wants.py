"""What a receiver was made with, and what its verbs ask for: checked once, for both colours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from timebounds._checks import as_delimiter, count, member, nanoseconds
from timebounds.bounds.allowance import Overrun
from timebounds.bounds.deadline import NEVER_NS
from timebounds.policies.inbox import Exactly, Some, Until
from timebounds.policies.receiving import MinRate, Rules

if TYPE_CHECKING:
    from timebounds._checks import Seconds
    from timebounds.bounds.allowance import Allowance

__all__: list[str] = []


def as_rules(
    idle_timeout: Seconds | None, allowance: Allowance, min_rate: MinRate | None, overrun: Overrun
) -> Rules:
    """Return the rules of one receiver."""
    idle_ns = NEVER_NS
    if idle_timeout is not None:
        idle_ns = nanoseconds(idle_timeout, "idle_timeout", positive=True)
    if not callable(getattr(allowance, "spend", None)):
        msg = f"allowance must be a RetryAllowance like RetryAllowance(2), not {allowance!r:.80}"
        raise TypeError(msg)
    if min_rate is not None and not isinstance(min_rate, MinRate):
        msg = f"min_rate must be MinRate(bytes_per_second, grace), not {min_rate!r:.80}"
        raise TypeError(msg)
    return Rules(idle_ns, min_rate, member(overrun, "overrun", Overrun))


def exactly(size: int, allowance: Allowance) -> Exactly:
    """Return the target of `receive_exactly`."""
    return Exactly(count(size, "size"), allowance)


def until(delimiter: bytes, max_bytes: int, allowance: Allowance) -> Until:
    """Return the target of `receive_until`."""
    mark = as_delimiter(delimiter, "delimiter")
    return Until(mark, count(max_bytes, "max_bytes", minimum=len(mark)), allowance)


def some(max_bytes: int, allowance: Allowance) -> Some:
    """Return the target of `receive_some`."""
    return Some(count(max_bytes, "max_bytes", minimum=1), allowance)
