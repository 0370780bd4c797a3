"""Peers for tests of connecting: silent addresses, servers in a thread, resolvers that are told."""

from __future__ import annotations

import contextlib
import select
import socket
import threading

from lines import contexts


@contextlib.contextmanager
def black_hole():
    """An address whose packets go nowhere: a listener whose queue is full, as Linux drops them."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(socket.socket())
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        while True:
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sock.connect(server.getsockname())
            poller = select.poll()
            poller.register(sock, select.POLLOUT)
            if not poller.poll(50):
                break
        yield server.getsockname()


@contextlib.contextmanager
def serving(*, tls=False, answer=b"hello", clients=1, ends=False):
    """Greet so many clients, one after another, and keep each until it goes; give the address.

    Nothing is read. With `ends` the stream ends after the greeting.
    """
    errors = []
    context = contexts()[1] if tls else None

    def serve():
        for _ in range(clients):
            try:
                client, _ = server.accept()
            except OSError:
                return
            with client:
                try:
                    if context is not None:
                        client = context.wrap_socket(client, server_side=True)
                    with client:
                        client.sendall(answer)
                        if ends:
                            client.shutdown(socket.SHUT_WR)
                        gone = select.poll()
                        gone.register(client, select.POLLRDHUP)
                        gone.register(over, select.POLLIN)
                        gone.poll(30_000)
                except OSError as error:
                    errors.append(error)

    over, end = socket.socketpair()
    with over, end, socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield server.getsockname()
        finally:
            end.close()
            server.shutdown(socket.SHUT_RDWR)
            thread.join(30)
            assert not thread.is_alive()


def resolving(*addresses):
    """A resolver that always finds these."""
    return lambda host, port: [
        (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", each) for each in addresses
    ]
