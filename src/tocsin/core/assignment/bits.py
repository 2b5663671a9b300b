"""The brokers' subscriptions as a matrix of bits.

A row is a broker's set of columns, and sets are compared with it 64 columns at a time. A column of weight w has a bit
for each power of two in w; bits of one power are together, in **regions** of whole words. So the weight of a set is the
sum over regions of the number of bits in it times their power, and all that is done is exact.

A table has such a matrix if it is small, or dense: then a question over all brokers costs no more than to count along
lists of holders, and many questions at once cost far less than one by one.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]

WORDS_SMALL: Final = 1 << 15  # to count in so many takes as long as along the lists of a few hundred columns
WORDS_MAX: Final = 1 << 18  # 2 MiB
SHARE_MAX: Final = 16  # bits of the matrix for each pair, if it is not small
WORDS_AT_ONCE: Final = 1 << 16  # in the middle of an answer: what a cache near the processor has room for
BITS: Final = 64


class Matrix:
    """The rows of all brokers."""

    def __init__(self, count: int, holders: Ints, columns: Ints, weight: Ints) -> None:
        """Column ``columns[n]`` is held by ``holders[n]``, each once; weights are positive."""
        powers = range(int(weight.max(initial=1)).bit_length())
        inside = [np.flatnonzero(weight >> power & 1) for power in powers]
        sizes = np.array([-(-len(each) // BITS) for each in inside])
        begin = np.cumsum(sizes) - sizes
        bits = np.zeros((count, int(sizes.sum()) * BITS), dtype=np.bool_)
        self._at: Ints = np.full(
            len(weight), -1, dtype=np.int64
        )  # of each column the bit with its least power
        self._places: list[Ints] = []
        for each, first in zip(inside, begin.tolist(), strict=True):
            place = np.full(len(weight), -1, dtype=np.int64)
            place[each] = first * BITS + np.arange(len(each))
            self._places.append(place)
            self._at = np.where(self._at < 0, place, self._at)
            there = place[columns]
            bits[holders[there >= 0], there[there >= 0]] = True
        self.held: Words = _packed(bits)
        self._by_word: Words = np.ascontiguousarray(self.held.T)
        kept = np.flatnonzero(sizes)
        self._begin: Ints = begin[kept]
        self._power: Ints = 1 << kept
        self._plain = kept.tolist() == [0]  # all weights are 1

    @classmethod
    def of(cls, count: int, holders: Ints, columns: Ints, weight: Ints) -> Matrix | None:
        """One for these pairs, if it is small enough or dense."""
        words = count * (int(np.bitwise_count(weight).sum()) // BITS + 1)
        if words <= WORDS_SMALL or (words <= WORDS_MAX and words * BITS <= SHARE_MAX * len(columns)):
            return cls(count, holders, columns, weight)
        return None

    def bits(self, columns: Ints) -> Words:
        """These columns as a set."""
        found = np.zeros(self.held.shape[1] * BITS, dtype=np.bool_)
        for place in self._places:
            there = place[columns]
            found[there[there >= 0]] = True
        return _packed(found)

    def columns(self, bits: Words) -> Ints:
        """The columns of a set."""
        return np.flatnonzero(np.unpackbits(bits.view(np.uint8), bitorder="little")[self._at])

    def spread(self, sets: Words) -> Ints:
        """The weight that each broker holds of the columns in a set, or in each row of sets."""
        if sets.ndim == 1:
            alone: Ints = self._spread(sets[None])[0]
            return alone
        size = max(WORDS_AT_ONCE // max(self._by_word.size, 1), 1)
        if len(sets) <= size:
            return self._spread(sets)
        return np.concatenate([self._spread(sets[at : at + size]) for at in range(0, len(sets), size)])

    def _spread(self, sets: Words) -> Ints:
        return self._summed(np.bitwise_count(sets[:, :, None] & self._by_word))

    def weigh(self, sets: Words) -> Ints:
        """The weight of each row of sets."""
        return self._summed(np.bitwise_count(sets))

    def _summed(self, counted: npt.NDArray[np.uint8]) -> Ints:
        """Weights of bits that were counted for each machine word (the second axis)."""
        found: Ints
        if self._plain:
            found = np.add.reduce(counted, axis=1, dtype=np.uint32).astype(np.int64)
        else:
            regions = np.add.reduceat(counted, self._begin, axis=1, dtype=np.uint32)
            found = np.add.reduce(regions * self._power.reshape(-1, *[1] * (counted.ndim - 2)), axis=1)
        return found


def _packed(bits: Bools) -> Words:
    return np.packbits(bits, axis=-1, bitorder="little").view(np.uint64)
