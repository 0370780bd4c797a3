"""The tests of `async_service.py`: scripted minutes, and nothing is patched.

`python3 -m pytest` in this folder runs them; as a script it runs them a thousand times.
"""

import asyncio
from time import perf_counter

from async_service import Service

from timebounds import StopSignal
from timebounds.testing import Data, End, FakeClock, ScriptedStream


def served(*script, look_up=None, stop_after=None):
    """Let a service talk to a scripted client; return what it sent, and how long it took."""
    clock = FakeClock()
    client = ScriptedStream(clock, *script)
    stop = StopSignal(clock=clock)

    async def shout(line, _):
        await asyncio.sleep(1)  # on the loop's time, which is the clock's
        return line.upper()

    async def main():
        if stop_after is not None:
            asyncio.get_running_loop().call_later(stop_after, stop.request)
        await Service(look_up or shout, stop, clock=clock).serve(client, client)

    clock.run(main())
    return bytes(client.sent), clock.now()


def test_a_client_is_served_for_as_long_as_it_talks():
    lines = [Data(b"tea\n", after=59)] * 10
    assert served(*lines, End()) == (b"TEA\n" * 10, 600.0)


def test_a_drip_is_given_a_minute_for_its_line():
    drip = [Data(b"x", after=9)] * 10
    assert served(*drip) == (b"goodbye: DeadlineExceeded\n", 60.0)


def test_a_look_up_that_fails_is_tried_again_within_the_budget():
    asked = []

    async def fails_twice(_, deadline):
        asked.append(deadline.remaining())
        if len(asked) < 3:
            raise ConnectionResetError
        return b"3.20\n"

    assert served(Data(b"tea\n"), End(), look_up=fails_twice) == (b"3.20\n", 1.5)
    assert asked == [9.0, 8.5, 7.5]


def test_a_look_up_that_hangs_is_left_in_time_for_an_answer():
    async def hangs(*_):
        await asyncio.sleep(3600)

    assert served(Data(b"tea\n"), End(), look_up=hangs) == (b"sorry: it took too long\n", 9.0)


def test_a_look_up_that_always_fails_is_given_up():
    async def fails(*_):
        raise ConnectionRefusedError

    assert served(Data(b"tea\n"), End(), look_up=fails) == (b"sorry: nobody knows\n", 3.5)


def test_a_stop_ends_a_silent_client_and_answers_an_asked_question():
    assert served(stop_after=30) == (b"goodbye: StopRequested\n", 30.0)
    sent = b"TEA\ngoodbye: StopRequested\n"
    assert served(Data(b"tea\n", after=30), stop_after=30.5) == (sent, 31.0)


if __name__ == "__main__":
    tests = [value for name, value in globals().items() if name.startswith("test_")]
    begin = perf_counter()
    for _ in range(1000):
        for each in tests:
            each()
    took = perf_counter() - begin
    print(f"twelve minutes of service, tested in {took:.1f} ms; the same a thousand times over")
