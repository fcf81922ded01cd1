"""A handler's signature declares what is read, validated, checked and answered."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from msgspec import Struct
from quart import Quart, Response

from hub.inbound.api.application import create_api
from hub.inbound.api.operation import documented, operation, operation_of
from hub.inbound.api.validation import Body, Header, Query, digits, text
from rolecall.errors import TaskNotFound
from rolecall.model.principal import Kind, Principal, Right

JSON = {"Content-Type": "application/json"}


class Wanted(Query):
    first: str | None = None
    many: tuple[str, ...] = ()
    count: Annotated[int, *digits(1, 9)] = 5
    note: Annotated[str | None, Header("X-Note")] = None


class Note(Body):
    note: Annotated[str, *text(5)] | None = None


class Address(Body):
    to: Annotated[str, *text(5)]


class Page(Struct):
    number: int
    about: list[Any]


@pytest.fixture
def app() -> Quart:
    api = create_api(1000, 10)

    @api.get("/find")
    @operation("Find.")
    async def find(query: Wanted) -> Page:
        return Page(query.count, [query.first, *query.many, query.note])

    @api.post("/notes/<number>")
    @operation("Note.", right=Right.OPERATE, status=202)
    async def note(number: Annotated[int, *digits(1, 9)], body: Note) -> Page:
        return Page(number, [body.note])

    @api.post("/addresses")
    @operation("Send.", TaskNotFound)
    async def send(body: Address) -> Page | Response:
        return Response("unknown", status=404) if body.to == "?" else Page(0, [body.to])

    return api


def sent_by(kind: Kind) -> dict[str, Any]:
    return {"rolecall.principal": Principal("x", kind)}


async def test_a_query_is_read_from_the_address_and_from_headers(app: Quart) -> None:
    client = app.test_client()
    answer = await client.get("/find?first=a&first=b&many=c&many=d&other=e&note=f", headers={"X-Note": "g"})
    assert await answer.get_data() == b'{"number":5,"about":["a","c","d","g"]}'
    answer = await client.get("/find?count=7&count=x")
    assert await answer.get_data() == b'{"number":7,"about":[null,null]}'


async def test_a_refused_query_is_a_problem(app: Quart) -> None:
    answer = await app.test_client().get("/find?count=x")
    problem = await answer.get_json(force=True)
    assert (answer.status_code, answer.content_type) == (400, "application/problem+json")
    assert (problem["reason"], problem["detail"]) == ("INVALID_PARAMS", '"count" must be a whole number from 1 to 9.')


async def test_a_body_may_be_empty_unless_a_member_is_required(app: Quart) -> None:
    client = app.test_client()
    answer = await client.post("/notes/3", scope_base=sent_by(Kind.ADMIN))
    assert (answer.status_code, await answer.get_data()) == (202, b'{"number":3,"about":[null]}')
    assert (await client.post("/addresses")).status_code == 415
    assert (await client.post("/addresses", headers=JSON)).status_code == 400


@pytest.mark.parametrize(("body", "status"), [(b'{"to":"a","x":1}', 200), (b'{"to":"?"}', 404), (b"{}", 422), (b"[]", 400)])
async def test_a_body_is_validated_and_the_handlers_own_response_is_left_alone(app: Quart, body: bytes, status: int) -> None:
    assert (await app.test_client().post("/addresses", data=body, headers=JSON)).status_code == status


async def test_a_right_is_checked_before_the_request_is_read(app: Quart) -> None:
    client = app.test_client()
    for path, body in (("/notes/x", b"{"), ("/notes/3", b"{"), ("/notes/3", b'{"note":7}')):
        answer = await client.post(path, data=body, headers=JSON, scope_base=sent_by(Kind.READER))
        assert answer.status_code == 403
        answer = await client.post(path, data=body, headers=JSON, scope_base=sent_by(Kind.ADMIN))
        assert answer.status_code in (400, 422)


def test_the_answer_is_documented_by_the_signature(app: Quart) -> None:
    assert operation_of(app.view_functions["note"]).answers == {202: Page}
    assert operation_of(app.view_functions["send"]).answers == {200: Page}


def test_a_handler_that_writes_its_bytes_itself_names_its_answers() -> None:
    async def silent() -> Response:
        return Response("")

    with pytest.raises(TypeError, match="silent must return one model, or name its answers"):
        operation("Silent.")(silent)
    assert operation_of(operation("Loud.", answers={200: {"text/plain": str}})(silent)).answers == {200: {"text/plain": str}}


def test_documenting_a_handler_does_not_wrap_it() -> None:
    async def handler(body: Note) -> str:
        return "x"

    assert documented("About.", answers={200: str})(handler) is handler
