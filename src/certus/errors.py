"""The errors of certus. Each message says what is wrong and what to do.

A message names a setting in backticks by its Python name, such as `learning_rate`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class CertusError(Exception):
    """Something failed that the arguments are not to blame for: a missing file, a broken download (exit code 1)."""

    exit_code = 1


class UsageError(CertusError):
    """Wrong arguments, or data that they cannot be used on (exit code 2)."""

    exit_code = 2


class Interrupted(CertusError):
    """The user stopped the run; everything is saved (exit code 130)."""

    exit_code = 130


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """`There is no method 'ft-cll'. Did you mean 'ft-ccl'? Known: …`"""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    listed = f" Known: {', '.join(names)}." if len(names) <= 30 else ""
    return UsageError(f"There is no {kind} {name!r}.{hint}{listed}")
