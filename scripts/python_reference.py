"""The pages of the Python reference: which classes and functions programs use, by subject, and how each page begins."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import phalanx
import phalanx.archive
import phalanx.client.staging
import phalanx.common.updates
import phalanx.integrations.asgi
import phalanx.maps.async_journal
import phalanx.maps.journals
import phalanx.maps.locks
import phalanx.spark
import phalanx.testing
from phalanx.client.blocking.journal import Journal
from phalanx.client.blocking.sync_cached import SyncCached
from phalanx.client.blocking.sync_locks import SyncLock
from phalanx.common.public_names import internal_names
from phalanx.maps.async_cached import AsyncCached
from phalanx.maps.async_locks import AsyncLock
from phalanx.runtime.connections.overload import Overload
from phalanx.runtime.local.local_map import LocalMap
from phalanx.runtime.member_driver import MemberDriver
from phalanx.runtime.statistics.slow_turns import SlowTurns
from phalanx_spark.archive.source import Source


class Subject(NamedTuple):
    """One page."""

    page: str
    """Its file below reference/python."""
    title: str
    about: str
    members: tuple[Any, ...]


SUBJECTS = (
    Subject(
        "clients",
        "Clients",
        "A program that is no member uses the grid through a client: `phalanx.Client` blocks, `phalanx.connect` is for asyncio.",
        (phalanx.Client, phalanx.connect, phalanx.AsyncClient),
    ),
    Subject(
        "maps",
        "Maps",
        "`client.map(name)` is a dict that the whole cluster shares. In this reference `K` and `V` are the types of its keys and values, and a "
        "`Duration` is a number of seconds, or a `datetime.timedelta`. [Use maps](../../how-to/use-maps.md) and "
        "[typed maps](../../how-to/typed-maps.md) show them at work.",
        (phalanx.SyncMap, phalanx.AsyncMap, phalanx.Update, phalanx.common.updates.NoValue),
    ),
    Subject(
        "locks",
        "Locks and semaphores",
        "`client.lock(name)`, `map.lock(key)` and `semaphore` return these: [use locks](../../how-to/use-locks.md).",
        (SyncLock, AsyncLock, phalanx.maps.locks.LockStatus),
    ),
    Subject(
        "cached",
        "Results of functions",
        "`@client.cached(ttl=60)` makes these of a function: [keep the results of functions](../../how-to/use-maps.md#keep-the-results-of-functions).",
        (SyncCached, AsyncCached),
    ),
    Subject(
        "members",
        "A member in your process",
        "A program can be a member itself: [embed a member](../../how-to/embed.md). Settings with their bounds are in [Settings](../../configuration.md).",
        (
            *(phalanx.start_member, phalanx.Member, phalanx.start_member_in_thread, phalanx.MemberThread, LocalMap),
            *(phalanx.load_config, phalanx.Config, phalanx.MapConfig, Overload, SlowTurns),
        ),
    ),
    Subject(
        "frameworks",
        "Frameworks and tests",
        "Backends of Django, Flask-Caching and dogpile.cache are named in settings: [caches of frameworks](../../how-to/embed.md#caches-of-frameworks). "
        "[A test of your own service](../../tutorials/test-your-service.md) uses the clusters below.",
        (phalanx.integrations.asgi.lifespan, phalanx.testing.LocalCluster, phalanx.testing.LocalMember),
    ),
    Subject(
        "journals",
        "Journals",
        "What happened to the entries of a map, in order: [journals](../../journal.md).",
        (
            *(Journal, phalanx.maps.async_journal.AsyncJournal, phalanx.maps.async_journal.Change),
            *(phalanx.maps.journals.Bounds, phalanx.maps.journals.Position),
            *(phalanx.maps.journals.JournalPage, phalanx.maps.journals.JournalEvent),
        ),
    ),
    Subject(
        "jobs",
        "Spark, staged writes and archives",
        'Beside the format `"phalanx"` of [Spark](../../spark.md): [writes that count as a whole](../../staged_writes.md), and '
        "[archives](../../how-to/back-up.md).",
        (
            *(phalanx.spark.register, phalanx.spark.each_batch, phalanx.client.staging.Staging),
            *(phalanx.client.staging.StagedAttempt, phalanx.client.staging.new_job_id),
            *(phalanx.archive.export_maps, phalanx.archive.restore_maps, Source),
        ),
    ),
)
"""What programs use. Errors have a page of their own."""

INTERNAL: dict[str, tuple[str, ...]] = {
    "Config": ("address", "find_secret", "limits", "own_addresses"),
    "MapConfig": ("as_change",),
    "Overload": ("broke_protocol", "crowded", "dropped", "no_descriptor", "refused"),
    "SlowTurns": ("limit_s", "note"),
    "Source": ("connect",),
    "StagedAttempt": ("put_packed",),
}
"""What other modules of Phalanx call, and programs do not, of classes that do not say so themselves (`PublicNames`)."""

MADE_BY_PROGRAMS = (phalanx.Client, phalanx.client.staging.Staging)
"""Classes whose constructor programs call; the others come from a function or a method."""

SHARING = (phalanx.Client, phalanx.AsyncClient, phalanx.SyncMap, phalanx.AsyncMap, phalanx.MemberThread)
"""Classes that have methods of a base which another one has, too: their part of a page lists these as well."""


def hidden_of(member: Any) -> tuple[str, ...]:
    """Return the names of a class that the reference leaves out."""
    own = sorted(internal_names(member)) if isinstance(member, type) else []
    return (*own, *INTERNAL.get(member.__name__, ()))


def overview() -> str:
    """The first page: what there is, and where."""
    parts = ["# Python API", "", "```python", "import phalanx", ""]
    parts += ['with phalanx.Client("phalanx://10.0.0.1,10.0.0.2/phalanx") as grid:']
    parts += [
        '    flights = grid.map("flights")',
        '    flights["LH 400"] = {"origin": "FRA", "price": 420.0}',
        "```",
        "",
    ]
    parts += [
        "Without an address it is 127.0.0.1:5701. `import phalanx` has all of this but what names another module.",
        "",
        "| subject | classes and functions |",
        "|---|---|",
    ]
    for subject in SUBJECTS:
        names = ", ".join(
            f"[`{each.__name__}`]({subject.page}.md#{each.__module__}.{each.__qualname__})" for each in subject.members
        )
        parts += [f"| [{subject.title}]({subject.page}.md) | {names} |"]
    parts += ["| [Errors](../errors.md) | what calls raise, and what to do then |"]
    return "\n".join(parts) + "\n"


def page_of(subject: Subject) -> str:
    """Directives for mkdocstrings, by the place at which each class or function stands today."""
    parts = [f"# {subject.title}", "", subject.about]
    for member in subject.members:
        if getattr(phalanx, member.__name__, None) is not member:
            parts += ["", f"`from {_door(member)} import {member.__name__}`"]
        parts += ["", _directive(member)]
    return "\n".join(parts) + "\n"


def _door(member: Any) -> str:
    """The package from which a program imports it: the outermost that has it."""
    names = member.__module__.split(".")
    for length in range(2, len(names)):
        package = ".".join(names[:length])
        if getattr(__import__(package, fromlist=["_"]), member.__name__, None) is member:
            return package
    return str(member.__module__)


def _directive(member: Any) -> str:
    lines = [f"::: {member.__module__}.{member.__qualname__}"]
    hidden = hidden_of(member)
    inherits = isinstance(member, type) and issubclass(member, MemberDriver)
    if member in SHARING:
        lines += [
            "    options:",
            "      inherited_members: true",
            f"      members: [{', '.join(_methods(member, hidden))}]",
        ]
    elif hidden or inherits or member in MADE_BY_PROGRAMS:
        lines.append("    options:")
    if inherits:
        lines += ["      inherited_members: true", "      show_attribute_values: false"]
    if hidden and member not in SHARING:
        lines.append(f"      filters: ['!^_', '!^({'|'.join(hidden)})$']")
    if member in MADE_BY_PROGRAMS:
        lines.append("      merge_init_into_class: true")
    return "\n".join(lines)


def _methods(member: type, hidden: tuple[str, ...]) -> list[str]:
    """Return the public methods of a class and its bases, first those of the bases."""
    ours = [each for each in reversed(member.__mro__) if each.__module__.startswith("phalanx.")]
    names = dict.fromkeys(name for each in ours for name in vars(each) if not name.startswith("_"))
    return [name for name in names if name not in hidden]


PYTHON_PAGES: dict[str, Callable[[], str]] = {
    "reference/python/index.md": overview,
    **{f"reference/python/{each.page}.md": partial(page_of, each) for each in SUBJECTS},
}
