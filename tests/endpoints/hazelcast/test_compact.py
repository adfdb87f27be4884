"""Compact objects of real Hazelcast clients: shared between clients, and with native programs, through the crash of a member."""

import datetime as dt
import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from hazelcast.client import HazelcastClient
from hazelcast.serialization.api import CompactReader, CompactSerializer, CompactWriter

from endpoints.hazelcast.languages import command_of
from phalanx.codec.values import to_key_data
from support.processes import Cluster, wait_for


@dataclass
class Author:
    name: str


@dataclass
class Book:
    title: str
    price: int | None
    authors: list[Author]
    printed: dt.date
    weight: Decimal


class AuthorSerializer(CompactSerializer[Author]):
    def read(self, reader: CompactReader) -> Author:
        return Author(reader.read_string("name") or "")

    def write(self, writer: CompactWriter, obj: Author) -> None:
        writer.write_string("name", obj.name)

    def get_class(self) -> type[Author]:
        return Author

    def get_type_name(self) -> str:
        return "author"


class BookSerializer(CompactSerializer[Book]):
    def read(self, reader: CompactReader) -> Book:
        return Book(
            reader.read_string("title") or "",
            reader.read_nullable_int64("price"),
            reader.read_array_of_compact("authors"),  # type: ignore[arg-type]  # no author is null
            reader.read_date("printed") or dt.date.min,
            reader.read_decimal("weight") or Decimal(),
        )

    def write(self, writer: CompactWriter, obj: Book) -> None:
        writer.write_string("title", obj.title)
        writer.write_nullable_int64("price", obj.price)
        writer.write_array_of_compact("authors", obj.authors)  # type: ignore[arg-type]  # an invariant list
        writer.write_date("printed", obj.printed)
        writer.write_decimal("weight", obj.weight)

    def get_class(self) -> type[Book]:
        return Book

    def get_type_name(self) -> str:
        return "book"


ILIAD = Book("Iliad", 12, [Author("Homer")], dt.date(1488, 12, 9), Decimal("1.50"))
ODYSSEY = Book("Odyssey", None, [], dt.date(1488, 12, 9), Decimal(-1))


@contextmanager
def client_of(cluster: Cluster) -> Iterator[HazelcastClient]:
    """A client that knows no schema of the cluster's yet."""
    client = HazelcastClient(
        cluster_name=cluster.name,
        cluster_members=cluster.addresses.split(","),
        compact_serializers=[AuthorSerializer(), BookSerializer()],
    )
    try:
        yield client
    finally:
        client.shutdown()


@pytest.mark.parametrize("crashes", [1, pytest.param(3, marks=pytest.mark.long)])
def test_clients_share_compact_objects_through_the_crash_of_a_member(cluster: Cluster, crashes: int) -> None:
    """Schemas and objects are at the members that are left, and at those that come; any of them gives them to new clients."""
    cluster.start(2 if crashes == 1 else 3, options=("--serve", "hazelcast"))
    with client_of(cluster) as first:
        books: Any = first.get_map("books").blocking()
        for number in range(20):
            books.put(f"iliad-{number}", ILIAD)
        books.put("odyssey", ODYSSEY)
        for crash in range(crashes):
            cluster.wait_redundant()
            cluster.kill(cluster.members[0])
            if crash + 1 < crashes:
                cluster.start(1, options=("--serve", "hazelcast"))
            with client_of(cluster) as other:
                again: Any = other.get_map("books").blocking()
                assert [again.get(f"iliad-{number}") for number in range(20)] == [ILIAD] * 20
                assert again.get("odyssey") == ODYSSEY
                again.put("theirs", ILIAD)
        wait_for(lambda: books.get("theirs") == ILIAD, "the first client reads what the others have written")
        assert books.replace_if_same("theirs", ILIAD, ODYSSEY)
    with cluster.client() as grid:
        native = grid.map("books")
        assert len(native) == 22
        assert native["odyssey"] == {
            "authors": [],
            "price": None,
            "printed": dt.date(1488, 12, 9),
            "title": "Odyssey",
            "weight": Decimal(-1),
        }
        [data] = native.get_data([to_key_data("odyssey")])
        assert data is not None
        native.put_data([to_key_data("copied")], [data])
    with client_of(cluster) as last:
        copied: Any = last.get_map("books").blocking()
        assert copied.get("copied") == ODYSSEY, "native programs carry the bytes as they are"


@pytest.mark.long  # what it needs is fetched from a registry, and built
@pytest.mark.timeout(600)
def test_a_java_program_reads_what_another_has_stored_before_a_member_crashed(cluster: Cluster) -> None:
    """Java stores objects of plain classes so, unasked; the second program knows the class, and fetches its schema."""
    cluster.start(2, options=("--serve", "hazelcast"))

    def run(what: str) -> str:
        command = [*command_of("java", "compact"), cluster.name, cluster.addresses, what]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    run("put")
    with cluster.client() as grid:
        native = grid.map("books")["iliad"]
        assert native == {
            "authors": [{"name": "Homer"}, None],
            "price": None,
            "printed": dt.date(1488, 12, 9),
            "title": "Iliad",
            "weight": Decimal("1.50"),
        }
        assert native.type_name == "Compact$Book"
    cluster.wait_redundant()
    cluster.kill(cluster.members[0])
    cluster.wait_views()
    assert run("get") == "Iliad null Homer null 1488-12-09 1.50"


@pytest.mark.long  # what it needs is fetched from a registry, and built
@pytest.mark.timeout(600)
def test_python_and_node_programs_read_what_the_other_has_stored(cluster: Cluster) -> None:
    """Their classes have the same names and fields, so they have the same schema."""
    cluster.start(2, options=("--serve", "hazelcast"))

    def run(what: str, key: str) -> str:
        command = [*command_of("node", "compact"), cluster.name, cluster.addresses, what, key]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    run("put", "from node")
    with client_of(cluster) as client:
        books: Any = client.get_map("books").blocking()
        assert books.get("from node") == ILIAD
        books.put("from python", ODYSSEY)
    with cluster.client() as grid:
        native = grid.map("books")
        assert native["from node"] == {
            "authors": [{"name": "Homer"}],
            "price": 12,
            "printed": dt.date(1488, 12, 9),
            "title": "Iliad",
            "weight": Decimal("1.50"),
        }
        assert native["from python"]["weight"] == Decimal(-1)
    assert json.loads(run("get", "from node")) == ["Iliad", 12, ["Homer"], "1488-12-09", "1.50"]
    assert json.loads(run("get", "from python")) == ["Odyssey", None, [], "1488-12-09", "-1"]
