"""The page of Redis clients says of each command what the endpoint knows of it."""

import runpy

from phalanx_protocols.resp.server import TABLE
from phalanx_protocols.resp.usage import USAGE, Argument, arguments_of
from support.roots import SCRIPTS


def test_the_table_of_the_page_is_the_table_of_the_code() -> None:
    script = runpy.run_path(str(SCRIPTS / "redis_table.py"))
    page = script["PAGE"].read_text()
    assert page == script["with_table"](page), "write it anew: ./run python scripts/redis_table.py"


def test_each_command_is_described_once() -> None:
    names = [command.name for command in TABLE]
    assert len(names) == len(set(names))
    assert all(command.summary.endswith(".") and command.arity for command in TABLE)
    assert not [command.name for command in TABLE if command.name.startswith("incr") and command.is_idempotent]


def test_each_command_that_is_served_has_a_usage_that_fits_its_words() -> None:
    """The usage tells clients which words a command takes; its arity, how many these are at least."""
    served = [command for command in TABLE if command.summary != "Refused."]
    assert {command.name for command in served} == set(USAGE)
    for command in served:
        arguments = arguments_of(command.name)
        least = 1 + sum(words_of(each) for each in arguments if not each.is_optional)
        is_exact = not any(each.is_optional or each.is_multiple for each in arguments)
        assert command.arity in ((least, -least) if is_exact else (-least,)), command.name
        if command.first_key:
            first = arguments[0].arguments[0] if arguments[0].arguments else arguments[0]
            assert first.kind == "key", command.name


def words_of(argument: Argument) -> int:
    """How many words an argument has at least."""
    some = [words_of(each) for each in argument.arguments if not each.is_optional]
    own = sum(some) if argument.kind == "block" else min(some) if argument.kind == "oneof" else 1
    return own + (argument.token != "" and argument.kind != "pure-token")


def test_a_usage_is_read_as_people_write_it() -> None:
    key, value, condition, get, life = arguments_of("set")
    assert (key, value) == (Argument("key", "key"), Argument("value", "string"))
    assert condition == Argument(
        "nx",
        "oneof",
        is_optional=True,
        arguments=[Argument("nx", "pure-token", "NX"), Argument("xx", "pure-token", "XX")],
    )
    assert get == Argument("get", "pure-token", "GET", is_optional=True)
    assert (life.kind, life.is_optional) == ("oneof", True)
    assert [(each.kind, each.token) for each in life.arguments] == [
        ("integer", "EX"), ("integer", "PX"), ("unix-time", "EXAT"), ("unix-time", "PXAT"), ("pure-token", "KEEPTTL"),
    ]  # fmt: skip
    (pairs,) = arguments_of("mset")
    assert (pairs.kind, pairs.is_multiple, [each.name for each in pairs.arguments]) == ("block", True, ["key", "value"])
