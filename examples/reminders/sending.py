"""How: one exchange with the pager, offloaded, tried again under its key, and marked."""

from __future__ import annotations

import socket
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any

from timebounds import (
    Backoff,
    BudgetedReceiver,
    BudgetedSender,
    Effect,
    Retry,
    RetryAllowance,
    connect,
    offload_job,
    publish_once,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from coordinator import Command

    from timebounds import Attempt, Deadline, Job, Journal, Work

ACKNOWLEDGED = b"ACKED\n"

# The pager knows its keys: the same one twice is one alert.
PAGER = Retry(
    on=(OSError, EOFError),
    effect=Effect.DEDUPLICATED,
    allowance=RetryAllowance(3, Backoff.exponential(0.05, cap=0.5)),
)


class Made(StrEnum):
    """What is known of an effect."""

    NO = "no"
    MAYBE = "maybe"
    """It was asked for, and there is no answer."""
    CONFIRMED = "confirmed"


class Exchange:
    """One question and its answer on a stream; `made` is what is known, also after an error."""

    def __init__(self, sock: Any) -> None:
        self._sender = BudgetedSender(sock)
        self._receiver = BudgetedReceiver(sock)
        self.made = Made.NO

    def ask(self, command: Command, deadline: Deadline) -> None:
        """Send a command and wait for its acknowledgement, all by `deadline`."""
        line = f"{command.key}\t{command.text}\n".encode()
        self.made = Made.MAYBE
        self._sender.send_all(line, deadline)
        answer = self._receiver.receive_exactly(len(ACKNOWLEDGED), deadline)
        if answer != ACKNOWLEDGED:
            msg = f"the pager answered {answer!r:.40}"
            raise ConnectionError(msg)
        self.made = Made.CONFIRMED


class PagerClient:
    """Pages over real connections, each of which is closed when its thread has returned."""

    def __init__(
        self,
        address: tuple[str, int],
        journal: Journal,
        *,
        retry: Retry = PAGER,
        note: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._address = address
        self._journal = journal
        self._retry = retry
        self._note = note
        self.made: dict[str, Made] = {}

    async def handle(self, work: Work[Command]) -> None:
        """Handle a piece of work: in a thread, which is stopped, released and waited for."""
        await offload_job(self.page, work.payload, deadline=work.deadline)

    def page(self, job: Job, command: Command) -> None:
        """Page once and mark it; called in a thread."""
        deadline = job.deadline

        def publish(key: str) -> None:
            self._retry.call(partial(self._attempt, job), command, deadline=deadline, key=key)

        publish_once(self._journal, command.key, publish, deadline)

    def _attempt(self, job: Job, attempt: Attempt, command: Command) -> None:
        self._note(f"attempt {attempt.number}")
        connection = connect(self._address, attempt.deadline)
        exchange = Exchange(connection.socket)
        try:
            # A stop makes a blocked read return; the socket is closed after that, by its thread.
            with job.releasing(partial(self._release, connection.socket)):
                exchange.ask(command, attempt.deadline)
        finally:
            self.made[command.key] = exchange.made
            self._note(f"effect {exchange.made}")
            connection.close()
            self._note("closed")

    def _release(self, sock: socket.socket) -> None:
        self._note("released")
        sock.shutdown(socket.SHUT_RD)
