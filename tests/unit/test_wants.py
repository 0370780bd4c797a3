"""What is given to a door comes back checked, and otherwise as it was."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from timebounds import RetryAllowance
from timebounds.policies.wants import (
    as_address,
    as_hostname,
    as_resolver,
    as_tls,
    exactly,
    some,
    until,
)


@pytest.mark.parametrize("port", [0, 65_535])
def test_every_port_is_one(port):
    assert as_address(["example.org", port], "address") == ("example.org", port)


def test_what_is_right_is_returned():
    context = SimpleNamespace(wrap_socket=print)
    assert as_tls(context, "tls") is context
    assert as_tls(None, "tls") is None
    assert as_hostname("example.org", "server_hostname") == "example.org"
    assert as_hostname(None, "server_hostname") is None
    assert as_resolver(print, "resolver") is print


def test_a_target_has_its_size_and_the_allowance():
    allowance = RetryAllowance(1)
    assert [exactly(0, allowance).requested, exactly(7, allowance).requested] == [0, 7]
    assert some(1, allowance).requested == 1
    assert until(b"\r\n", 2, allowance).requested == 2
    assert until(b"\r\n", 2, allowance).delimiter == b"\r\n"
    for target in (exactly(1, allowance), some(1, allowance), until(b"\n", 1, allowance)):
        assert target.allowance is allowance


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (lambda: exactly(-1, None), "size must be at least 0, not -1"),
        (lambda: some(0, None), "max_bytes must be at least 1, not 0"),
        (lambda: until(b"\r\n", 1, None), "max_bytes must be at least 2, not 1"),
    ],
)
def test_a_size_too_small_is_refused(wrong, text):
    with pytest.raises(ValueError, match=text):
        wrong()
