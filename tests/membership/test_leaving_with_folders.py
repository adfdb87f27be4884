"""Whoever leaves with a folder comes back with what it held: what becomes of its vote meanwhile."""

from __future__ import annotations

import pytest

from support.harness import KEY, Cluster

VALUE = b"\0\0\0\0value"


def with_lite_member(names: str) -> Cluster:
    """`names`: of which Z holds no data; the first begins the cluster."""
    c = Cluster(has_folders=True)
    c.seeds = names[0]
    for name in names:
        c.start(name, lite=name == "Z")
        c.advance(1_500)
    c.assign()
    c.put(c.replicas("Z")[0], KEY, VALUE)
    c.settle()
    return c


@pytest.mark.rows("EL-50", "EL-63")
@pytest.mark.parametrize("names", ["AZ", "ABZ", "ZA", "ZAB"])
def test_the_last_with_data_keep_their_votes_where_only_a_lite_member_stays(names: str) -> None:
    c, data_members = with_lite_member(names), names.replace("Z", "")
    for name in data_members:
        c.leave(name)
    c.advance(5_000)
    assert sorted(c.nodes) == ["Z"]
    assert not c.nodes["Z"].membership.has_majority
    c.cuts |= {frozenset(("Z", name)) for name in data_members}
    for name in data_members:
        c.start(name, seeds=data_members)
    c.advance(40_000)
    assert all(c.nodes[name].membership.has_majority for name in data_members)
    assert c.get(c.replicas("A")[0], KEY) == VALUE
    c.stay_together("".join(sorted(c.nodes)))
    assert c.get(c.replicas("A")[0], KEY) == VALUE


@pytest.mark.rows("EL-63")
def test_whoever_leaves_others_with_data_leaves_its_vote_to_them() -> None:
    c = with_lite_member("ABZ")
    c.leave("A")
    c.advance(5_000)
    assert c.views_of("BZ") == ["BZ", "BZ"]
    assert c.nodes["B"].membership.has_majority
