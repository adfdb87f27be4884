"""What a member publishes is encoded once, however many members get it."""

import asyncio
from unittest.mock import patch

from phalanx.common.ids import Address, MemberId, member_id
from phalanx.common.view import MembersView
from phalanx.net import connection
from phalanx.net.connection import ConnectionGroup
from phalanx.net.link import Link
from phalanx.wire.codec import encode_frame
from phalanx.wire.messages import MembersUpdate

IDS = tuple(member_id(Address(f"127.0.0.1:{port}"), "i") for port in range(1, 6))


def test_a_list_for_many_is_encoded_once_and_the_next_one_anew() -> None:
    async def publish() -> int:
        group = ConnectionGroup(1_000_000)
        links = [
            Link(to, "c", MemberId("127.0.0.1:9/i"), group, on_up=lambda link: None, on_down=lambda link, why: None,
                 on_message=lambda link, message: None)
            for to in IDS
        ]  # fmt: skip
        with patch.object(connection, "encode_frame", wraps=encode_frame) as encode:
            for version in (1, 2):
                update = MembersUpdate(MembersView(version, IDS[0], IDS), True)
                for link in links:
                    link.publish(update)
        for link in links:
            link.drop()
        return encode.call_count

    assert asyncio.run(publish()) == 2
