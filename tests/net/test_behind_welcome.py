"""What a member sends in one go with its Welcome is not lost, and is in the first record where there is a secret."""

import asyncio
import socket
import threading

import pytest

from phalanx.client.blocking.connection import BlockingConnection, ConnectAttempt
from phalanx.common.ids import Address
from phalanx.net.connection import ConnectionGroup
from phalanx.net.greeting import Accepting
from phalanx.net.greeting_reader import GreetingReader
from phalanx.net.link import Link
from phalanx.net.secret import Secret
from phalanx.wire.codec import encode_frame
from phalanx.wire.messages import Challenge, DoneReply, Message, Welcome
from support.harness import lone_id

REPLIES = [DoneReply(1), DoneReply(2)]


def serve(server: socket.socket, secret: Secret | None) -> None:
    """A member that sends replies at once, as one segment with its Welcome; then it waits for the peer to go."""
    connection, _ = server.accept()
    place = server.getsockname()
    greeting = Accepting(lone_id("A"), "phalanx", secret, [Address(f"{place[0]}:{place[1]}")])
    reader = GreetingReader()
    with connection:
        while data := connection.recv(65536):
            message = reader.take(data)
            if message is None:
                continue
            answer = greeting.answer(message)
            said = encode_frame(answer)
            if isinstance(answer, Welcome):
                behind = b"".join(map(encode_frame, REPLIES))
                said += behind if greeting.records is None else greeting.records.sign(behind)
            connection.sendall(said)
            assert isinstance(answer, Challenge | Welcome)


@pytest.fixture(params=[None, Secret("a secret of this cluster")], ids=["without", "with"])
def secret(request: pytest.FixtureRequest) -> Secret | None:
    found: Secret | None = request.param
    return found


def test_the_blocking_client_reads_it(secret: Secret | None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        serving = threading.Thread(target=serve, args=(server, secret))
        serving.start()
        attempt = ConnectAttempt(Address(f"127.0.0.1:{server.getsockname()[1]}"), "phalanx", "client/1", secret)
        attempt.go_on_for(10.0)
        connection = BlockingConnection(attempt, 1_000)
        assert connection.receive(10.0) == REPLIES
        connection.socket.close()
        serving.join()


def test_a_link_reads_it(secret: Secret | None) -> None:
    async def run(address: str) -> None:
        heard: list[Message] = []
        both = asyncio.Event()

        def on_message(link: Link, message: Message) -> None:
            heard.append(message)
            if len(heard) == len(REPLIES):
                both.set()

        link = Link(
            Address(address), "phalanx", "client/1", ConnectionGroup(1_000, secret),
            on_up=lambda link: None, on_down=lambda link, why: both.set(), on_message=on_message,
        )  # fmt: skip
        async with asyncio.timeout(10):
            await both.wait()
        assert heard == REPLIES
        link.drop()
        await asyncio.sleep(0)

    with socket.create_server(("127.0.0.1", 0)) as server:
        serving = threading.Thread(target=serve, args=(server, secret))
        serving.start()
        asyncio.run(run(f"127.0.0.1:{server.getsockname()[1]}"))
        serving.join()
