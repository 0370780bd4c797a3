"""How the system's signals, such as SIGTERM, become a request to stop.

Rules: the first delivery asks; the second does what it would have done without us, so that an
impatient operator is obeyed. The handlers of before are restored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

__all__: list[str] = []

T = TypeVar("T")


@final
class SignalHandlers(Generic[T]):
    """What `StopSignal.on_signals` returns: handlers that are installed for a block."""

    def __init__(self, signals: tuple[int, ...], stop: T, ask: Callable[[str], object]) -> None:
        if not signals:
            msg = "signals must not be empty: write StopSignal.on_signals(signal.SIGTERM)"
            raise ValueError(msg)
        self._signals = signals
        self._stop = stop
        self._ask = ask
        self._delivered = False
        self._over = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> T:
        """Install the handlers and return the stop signal that they request."""
        import signal  # noqa: PLC0415  (only services pay for it)

        try:
            for number in self._signals:
                before = signal.getsignal(number)
                signal.signal(number, self._handle)
                self._before.setdefault(number, before)
        except BaseException:
            self.__exit__()
            raise
        return self._stop

    def __exit__(self, *exc_info: object) -> None:
        """Restore the handlers of before."""
        import signal  # noqa: PLC0415  (only services pay for it)

        self._over = True
        for number, handler in self._before.items():
            if signal.getsignal(number) != self._handle:
                continue  # somebody came after us: who restores ours then finds it passing on
            # None is a handler that was not installed from Python: only C could bring it back.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        import signal  # noqa: PLC0415  (loaded already)

        if not self._over:
            first, self._delivered = not self._delivered, True
            # Most real-time signals have no name.
            named = number in set(signal.Signals)
            self._ask(signal.Signals(number).name if named else f"signal {number}")
            if first:
                return
        before = self._before.get(number)
        if callable(before):
            before(number, frame)
        elif before is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
