"""The committed offsets of the journals of an owned partition: readers get only events that all replicas have which
must confirm a write."""

from __future__ import annotations

from collections import deque

from phalanx.grid.replica.replica import Replica


class JournalMarks:
    """Write sequence numbers to the journal's next number after that write, from the oldest unconfirmed write on."""

    __slots__ = ("_marks", "_readable")

    def __init__(self, seq: int, next_sequence: int, readable: int = -1) -> None:
        self._marks = deque([(seq, next_sequence)])
        self._readable = readable

    def add_mark(self, seq: int, next_sequence: int) -> None:
        self._marks.append((seq, next_sequence))

    def confirm(self, seq: int) -> int:
        """Take the sequence number up to which writes are confirmed. Return the committed offset; -1: not known."""
        marks = self._marks
        while marks and marks[0][0] <= seq:
            self._readable = marks.popleft()[1]
        return self._readable

    def forget(self, seq: int) -> bool:
        """Keep only the last mark up to this sequence number. Return whether there are later marks, too."""
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= seq:
            marks.popleft()
        return len(marks) > 1


class CommittedOffsets:
    """The marks of all journals of one partition.

    A journal's marks are made when they are needed: a partition can have a thousand journals, and most of them are not
    written between two tables.
    """

    __slots__ = ("_began_at", "_begun", "_is_alone", "_marks", "_open", "_replica")

    def __init__(self, replica: Replica) -> None:
        """At the beginning it is not known which other replicas have the present events."""
        self._replica = replica
        self._begin(is_alone=False)

    def _begin(self, *, is_alone: bool) -> None:
        replica = self._replica
        self._marks: dict[str, JournalMarks] = {}
        self._open: dict[str, JournalMarks] = {}
        """The marks of journals that have more than one."""
        self._begun = {name: journal.next for name, journal in replica.journals.items()}
        """Journal without marks yet, to its next number after the write `_began_at`."""
        self._began_at = replica.seq
        self._is_alone = is_alone
        """Whether the events up to then are committed, because no other replica existed; False: that is not known."""

    def note_alone(self) -> None:
        """Count all present events as committed: no other replica existed so far."""
        self._begin(is_alone=True)

    def _marks_of(self, name: str) -> JournalMarks | None:
        marks = self._marks.get(name)
        if marks is None and (begun := self._begun.pop(name, None)) is not None:
            marks = self._marks[name] = JournalMarks(self._began_at, begun, begun if self._is_alone else -1)
        return marks

    def mark_write(self, name: str, seq: int) -> None:
        """Mark how far the journal of a map has come with a write that was applied."""
        journal, marks = self._replica.journals.get(name), self._marks_of(name)
        if journal is None:
            self._marks.pop(name, None)
            self._open.pop(name, None)
        elif marks is None:
            self._marks[name] = JournalMarks(seq, journal.next)
        else:
            marks.add_mark(seq, journal.next)
            self._open[name] = marks

    def forget(self, seq: int) -> None:
        """Drop the marks that are not needed once all streams have the writes up to this sequence number."""
        for name, marks in list(self._open.items()):
            if not marks.forget(seq):
                del self._open[name]

    def find_offset(self, name: str, confirmed: int | None) -> int:
        """Return the committed offset of a map's journal; -1: not known for any event.

        `confirmed`: the sequence number up to which writes are confirmed; None: there are no replicas to confirm.
        """
        marks = self._marks_of(name) if confirmed is not None else None
        return self._replica.journals[name].next if confirmed is None or marks is None else marks.confirm(confirmed)
