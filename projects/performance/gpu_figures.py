# Copyright (c) mmmoca contributors. Licensed under Apache-2.0.
"""What the parts of gpu.py found, in a file that grows line by line."""

import json
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """A row of a table: its columns by name, units included."""

    table: str
    values: dict[str, object]


class Failure(NamedTuple):
    """Something that did not run."""

    what: str
    error: str


Outcome = Row | Failure | str  # a string is a note


class Figures:
    """JSON lines, a line for each row, note, failure and end of a part.

    Nothing is lost if a part is stopped. A part that starts again takes the
    place of what it found before.

    Args:
        path (Path): The file, which need not be there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def start(self, part: str) -> None:
        """Forget what a part found before."""
        self._add(part, start=True)

    def end(self, part: str, seconds: float) -> None:
        """Note how long a part took, the start of its process included."""
        self._add(part, seconds=round(seconds, 1))

    def add(self, part: str, outcome: Outcome) -> None:
        """Add what a part found."""
        if isinstance(outcome, str):
            self._add(part, note=outcome)
        else:
            self._add(part, **outcome._asdict())

    def of(self, part: str) -> list[dict]:
        """The lines of a part since it started for the last time."""
        return self.parts().get(part, [])

    def parts(self) -> dict[str, list[dict]]:
        """The lines of all parts, in the order in which they first ran."""
        parts: dict[str, list[dict]] = {}
        if self.path.exists():
            for line in self.path.read_text().splitlines():
                # A process that was stopped may have left half a line.
                if not (line.startswith('{') and line.endswith('}')):
                    continue
                record = json.loads(line)
                lines = parts.setdefault(record.pop('part'), [])
                if record.pop('start', False):
                    lines.clear()
                else:
                    lines.append(record)
        return parts

    def seconds(self, part: str) -> float | None:
        """How long a part took the last time that it came to its end."""
        return next(
            (r['seconds'] for r in self.of(part) if 'seconds' in r), None
        )

    def _add(self, part: str, **record) -> None:
        line = json.dumps(dict(part=part, **record)) + '\n'
        with self.path.open('a') as file:
            # At the end of a line, whatever was stopped before.
            file.write('\n' + line if 'start' in record else line)
