"""Updates as programs see them: both clients and a member's own program, what they return and what they refuse."""

import asyncio
from collections.abc import Awaitable, Callable
from decimal import Decimal
from typing import Any

import pytest

import phalanx
from phalanx.common.ids import Address
from support.processes import Cluster


async def change_in_every_way(m: Any) -> None:
    assert [await m.increment("n"), await m.increment("n", by=41), await m.increment("n", by=-2)] == [1, 42, 40]
    assert await m.increment("f", by=0.5, initial=1) == 1.5
    assert await m.increment("d", by=Decimal("0.1"), initial=Decimal("0.2")) == Decimal("0.3")
    assert await m.increment("big", by=2**63) == 2**63
    assert await m.increment("n", initial=None) == 41
    assert await m.increment("n", by=-1, initial=None) == 40
    assert [await m.get_and_put("k", 1), await m.get_and_put("k", [2]), await m.get("k")] == [None, 1, [2]]
    assert [await m.get_and_replace("k", 3), await m.get_and_replace("none", 3), await m.get("none")] == [
        [2],
        None,
        None,
    ]
    assert [await m.remove_if("k", 4), await m.remove_if("k", 3), await m.remove_if("k", 3)] == [False, True, False]
    assert await m.update("l", "append", "a", "b") == 2
    assert await m.update("l", "extend", ["c"]) == 3
    assert [await m.update("l", "add_to_set", "c"), await m.update("l", "discard", "a")] == [False, True]
    assert await m.get("l") == ["b", "c"]
    assert await m.update("doc", "merge", {"a": 1, "b": {"c": 2}}) == {"a": 1, "b": {"c": 2}}
    assert await m.update("doc", "merge", {"a": None, "b": {"d": 3}}) == {"b": {"c": 2, "d": 3}}
    assert [await m.update("high", "max", 3), await m.update("high", "max", 2)] == [3, 3]
    many = [f"many {number}" for number in range(2_500)]
    assert await m.update_all([*many, *many[:9]], "append", 1, 2) == dict.fromkeys(many, 2)
    assert await m.update_all(many[:3], "append", 3) == dict.fromkeys(many[:3], 3)
    assert await m.get_all(many[2:4]) == {many[2]: [1, 2, 3], many[3]: [1, 2]}
    assert await m.update_all([], "append", 1) == {}
    assert await m.update_where("key starts with 'many '", "append", 4) == 2_500
    assert await m.get_all(many[2:4]) == {many[2]: [1, 2, 3, 4], many[3]: [1, 2, 4]}
    assert await m.update_where("price > 5", "remove_if", 1) == 0
    assert await m.update_where("value in (42, 3)", "increment", 1) == 1
    assert await m.update_where("key = 'high' and value = 4", "remove_if", 4) == 1
    assert not await m.contains("high")
    assert await m.time_to_live("n") is None
    assert await m.increment("n", ttl=50) == 41
    assert 49 < await m.time_to_live("n") <= 50
    assert await m.increment("n") == 42
    assert 40 < await m.time_to_live("n") <= 50
    assert [await m.touch("n", 500), await m.touch("none", 500)] == [True, False]
    assert 400 < await m.time_to_live("n") <= 500
    await m.put("used", 1, max_idle=100)
    assert 90 < await m.time_to_live("used") <= 100
    assert await m.touch("used", max_idle=200)
    assert 190 < await m.time_to_live("used") <= 200
    assert await m.touch("used", 50)
    assert 40 < await m.time_to_live("used") <= 50
    assert await m.increment("used") == 2
    await m.put("used", 1, ttl=300, max_idle=100)
    assert 90 < await m.time_to_live("used") <= 100
    assert [await m.persist("used"), await m.time_to_live("used")] == [True, None]
    for write in (
        m.put_if_absent("idle", 1, max_idle=100),
        m.replace("idle", 2, max_idle=200),
        m.compare_and_set("idle", 2, 3, max_idle=300),
        m.get_and_put("idle", 4, max_idle=400),
        m.get_and_replace("idle", 5, max_idle=500),
        m.put_all({"idle": 6}, max_idle=600),
    ):
        await write
        value = await m.get("idle")
        assert 100 * value - 50 < await m.time_to_live("idle") <= 100 * value
    await m.put_all({"idle": 6})
    assert await m.time_to_live("idle") is None
    assert [await m.persist("n"), await m.persist("none"), await m.time_to_live("n")] == [True, False, None]


REFUSED: list[tuple[Callable[[Any], Awaitable[Any]], type[Exception], str]] = [
    (lambda m: m.increment("text"), phalanx.UsageError, "^increment: the value is of type str"),
    (lambda m: m.increment("text", by="1"), phalanx.UsageError, "^by is '1', of type str: give an int, float"),
    (lambda m: m.increment("text", initial=True), phalanx.UsageError, "^initial is True, of type bool"),
    (lambda m: m.increment("absent", initial=None, ttl=60), KeyError, "^'absent'$"),
    (lambda m: m.increment("text", ttl=0), phalanx.UsageError, "^ttl is 0: give seconds"),
    (lambda m: m.touch("text", None), phalanx.UsageError, "^ttl is None: give seconds, or .* persist"),
    (lambda m: m.touch("text", max_idle=0), phalanx.UsageError, "^max_idle is 0: give seconds"),
    (lambda m: m.put("text", "2", max_idle=-1), phalanx.UsageError, "^max_idle is -1: give seconds"),
    (lambda m: m.put("text", "2", max_idle=1, fence=7), phalanx.UsageError, "^max_idle and fence"),
    (lambda m: m.get_and_put("text", "2", max_idle=0), phalanx.UsageError, "^max_idle is 0: give seconds"),
    (lambda m: m.put_all({"text": "2"}, max_idle=1e12), phalanx.UsageError, "^max_idle is"),
    (lambda m: m.touch("text", -1), phalanx.UsageError, "^ttl is -1: give seconds"),
    (lambda m: m.get_and_put("text", object()), phalanx.UsageError, "object"),
    (lambda m: m.get_and_put(None, 1), phalanx.UsageError, "key"),
    (lambda m: m.update("text", "nothing"), phalanx.UsageError, "^nothing: there is no function 'nothing' here"),
    (lambda m: m.update("text", ""), phalanx.UsageError, "^'' cannot name a function"),
    (lambda m: m.update("text", "append", *range(65)), phalanx.UsageError, "^65 arguments are more than the 64"),
    (lambda m: m.update("text", "append", 1), phalanx.UsageError, "^append: the value is of type str"),
    (lambda m: m.update("text", "append"), phalanx.UsageError, "^append: append was given 0 arguments"),
    (lambda m: m.update("list", "append", b"x" * 2_000), phalanx.EntryTooLarge, "max_value_bytes"),
    (lambda m: m.time_to_live("none"), KeyError, "none"),
    (lambda m: m.update_all(["text", "list"], "max", 1), phalanx.UsageError, "^max: the value and the argument"),
    (lambda m: m.update_all([None], "max", 1), phalanx.UsageError, "key"),
    (lambda m: m.update_where("price >", "max", 1), phalanx.UsageError, "^condition: 'price >': at character 8"),
    (lambda m: m.update_where(None, "max", 1), phalanx.UsageError, "^condition: None is neither a text"),
    (lambda m: m.update_where("true", ""), phalanx.UsageError, "^'' cannot name a function"),
    (lambda m: m.update_where("true", "nothing"), phalanx.UsageError, "^nothing: there is no function 'nothing' here"),
    (lambda m: m.update_where("true", "max", object()), phalanx.UsageError, "object"),
    (lambda m: m.update_where("true", "increment", 1), phalanx.UpdateFailed, "2 entries refused and left unchanged, 0"),
]


async def try_what_is_refused(m: Any) -> None:
    await m.put("text", "1")
    await m.put("list", ["x" * 900])
    for call, kind, reason in REFUSED:
        with pytest.raises(kind, match=reason):
            await call(m)
    assert [await m.get("text"), len(await m.get("list"))] == ["1", 1]
    assert not await m.contains("none")


class Blocking:
    """A map of the blocking client, as an asyncio one."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any, **named: Any) -> Any:
            return await asyncio.to_thread(getattr(self._of, name), *arguments, **named)

        return call


@pytest.mark.parametrize("who", ["asyncio", "blocking", "program", "alone"])
@pytest.mark.parametrize("check", [change_in_every_way, try_what_is_refused])
def test_both_clients_and_a_members_program(check: Callable[[Any], Awaitable[None]], who: str) -> None:
    async def run() -> None:
        one = await phalanx.start_member(phalanx.Config(port=0, max_value_bytes=1_000))
        if who == "alone":  # the program of a member without a backup calls no machine
            await check(one.map("m"))
            await one.stop()
            return
        two = await phalanx.start_member(phalanx.Config(port=0, max_value_bytes=1_000, seeds=(Address(one.address),)))
        if who == "program":
            await check(two.map("m"))
        elif who == "asyncio":
            async with phalanx.connect(one.address) as grid:
                await check(grid.map("m"))
        else:
            with await asyncio.to_thread(phalanx.Client, one.address) as client:
                await check(Blocking(client.map("m")))
        await two.stop(drain=False)
        await one.stop(drain=False)

    asyncio.run(run())


def test_the_update_of_a_dict_is_still_there(cluster: Cluster) -> None:
    cluster.start()
    with cluster.client() as client:
        m = client.map("m")
        m.update({"a": 1, "b": 2}, c=3)
        m.update([("d", 4)])
        m.update(e=5)
        m.update()
        assert dict(m.items()) == {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5}
        with pytest.raises(phalanx.UsageError, match="takes no arguments by name, but got item"):
            m.update("a", "append", item=1)  # type: ignore[call-overload]
