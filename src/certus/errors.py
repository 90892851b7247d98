"""What can go wrong, said in one sentence: what is wrong, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CertusError(Exception):
    """A run could not do its work (exit code 1)."""

    exit_code = 1


class UsageError(CertusError):
    """What was asked for cannot be done as asked (exit code 2)."""

    exit_code = 2


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """`There is no method 'ft-cll'. Did you mean 'ft-ccl'? Known: …`"""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    known_ones = f" Known: {', '.join(names)}." if len(names) <= 30 else ""
    return UsageError(f"There is no {kind} {name!r}.{hint}{known_ones}")
