"""A request that is not answered: the status, and one sentence that says what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Mapping


class Refusal(Exception):
    def __init__(self, status: int, sentence: str, headers: Mapping[str, str] | None = None, **more: int) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.headers, self.more = status, sentence, dict(headers or {}), more
