"""A put that is sent again must not take effect after its call has ended."""

from phalanx.calls.call_router import RETRY_PAUSE_MS, CallRouter
from phalanx.common.ids import MemberId
from phalanx.common.table import build_table
from phalanx.machine.effects import Answer, Send
from phalanx.machine.inputs import Call, LinkLost
from phalanx.machine.outbox import Outbox
from phalanx.wire.messages import DoneReply, Put

OWNER = MemberId("10.0.0.1:5701/a")
KEY, VALUE = b"\0\0\0\1k", b"\0\0\0\1v"


def test_the_answer_to_the_first_try_does_not_end_a_call_that_was_sent_again() -> None:
    out = Outbox()
    router = CallRouter(10_000, out)
    router.on_table(build_table([(OWNER,)], [1]), 0)
    router.begin_call(Call(0, Put(7, "m", KEY, VALUE, 0)), 0)
    assert out.take() == [Send(OWNER, Put(7, "m", KEY, VALUE, 0))]
    # The connection by which the owner answers breaks; the one by which it is asked still carries the first try.
    router.on_link(LinkLost(OWNER), 1)
    router.on_time(1 + RETRY_PAUSE_MS)
    (second,) = out.take()
    assert isinstance(second, Send)
    assert isinstance(second.message, Put)
    assert second.message.id != 7
    router.on_reply(OWNER, DoneReply(7), 30)
    assert out.take() == []
    router.on_reply(OWNER, DoneReply(second.message.id), 40)
    assert out.take() == [Answer(DoneReply(7))]
    assert router.next_deadline() is None
