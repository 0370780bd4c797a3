"""A database session, guarded by a lock, and a cancelled query: when is the lock free again?"""

import asyncio
import threading

from timebounds import Deadline, offload


class Session:
    """For one user at a time, as most are."""

    def __init__(self):
        self.inside = 0
        self.entered = threading.Event()
        self._cancelled = threading.Event()

    def execute(self, statement):
        """Run a query, which takes a while."""
        self.inside += 1
        self.entered.set()
        try:
            if self._cancelled.wait(0.3):
                raise ConnectionAbortedError(f"cancelled: {statement}")
            return "rows"
        finally:
            self.inside -= 1

    def cancel(self):
        """Cancel the query, from any thread."""
        self._cancelled.set()


async def users_when_the_lock_is_free(query):
    session, lock = Session(), asyncio.Lock()

    async def first():
        async with lock:
            await query(session)

    task = asyncio.create_task(first())
    await asyncio.to_thread(session.entered.wait)
    task.cancel()
    async with lock:  # the second user
        return session.inside


async def in_a_plain_thread(session):
    await asyncio.to_thread(session.execute, "SELECT")


async def offloaded(session):
    deadline = Deadline.after(60)
    await offload(session.execute, "SELECT", deadline=deadline, release=session.cancel)


plain = asyncio.run(users_when_the_lock_is_free(in_a_plain_thread))
print("asyncio.to_thread: the lock is free, with", plain, "thread inside the session")
assert plain == 1

alone = asyncio.run(users_when_the_lock_is_free(offloaded))
print("offload: the lock is free, with", alone, "threads inside the session")
assert alone == 0
