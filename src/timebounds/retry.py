"""`Retry`: the policy of one target, written once; the instant comes with each call.

The rules are in `policies/retrying.py`. Here a policy is checked, and its four forms meet the two
colours: `call`, `acall`, `attempts` in a loop, and the decorator.
"""

from __future__ import annotations

from functools import partial, wraps
from sys import modules
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, TypeVarTuple, cast, final

from timebounds._checks import member, nanoseconds, refuse_on_loop_thread
from timebounds._settled import Raised
from timebounds._values import Value
from timebounds.aio.retry import AsyncCallPort
from timebounds.attempts import Attempts, give_up, too_late
from timebounds.blocking.retry import CallPort
from timebounds.bounds.alarm import not_backwards
from timebounds.bounds.allowance import Overrun, RetryAllowance
from timebounds.bounds.clock import WALL
from timebounds.bounds.deadline import Deadline, as_deadline
from timebounds.bounds.expiry import wall_clock
from timebounds.bounds.retry_budget import RetryBudget
from timebounds.policies.hints import read_hint
from timebounds.policies.plan import adrive, drive
from timebounds.policies.retry_evidence import RetryOutcome
from timebounds.policies.retrying import Attempt, Effect, Retrying, RetryRules

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import datetime

    from timebounds._checks import Seconds
    from timebounds.bounds.allowance import Allowance
    from timebounds.bounds.clock import Clock
    from timebounds.policies.retrying import RetryEvent

    Failures = type[Exception] | tuple[type[Exception], ...] | Callable[[Exception], bool | Seconds]

__all__ = ["Retry"]

# By number, so that only who decorates something loads inspect.
_POSITIONAL = (0, 1)  # POSITIONAL_ONLY, POSITIONAL_OR_KEYWORD
_VARIADIC = (2, 4)  # VAR_POSITIONAL, VAR_KEYWORD

P = ParamSpec("P")
T = TypeVar("T")
Ts = TypeVarTuple("Ts")


@final
class Retry(Value):
    """A retry policy for one target. Frozen, shared freely, made once at module level.

    What it bounds: the whole of a call, attempts and backoff together, by the deadline of the
    call. It starts no attempt at or after it, and gives each attempt what remains. What it does
    not: interrupt an attempt; that is for the code that is given `attempt.deadline`.

    Args:
        on: which failures are retried: exception types, or a function of the exception that
            answers no, yes, or "not before so many seconds".
        effect: what a repetition does to the world. UNSAFE with retries is refused, unless
            `effect_marked`.
        allowance: how often, after which backoff; or a shared one.
        per_attempt: seconds that one attempt may have at most; None: all that remains.
        min_attempt: seconds that an attempt needs; with no more than that left none is started.
        overrun: give up at once when the backoff would use up the budget (REFUSE), or wait to
            its end (CAP).
        effect_marked: the function says `attempt.effect_may_begin()` before the first byte
            leaves; a failure before that is retried although the effect is UNSAFE.
        hint: a function of the exception that finds the server's hint: seconds, an aware
            datetime, the text of a Retry-After header, or None.
        strict_hints: a malformed hint ends the call instead of being ignored.
        budget: a `RetryBudget` across the calls of one destination.
        on_attempt, on_backoff, on_give_up: hooks, called with a `RetryEvent`; what they raise
            propagates.
        wall: the clock by which hints that are dates are read.
    """

    __slots__ = ("on", "effect", "allowance", "_rules", "_keyed", "_plain")  # noqa: RUF023  (as shown)

    on: Failures
    effect: Effect
    allowance: Allowance
    _rules: RetryRules
    _keyed: bool
    _plain: bool

    def __init__(
        self,
        *,
        on: Failures,
        effect: Effect,
        allowance: Allowance,
        per_attempt: Seconds | None = None,
        min_attempt: Seconds = 0,
        overrun: Overrun = Overrun.REFUSE,
        effect_marked: bool = False,
        hint: Callable[[Exception], object] | None = None,
        strict_hints: bool = False,
        budget: RetryBudget | None = None,
        on_attempt: Callable[[RetryEvent], object] | None = None,
        on_backoff: Callable[[RetryEvent], object] | None = None,
        on_give_up: Callable[[RetryEvent], object] | None = None,
        wall: Clock[datetime] = WALL,
    ) -> None:
        effect = member(effect, "effect", Effect)
        if not callable(getattr(allowance, "spend", None)):
            msg = (
                f"allowance must be a RetryAllowance like RetryAllowance(2), not {allowance!r:.80}"
            )
            raise TypeError(msg)
        if effect is Effect.UNSAFE and allowance != RetryAllowance.none() and not effect_marked:
            msg = (
                "effect UNSAFE can not be retried: declare IDEMPOTENT or DEDUPLICATED if it is, "
                "leave it RetryAllowance.none(), or let the function say "
                "attempt.effect_may_begin() and pass effect_marked=True"
            )
            raise ValueError(msg)
        if budget is not None and not isinstance(budget, RetryBudget):
            msg = f"budget must be a RetryBudget such as RetryBudget.throttle(), not {budget!r:.80}"
            raise TypeError(msg)
        wall_clock(wall)
        share = None
        if per_attempt is not None:
            ns = nanoseconds(per_attempt, "per_attempt", positive=True)
            share = (ns, per_attempt if isinstance(per_attempt, float) else ns / 1e9)
        for name, each in (
            ("hint", hint),
            ("on_attempt", on_attempt),
            ("on_backoff", on_backoff),
            ("on_give_up", on_give_up),
        ):
            if each is not None and not callable(each):
                msg = f"{name} must be a function, not {each!r:.80}"
                raise TypeError(msg)
        rules = RetryRules(
            _judge(on),
            effect,
            effect_marked,
            allowance,
            share,
            nanoseconds(min_attempt, "min_attempt"),
            member(overrun, "overrun", Overrun),
            hint,
            partial(read_hint, wall=wall),
            strict_hints,
            budget,
            on_attempt,
            on_backoff,
            on_give_up,
        )
        plain = on_attempt is None and budget is None and share is None
        keyed = effect is Effect.DEDUPLICATED
        self._set(
            on=on, effect=effect, allowance=allowance, _rules=rules, _keyed=keyed, _plain=plain
        )

    def call(
        self,
        fn: Callable[[Attempt, *Ts], T],
        *args: *Ts,
        deadline: Deadline,
        key: object = None,
    ) -> T:
        """Return `fn(attempt, *args)`, tried again as the policy says, all within `deadline`.

        `key` is the deduplication key of this call, for a DEDUPLICATED target and only there.

        Raises:
            DeadlineExceeded, StopRequested: the deadline had passed, or a stop was requested,
                before the first attempt.
            Exception: what the last attempt raised, with a note that says why it was the last;
                `retry_report(error)` has the history.

        What is no Exception passes at once. Blocks: for threads without a running event loop.
        """
        now = self._begin(deadline, key)
        if "asyncio.events" in modules:
            refuse_on_loop_thread("Retry.call", "Retry.acall")
        first = None
        if self._plain:
            # A first attempt that succeeds needs no plan.
            attempt = Attempt(1, deadline, key, None)
            try:
                return fn(attempt, *args)
            except Exception as error:  # noqa: BLE001  (the plan decides what is retried)
                then = deadline._now()
                not_backwards(now, then)
                first = (attempt, (then, Raised(error)))
        run, port = Retrying(self._rules, deadline, key, now), CallPort(fn, args)
        outcome = drive(run.plan(now, first), port, deadline, first[1][0] if first else now)
        first = None
        if outcome is not RetryOutcome.SUCCEEDED:
            give_up(run, outcome, deadline, deadline._now())
        value: T = port.value
        return value

    async def acall(
        self,
        fn: Callable[[Attempt, *Ts], Awaitable[T]],
        *args: *Ts,
        deadline: Deadline,
        key: object = None,
    ) -> T:
        """Do as `call`, awaiting `fn(attempt, *args)`. A cancel passes at once, from anywhere."""
        now = self._begin(deadline, key)
        run, port = Retrying(self._rules, deadline, key, now), AsyncCallPort(fn, args)
        outcome = await adrive(run.plan(now), port, deadline, now)
        if outcome is not RetryOutcome.SUCCEEDED:
            give_up(run, outcome, deadline, deadline._now())
        value: T = port.value
        return value

    def attempts(self, deadline: Deadline, *, key: object = None) -> Attempts:
        """Return the attempts of one call, for a loop whose body is the call.

        for attempt in POLICY.attempts(deadline):
            with attempt:
                ...  # under attempt.deadline

        and `async for` in a task, whose backoff is awaited. Leaving the body without an exception
        is success. What the last attempt raised comes out of the loop, with a note.
        """
        now = self._begin(deadline, key)
        return Attempts(self._rules, deadline, key, now, plain=self._plain)

    def __call__(self, fn: Callable[P, T]) -> Callable[P, T]:
        """Decorate a function, of either colour, that has a parameter `deadline`.

        Its caller gives the shared deadline; the function receives the attempt's own. With a
        DEDUPLICATED effect it has a parameter `key` too.
        """
        import inspect  # noqa: PLC0415  (only decorated targets pay for it)

        label = getattr(fn, "__name__", "fn")
        if self._rules.effect_marked:
            msg = (
                f"{label} sees no attempt, so it can not say attempt.effect_may_begin(): use "
                "call, acall or attempts with effect_marked=True"
            )
            raise TypeError(msg)
        if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
            msg = f"{label} is a generator: calling it fails never, so nothing would be retried"
            raise TypeError(msg)
        parameters = inspect.signature(fn).parameters
        positional = [each.name for each in parameters.values() if each.kind in _POSITIONAL]
        needed = ("deadline", "key") if self._keyed else ("deadline",)
        for name in needed:
            if name not in parameters or parameters[name].kind in _VARIADIC:
                msg = f"{label} must take {name}: write def {label}(..., {', '.join(needed)})"
                raise TypeError(msg)
            if parameters[name].default is not inspect.Parameter.empty:
                msg = f"{label} must have no default for {name}: it is a fact of each call"
                raise TypeError(msg)
        far = len(positional) + 1  # where no positional argument stands
        places = {n: positional.index(n) if n in positional else far for n in needed}

        def replaced(args: tuple[Any, ...], kwargs: dict[str, Any], attempt: Attempt) -> Any:
            """Call with the attempt's own deadline in the place of the shared one."""
            place = places["deadline"]
            if place < min(len(args), len(positional)):
                args = (*args[:place], attempt.deadline, *args[place + 1 :])
            else:
                kwargs = {**kwargs, "deadline": attempt.deadline}
            return fn(*args, **kwargs)

        def given(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            if name not in places:
                return None
            place = places[name]
            standing = place < min(len(args), len(positional))
            return args[place] if standing else kwargs.get(name)

        call: Any = getattr(fn, "__call__", None)  # noqa: B004  (is it a coroutine function?)
        if inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call):

            @wraps(fn)
            async def awaiting(*args: Any, **kwargs: Any) -> Any:
                def once(attempt: Attempt) -> Any:
                    return replaced(args, kwargs, attempt)

                deadline, key = given("deadline", args, kwargs), given("key", args, kwargs)
                return await self.acall(once, deadline=deadline, key=key)

            return awaiting  # type: ignore[return-value]  # pyright: ignore[reportReturnType]

        @wraps(fn)
        def calling(*args: Any, **kwargs: Any) -> Any:
            def once(attempt: Attempt) -> Any:
                return replaced(args, kwargs, attempt)

            deadline, key = given("deadline", args, kwargs), given("key", args, kwargs)
            return self.call(once, deadline=deadline, key=key)

        return calling

    def _begin(self, deadline: Deadline, key: object) -> int:
        """Check a call's own arguments and return the instant at which it begins."""
        if type(deadline) is not Deadline:
            as_deadline(deadline)
        if (key is None) is self._keyed:
            msg = (
                "a DEDUPLICATED call needs the key by which the other side knows a repetition: "
                "pass key=..."
                if key is None
                else f"key means nothing to an effect that is {self.effect.name}: leave it out"
            )
            raise TypeError(msg)
        now = deadline._now()
        stop = deadline._stop
        if deadline._at - now <= self._rules.min_attempt_ns or (
            stop is not None and stop.requested()
        ):
            raise too_late(deadline, now)
        return now


def _judge(on: Failures) -> Callable[[Exception], bool | Seconds]:
    """Return the function that answers whether a failure is retried."""
    kinds = cast("tuple[Any, ...]", on if isinstance(on, tuple) else (on,))
    if kinds and all(isinstance(kind, type) for kind in kinds):
        for kind in kinds:
            if not issubclass(kind, Exception):
                msg = f"on must hold Exception classes, and {kind.__name__} is none: it ends a call"
                raise TypeError(msg)
        return lambda error: isinstance(error, kinds)
    if isinstance(on, tuple) or not callable(on):
        msg = f"on must be exception types or a function of the exception, not {on!r:.80}"
        raise TypeError(msg)
    return cast("Callable[[Exception], bool | Seconds]", on)
