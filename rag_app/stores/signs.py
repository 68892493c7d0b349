"""Signs of large organizations in the memory of the process: comparing ten thousand takes a tenth of PostgreSQL's time.

What is kept is what every member of the organizations may see, and only proposes numbers of chunks. The statement of a
search takes the proposal where the organizations are as they were when their signs were read, and scans the table
otherwise; in both cases it looks up each chunk under the scope (docs/adr/0048-signs-in-memory.md).
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from asyncpg import BitString
from cachetools import LRUCache

MOST_BYTES = 32 * 2**20
"""Of signs in the memory of one process: some 500,000 chunks with 384 dimensions."""
# Searches after which signs are read: reading takes as long as ten searches, and a write makes it vain.
_USES_BEFORE_CACHING = 3
_MOST_COUNTED = 1_000

VERSION = "coalesce(string_agg(concat_ws(' ', p.org_id, p.xmin, p.chunks, p.length), ',' ORDER BY p.org_id), '')"
"""SQL: what changes with each write in the organizations whose rows of `sizes` are `p`, since each write updates them."""

READ = """
    SELECT (SELECT {version} FROM {t}_sizes p WHERE p.org_id = ANY({organizations})) AS version,
        string_agg(int8send(v.no), '' ORDER BY v.no) AS numbers, string_agg(bit_send(v.signs), '' ORDER BY v.no) AS signs
    FROM {t}_signs v WHERE v.org_id = ANY({organizations}) AND v.private_to IS NULL"""
"""The signs of all chunks that every member of the organizations may see, and their version."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """The chunks that may be among the nearest by sign, each as `far` (`postgres_tables`), least first."""

    version: str
    far: list[float]
    planes: Sequence[BitString]
    """Of the question, which it was made with."""


class Signs:
    """The signs of some organizations as of a version: a row for every 64 dimensions, a column a chunk."""

    def __init__(self, version: str, numbers: bytes, signs: bytes) -> None:
        self.version = version
        self._numbers = np.frombuffer(numbers, ">i8").astype(np.float64)
        rows = np.frombuffer(signs, np.uint8).reshape(len(self._numbers), -1)[:, 4:]  # before each, how many bits
        self._words = np.ascontiguousarray(
            _words(np.pad(rows, ((0, 0), (0, -rows.shape[1] % 8))).tobytes()).reshape(len(rows), -1).T
        )

    @property
    def size(self) -> int:
        """In bytes."""
        return int(self._words.nbytes + self._numbers.nbytes)

    def propose(
        self, planes: Sequence[BitString], limit: int, sure: int, most: int, margin: int, place: int
    ) -> Proposal:
        """At least those among the `most` nearest that are as near as the `limit`-th, or up to `margin` farther than the
        `sure`-th: what is too much, the statement leaves out.
        """
        counts = np.empty(self._words.shape, np.uint8)
        for row, (words, side, half) in enumerate(
            zip(self._words, *(_words(each.bytes) for each in planes), strict=True)
        ):
            differing = words ^ side  # a row at a time: the processor's cache holds it
            np.multiply(np.bitwise_count(differing), 2, out=counts[row])
            counts[row] += np.bitwise_count(differing ^ (side ^ half))
        distances = counts.sum(axis=0, dtype=np.uint16)
        nearer = np.bincount(distances).cumsum()
        last, at_sure, at_most = np.searchsorted(nearer, (limit, sure, most))
        chosen = np.flatnonzero(distances <= min(max(last, at_sure + margin), at_most))
        far = distances[chosen] * float(place) + self._numbers[chosen]
        far.sort()
        return Proposal(self.version, far.tolist(), planes)


class SignMemory:
    """Signs by generation and organizations; those that were asked for least recently go first."""

    def __init__(self) -> None:
        self._kept = LRUCache[Hashable, Signs](MOST_BYTES, getsizeof=lambda signs: signs.size)
        self._asked = LRUCache[Hashable, int](_MOST_COUNTED)

    def get(self, key: Hashable) -> Signs | None:
        return self._kept.get(key)

    def is_wanted(self, key: Hashable) -> bool:
        """Whether it has been asked for often enough, now, that its signs should be read. True once: for who reads them."""
        self._asked[key] = self._asked.get(key, 0) + 1
        return self._asked[key] == _USES_BEFORE_CACHING

    def keep(self, key: Hashable, signs: Signs) -> None:
        if signs.size <= MOST_BYTES:
            self._kept[key] = signs

    def forget(self, key: Hashable) -> None:
        self._kept.pop(key, None)
        self._asked.pop(key, None)


def _words(bits: bytes) -> npt.NDArray[np.uint64]:
    """Numbers of 64 bits, with zeros behind."""
    return np.frombuffer(bits.ljust(-(-len(bits) // 8) * 8, b"\0"), np.uint64)
