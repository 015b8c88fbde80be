"""Payloads: what can be written as JSON, and what tasks can ask for."""

from __future__ import annotations

import enum
import json
import subprocess
import sys
from collections import OrderedDict
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphile_worker.errors import InvalidArgumentError, PayloadError, TaskLoadError
from graphile_worker.values import payload as payload_module
from graphile_worker.values.payload import decoder_for, encode, encode_all
from support.properties import examples


class Colour(enum.Enum):
    RED = "red"


class Word(str):
    __slots__ = ()


class Count(int):
    pass


@dataclass
class Address:
    street: str
    number: int = 0


@dataclass
class Person:
    name: str
    address: Address


class Point(msgspec.Struct):
    x: int
    y: float = 0.5


class Mail(TypedDict):
    to: str
    urgent: bool


class Model(pydantic.BaseModel):
    to: str
    count: int = 1


class Other(pydantic.BaseModel):
    kind: Literal["other"]


@dataclass
class Envelope:
    model: Model
    note: str = ""


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "{}"),
        ({}, "{}"),
        (0, "0"),
        (False, "false"),
        ("", '""'),
        ([], "[]"),
        ({"a": None}, '{"a":null}'),
        ([None], "[null]"),
        ({"a": [1, 2.5, "ü", True]}, '{"a":[1,2.5,"ü",true]}'),
        (2**70, str(2**70)),
        ((1, 2), "[1,2]"),
        (OrderedDict(a=1), '{"a":1}'),
        (MappingProxyType({"a": 1}), '{"a":1}'),
        (
            Person("Ann", Address("High Street", 4)),
            '{"name":"Ann","address":{"street":"High Street","number":4}}',
        ),
        (Point(3), '{"x":3,"y":0.5}'),
        (Mail(to="a", urgent=True), '{"to":"a","urgent":true}'),
        (Model(to="a"), '{"to":"a","count":1}'),
        ([Model(to="a"), {"m": Model(to="b", count=2)}], '[{"to":"a","count":1},{"m":{"to":"b","count":2}}]'),
        (Envelope(Model(to="a")), '{"model":{"to":"a","count":1},"note":""}'),
        (datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC), '"2030-01-02T03:04:05Z"'),
        (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        (Decimal("1.50"), '"1.50"'),
        (Colour.RED, '"red"'),
        (Word("w"), '"w"'),
        (Count(5), "5"),
        ({"text": "a literal \\u0000 is fine"}, '{"text":"a literal \\\\u0000 is fine"}'),
    ],
)
def test_values_become_json(value: Any, text: str) -> None:
    assert encode(value) == text
    assert encode_all([value, None, {"a": 1}]) == [text, "{}", '{"a":1}']


class Indented(Model):
    def model_dump_json(self, **options: Any) -> str:
        return super().model_dump_json(indent=1)


def test_a_value_that_writes_line_breaks_stays_one_payload_among_many() -> None:
    first, second, third = encode_all([{"n": 1}, Indented(to="a"), {"n": 2}])
    assert (first, third) == ('{"n":1}', '{"n":2}')
    assert "\n" in second
    assert json.loads(second) == {"to": "a", "count": 1}


class Plain:
    pass


def nested_in_itself() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (Plain(), "payload: cannot be encoded as JSON at $: Plain is not JSON-serialisable"),
        ({"a": [1, Plain()]}, "payload: cannot be encoded as JSON at $.a[1]: Plain is not JSON-serialisable"),
        (Person("Ann", Plain()), "payload: cannot be encoded as JSON at $.address: Plain is not"),  # type: ignore[arg-type]
        ({"a": {None: 1}}, "payload: cannot be encoded as JSON at a key of $.a: NoneType is not JSON"),
        (float("nan"), "payload: nan at $ is not a JSON number"),
        ({"a": [float("inf")]}, "payload: inf at $.a[0] is not a JSON number"),
        (Point(1, float("-inf")), "payload: -inf at $.y is not a JSON number"),
        (Address("a\0b"), "payload: contains a NUL character at $.street"),
        ({"k\0": 1}, "payload: contains a NUL character at a key of $"),
        (Model(to="a\0"), "payload: contains a NUL character at $.to"),
        ({"a": "\ud800"}, "payload: contains half a surrogate pair at $.a, which is not valid text"),
        (nested_in_itself(), "payload: contains itself, or is nested too deeply for JSON"),
        (lambda: None, "payload: cannot be encoded as JSON at $: function is not JSON-serialisable"),
        (Model, "payload: cannot be encoded as JSON at $: "),
    ],
)
def test_values_that_are_no_json_are_refused_with_their_place(value: Any, message: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        encode(value)
    assert str(caught.value).startswith(message)
    assert caught.value.argument == "payload"
    with pytest.raises(InvalidArgumentError) as caught:
        encode_all([1, value])
    assert str(caught.value).startswith(message)


def test_a_payload_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(payload_module, "MAX_PAYLOAD_BYTES", 1000)
    with pytest.raises(
        InvalidArgumentError, match="payload: has 1,002 bytes as JSON; at most 1,000 are allowed"
    ):
        encode("x" * 1000)
    with pytest.raises(InvalidArgumentError, match="payload: has 1,002 bytes"):
        encode_all(["x" * 1000])
    assert len(encode_all(["x" * 600, "y" * 600])) == 2


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")), inner
    ),
    max_leaves=20,
)  # fmt: skip


@examples()
@given(json_values.filter(lambda value: value is not None))
def test_every_json_value_survives_the_way_there_and_back(value: Any) -> None:
    text = encode(value)
    assert json.loads(text) == value
    assert decoder_for(Any)(text) == value


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (Any, '{"a":1}', {"a": 1}),
        (object, "[1]", [1]),
        (None, "{}", {}),
        (dict, '{"a":1}', {"a": 1}),
        (dict[str, int], '{"a":1}', {"a": 1}),
        (list[int], "[1,2]", [1, 2]),
        (str, '"a"', "a"),
        (int | None, "null", None),
        (int | str, '"a"', "a"),
        (Annotated[int, msgspec.Meta(ge=1)], "5", 5),
        (Person, '{"name":"Ann","address":{"street":"s"}}', Person("Ann", Address("s"))),
        (Point, '{"x":1}', Point(1)),
        (list[Point], '[{"x":1}]', [Point(1)]),
        (Mail, '{"to":"a","urgent":false}', {"to": "a", "urgent": False}),
        (datetime, '"2030-01-02T03:04:05Z"', datetime(2030, 1, 2, 3, 4, 5, tzinfo=UTC)),
        (Colour, '"red"', Colour.RED),
        (Model, '{"to":"a"}', Model(to="a")),
        (Model | None, "null", None),
        (list[Model], '[{"to":"a"}]', [Model(to="a")]),
        (Model | Other, '{"kind":"other"}', Other(kind="other")),
        (Envelope, '{"model":{"to":"a","count":3}}', Envelope(Model(to="a", count=3))),
    ],
)
def test_json_becomes_what_a_task_asks_for(annotation: Any, text: str, value: Any) -> None:
    decode = decoder_for(annotation)
    assert decode(text) == value
    assert decode(text.encode()) == value
    assert type(decode(text)) is type(value)


@pytest.mark.parametrize(
    ("annotation", "text", "message"),
    [
        (Any, "{", "payload is not valid JSON: "),
        (
            Any,
            r'{"to":"\\ud83d\\","x":"a\ud83d"}',
            r"payload cannot be read: it contains half a surrogate pair, \ud83d, at character 25, ",
        ),
        (
            Any,
            r'["\ud83d\ude00\udE00"]',
            r"payload cannot be read: it contains half a surrogate pair, \udE00, at character 15",
        ),
        (Point, r'{"x":"\ud800"}', r"payload does not fit Point: it contains half a surrogate pair, "),
        (Model, r'{"to":"\ud800"}', r"payload does not fit Model: it contains half a surrogate pair, "),
        (Point, "{", "payload does not fit Point: Input data was truncated"),
        (Point, '{"x":"1"}', "payload does not fit Point: Expected `int`, got `str` - at `$.x`"),
        (Point, "{}", "payload does not fit Point: Object missing required field `x`"),
        (
            Person,
            '{"name":"A","address":{"street":5}}',
            "payload does not fit Person: Expected `str`, got `int` - at `$.address.street`",
        ),
        (list[int], '[1,"a"]', "payload does not fit list[int]: Expected `int`, got `str` - at `$[1]`"),
        (Mail, '{"to":"a"}', "payload does not fit Mail: Object missing required field `urgent`"),
        (Model, '{"count":1}', "payload does not fit Model: Field required - at `$.to`"),
        (
            Model,
            '{"to":1,"count":"x"}',
            "payload does not fit Model: Input should be a valid string - at `$.to` (and 1 more)",
        ),
        (
            list[Model],
            '[{"to":"a"},{}]',
            "payload does not fit list[test_payload.Model]: Field required in .to - at `$[1]`",
        ),
        (Envelope, '{"model":{}}', "payload does not fit Envelope: Field required in .to - at `$.model`"),
        (Plain, "{}", "payload does not fit Plain: Plain is not a type that payloads can have"),
        (Model | Other, "{}", "payload does not fit "),
    ],
)  # fmt: skip
def test_payloads_that_do_not_fit_say_which_field_and_why(annotation: Any, text: str, message: str) -> None:
    with pytest.raises(PayloadError) as caught:
        decoder_for(annotation)(text)
    said = str(caught.value)
    assert said.startswith(message) or said.replace(f"{__name__}.", "test_payload.").startswith(message)
    assert "\n" not in said


def test_annotations_that_no_payload_can_have_are_refused_when_the_decoder_is_made() -> None:
    with pytest.raises(TaskLoadError, match=r"payloads cannot be decoded to .*Type unions may not contain"):
        decoder_for(Point | Person)


def test_pydantic_is_not_imported_unless_it_is_used() -> None:
    program = (
        "import sys; from graphile_worker.values.payload import encode, decoder_for; "
        "encode({'a': 1}); decoder_for(dict[str, int])('{}'); "
        "assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
