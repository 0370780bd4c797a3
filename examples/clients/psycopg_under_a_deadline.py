"""psycopg: each statement under one deadline, by the client and by the server.

    python psycopg_under_a_deadline.py "host=/run/postgresql dbname=postgres"

The server is told what is left, so that it stops working too; the client does not rely on that.
Connecting has a limit of its own, `connect_timeout`, in whole seconds and at least two, and looks
names up without a limit: give it a number in `hostaddr`.
"""

import sys

import psycopg

from timebounds import BoundReached, Deadline, bounding, current_deadline

LOOKS_EVERY = 0.05


class BoundedConnection(psycopg.Connection):
    """A connection whose statements obey the `bounding` blocks around; one struck is closed."""

    def wait(self, gen, interval=LOOKS_EVERY):
        deadline = current_deadline()
        if deadline is None:
            return super().wait(gen, interval)
        try:
            return super().wait(checked(gen, deadline), min(interval, LOOKS_EVERY))
        except BoundReached:
            # What the server still sends would be taken for the answer to the next statement.
            self.close()
            raise

    def execute(self, query, params=None, **more):
        deadline = current_deadline()
        limit = None if deadline is None else deadline.timeout_ms()
        if limit is None:
            return super().execute(query, params, **more)
        # LOCAL: it ends with the transaction, and binds no statement that comes later.
        with self.transaction():
            super().execute(f"SET LOCAL statement_timeout = {limit}")
            return super().execute(query, params, **more)


def checked(gen, deadline):
    """Look at the clock each time that psycopg looks at its connection."""
    wanted = next(gen)
    while True:
        ready = yield wanted
        deadline.check("statement")
        try:
            wanted = gen.send(ready)
        except StopIteration as end:
            return end.value


if __name__ == "__main__":
    with BoundedConnection.connect(sys.argv[1], connect_timeout=2, autocommit=True) as conn:
        with bounding(Deadline.after(5)):
            print(conn.execute("SELECT 1").fetchone())
        try:
            with bounding(Deadline.after(0.3)):
                conn.execute("SELECT pg_sleep(30)")
        except (BoundReached, psycopg.errors.QueryCanceled) as error:
            print(error)
