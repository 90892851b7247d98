"""Who may ask: on this machine everybody, from elsewhere those who know the token.

A page of another site can make a browser send requests to this machine, and can give its own name this machine's
address (DNS rebinding). So without a token a request must name this machine in `Host`, and must not come from a page
of another site (`Origin`). With a token neither matters: another site does not know it.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from certus.errors import UsageError
from certus.serving.refusal import Refusal

OPEN = frozenset({"/", "/health", "/ready"})  # these say nothing about the model
SHORTEST = 16  # characters of a token
BEARER = "bearer "


def is_loopback(host: str) -> bool:
    """Whether this names the machine itself and cannot be reached from another one."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Access:
    token: str = ""  # empty: none is needed

    @staticmethod
    def on(host: str, token: str) -> Access:
        """For a service on this address; refuses an address that others can reach without a token."""
        if not token and not is_loopback(host):
            raise UsageError(
                f"`host` {host} can be reached from other machines, so it needs a `token`, which every request must "
                "then carry: give one, or leave `host` out to serve this machine alone."
            )
        if token and (len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token):
            raise UsageError(f"`token` must have at least {SHORTEST} characters, all of them ASCII and none a space.")
        return Access(token)

    def check(self, path: str, headers: Mapping[str, str]) -> None:
        """Refuse a request that must not be answered."""
        if self.token:
            if path not in OPEN:
                self.check_token(headers.get("authorization", ""))
            return
        host = headers.get("host", "")
        if not is_loopback(host_name(host)):
            raise Refusal(403, "This service answers requests to localhost alone: use that name in the address.")
        origin = headers.get("origin")
        if origin is not None and origin.lower() != f"http://{host.lower()}":
            raise Refusal(403, "This service does not answer the pages of other sites.")

    def check_token(self, given: str) -> None:
        """It takes the same time for every wrong token."""
        shown = given[len(BEARER) :] if given[: len(BEARER)].lower() == BEARER else ""
        if not hmac.compare_digest(shown.encode(), self.token.encode()):
            raise Refusal(
                401,
                "This service needs its token: send the header Authorization: Bearer TOKEN.",
                {"WWW-Authenticate": "Bearer"},
            )


def host_name(host: str) -> str:
    """Without the port and without the brackets of IPv6; empty if it is no host."""
    try:
        return "" if set(host) & set("@/?#") else urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
