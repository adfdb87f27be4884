"""The rules that decisions name, in words, for people who have not read the references."""

from __future__ import annotations

import re

MEANINGS = {
    "CS-09": "only the master admits, and it may refuse",
    "CS-10": "the master appends whom it admits to the list",
    "CS-11": "the master publishes a list without whom it takes for dead",
    "CS-14": "a list of the master is installed if it is newer",
    "CS-29": "the master suspects whoever does not confirm it any more",
    "CS-33": "silence or a refused connection makes a suspect, a sign of life ends that",
    "CS-35": "the master removes whom its failure detector suspects",
    "CS-40": "who says that the lists have diverged is suspected from then on",
    "CS-42": "a member that was removed without knowing is told so, and comes back as a new one",
    "CS-43": "the master tells one that follows it, and is not in its list, to go its own way",
    "CS-44": "the master tells one that sends it heartbeats, and is not in its list, to go its own way",
    "CS-45": "who publishes a list and is not the receiver's master is told so",
    "CS-46": "who answers a join that was not asked for is told so",
    "CS-48": "a heartbeat of somebody who is not in the list is complained of to the master",
    "CS-49": "the master checks a complaint against its own list",
    "CS-50": "a list of the master is a sign of life",
    "CS-51": "a heartbeat of the master is a sign of life",
    "CS-52": "a heartbeat or a claim is a sign of life",
    "CS-53": "a member that suspects all older ones claims the mastership",
    "CS-57": "who suspects all older ones, too, agrees to a claim",
    "CS-58": "who does not suspect all older ones does not agree to a claim yet",
    "CS-63": "the claimer and those that accepted make the new list",
    "CS-65": "the new master's list is newer than all that it has found",
    "CS-66": "the new master publishes its list",
    "DESIGN 5 C-23": "a member that was away does not serve before it knows that it is still one",
    "DL-02": "the master gives the members even shares",
    "DL-05": "the master repairs the table when members leave",
    "DL-09": "a backup becomes the owner only by the master's table",
    "DL-12": "a new master first looks for the most recent table",
    "DL-16": "who takes part in a migration never ends it on its own",
    "DL-17": "the master commits when the destination has, the source when the master has",
    "DL-20": "what the destination has committed comes into the table, and is published",
    "DL-22": "a migration that failed leaves the replicas as they are, and raises the version by two",
    "DL-24": "the outcome of every migration is published with the table",
    "DL-30": "a migration that nobody has committed is rolled back by the new master",
    "DL-33": "nobody gives up a replica before the new one has everything",
    "DL-37": "two replicas change in one step",
    "DL-44": "a replica goes to a member that held none of the partition",
    "DL-46": "a missing backup is filled by a member that held none",
    "DL-47": "a replica goes to a new member, and the old one becomes a colder backup, in one step",
    "DL-50": "a backup becomes a hotter one",
    "DL-58": "the master repairs the table, finds the target and plans the migrations",
    "DL-59": "every change of the members, and every failed migration, makes it plan anew",
    "DL-62": "a replica that is not wanted any more is dropped",
    "EL-05": "the seed forms the cluster",
    "EL-10": "a failed attempt to join is repeated",
    "EL-11": "joining fails with the last attempt",
    "EL-12": "an answer to an earlier request is ignored",
    "EL-13": "an admitted member adopts the list that it was answered with",
    "EL-17": "a joiner is answered when all have the new list, or after the limit",
    "EL-18": "the answer to a joiner carries the list",
    "EL-20": "who comes back is a new member, the youngest",
    "EL-21": "an identity belongs to one member only",
    "EL-32": "the master sends its list to whoever is behind",
    "EL-45": "in a large cluster others ask a suspect themselves",
    "EL-48": "a map that must have so many members refuses to be used with fewer",
    "EL-50": "the majority side goes on, and the other one stops within a time that is known",
    "EL-57": "the smaller side of a cut joins the larger one",
    "EL-60": "a side that joins another one starts anew there",
    "EL-62": "of two equal sides exactly one joins the other",
    "EL-63": "every side of a cut goes on with some master: only what asks for a majority is refused",
    "PD-04": "a member that was removed while it reaches the master is told so at once",
    "PD-13": "a slave's suspicion stays its own, and the master hears of it",
    "PD-19": "the search for whom to keep ends with its time, and with the best that it found",
    "PD-21": "what is reported counts when there was no news for some heartbeats",
    "PD-22": "those stay that can all reach each other, and as few go as possible",
    "PD-23": "slaves tell the master with their heartbeats whom they cannot reach",
    "PD-24": "members that cannot reach each other do not stay in one list",
    "PD-26": "no larger set of members reaches each other",
    "PD-28": "a link that is broken one way is broken",
}
"""Row of the checklist to its meaning."""

ROW = re.compile(r"[A-Z]{2}-\d+")


def meaning_of(rule: str) -> str:
    """What a rule says, in words; what it says itself if it is not in the table."""
    rows = ROW.findall(rule)
    said = re.sub(r"^DESIGN \d+ ", "", rule.removeprefix(" ".join(rows)).strip())
    if rule in MEANINGS:
        return MEANINGS[rule]
    return "; ".join(MEANINGS[row] for row in rows if row in MEANINGS) or said


def cite(rule: str) -> str:
    """A rule with its meaning, for the end of a line."""
    rows = " ".join(ROW.findall(rule))
    return f"{rows} {meaning_of(rule)}".strip()
