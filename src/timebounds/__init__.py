"""timebounds: one deadline for a whole operation, and clocks that tests move by hand."""

from typing import TYPE_CHECKING, Any

from timebounds._checks import blocking_allowed
from timebounds.attempts import Attempts
from timebounds.blocking.bounding import bounding, current_deadline, detached
from timebounds.blocking.receiver import BudgetedReceiver
from timebounds.blocking.sender import BudgetedSender
from timebounds.blocking.sending_port import SendingLike
from timebounds.blocking.waiting import SocketLike
from timebounds.bounds.alarm import Alarm
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
from timebounds.bounds.stop import Registration, StopSignal, wait_requested
from timebounds.bounds.stop_facts import Stop
from timebounds.errors import (
    BoundReached,
    Busy,
    ClockError,
    DeadlineExceeded,
    IdleTimeout,
    IllegalStep,
    LimitExceeded,
    NotOwner,
    PeerClosed,
    QueueClosed,
    QueueFull,
    StopRequested,
    TimeboundsError,
    TooSlow,
    Unfinished,
    WorkerStuck,
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
from timebounds.policies.sending import SendOutcome, SendReport
from timebounds.retry import Retry

if TYPE_CHECKING:
    from timebounds.aio.bridge import run_async
    from timebounds.aio.cache import AsyncExpiringCache
    from timebounds.aio.connection import AsyncConnection, aconnect
    from timebounds.aio.enforcing import Enforced, EnforceReport, enforcing
    from timebounds.aio.handle import OffloadHandle
    from timebounds.aio.offload import ShieldedOffload, offload, offload_job
    from timebounds.aio.ports import ReaderLike
    from timebounds.aio.receiver import AsyncBudgetedReceiver
    from timebounds.aio.releases import kill_process, request_stop, shut_peer, shut_reading
    from timebounds.aio.scheduler import AsyncScheduler
    from timebounds.aio.sender import AsyncBudgetedSender
    from timebounds.aio.sending_ports import WriterLike
    from timebounds.aio.worker import AsyncWorker
    from timebounds.blocking.cache import ExpiringCache
    from timebounds.blocking.connection import Connection, connect
    from timebounds.blocking.deadline_socket import DeadlineSocket, bounded_tls
    from timebounds.blocking.scheduler import Scheduler
    from timebounds.blocking.worker import Worker
    from timebounds.bounds.errand import Job, Stuck, stuck
    from timebounds.bounds.ownership import Ownership
    from timebounds.journal import (
        Journal,
        MemoryJournal,
        Progress,
        SQLiteJournal,
        publish_once,
    )
    from timebounds.policies.dialing import DialAttempt, DialOutcome, DialReport, dial_report
    from timebounds.policies.jobs import (
        JobReport,
        ScheduledJob,
        SchedulerOutcome,
        SchedulerReport,
        Tick,
    )
    from timebounds.policies.offload_evidence import OffloadOutcome, OffloadReport, offload_report
    from timebounds.policies.shelf import CacheReport, Freshness
    from timebounds.policies.timetable import (
        After,
        Daily,
        Every,
        Missed,
        Missing,
        Once,
        Repeated,
    )
    from timebounds.policies.work import (
        Admission,
        FailurePolicy,
        Overflow,
        Work,
        WorkerReport,
        WorkOutcome,
        WorkRecord,
    )

__version__ = "0.1.0"

__all__ = [
    "MONOTONIC",
    "WALL",
    "Admission",
    "After",
    "Alarm",
    "AsyncBudgetedReceiver",
    "AsyncBudgetedSender",
    "AsyncConnection",
    "AsyncExpiringCache",
    "AsyncScheduler",
    "AsyncWorker",
    "Attempt",
    "AttemptRecord",
    "Attempts",
    "Backoff",
    "BootClock",
    "BoundReached",
    "BudgetedReceiver",
    "BudgetedSender",
    "Busy",
    "CacheReport",
    "Clock",
    "ClockError",
    "Connection",
    "Daily",
    "Deadline",
    "DeadlineExceeded",
    "DeadlineSocket",
    "DialAttempt",
    "DialOutcome",
    "DialReport",
    "Effect",
    "EnforceReport",
    "Enforced",
    "Every",
    "ExpiringCache",
    "Expiry",
    "FailurePolicy",
    "Freshness",
    "Granted",
    "IdleTimeout",
    "IllegalStep",
    "Jitter",
    "Job",
    "JobReport",
    "Journal",
    "LimitExceeded",
    "MemoryJournal",
    "MinRate",
    "Missed",
    "Missing",
    "MonotonicClock",
    "NotOwner",
    "OffloadHandle",
    "OffloadOutcome",
    "OffloadReport",
    "Once",
    "Overflow",
    "Overrun",
    "Ownership",
    "PeerClosed",
    "Poller",
    "Progress",
    "QueueClosed",
    "QueueFull",
    "RandomSource",
    "ReaderLike",
    "ReceiveOutcome",
    "ReceiveReport",
    "Refused",
    "Registration",
    "Repeated",
    "Retry",
    "RetryAllowance",
    "RetryBudget",
    "RetryEvent",
    "RetryHooks",
    "RetryOutcome",
    "RetryReport",
    "SQLiteJournal",
    "ScheduledJob",
    "Scheduler",
    "SchedulerOutcome",
    "SchedulerReport",
    "SendOutcome",
    "SendReport",
    "SendingLike",
    "SharedAllowance",
    "ShieldedOffload",
    "SocketLike",
    "SteadyClock",
    "Stop",
    "StopRequested",
    "StopSignal",
    "Stuck",
    "Tick",
    "TimeboundsError",
    "TooSlow",
    "Unfinished",
    "WallClock",
    "Work",
    "WorkOutcome",
    "WorkRecord",
    "Worker",
    "WorkerReport",
    "WorkerStuck",
    "WriterLike",
    "aconnect",
    "blocking_allowed",
    "bounded_tls",
    "bounding",
    "connect",
    "current_deadline",
    "detached",
    "dial_report",
    "enforcing",
    "kill_process",
    "log_retries",
    "offload",
    "offload_job",
    "offload_report",
    "publish_once",
    "request_stop",
    "retry_report",
    "run_async",
    "shut_peer",
    "shut_reading",
    "stuck",
    "wait_requested",
]

# What needs asyncio or threads is loaded when it is asked for: the rest does not pay for it.
_LATER = {
    "Admission": "policies.work",
    "After": "policies.timetable",
    "AsyncBudgetedReceiver": "aio.receiver",
    "AsyncBudgetedSender": "aio.sender",
    "AsyncConnection": "aio.connection",
    "AsyncExpiringCache": "aio.cache",
    "AsyncScheduler": "aio.scheduler",
    "AsyncWorker": "aio.worker",
    "CacheReport": "policies.shelf",
    "Connection": "blocking.connection",
    "Daily": "policies.timetable",
    "DeadlineSocket": "blocking.deadline_socket",
    "DialAttempt": "policies.dialing",
    "DialOutcome": "policies.dialing",
    "DialReport": "policies.dialing",
    "EnforceReport": "aio.enforcing",
    "Enforced": "aio.enforcing",
    "Every": "policies.timetable",
    "ExpiringCache": "blocking.cache",
    "FailurePolicy": "policies.work",
    "Freshness": "policies.shelf",
    "Job": "bounds.errand",
    "JobReport": "policies.jobs",
    "Journal": "journal",
    "MemoryJournal": "journal",
    "Missed": "policies.timetable",
    "Missing": "policies.timetable",
    "OffloadHandle": "aio.handle",
    "OffloadOutcome": "policies.offload_evidence",
    "OffloadReport": "policies.offload_evidence",
    "Once": "policies.timetable",
    "Overflow": "policies.work",
    "Ownership": "bounds.ownership",
    "Progress": "journal",
    "ReaderLike": "aio.ports",
    "Repeated": "policies.timetable",
    "SQLiteJournal": "journal",
    "ScheduledJob": "policies.jobs",
    "Scheduler": "blocking.scheduler",
    "SchedulerOutcome": "policies.jobs",
    "SchedulerReport": "policies.jobs",
    "ShieldedOffload": "aio.offload",
    "Stuck": "bounds.errand",
    "Tick": "policies.jobs",
    "Work": "policies.work",
    "WorkOutcome": "policies.work",
    "WorkRecord": "policies.work",
    "Worker": "blocking.worker",
    "WorkerReport": "policies.work",
    "WriterLike": "aio.sending_ports",
    "aconnect": "aio.connection",
    "bounded_tls": "blocking.deadline_socket",
    "connect": "blocking.connection",
    "dial_report": "policies.dialing",
    "enforcing": "aio.enforcing",
    "kill_process": "aio.releases",
    "offload": "aio.offload",
    "offload_job": "aio.offload",
    "offload_report": "policies.offload_evidence",
    "publish_once": "journal",
    "request_stop": "aio.releases",
    "run_async": "aio.bridge",
    "shut_peer": "aio.releases",
    "shut_reading": "aio.releases",
    "stuck": "bounds.errand",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module  # noqa: PLC0415  (at the first use of such a name)

    value = getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER})
