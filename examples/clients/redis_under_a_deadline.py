"""redis-py: connecting, each command and its answer under one deadline, over a pool.

    python redis_under_a_deadline.py 6379

Its own retries are off: they wait for seconds that no deadline knows. Where you want to try again,
`timebounds.Retry` does it inside the same deadline.
"""

import socket
import sys

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from timebounds import (
    Deadline,
    DeadlineExceeded,
    DeadlineSocket,
    bounding,
    connect,
    current_deadline,
)


class BoundedConnection(redis.Connection):
    """A connection all of whose waiting obeys the `bounding` blocks around."""

    def _connect(self):
        deadline = current_deadline()
        if deadline is None:
            deadline = Deadline.never()
        sock = DeadlineSocket(connect((self.host, self.port), deadline).socket)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.settimeout(self.socket_timeout)
        return sock


def bounded_redis(host, port):
    pool = redis.ConnectionPool(
        connection_class=BoundedConnection, host=host, port=port, retry=Retry(NoBackoff(), 0)
    )
    return redis.Redis.from_pool(pool)


if __name__ == "__main__":
    with bounded_redis("127.0.0.1", int(sys.argv[1])) as client:
        with bounding(Deadline.after(5)):
            client.set("greeting", "hello")
            print(client.get("greeting"))
        try:
            with bounding(Deadline.after(0.2)):
                client.blpop("a list that stays empty")
        except DeadlineExceeded as error:
            print(error)
        with bounding(Deadline.after(5)):
            print(client.get("greeting"))
