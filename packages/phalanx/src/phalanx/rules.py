"""The rules of the protocol that decisions name, in words for people.

An event carries the ids of the rules that made the decision, such as `CS-35`. Tools print the words first and the id behind
them. docs/protocol states each rule in full, under the same words; a test compares.
"""

from __future__ import annotations

import re

WORDS = {
    "CS-05": "every member list carries a version",
    "CS-06": "the first member of the list is the master",
    "CS-09": "the master decides about each join request, and can refuse it",
    "CS-10": "the master appends a member that it admits, and publishes",
    "CS-11": "the master publishes a list without the member that it removes",
    "CS-13": "a slave never removes a member",
    "CS-14": "a member installs a list of its master if and only if it is newer",
    "CS-21": "views are installed in one order everywhere",
    "CS-22": "members of a view agree on it, or part",
    "CS-24": "every installed view contains its installer",
    "CS-25": "versions keep growing when the master changes",
    "CS-29": "the master removes a slave that no longer confirms it",
    "CS-33": "silence or a refused connection makes a suspect",
    "CS-34": "a suspicion rests on local information",
    "CS-35": "the master removes a member that its failure detector suspects",
    "CS-40": "a member that announces diverged lists is suspected from then on",
    "CS-42": "the master informs a member that does not know of its removal",
    "CS-43": "the master answers a confirmation of an unknown member with explicit suspicion",
    "CS-44": "the master answers a heartbeat of an unknown member with explicit suspicion",
    "CS-45": "a list of a member that is not the master is answered with explicit suspicion",
    "CS-46": "a joiner answers an invalid master with explicit suspicion",
    "CS-48": "a slave reports heartbeats of an unknown member to its master",
    "CS-49": "the master checks a complaint against its own list",
    "CS-50": "a list of the master ends the suspicion of it",
    "CS-51": "a heartbeat of the master ends the suspicion of it",
    "CS-52": "a heartbeat or a claim of a slave ends the suspicion of it",
    "CS-53": "a member that suspects all older members claims the mastership",
    "CS-55": "a member changes its master in three cases only",
    "CS-57": "a member agrees to a claim if it suspects all members older than the claimer",
    "CS-58": "a member that still trusts an older member does not agree yet",
    "CS-63": "the new list has the claimer and the members that agreed",
    "CS-65": "the version of the new list is above every version found",
    "CS-66": "the new master publishes its list, in order of age",
    "PD-04": "a removed member that still reaches others is informed and cut off at once",
    "PD-13": "a slave keeps its suspicion to itself and tells the master",
    "PD-19": "the search for the members to keep stops at its time limit",
    "PD-21": "the wait is counted from the last new report",
    "PD-22": "as few members as possible are removed",
    "PD-23": "slaves tell the master in heartbeats which members they cannot reach",
    "PD-24": "the master does not keep members in one list that cannot reach each other",
    "PD-26": "no larger connected set exists than the one that stays",
    "PD-28": "a link that is broken one way counts as broken both ways",
    "EL-05": "the seed forms the cluster at once",
    "EL-10": "a failed attempt to join is reported and repeated",
    "EL-11": "joining fails with the last attempt",
    "EL-12": "an answer to an earlier join request is ignored",
    "EL-13": "an admitted member adopts the list in the answer",
    "EL-17": "a joiner is answered when all members have the new list, or after a limit",
    "EL-18": "the answer to a joiner contains the new list",
    "EL-20": "a member that returns is a new member, and the youngest",
    "EL-21": "an identity belongs to one member only",
    "EL-32": "the master sends its list to a member that is behind",
    "EL-45": "in a large cluster members watch neighbours, and the master asks a suspect itself",
    "EL-48": "a protected map is refused while too few members are there",
    "EL-50": "the majority side continues, and the other stops within a known time",
    "EL-57": "the smaller side of a cut joins the larger one",
    "EL-60": "a side that joins another one starts again there",
    "EL-62": "of two equal sides exactly one joins the other",
    "EL-63": "every side of a cut continues with a master",
    "DL-02": "the master gives each member its share of replicas",
    "DL-05": "the master changes a row only for a commit, for a member that left, or for a new owner",
    "DL-09": "a backup becomes the owner only through the master's table",
    "DL-12": "a new master first looks for the most recent table",
    "DL-16": "no participant ends a migration on its own",
    "DL-17": "the destination commits first, then the master, then the source",
    "DL-20": "the master publishes what the destination has committed",
    "DL-22": "a failed migration changes no replicas and raises the version by two",
    "DL-24": "the result of every migration is published with the table",
    "DL-30": "the new master rolls back a migration that no member has committed",
    "DL-33": "a member gives up its replica only when the new one is complete",
    "DL-37": "one migration can change two replicas in one step",
    "DL-44": "MOVE gives an index to a member without a replica of the partition",
    "DL-46": "COPY fills a missing backup with a member without a replica",
    "DL-47": "SHIFT DOWN gives an index to a new member and a colder one to the old",
    "DL-50": "SHIFT UP gives a backup a hotter index",
    "DL-58": "after each change of members the master repairs, assigns and plans, in this order",
    "DL-59": "the master plans again after each change and each failed migration",
    "DL-62": "a replica that the target does not want is cleared",
    "A.6-21": "explicit suspicion about an earlier view is ignored",
    "C-23": "a member that was away does not serve before it knows that it is still a member",
    "PX-01": "a member that stops hands over its replicas before it leaves",
    "PX-02": "a running member can become a lite member, which holds no data, or a data member again",
    "PX-03": "a cluster begins to work when it first has its initial members",
    "PX-04": "data is moved before members are removed for a partial cut",
    "PX-05": "a loss is reported until an operator acknowledges it",
    "PX-06": "the number of backups can change while maps are used",
    "PX-07": "a job's rows become visible all or not at all",
    "PX-08": "the number of partitions can grow while the cluster works",
    "PX-09": "settings of maps are the cluster's and not a member's",
    "PX-10": "a member keeps its orphaned replicas until the other side has their data",
    "PX-11": "each map's merge policy decides between two versions of a key",
    "PX-12": "a conflict between two sides is recorded",
    "PX-13": "a merge does not bring back removed entries",
    "PX-16": "a function that delays its member is reported by name",
    "PX-40": "of the members that were found, the one with the smallest address forms the cluster",
    "PX-41": "sources of seeds are asked again as long as the member runs",
    "PX-24": "a member that has reached its memory limit refuses writes that need more, and nothing else",
    "PX-26": "a cluster says when the loss of a member would not fit in the memory of the others",
    "PX-32": "a member takes no list that has members in another order of age",
    "PX-34": "a replica that no other member gets is cleared only when the owner has answered that it is alive",
    "PX-50": "the last members with data leave with it only if no member is missing, or all were told to leave",
    "PX-53": "of members that are seeds of each other, the one with the smallest address forms the cluster",
    "PX-54": "when all members come back, the one with the smallest address forms the cluster at once",
    "PX-44": "the master raises the cluster version when no member of an older release is left",
    "PX-45": "a member that does not speak the cluster version is refused for good",
    "PX-48": "an exception in a function or a condition is an answer, and ends no member",
    "PX-47": "an operator can hold the cluster version back, and raise it",
    "DU-22": "of two present members with one folder, or a copy of it, one is refused",
    "DU-24": "a process that has read a cluster from its folder founds no other one",
    "DU-28": "times to live run while the member is down, and never backwards",
    "DU-29": "nothing is served before the majority of the last stable view and a holder of each partition are back",
    "DU-30": "the newest row of a partition counts that a side with the majority has given, and of its holders the greatest position",
    "DU-32": "a partition whose last holders have it in their folders waits for one of them, and never begins empty by itself",
    "DU-33": "a cluster that waits says for whom",
    "DU-41": "a member whose disk has failed acknowledges no write",
    "DU-42": "a full disk refuses growth, and nothing that makes room",
    "DU-45": "a failed disk keeps nobody else's writes waiting",
    "DU-57": "a new member without a folder holds no data where all others that do have one",
    "DU-58": "when more than half of the voters stop, nobody leaves the list",
    "DU-59": "a member that has in its folder what it held is awaited until that store is back, or an operator forgets it",
    "DU-56": "an old folder has no vote, and its replicas rule only where no other holder is left to wait for",
}
"""Id to the rule in one sentence."""

RECORDED_AS = {
    "DESIGN 3 minimum cluster size": "PX-03",
    "DESIGN 4 evacuate before you kick": "PX-04",
    "DESIGN 4 lite members": "PX-02",
    "DESIGN 5 C-23": "C-23",
    "DESIGN 5 conflicts": "PX-12",
    "DESIGN 5 kept aside": "PX-10",
    "DESIGN 5 merge policies": "PX-11",
    "DESIGN 5 protection": "PX-09",
    "DESIGN 5 tombstones": "PX-13",
    "DESIGN 6 graceful shutdown": "PX-01",
    "DESIGN 6 losses are told until they are acknowledged": "PX-05",
    "DESIGN 6 online change of backups": "PX-06",
    "DESIGN 6 online change of the partition count": "PX-08",
    "DESIGN 9 all or nothing": "PX-07",
    "M3 a view without this member": "CS-24",
}
"""What events of the first release carry instead of an id, to the id: members of it can be in the cluster, and logs stay."""

_ID = re.compile(r"\b(?:[A-Z]{1,2}-\d+|A\.6-\d+)\b")


def ids_of(recorded: str) -> list[str]:
    """Return the ids that a recorded rule names, in its order; none if it is the rule of another version."""
    return [RECORDED_AS[recorded]] if recorded in RECORDED_AS else _ID.findall(recorded)


def is_leave(recorded: str) -> bool:
    """Return whether the rule by which a member was removed is that it had asked to leave."""
    return "PX-01" in ids_of(recorded)


def words_of(recorded: str) -> str:
    """Return the recorded rule in words; for one that is not known here, the words that it came with."""
    known = [WORDS[rule] for rule in ids_of(recorded) if rule in WORDS]
    return "; ".join(known) or _own_words(recorded)


def cite(recorded: str) -> str:
    """Return the recorded rule in words, each id in parentheses behind its words."""
    ids = ids_of(recorded)
    if not any(rule in WORDS for rule in ids):
        return " ".join(part for part in (_own_words(recorded), f"({', '.join(ids)})" if ids else "") if part)
    return "; ".join(f"{WORDS[rule]} ({rule})" if rule in WORDS else f"({rule})" for rule in ids)


def _own_words(recorded: str) -> str:
    return re.sub(r"^DESIGN \d+ ", "", _ID.sub("", recorded)).strip()
