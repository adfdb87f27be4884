"""On the master: whether the content of a map is replaced, decided once for all partitions.

A job begins (every member knows of it, and keeps the content prepared for it), prepares the partitions, and asks for
the decision. A decision is never taken back. Owners put the new content in place when the table says so; the table says
so only when every member knows of the decision:

1. Master M decides, and tells O, an owner, which puts the new content of its partition in place, and so do its
   backups. 2. M and O die before any other member knows. 3. The next master does not know the decision: one partition
   would have the new content, and all others the old one.

With the decision known to all first, every next master finds it and completes it. The answer to the caller waits in the
same way, for the new content in its place: so nobody is served the old one any more when the caller hears.

Only one job can be about to replace a map: one that begins later takes the turn of one that has not decided. What begins
and is never decided ends after `staging_ms`.

Who decides says what began, by the stamp that it was given: a job begins anew whose turn another one took, and a wish can
be under way for long.

1. Job J sends BEGIN twice and DECIDE twice, because answers are late; it ends. 2. Job K replaces the map. 3. The second
   BEGIN of J arrives only now, then the second DECIDE: nothing of J is prepared any more, and the map would be empty.

Batches of a query replace one another in the order of their numbers, from any caller: a driver can hang, be replaced, and
continue later.

A job can bring the schema of its content: it becomes the map's in the same table in which the content takes its place.
"""

from __future__ import annotations

import msgspec

from phalanx.common.errors import UsageError
from phalanx.common.hidden_maps import check_part
from phalanx.common.ids import Millis
from phalanx.common.map_plan import Content, MapPlan
from phalanx.common.map_settings import MapChange, check_name
from phalanx.machine.outbox import Outbox
from phalanx.partition.coordinator.table_publication import TablePublication
from phalanx.wire.messages import ReplaceContent, Replacement
from phalanx.wire.table_events import ContentReplaced

MAX_KNOWN = 10_000
"""Most entries of `_known_from`; for the others, members are asked as if the statement were new."""
NOT_KNOWN = "not every member knows of it yet: ask again"


class MapReplacement:
    """The master's decisions on replacing the content of maps."""

    def __init__(self, publication: TablePublication, staging_ms: Millis, outbox: Outbox) -> None:
        self._publication = publication
        self._staging_ms = staging_ms
        self._out = outbox
        self._known_from: dict[tuple[str, str], int] = {}
        """Map and statement about its content, to the table version from which a member knows the statement."""
        self._pending_since: dict[tuple[str, str], Millis] = {}
        """Map and job that is about to replace it, to when this master heard of it."""
        self._give_up_at: Millis | None = None
        """When the first of those that are not decided is given up; None: there is none."""

    def __repr__(self) -> str:
        return f"MapReplacement({self._maps.contents})"

    @property
    def _maps(self) -> MapPlan:
        return self._publication.table.maps

    def forget(self) -> None:
        """Forget everything: another member leads."""
        self._known_from.clear()
        self._pending_since.clear()
        self._give_up_at = None

    def next_deadline(self) -> Millis | None:
        """Return when a job that has not decided is given up."""
        return self._give_up_at

    def ask(self, request: ReplaceContent, stamp: int, now: Millis) -> str:
        """Handle a job's request. Return why it is not done yet; empty: it is. Raises `UsageError` if it never can be.

        `stamp`: of the grid's clock, for a job that begins.
        """
        check_name(request.map)
        check_part("job", request.job)
        content, job = self._maps.content_of(request.map), request.job
        match request.wish:
            case Replacement.BEGIN:
                if job not in (content.job, content.pending) and not _is_dispensable(request, content):
                    if content.is_decided:
                        return f"the content of job {content.pending} is being put in its place: ask again"
                    if request.schema:  # Refused here or never: a decided replacement is not refused.
                        self._maps.with_change(request.map, MapChange(schema=request.schema))
                    self._set(_with_pending(content, request, stamp), now)
            case Replacement.DECIDE:
                began = self.begun(request.map, job)
                if not began or began != request.stamp:
                    raise UsageError(
                        f"the content of {request.map!r} was not replaced: job {job} is not about to do it any more, "
                        f"because another job began to, or it waited too long; run it again"
                    )
                if job == content.pending and not content.is_decided:
                    self._set(msgspec.structs.replace(content, is_decided=True), now)
            case Replacement.ABORT:
                if job == content.pending and not content.is_decided:
                    self._set(content.as_given_up, now)
        self.go_on(now)
        content = self._maps.content_of(request.map)
        is_placed = request.wish is not Replacement.DECIDE or content.job == job
        is_known = is_placed and self._check_known(content)
        self._publication.publish_if_due(now)
        return "" if is_known else NOT_KNOWN

    def was_decided(self, name: str, job: str) -> bool:
        """Return whether the job's content has replaced the map's content, or will."""
        content = self._maps.content_of(name)
        return content.job == job or (content.pending == job and content.is_decided)

    def begun(self, name: str, job: str) -> int:
        """Return the stamp of the job's content; 0: the content is neither in place nor pending."""
        content = self._maps.content_of(name)
        return content.pending_stamp if job == content.pending else content.stamp if job == content.job else 0

    def go_on(self, now: Millis) -> None:
        """Complete replacements whose decision every member knows; give up those that were not decided in time."""
        for content in self._maps.contents:
            if not content.pending:
                continue
            since = self._pending_since.setdefault((content.map, content.pending), now)
            if content.is_decided:
                if self._check_known(content):
                    self._install(self._maps.with_placed(content), content.as_placed, now)
                    version = self._publication.table.version
                    self._out.record(ContentReplaced(content.map, content.pending, version))
            elif now - since >= self._staging_ms:
                self._set(content.as_given_up, now)
        self._give_up_at = min(
            (
                self._pending_since[content.map, content.pending] + self._staging_ms
                for content in self._maps.contents
                if content.pending and not content.is_decided
            ),
            default=None,
        )

    def _check_known(self, content: Content) -> bool:
        """Return whether every member has a table with this statement about the map, which is noted as new if it is."""
        if len(self._known_from) > MAX_KNOWN:
            self._known_from.clear()
        said = f"{content.job}/{content.pending}/{content.is_decided}"
        known_from = self._known_from.setdefault((content.map, said), self._publication.table.version)
        return self._publication.all_have(known_from)

    def _set(self, content: Content, now: Millis) -> None:
        self._install(self._maps.with_content(content), content, now)

    def _install(self, plan: MapPlan, content: Content, now: Millis) -> None:
        """Install the settings in which a map has this content."""
        self._publication.change(self._publication.table.with_maps(plan), now)
        for key in [key for key in self._known_from if key[0] == content.map]:
            del self._known_from[key]
        for key in [key for key in self._pending_since if key[0] == content.map and key[1] != content.pending]:
            del self._pending_since[key]


def _is_dispensable(request: ReplaceContent, content: Content) -> bool:
    """Return whether this batch, or a later one, has replaced the content. Raise `UsageError` if a later one is pending."""
    batch, pending = request.batch, content.pending_batch
    if batch is None:
        return False
    if pending is not None and pending.query == batch.query and pending.number > batch.number:
        raise UsageError(
            f"batch {batch.number} of query {batch.query} does not replace the map {request.map!r}: batch {pending.number} is "
            f"about to"
        )
    return content.has_placed(batch)


def _with_pending(content: Content, request: ReplaceContent, stamp: int) -> Content:
    return msgspec.structs.replace(
        content, pending=request.job, pending_stamp=stamp, is_decided=False, pending_batch=request.batch,
        pending_schema=request.schema,
    )  # fmt: skip
