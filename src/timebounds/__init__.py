"""timebounds: one deadline for a whole operation, and clocks that tests move by hand."""

from timebounds._checks import blocking_allowed
from timebounds.attempts import Attempts
from timebounds.blocking.receiver import BudgetedReceiver
from timebounds.blocking.waiting import SocketLike
from timebounds.bounds.allowance import Granted, Overrun, Refused, RetryAllowance, SharedAllowance
from timebounds.bounds.backoff import Backoff, Jitter, RandomSource
from timebounds.bounds.clock import (
    MONOTONIC,
    WALL,
    BootClock,
    Clock,
    MonotonicClock,
    Poller,
    SteadyClock,
    WallClock,
)
from timebounds.bounds.deadline import Deadline
from timebounds.bounds.expiry import Expiry
from timebounds.bounds.retry_budget import RetryBudget
from timebounds.bounds.stop import Registration, Stop, StopSignal, wait_requested
from timebounds.errors import (
    BoundReached,
    Busy,
    ClockError,
    DeadlineExceeded,
    IdleTimeout,
    LimitExceeded,
    PeerClosed,
    StopRequested,
    TimeboundsError,
    TooSlow,
    Unfinished,
)
from timebounds.policies.evidence import ReceiveOutcome, ReceiveReport
from timebounds.policies.receiving import MinRate
from timebounds.policies.retry_evidence import (
    AttemptRecord,
    RetryOutcome,
    RetryReport,
    retry_report,
)
from timebounds.policies.retry_hooks import RetryHooks, log_retries
from timebounds.policies.retrying import Attempt, Effect, RetryEvent
from timebounds.retry import Retry

__version__ = "0.1.0"

__all__ = [
    "MONOTONIC",
    "WALL",
    "Attempt",
    "AttemptRecord",
    "Attempts",
    "Backoff",
    "BootClock",
    "BoundReached",
    "BudgetedReceiver",
    "Busy",
    "Clock",
    "ClockError",
    "Deadline",
    "DeadlineExceeded",
    "Effect",
    "Expiry",
    "Granted",
    "IdleTimeout",
    "Jitter",
    "LimitExceeded",
    "MinRate",
    "MonotonicClock",
    "Overrun",
    "PeerClosed",
    "Poller",
    "RandomSource",
    "ReceiveOutcome",
    "ReceiveReport",
    "Refused",
    "Registration",
    "Retry",
    "RetryAllowance",
    "RetryBudget",
    "RetryEvent",
    "RetryHooks",
    "RetryOutcome",
    "RetryReport",
    "SharedAllowance",
    "SocketLike",
    "SteadyClock",
    "Stop",
    "StopRequested",
    "StopSignal",
    "TimeboundsError",
    "TooSlow",
    "Unfinished",
    "WallClock",
    "blocking_allowed",
    "log_retries",
    "retry_report",
    "wait_requested",
]
