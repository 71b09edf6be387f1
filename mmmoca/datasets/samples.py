# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What is known of millions of images, without an object for each."""

import heapq
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from numbers import Integral

import numpy as np

__all__ = ['Samples', 'Texts', 'sort_texts']

# Any name of a file can be kept so, in the order of Python's strings.
CODEC = 'utf-8', 'surrogatepass'


class Texts(Sequence):
    """Strings one behind the other: their bytes, and 8 more for each.

    Processes that are forked share them, as reading changes no counter of
    references.

    Args:
        texts: The strings, of which one at a time is in memory.
    """

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._content = bytearray()
        self._ends = array('q')
        self.extend(texts)

    @classmethod
    def unpacked(cls, content: np.ndarray, ends: np.ndarray) -> 'Texts':
        """Inverse of :meth:`packed`."""
        self = cls()
        self._content += content.tobytes()
        self._ends.frombytes(ends.astype(np.int64).tobytes())
        return self

    def packed(self) -> tuple[np.ndarray, np.ndarray]:
        """The bytes of all strings, uint8, and where each ends, int64."""
        return np.asarray(self._content), np.asarray(self._ends)

    def extend(self, texts: Iterable[str]) -> None:
        """Append strings."""
        if isinstance(texts, Texts):
            ends = np.asarray(texts._ends) + len(self._content)
            self._content += texts._content
            self._ends.frombytes(ends.tobytes())
            return
        for text in texts:
            self._content += text.encode(*CODEC)
            self._ends.append(len(self._content))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> str:
        index = range(len(self))[index]
        start = self._ends[index - 1] if index else 0
        return self._content[start : self._ends[index]].decode(*CODEC)

    def __iter__(self) -> Iterator[str]:
        content, start = memoryview(self._content), 0
        for end in self._ends:
            yield str(content[start:end], *CODEC)
            start = end


def sort_texts(texts: Iterable[str], run: int = 2**19) -> Iterator[str]:
    """Sort any number of strings.

    Args:
        texts: The strings.
        run: How many of them may be Python objects at a time.

    Returns:
        Iterator[str]: They as :func:`sorted` gives them.
    """
    texts = iter(texts)
    runs = []
    while part := sorted(islice(texts, run)):
        runs.append(Texts(part))
    return heapq.merge(*runs)


class Samples(Sequence):
    """The images of a data set, in the place of a list of dicts.

    An index gives a dict of ``img_path`` and, with labels, ``gt_label``. A
    slice or an array of indices gives other samples, which share what they
    are made from.

    Args:
        paths: Path or URL of each image; may make them when asked.
        labels: Class of each image, integers of shape (N, ).
        rows: Which of them to take. None takes all.
    """

    def __init__(
        self,
        paths: Sequence[str],
        labels: np.ndarray | None = None,
        rows: np.ndarray | None = None,
    ) -> None:
        self._paths = paths
        self._labels = labels
        self._rows = rows

    @property
    def labels(self) -> np.ndarray | None:
        """Class of each image, (N, ); None without labels."""
        if self._labels is None or self._rows is None:
            return self._labels
        return self._labels[self._rows]

    def __len__(self) -> int:
        return len(self._paths if self._rows is None else self._rows)

    def __getitem__(self, index: int | slice | np.ndarray) -> 'dict | Samples':
        if not isinstance(index, Integral):
            rows = self._rows
            if rows is None:
                rows = np.arange(len(self))
            return Samples(self._paths, self._labels, rows[index])
        row = range(len(self))[index]
        if self._rows is not None:
            row = int(self._rows[row])
        sample = {'img_path': self._paths[row]}
        if self._labels is not None:
            sample['gt_label'] = int(self._labels[row])
        return sample

    def __deepcopy__(self, memo: dict) -> 'Samples':
        """Nothing changes them: MMEngine's subsets need no copy."""
        return self
