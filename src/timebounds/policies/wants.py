"""What doors are made with, and what their verbs ask for: checked once, for both colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from timebounds._checks import as_delimiter, count, member, nanoseconds, shown
from timebounds.bounds.allowance import Overrun
from timebounds.bounds.deadline import NEVER_NS
from timebounds.policies.inbox import Exactly, Some, Until
from timebounds.policies.receiving import MinRate, Rules

if TYPE_CHECKING:
    from timebounds._checks import Seconds
    from timebounds.bounds.allowance import Allowance

__all__: list[str] = []

ContextT = TypeVar("ContextT")
ResolverT = TypeVar("ResolverT")


def as_rules(
    idle_timeout: Seconds | None, allowance: Allowance, min_rate: MinRate | None, overrun: Overrun
) -> Rules:
    """Return the rules of one receiver."""
    idle_ns = as_idle(idle_timeout)
    if not callable(getattr(allowance, "spend", None)):
        msg = f"allowance must be a RetryAllowance like RetryAllowance(2), not {allowance!r:.80}"
        raise TypeError(msg)
    if min_rate is not None and not isinstance(min_rate, MinRate):
        msg = f"min_rate must be MinRate(bytes_per_second, grace), not {min_rate!r:.80}"
        raise TypeError(msg)
    return Rules(idle_ns, min_rate, member(overrun, "overrun", Overrun))


def as_idle(idle_timeout: Seconds | None) -> int:
    """Return the longest silence in ns."""
    if idle_timeout is None:
        return NEVER_NS
    return nanoseconds(idle_timeout, "idle_timeout", positive=True)


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


def as_address(address: object, name: str) -> tuple[str, int]:
    """Return host and port, if that is what it is."""
    pair: Any = address
    if isinstance(address, (tuple, list)) and len(pair) == 2:
        host, port = pair
        if isinstance(host, str) and host and type(port) is int:
            if not 0 <= port <= 65_535:
                msg = f"{name} must have a port from 0 to 65535, not {port}"
                raise ValueError(msg)
            return host, port
    msg = f"{name} must be a host and a port such as ('example.org', 443), not {shown(pair)}"
    raise TypeError(msg)


def as_tls(tls: ContextT | None, name: str) -> ContextT | None:
    """Return the TLS context, if that is what it is; told by its looks, as ssl costs much."""
    if tls is not None and not callable(getattr(tls, "wrap_socket", None)):
        msg = f"{name} must be an ssl.SSLContext or None, not {shown(tls)}"
        raise TypeError(f"{msg}: write tls=ssl.create_default_context()")
    return tls


def as_hostname(hostname: object, name: str) -> str | None:
    """Return the name that a certificate must have, if that is what it is."""
    if hostname is not None and not (isinstance(hostname, str) and hostname):
        msg = f"{name} must be a host name such as 'example.org' or None, not {shown(hostname)}"
        raise TypeError(msg)
    return hostname


def as_resolver(resolver: ResolverT, name: str) -> ResolverT:
    """Return the resolver, if it can be called."""
    if not callable(resolver):
        msg = f"{name} must be a function of host and port, not {shown(resolver)}"
        raise TypeError(msg)
    return resolver
