"""Run files: settings as TOML in which every string and every number comes back as it was.

TOML holds Unicode. A path may have bytes that are not UTF-8, which Python keeps as half surrogates: `caf\\xe9` becomes
`caf\\udce9`. No path has the character NUL, so a run file writes NUL and the surrogate's four digits:
`"caf\\u0000dce9"`.

The first line of a run's own file is its seal, a digest of the settings. So a file that was cut or edited is noticed.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from certus.errors import UsageError

SEAL = re.compile(r"# certus run file, seal ([0-9a-f]{16})\n")
UNSEALED = ("data", "data_dir", "device", "threads")  # where the run finds its data and runs; they may be edited
# The settings of certus 0.1.0, whose run files have no seal.
FIRST = (
    *"data data_dir size method labels seed validation unlabelled balanced label_noise network width dropout".split(),
    *"init translate flip noise labelled_batch unlabelled_batch steps learning_rate momentum weight_decay".split(),
    *"device threads options".split(),
)
EARLIER = {"clock": 210}  # what run files that do not say so were trained with
BARE = re.compile(r"[A-Za-z0-9_-]+")


def to_toml(values: Mapping[str, Any]) -> str:
    """Flat settings, then one table for the options."""
    lines = [f"{key(k)} = {written(k, v)}" for k, v in values.items() if not isinstance(v, Mapping)]
    for name, table in values.items():
        if isinstance(table, Mapping):
            lines += ["", f"[{key(name)}]", *(f"{key(k)} = {written(k, v)}" for k, v in table.items())]
    return "\n".join(lines) + "\n"


def from_toml(text: str) -> dict[str, Any]:
    """What `to_toml` was given; raises ValueError if it is not TOML."""
    return {unhidden(name): shown(value) for name, value in tomllib.loads(text).items()}


def sealed(values: Mapping[str, Any]) -> str:
    """A run's own file."""
    body = to_toml(values)
    return f"# certus run file, seal {seal_of(values)}\n{body}"


def seal_in(text: str) -> str | None:
    """The seal on the first line, if there is one."""
    found = SEAL.match(text)
    return found[1] if found else None


def seal_of(values: Mapping[str, Any]) -> str:
    kept = {name: value for name, value in values.items() if name not in UNSEALED}
    return sha256(json.dumps(kept, sort_keys=True, default=str).encode()).hexdigest()[:16]


def missing(values: Mapping[str, Any], sealed: bool) -> list[str]:
    """Settings that a run's own file must have and this one has not. The seal vouches for the others."""
    return [name for name in (UNSEALED if sealed else FIRST) if name not in values]


def key(name: str) -> str:
    return name if BARE.fullmatch(name) else string(name)


def written(name: str, value: Any) -> str:
    """A value in TOML; JSON's strings, finite numbers, booleans and lists are TOML's too."""
    try:
        if isinstance(value, list):
            return f"[{', '.join(written(name, item) for item in value)}]"
        if isinstance(value, (bool, int, float)):
            return json.dumps(value, allow_nan=False)
        if isinstance(value, str):
            return string(value)
    except ValueError:
        pass
    raise UsageError(f"`{name}` is {value!r}, which a run file cannot hold.")


def string(text: str) -> str:
    return json.dumps(hidden(text), ensure_ascii=False).replace("\x7f", "\\u007f")


def hidden(text: str) -> str:
    """Without what TOML cannot hold."""
    return re.sub("[\0\ud800-\udfff]", lambda found: f"\0{ord(found[0]):04x}", text)


def unhidden(text: str) -> str:
    return re.sub("\0([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), text)


def shown(value: Any) -> Any:
    """A value of a run file with the strings as they were."""
    if isinstance(value, str):
        return unhidden(value)
    if isinstance(value, list):
        return [shown(item) for item in value]
    if isinstance(value, dict):
        return {unhidden(name): shown(item) for name, item in value.items()}
    return value
