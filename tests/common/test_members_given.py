"""Members as one text: `phalanx://host1,host2/cluster` is read wherever an address is, and its cluster is the one that is used."""

import asyncio

import pytest

import phalanx
from phalanx.common.errors import UsageError
from phalanx.common.seeds import DEFAULT_CLUSTER, DEFAULT_MEMBERS, DnsSource, GivenMembers, parse_members
from phalanx.runtime.settings.load_config import load_config
from phalanx_spark.archive.source import Source
from phalanx_spark.connector.options import SINK, parse_options


@pytest.mark.parametrize(
    ("given", "seeds", "cluster"),
    [
        ("phalanx://one,two/prod", ["one:5701", "two:5701"], "prod"),
        (" phalanx://one:5702 , two/ ", ["one:5702", "two:5701"], None),
        ("phalanx://one", ["one:5701"], None),
        ("phalanx://[::1],[::2]:5702/a-b.c", ["[::1]:5701", "[::2]:5702"], "a-b.c"),
        ("phalanx://dns:members.test:5701/prod", [DnsSource("members.test", 5701)], "prod"),
        (["phalanx://one/prod", "two:5702", "phalanx://three/prod"], ["one:5701", "two:5702", "three:5701"], "prod"),
        ("one:5701", ["one:5701"], None),
    ],
)
def test_an_address_of_phalanx_names_hosts_and_the_cluster(
    given: str | list[str], seeds: list[object], cluster: str | None
) -> None:
    assert parse_members(given) == GivenMembers(seeds, cluster)  # type: ignore[arg-type]  # texts are addresses
    assert parse_members(str(parse_members(given))).seeds == seeds


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("phalanx://", "does not name a member: expected phalanx://host1,host2/cluster"),
        ("phalanx:///prod", "does not name a member"),
        ("phalanx://user:word@one/prod", "no user and no secret: give secret_file"),
        ("phalanx://one/prod/x", "the cluster's name alone"),
        ("phalanx://one/prod?x=1", "the cluster's name alone"),
        ("phalanx://one/pr%20od", "the cluster's name alone"),
        ("phalanx://one:99999/prod", "'one:99999' is not an address"),
        ("phalanx://one two/prod", "'one two:5701' is not an address"),
        ("one:1,phalanx://two/prod", "is not an address"),
        (["phalanx://one/prod", "phalanx://two/test"], "members of two clusters were given, 'prod' and 'test'"),
        ("redis://one/0", "'redis://one/0' is not an address"),
    ],
)
def test_what_is_no_such_address_is_refused_in_words(given: str | list[str], told: str) -> None:
    with pytest.raises(UsageError) as raised:
        parse_members(given)
    assert told in str(raised.value)
    assert "word" not in str(raised.value).replace("words", "")


def test_the_cluster_of_the_address_is_the_one_and_another_is_refused() -> None:
    members = parse_members("phalanx://one/prod")
    assert members.cluster_or(DEFAULT_CLUSTER) == members.cluster_or("prod") == "prod"
    assert parse_members("one:1").cluster_or("test") == parse_members("phalanx://one").cluster_or("test") == "test"
    with pytest.raises(UsageError, match=r"the cluster is 'test', and 'prod' in phalanx://…/prod: give one of the two"):
        members.cluster_or("test")


def test_settings_options_and_archives_read_it() -> None:
    config = load_config(environ={"PHALANX_SEEDS": "phalanx://one,two/prod"})
    assert (config.seeds, config.cluster) == (("one:5701", "two:5701"), "prod")
    assert load_config(environ={"PHALANX_SEEDS": "one:5701, two:5701"}).seeds == ("one:5701", "two:5701")
    assert load_config(environ={"PHALANX_SEEDS": " "}).seeds == phalanx.Config().seeds == ()
    assert phalanx.Config(seeds=["one:5701,two:5701"]).seeds == ("one:5701", "two:5701")
    with pytest.raises(UsageError, match="the cluster is 'test'"):
        phalanx.Config(seeds=["phalanx://one/prod"], cluster="test")
    options = parse_options({"members": "phalanx://one,two/prod", "map": "m", "key": "id"}, SINK)
    assert (options.members, options.cluster) == ("one:5701,two:5701", "prod")
    assert Source("phalanx://one/prod", DEFAULT_CLUSTER) == Source("one:5701", "prod")


def test_clients_find_the_cluster_by_its_address() -> None:
    with phalanx.start_member_in_thread(phalanx.Config(port=0, cluster="prod")) as member:
        address = f"phalanx://{member.address}/prod"
        with phalanx.Client(address) as client:
            client.map("m")["k"] = 1

        async def read() -> object:
            async with phalanx.connect(address) as client:
                return await client.map("m").get("k")

        assert asyncio.run(read()) == 1
        with phalanx.start_member_in_thread(phalanx.Config(port=0, seeds=[address])) as second:
            assert second.map("m")["k"] == 1


def test_without_an_address_it_is_the_default_member(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr("phalanx.client.sync.SeedPlaces", lambda members: asked.append(members))
    monkeypatch.setattr("phalanx.client.aio.SeedPlaces", lambda members: asked.append(members))
    for begin in (phalanx.Client, phalanx.connect):
        with pytest.raises(AttributeError):  # nobody is asked here
            begin()
    assert asked == [DEFAULT_MEMBERS, DEFAULT_MEMBERS] == ["127.0.0.1:5701", "127.0.0.1:5701"]
