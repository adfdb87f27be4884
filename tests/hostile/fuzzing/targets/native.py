"""What a native client sends: its greeting, and frames with requests."""

from __future__ import annotations

import contextlib
import hashlib
from random import Random
from typing import Any, ClassVar, get_args

import msgspec

from hostile.fuzzing.changes import changed_bytes
from hostile.fuzzing.messages import of_type
from hostile.fuzzing.target import MIB, Case, Target, Turns, Wrong
from hostile.fuzzing.targets.member import CHUNK_BYTES, CLIENT, MAX_FRAME_BYTES, HeldMember
from phalanx.common.errors import EntryTooLarge, PhalanxError, ProtocolError
from phalanx.common.ids import MemberId
from phalanx.net.authenticated_records import RecordLayer
from phalanx.net.greeting import MAX_GREETING_BYTES, Accepting, Connecting
from phalanx.net.secret import Secret
from phalanx.wire import messages as m
from phalanx.wire.codec import FrameReader, encode_frame, handshake_decoder, request_decoder

RECYCLED = 4_000
CHANGES_THE_CLUSTER = ("Shut", "Leave", "Remove", "Kick", "Replace", "Divide", "Change")


def _requests() -> list[Any]:
    return sorted(set(get_args(m.Request)) - set(get_args(m.MergeRequest)), key=lambda kind: str(kind.__name__))


class NativeSession(Target):
    """Frames of a client that has greeted."""

    name = "native-session"
    answer_bytes: ClassVar[int] = 4 * MAX_FRAME_BYTES

    def __init__(self) -> None:
        self._kinds = [(kind, of_type(kind)) for kind in _requests()]
        self._common = [
            each for each in self._kinds if each[0] in (m.UpdateValue, m.UpdateWhere, m.ScanPartition, m.GetAll, m.Put)
        ]
        self._renew()

    def _renew(self) -> None:
        self._member = HeldMember()
        self._accepted = self._member.node.accepted_from(CLIENT)
        self._played = 0

    def make(self, rng: Random) -> Case:
        made = []
        for _ in range(rng.choice((1, 1, 2, 4))):
            _, draw = rng.choice(self._common if rng.random() < 0.5 else self._kinds)
            try:
                frame = bytes(encode_frame(draw(rng)))
            except (OverflowError, PhalanxError, msgspec.MsgspecError):
                continue
            if rng.random() < 0.1:
                frame = changed_bytes(rng, frame)
            times = rng.choice((8, 64)) if rng.random() < 0.02 else 1
            made += [frame] * times
        return made

    def play(self, case: Case, turns: Turns) -> None:
        self._played += 1
        if self._played % RECYCLED == 0:
            self._renew()
        member = self._member
        member.begin(turns)
        reader = FrameReader(request_decoder, MAX_FRAME_BYTES)
        data = b"".join(case)
        for at in range(0, len(data), CHUNK_BYTES):
            try:
                messages = turns.run(reader.feed, data[at : at + CHUNK_BYTES])
            except ProtocolError:
                break
            for message in messages:
                if type(message) in self._accepted:
                    member.hear(message)
                    self._tell(turns)
        member.close()

    def _tell(self, turns: Turns) -> None:
        replies = self._member.replies
        while replies:
            with contextlib.suppress(EntryTooLarge):  # an error is sent instead
                turns.run(encode_frame, replies.popleft(), MAX_FRAME_BYTES)


class Greeting(Target):
    """A byte that says whether there is a secret, then what arrives at the accepting end and at the connecting end."""

    name = "greeting"
    _secret = Secret("a secret of this cluster, long enough")
    _this = MemberId("A:5701/A1")

    def __init__(self) -> None:
        self._draws = [of_type(kind) for kind in get_args(m.Handshake)]

    def make(self, rng: Random) -> Case:
        secret = self._secret if rng.random() < 0.6 else None
        one = Connecting(self._this, "phalanx", rng.choice(("client/1", "B:5701/1", "A:5701/A1", "")), secret)
        frames = [bytes(encode_frame(one.begin("10.0.0.1:5701")))]  # type: ignore[arg-type]  # an address
        for _ in range(rng.randrange(3)):
            try:
                frames.append(bytes(encode_frame(rng.choice(self._draws)(rng))))
            except (OverflowError, PhalanxError, msgspec.MsgspecError):
                continue
        if rng.random() < 0.4:
            place = rng.randrange(len(frames))
            frames[place] = changed_bytes(rng, frames[place])
        rng.shuffle(frames)
        return [b"s" if secret is not None else b"", *frames]

    def play(self, case: Case, turns: Turns) -> None:
        secret = self._secret if case and case[0] == b"s" else None
        data = b"".join(case[1:])
        try:
            heard = FrameReader(handshake_decoder, MAX_GREETING_BYTES).feed(data)
        except ProtocolError:
            return
        accepting, connecting = (
            Accepting(self._this, "phalanx", secret),
            Connecting(self._this, "phalanx", "client/1", secret),
        )
        for message in heard:
            answer = accepting.answer(message)
            encode_frame(answer)
            if secret is not None and accepting.hello is not None:
                raise Wrong("who has not the secret was let in")
            if not isinstance(answer, m.Challenge):
                break
        for message in heard:
            if connecting.member is None and not isinstance(connecting.answer(message), m.Proof):
                break
        if secret is not None and connecting.member is not None:
            raise Wrong("a member without the secret was believed")


class Records(Target):
    """Bytes that arrive behind a greeting with a secret."""

    name = "records"
    answer_bytes: ClassVar[int] = MIB
    _keys = (bytes(range(32)), bytes(range(32, 64)))

    def _signed(self, pieces: list[bytes]) -> list[bytes]:
        layer = RecordLayer(self._keys[0], self._keys[1])
        return [bytes(layer.sign(piece)) for piece in pieces]

    def make(self, rng: Random) -> Case:
        pieces = [
            rng.randbytes(rng.choice((0, 1, 20, 300, 70_000 if rng.random() < 0.01 else 5)))
            for _ in range(rng.randrange(1, 5))
        ]
        records = self._signed(pieces)
        kind = rng.random()
        place = rng.randrange(len(records))
        if kind < 0.5:
            records[place] = changed_bytes(rng, records[place])
        elif kind < 0.7:
            records.insert(rng.randrange(len(records) + 1), records[place])
        elif kind < 0.8:
            del records[place]
        return records

    def play(self, case: Case, turns: Turns) -> None:
        layer = RecordLayer(self._keys[1], self._keys[0])
        got = b""
        try:
            for piece in case:
                got += layer.feed(piece)
        except ProtocolError:
            pass
        if not self._verified(b"".join(case)).startswith(got):
            raise Wrong("a record that nobody signed was taken")

    def _verified(self, data: bytes) -> bytes:
        """The slow twin: the content of the records that verify, up to the first that does not."""
        found, at, number = b"", 0, 0
        while at + 20 <= len(data):
            end = at + 20 + int.from_bytes(data[at : at + 4], "big")
            body = data[at + 20 : end]
            tag = hashlib.blake2b(number.to_bytes(8, "big") + body, key=self._keys[0], digest_size=16).digest()
            if end > len(data) or tag != data[at + 4 : at + 20]:
                break
            found, at, number = found + body, end, number + 1
        return found


TARGETS: dict[str, type[Target]] = {each.name: each for each in (NativeSession, Greeting, Records)}
