"""Addresses that others can reach need a token."""

from __future__ import annotations

import pytest

from certus.errors import UsageError
from certus.serving.access import Access, host_name, is_loopback
from certus.serving.limits import Limits


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.53"])
def test_this_machine_needs_no_token(host: str) -> None:
    assert is_loopback(host)
    assert Access.on(host, "").token == ""


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", "", "localhost.example.org"])
def test_other_addresses_need_one(host: str) -> None:
    with pytest.raises(UsageError, match="needs a `token`"):
        Access.on(host, "")
    assert Access.on(host, "x" * 16).token


@pytest.mark.parametrize("token", ["short", "with a space in the middle", "é" * 20, "line\nbreak-in-the-middle"])
def test_a_token_that_cannot_protect_or_be_sent_is_refused(token: str) -> None:
    with pytest.raises(UsageError, match="`token`"):
        Access.on("127.0.0.1", token)


@pytest.mark.parametrize(
    ("host", "name"),
    [("localhost:80", "localhost"), ("[::1]:80", "::1"), ("a@127.0.0.1", ""), ("[", ""), ("", "")],
)
def test_the_name_in_a_host_header(host: str, name: str) -> None:
    assert host_name(host) == name


@pytest.mark.parametrize(
    ("name", "value"),
    [("latency", -1.0), ("max_batch", 0), ("max_batch", 513), ("max_waiting", 31), ("max_bytes", 0), ("timeout", 0.0),
     ("max_pixels", 10**9), ("max_pictures", 0), ("timeout", float("nan"))],
)  # fmt: skip
def test_limits_that_no_service_could_keep_are_refused(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"`{name}`"):
        Limits(**{name: value})  # type: ignore[arg-type]
