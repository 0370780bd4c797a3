"""requests under one deadline: an adapter whose connections obey the `bounding` blocks.

session.mount("https://", DeadlineAdapter())
session.mount("http://", DeadlineAdapter())
with bounding(Deadline.after(0.5)):
    response = session.get(url)

The rules are those of `interop/urllib3.py`, on which requests stands.
"""

from __future__ import annotations

from typing import Any

from requests.adapters import HTTPAdapter
from requests.exceptions import InvalidSchema

from timebounds.interop.urllib3 import bounded_pools

__all__ = ["DeadlineAdapter"]


class DeadlineAdapter(HTTPAdapter):
    """An adapter to mount on a `requests.Session`: what it sends obeys the `bounding` blocks.

    Lookup, addresses, proxies and their tunnels, TLS, the request and the answer, redirections and
    retries, under one deadline. Takes what `requests.adapters.HTTPAdapter` takes. The `timeout` of
    a request is a limit within. With `stream=True` the body keeps the deadline of its request.

    Raises:
        requests.Timeout, requests.ConnectionError: as ever; leaving the `bounding` block raises
            DeadlineExceeded from it where the deadline is the cause.
        requests.exceptions.InvalidSchema: a SOCKS proxy, which can not be bounded.
    """

    def init_poolmanager(
        self,
        connections: int,
        maxsize: int,
        block: bool = False,  # noqa: FBT001, FBT002  (as requests has it)
        **pool_kwargs: Any,
    ) -> None:
        """Make the pools. Called by requests."""
        super().init_poolmanager(connections, maxsize, block, **pool_kwargs)
        bounded_pools(self.poolmanager)

    def proxy_manager_for(self, proxy: str, **proxy_kwargs: Any) -> Any:
        """Make the pools for a proxy. Called by requests."""
        if proxy.lower().startswith("socks"):
            msg = f"a SOCKS proxy can not be put under a deadline: {proxy}"
            raise InvalidSchema(msg)
        return bounded_pools(super().proxy_manager_for(proxy, **proxy_kwargs))
