"""How far the journals of an owned partition may be read: as far as all have it who must confirm a write."""

from __future__ import annotations

from collections import deque

from phalanx.grid.replica.store import Replica


class JournalMarks:
    """How far a journal had come with which write, from the oldest write that is not confirmed."""

    __slots__ = ("_marks", "_readable")

    def __init__(self, seq: int, next_sequence: int, readable: int = -1) -> None:
        self._marks = deque([(seq, next_sequence)])
        self._readable = readable

    def note(self, seq: int, next_sequence: int) -> None:
        self._marks.append((seq, next_sequence))

    def confirm(self, seq: int) -> int:
        """All have the writes up to this number: up to which event one may read. -1: that is not known."""
        marks = self._marks
        while marks and marks[0][0] <= seq:
            self._readable = marks.popleft()[1]
        return self._readable

    def forget(self, seq: int) -> bool:
        """Keep only the last of the writes up to this number. True: there are others besides."""
        marks = self._marks
        while len(marks) > 1 and marks[1][0] <= seq:
            marks.popleft()
        return len(marks) > 1


class CommittedOffsets:
    """The marks of all journals of one partition. Each is made when it is wanted: a partition may have a thousand journals,
    and most of them are not written between two tables."""

    __slots__ = ("_began_at", "_begun", "_is_alone", "_marks", "_open", "_replica")

    def __init__(self, replica: Replica) -> None:
        """Of what there is now it is not known who else has it."""
        self._replica = replica
        self._begin(is_alone=False)

    def _begin(self, *, is_alone: bool) -> None:
        replica = self._replica
        self._marks: dict[str, JournalMarks] = {}
        self._open: dict[str, JournalMarks] = {}
        """Those of the marks that tell of more than one write."""
        self._begun = {name: journal.next for name, journal in replica.journals.items()}
        """Journal to how far it had come with the write `_began_at`, where it has no marks yet."""
        self._began_at = replica.seq
        self._is_alone = is_alone
        """Whether all of that may be read; else nothing is known."""

    def note_alone(self) -> None:
        """Let all events be read that are in the journals so far: nobody else had the partition."""
        self._begin(is_alone=True)

    def _marks_of(self, name: str) -> JournalMarks | None:
        marks = self._marks.get(name)
        if marks is None and (begun := self._begun.pop(name, None)) is not None:
            marks = self._marks[name] = JournalMarks(self._began_at, begun, begun if self._is_alone else -1)
        return marks

    def note(self, name: str, seq: int) -> None:
        """A write is applied: how far the journal of its map has come."""
        journal, marks = self._replica.journals.get(name), self._marks_of(name)
        if journal is None:
            self._marks.pop(name, None)
            self._open.pop(name, None)
        elif marks is None:
            self._marks[name] = JournalMarks(seq, journal.next)
        else:
            marks.note(seq, journal.next)
            self._open[name] = marks

    def forget(self, seq: int) -> None:
        """All have the writes up to this number."""
        for name, marks in list(self._open.items()):
            if not marks.forget(seq):
                del self._open[name]

    def end(self, name: str, confirmed: int | None) -> int:
        """The number behind the newest event that may be read, where so many writes are confirmed. None: there is nobody
        who would have to. -1: of no event is it known.
        """
        marks = self._marks_of(name) if confirmed is not None else None
        return self._replica.journals[name].next if confirmed is None or marks is None else marks.confirm(confirmed)
