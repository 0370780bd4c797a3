"""An exception before the n-th bytecode of the package, for every n."""

from __future__ import annotations

import sys
import threading
import types


class Injected(BaseException):
    """Stands for what a signal handler raises."""


def codes(*modules):
    """All code objects of the functions and classes of some modules."""
    found = []

    def walk(code):
        found.append(code)
        for constant in code.co_consts:
            if isinstance(constant, types.CodeType):
                walk(constant)

    for module in modules:
        for thing in vars(module).values():
            members = vars(thing).values() if isinstance(thing, type) else [thing]
            for member in members:
                function = getattr(member, "fget", None) or getattr(member, "__func__", member)
                code = function.__code__ if isinstance(function, types.FunctionType) else None
                if code is not None and code.co_filename == module.__file__:
                    walk(code)
    return found


def run(fn, among, n):
    """Run `fn` with an exception before bytecode `n` of `among`; say how many there were.

    In a thread of its own: an exception where the interpreter expects none, inside the clean-up of
    an except block, leaves that thread's record of handled exceptions askew.
    """
    outcome = []

    def inside():
        try:
            outcome.append((_monitored if sys.version_info >= (3, 12) else _traced)(fn, among, n))
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=inside)
    thread.start()
    thread.join()
    if isinstance(outcome[0], BaseException):
        raise outcome[0]
    return outcome[0]


def _monitored(fn, among, n):
    count = 0
    monitoring = sys.monitoring
    monitoring.use_tool_id(3, "anywhere")

    def before(code, offset):
        nonlocal count
        count += 1
        if count == n:
            raise Injected

    monitoring.register_callback(3, monitoring.events.INSTRUCTION, before)
    try:
        for code in among:
            monitoring.set_local_events(3, code, monitoring.events.INSTRUCTION)
        try:
            return fn(), count
        except Injected:
            return None, count
    finally:
        for code in among:
            monitoring.set_local_events(3, code, 0)
        monitoring.register_callback(3, monitoring.events.INSTRUCTION, None)
        monitoring.free_tool_id(3)


def _traced(fn, among, n):
    count = 0
    among = set(among)

    def trace(frame, event, arg):
        nonlocal count
        if frame.f_code not in among:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        if event == "opcode":
            count += 1
            if count == n:
                sys.settrace(None)
                raise Injected
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return fn(), count
    except Injected:
        return None, count
    finally:
        sys.settrace(before)
