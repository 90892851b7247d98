"""The errors of certus. Each message says what is wrong and what to do.

A message names a setting in backticks by its Python name, such as `learning_rate`.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable
from tempfile import NamedTemporaryFile


class CertusError(Exception):
    """Something failed that the arguments are not to blame for: a missing file, a broken download (exit code 1)."""

    exit_code = 1


class UsageError(CertusError):
    """Wrong arguments, or data that they cannot be used on (exit code 2)."""

    exit_code = 2


class Interrupted(CertusError):
    """The user stopped the run; everything is saved (exit code 130)."""

    exit_code = 130


class Told(CertusError):
    """An error that another process of the same run prints."""

    def __init__(self, exit_code: int) -> None:
        super().__init__("")
        self.exit_code = exit_code


def unknown(kind: str, name: str, known: Iterable[str]) -> UsageError:
    """`There is no method 'ft-cll'. Did you mean 'ft-ccl'? Known: …`"""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    listed = f" Known: {', '.join(names)}." if len(names) <= 30 else ""
    return UsageError(f"There is no {kind} {name!r}.{hint}{listed}")


def unexpected(error: Exception) -> CertusError:
    """An error that nobody foresaw, as one sentence; its traceback is kept in a file that the sentence names."""
    what = " ".join(f"{type(error).__name__}: {error}".split())
    what = what if len(what) <= 200 else f"{what[:199]}…"
    if isinstance(error, MemoryError) or "allocate memory" in what or "out of memory" in what:
        return CertusError(f"There is not enough memory for this ({what}): use a smaller `width`, `size` or batch.")
    try:
        with NamedTemporaryFile(
            "w", prefix="certus-error-", suffix=".txt", delete=False, encoding="utf-8", errors="backslashreplace"
        ) as file:
            file.write("".join(traceback.format_exception(error)))
        where = f"The details are in {file.name}: please report it with that file."
    except OSError:
        where = "Set the environment variable CERTUS_TRACEBACK to 1 to see the details."
    return CertusError(f"Something went wrong that certus does not expect ({what}). {where}")
