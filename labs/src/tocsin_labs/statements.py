"""The statements of a paper's text, held against our results: each holds here or does not, with the numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import msgspec

HEADINGS: Final = ("figure", "the paper says", "here", "because")


class Claim(msgspec.Struct, frozen=True):
    """A statement of a paper."""

    figure: str
    words: str
    holds: bool
    evidence: str

    def cells(self) -> tuple[str, ...]:
        return self.figure, self.words, "holds" if self.holds else "does not hold", self.evidence


def markdown(claims: Iterable[Claim]) -> str:
    lines = [HEADINGS, ("---",) * len(HEADINGS), *(claim.cells() for claim in claims)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
