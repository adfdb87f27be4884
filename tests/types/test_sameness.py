"""Maps with types: a value comes back as it was, to the last type, or it is refused when it is written."""

from __future__ import annotations

import collections
import dataclasses
import datetime as dt
import enum
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, Generic, Literal, NamedTuple, TypedDict, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import attrs
import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

import phalanx
from phalanx.maps.types import types_of

T = TypeVar("T")
BERLIN, LONDON = ZoneInfo("Europe/Berlin"), ZoneInfo("Europe/London")


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Color(enum.Enum):
    RED = "r"


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Text(str):
    __slots__ = ()


class Pair(NamedTuple):
    left: int
    right: str


@dataclasses.dataclass
class Base:
    a: int


@dataclasses.dataclass
class Sub(Base):
    b: int = 0


@dataclasses.dataclass
class Holder:
    base: Base
    many: list[Base] = dataclasses.field(default_factory=list)


class StructBase(msgspec.Struct):
    a: int


class StructSub(StructBase):
    b: int = 0


@attrs.define
class AttrsBase:
    a: int


@attrs.define
class AttrsSub(AttrsBase):
    b: int = 0


class ModelBase(pydantic.BaseModel):
    a: int


class ModelSub(ModelBase):
    b: int = 0


class Model(pydantic.BaseModel):
    """Everything that a model reads otherwise than it writes it."""

    model_config = pydantic.ConfigDict(extra="allow")
    data: bytes = b""
    either: Decimal | str = ""
    day: dt.date | str = ""
    anything: Any = None
    pair: tuple[int, ...] = ()
    base: ModelBase | None = None
    number: float = 0.0
    zone: dt.datetime | None = None


class Strict(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(strict=True)
    day: dt.date = dt.date(2026, 1, 1)
    pair: tuple[int, ...] = ()
    tags: set[str] = set()


class OtherWay(pydantic.BaseModel):
    x: int = pydantic.Field(default=0, validation_alias="X")


OTHER_WAY = OtherWay.model_validate({"X": 7})


class Excluding(pydantic.BaseModel):
    x: int = 0
    secret: str = pydantic.Field(default="", exclude=True)
    _private: int = pydantic.PrivateAttr(default=0)


class Computing(pydantic.BaseModel):
    side: int

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def area(self) -> int:
        return self.side**2


class Rounding(pydantic.BaseModel):
    x: float

    @pydantic.field_serializer("x")
    def rounded(self, x: float) -> float:
        return round(x, 1)


class Cat(msgspec.Struct, tag=True, rename="camel", omit_defaults=True, forbid_unknown_fields=True):
    lives_left: int = 9


class Dog(msgspec.Struct, tag=True):
    name: Any


@attrs.define
class Converting:
    x: int = attrs.field(converter=int)
    _hidden: str = attrs.field(default="", init=False)


@dataclasses.dataclass(slots=True, kw_only=True)
class Slots:
    x: int
    derived: int = dataclasses.field(init=False, default=0)
    when: dt.datetime | None = None
    rest: Any = None


@dataclasses.dataclass
class Counting:
    count: int = 0

    def __post_init__(self) -> None:
        self.count += 1


@dataclasses.dataclass
class Box(Generic[T]):
    content: T


class Movie(TypedDict, total=False):
    title: str
    year: int


SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.just(2**70), st.just(2**53 + 1), st.floats(), st.just(-0.0), st.text(),
    st.just("\ud800"), st.binary(), st.binary().map(bytearray), st.dates(), st.times(), st.timedeltas(), st.uuids(), st.decimals(),
    st.datetimes(), st.datetimes(timezones=st.sampled_from([dt.UTC, BERLIN, LONDON])), st.just(dt.time(1, tzinfo=dt.UTC)),
    st.just(dt.datetime(2026, 10, 25, 2, 30, fold=1)), st.just(dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN)),
    st.sampled_from([*Level, *Color, *Rights, Text("a"), Pair(1, "a"), Sub(1), AttrsSub(1), StructSub(1), ModelSub(a=1)]),
    st.just("2026-01-01"), st.just("1.5"), st.just("YWJj"), st.just(float("inf")),
)  # fmt: skip
NAMES = st.text() | st.sampled_from([1, True, 1.0, Text("a"), Level.LOW, ("a", 1), dt.date(2026, 1, 1), float("nan")])
ANYTHING: Any = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner), st.lists(inner).map(tuple), st.dictionaries(NAMES, inner),
        st.dictionaries(st.text(), inner).map(collections.OrderedDict),
        st.dictionaries(st.text(), inner).map(lambda found: collections.defaultdict(int, found)),
        st.frozensets(st.integers() | st.floats()), st.builds(Box, inner), st.builds(Base, inner), st.builds(Sub, inner, inner),
    ),
    max_leaves=6,
)  # fmt: skip
MODELS = st.builds(
    Model, data=st.binary(), either=st.decimals(allow_nan=False, allow_infinity=False) | st.text() | st.just("1.5"), anything=ANYTHING,
    day=st.dates() | st.just("2026-01-01"), pair=st.lists(st.integers()).map(tuple), base=st.sampled_from([None, ModelBase(a=1), ModelSub(a=1)]),
    number=st.floats() | st.integers(-9, 9), zone=st.none() | st.datetimes(timezones=st.just(BERLIN)), more=SCALARS,
)  # fmt: skip

KINDS: dict[str, tuple[Any, Any]] = {
    "int": (int, st.integers() | SCALARS),
    "float": (float, st.floats() | st.integers() | SCALARS),
    "str": (str, st.text() | SCALARS),
    "Any": (dict[str, Any], st.dictionaries(st.text(), ANYTHING)),
    "list": (list[int], st.lists(st.integers() | st.sampled_from(Level) | st.booleans()) | ANYTHING),
    "bare list": (list, st.lists(ANYTHING)),
    "bare dict": (dict, st.dictionaries(NAMES, ANYTHING)),
    "bare tuple": (tuple, st.lists(ANYTHING).map(tuple)),
    "set": (set[float], st.sets(st.floats() | st.integers())),
    "frozenset": (frozenset[int], st.frozensets(st.integers() | st.booleans())),
    "Sequence": (Sequence[int], st.lists(st.integers()) | st.lists(st.integers()).map(tuple)),
    "Mapping": (Mapping[str, int], st.dictionaries(st.text(), st.integers()).map(collections.OrderedDict)),
    "floats by numbers": (dict[float, float], st.dictionaries(st.floats() | st.integers(), st.floats() | st.integers())),
    "tuple": (tuple[int, tuple[str, ...]], st.tuples(st.integers(), st.lists(st.text()).map(tuple) | st.lists(st.text()))),
    "optional": (dt.datetime | None, st.datetimes(timezones=st.sampled_from([None, BERLIN, LONDON]), allow_imaginary=True) | st.none()),
    "time": (list[dt.time], st.lists(st.times(timezones=st.sampled_from([None, dt.UTC])))),
    "timedelta": (list[dt.timedelta], st.lists(st.timedeltas())),
    "Decimal": (list[Decimal], st.lists(st.decimals())),
    "number": (dict[str, int | float | None], st.dictionaries(st.text(), st.integers() | st.floats() | st.booleans() | st.decimals())),
    "Literal": (Literal[1, "a", None], st.sampled_from([1, "a", None, True, Level.LOW, Text("a")])),
    "enum": (Level, st.sampled_from([*Level, 1, True])),
    "flag": (Rights, st.sampled_from([*Rights, Rights.READ | Rights.WRITE])),
    "NamedTuple": (Pair, st.builds(Pair, st.integers() | st.sampled_from(Level), st.text())),
    "TypedDict": (Movie, st.dictionaries(st.sampled_from(["title", "year", "more"]), st.text() | st.integers())),
    "bytearray": (list[bytearray], st.lists(st.binary().map(bytearray) | st.binary())),
    "dataclass": (Base, st.builds(Base, SCALARS) | st.builds(Sub, st.integers())),
    "nested": (Holder, st.builds(Holder, st.builds(Base, SCALARS), st.lists(st.builds(Base, st.integers()) | st.builds(Sub, st.integers())))),
    "slots": (Slots, st.builds(Slots, x=st.integers(), when=st.datetimes(timezones=st.just(LONDON)), rest=ANYTHING)),
    "__post_init__": (Counting, st.builds(Counting, count=st.integers())),
    "generic": (Box[int], st.builds(Box, SCALARS)),
    "Struct": (StructBase, st.builds(StructBase, SCALARS) | st.builds(StructSub, st.integers())),
    "union of Structs": (Cat | Dog, st.builds(Cat, SCALARS) | st.builds(Dog, ANYTHING)),
    "attrs": (AttrsBase, st.builds(AttrsBase, SCALARS) | st.builds(AttrsSub, st.integers())),
    "attrs converters": (Converting, st.builds(Converting, st.integers() | st.sampled_from(["1", 1.5, True]))),
    "model": (Model, MODELS),
    "strict model": (Strict, st.builds(Strict, day=st.dates(), pair=st.lists(st.integers()).map(tuple), tags=st.sets(st.text()))),
    "model of subclass": (ModelBase, st.builds(ModelBase, a=st.integers()) | st.builds(ModelSub, a=st.integers())),
    "made past validation": (ModelBase, st.builds(ModelBase.model_construct, a=SCALARS)),
    "list of models": (list[Rounding], st.lists(st.builds(Rounding, x=st.floats()))),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("dicts", ["rows", "json"])
@pytest.mark.parametrize("name", KINDS)
def test_a_value_comes_back_as_it_was_or_is_refused(name: str, dicts: str) -> None:
    kind, values = KINDS[name]
    types = types_of("m", Any, kind, dicts)

    @given(values)
    def try_it(value: Any) -> None:
        try:
            data = types.value_data(value)
        except phalanx.UsageError:
            return
        again = types.value_of(data)
        assert agree(told(value), told(again)), (value, again)
        assert types.value_data(again) == data, "written again, it is the same"

    try_it()


@pytest.mark.parametrize(
    ("kind", "keys"),
    [
        (float, st.floats() | st.integers()),
        (Decimal, st.decimals()),
        (dt.datetime, st.datetimes(timezones=st.sampled_from([None, BERLIN, dt.UTC]))),
        (tuple[int, Any], st.tuples(st.integers() | st.booleans(), SCALARS)),
        (Pair, st.builds(Pair, st.integers() | st.sampled_from(Level), st.text())),
        (Level, st.sampled_from([*Level, 1])),
        (Literal[1, "a"], st.sampled_from([1, True, "a", Text("a")])),
    ],
)
def test_a_key_comes_back_as_it_was_or_is_refused(kind: Any, keys: Any) -> None:
    types: Any = types_of("m", kind, Any)

    @given(keys)
    def try_it(key: Any) -> None:
        try:
            data = types.key_data(key)
        except phalanx.UsageError:
            return
        again = types.key_of(data)
        assert again == key or told(again) == told(key), "-0.0 comes back as 0.0, as in a dict"
        assert type(again) is type(key) or (type(key), type(again)) == (int, float)

    try_it()


def told(value: Any) -> Any:
    """Return what must be the same of a value, its type with it: written apart from what it judges."""
    kind = type(value).__name__
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        return kind, value.astimezone(dt.UTC).isoformat()
    if isinstance(value, dt.datetime | dt.time):
        return kind, value.isoformat()
    if isinstance(value, float):
        return kind, value.hex()
    if isinstance(value, pydantic.BaseModel):
        fields = {**value.__dict__, **(value.__pydantic_extra__ or {}), **(value.__pydantic_private__ or {})}
        return kind, {name: told(part) for name, part in fields.items()}
    if isinstance(value, msgspec.Struct):
        return kind, {name: told(getattr(value, name)) for name in value.__struct_fields__}
    if attrs.has(type(value)):
        return kind, {field.name: told(getattr(value, field.name)) for field in attrs.fields(type(value))}
    if dataclasses.is_dataclass(value):
        return kind, {field.name: told(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, dict):
        return kind, {repr(told(name)): told(part) for name, part in value.items()}
    if isinstance(value, set | frozenset):
        return kind, dict.fromkeys(sorted(repr(told(part)) for part in value))
    if isinstance(value, list | tuple):
        return kind, dict(enumerate(map(told, value)))
    return kind, repr(value)


def agree(given: Any, again: Any) -> bool:
    """Compare what `told` returned; an int may have become a float."""
    if given == again:
        return True
    (kind, parts), (other_kind, others) = given, again
    if (kind, other_kind) == ("int", "float"):
        return bool(int(parts) == float.fromhex(others))
    if kind != other_kind or not isinstance(parts, dict) or len(parts) != len(others):
        return False
    if parts.keys() != others.keys():  # the ints among names, or members, have become floats
        return {_number(name) for name in parts} == {_number(name) for name in others} and all(
            agree(part, others[other])
            for name, part in parts.items()
            for other in others
            if part is not None and _number(name) == _number(other)
        )
    return all(part is None or agree(part, others[name]) for name, part in parts.items())


def _number(name: str) -> Any:
    kind, text = eval(name)
    return float(int(text)).hex() if kind == "int" else text if kind == "float" else name


@pytest.mark.parametrize(
    ("kind", "value", "dicts", "where"),
    [
        (OtherWay, OTHER_WAY, "rows", r"`\.x` is 7 \(int\), and would come back as 0 \(int\)"),
        (Model, Model(data=b"\xff"), "json", r"`\.data` is b'\\xff' \(bytes\), and would come back as b'/w=='"),
        (Model, Model(either="1.5"), "json", r"`\.either` is '1.5' \(str\), and would come back as Decimal\('1.5'\)"),
        (Model, Model(day="2026-01-01"), "json", r"`\.day` is '2026-01-01' \(str\), and would come back as .*date"),
        (Model, Model(base=ModelSub(a=1)), "rows", r"`\.base` is ModelSub"),
        (Base, Sub(1, 2), "rows", r"it is Sub\(a=1, b=2\) \(.*Sub\), and would come back as Base\(a=1\)"),
        (StructBase, StructSub(1, 2), "rows", "StructBase"),
        (AttrsBase, AttrsSub(1, 2), "rows", "AttrsBase"),
        (ModelBase, ModelSub(a=1, b=2), "rows", "ModelBase"),
        (Holder, Holder(Base(1), [Base(1), Sub(1, 2)]), "rows", r"`\.many\[1\]` is Sub"),
        (dict[str, Any], {"a": [(1, 2)]}, "rows", r"`\['a'\]\[0\]` is \(1, 2\) \(tuple\), and would come back as \[1, 2\]"),
        (float, 2**53 + 1, "rows", "is 9007199254740993 .* as 9007199254740992.0"),
        (list[int], [Level.LOW], "rows", r"`\[0\]` is <Level.LOW: 1> \(.*Level\), and would come back as 1 \(int\)"),
        (Movie, {"title": "a", "more": 1}, "rows", "would come back as {'title': 'a'}"),
        (Excluding, Excluding(secret="s"), "rows", r"`\.secret` is 's'"),
        (Counting, Counting(5), "rows", r"`\.count` is 6 \(int\), and would come back as 7"),
        (Rounding, Rounding(x=1.23), "rows", r"`\.x` is 1\.23"),
        (bytes, bytearray(b"a"), "rows", "bytes"),
        (set[float], {1.5, float("nan")}, "rows", "nan"),
        (Strict, Strict(pair=(1, 2)), "rows", r"is not of type Strict: .*pair;   Input should be a valid tuple"),
        (int, "\ud800", "rows", "surrogates not allowed"),
        (float, Decimal("sNaN"), "rows", "cannot convert signaling NaN to float"),
        (float, Decimal("0.1"), "rows", r"is Decimal\('0.1'\) .* as 0.1 \(float\)"),
        (float, 10**400, "rows", "is not of type float"),
    ],
)  # fmt: skip
def test_the_error_names_the_field_and_both_types(kind: Any, value: Any, dicts: str, where: str) -> None:
    types = types_of("m", str, kind, dicts)
    with pytest.raises(phalanx.UsageError, match=rf"^map 'm': the value .*{where}"):
        types.value_data(value)
    with pytest.raises(phalanx.UsageError, match=where):
        types.values_data([value])


def test_what_a_model_keeps_to_itself_is_refused_where_it_is_not_as_it_begins() -> None:
    types = types_of("m", str, Excluding)
    model = Excluding(x=1)
    assert types.value_of(types.value_data(model)) == model
    model._private = 1
    with pytest.raises(phalanx.UsageError, match=r"_private'\]` is 1"):
        types.value_data(model)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Model, Model(data=b"abc", number=float("nan"), pair=(1,), zone=dt.datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN))),
        (Computing, Computing(side=2)),
        (dict[str, Decimal], {"a": Decimal("NaN")}),
        (Cat | Dog, Dog("Rex")),
        (Box[int], Box(1)),
        (list[float], [float("nan"), -0.0]),
    ],
)  # fmt: skip
def test_what_can_come_back_is_not_refused(kind: Any, value: Any) -> None:
    types = types_of("m", str, kind)
    assert told(types.value_of(types.value_data(value))) == told(value)


def test_bytes_of_a_model_are_text_in_json_as_the_model_says() -> None:
    class Base64(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(val_json_bytes="base64")
        data: bytes

    types = types_of("m", str, Base64, "json")
    data = types.value_data(Base64(data=b"\xff"))
    assert types.value_of(data) == Base64(data=b"\xff")
    strict = types_of("m", str, Strict, "json")
    assert strict.value_of(strict.value_data(Strict(tags={"b", "a"}))) == Strict(tags={"b", "a"})


def test_an_argument_of_a_function_is_refused_where_its_model_would_change() -> None:
    types: Callable[[object], bytes] = types_of("m", str, list[OtherWay]).argument_data
    with pytest.raises(phalanx.UsageError, match=r"the argument .* would not come back as it was: `\.x` is 7"):
        types([OTHER_WAY])
    assert types([UUID(int=1), Base(1)])
