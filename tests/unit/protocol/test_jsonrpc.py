"""The envelope: what is read, what is refused, what goes out."""

from __future__ import annotations

import pytest

from rolecall.errors import InvalidParams, InvalidRequest, ParseError, RoleUnknown, TooDeep, WorkerFault
from rolecall.protocol.faults import fault_of
from rolecall.protocol.jsonrpc import NULL, read_body, read_id, read_reply, read_request, write_error, write_result
from rolecall.protocol.text.jsontext import parse


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"{} {}",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"x":NaN}',
        b'{"x":Infinity}',
        b'{"x":1e999}',
        b'{"x":[{"y":-1E+400}]}',
        b"1" * 5000,
        b'"\\ud800"',
        b'{"a":"\xff"}',
        b"\xef\xbb\xbf{}",
        '{"a":1}'.encode("utf-16"),
    ],
)
def test_what_is_no_json_is_a_parse_error(body: bytes) -> None:
    with pytest.raises(ParseError):
        read_body(body)


def test_what_is_deeper_than_the_limit_is_no_request() -> None:
    assert read_body(b"[[[]]]", 3) == [[[]]]
    with pytest.raises(TooDeep, match="ROLECALL_MAX_DEPTH"):
        read_body(b"[[[]]]", 2)


def test_a_large_exponent_that_is_finite_is_a_number() -> None:
    assert read_body(b'{"x":1e308}') == {"x": 1e308}


def test_of_duplicate_keys_the_last_one_wins() -> None:
    assert read_body(b'{"role":"a","role":"b"}') == {"role": "b"}


@pytest.mark.parametrize(
    "entry",
    [
        [],
        1,
        None,
        {},
        {"jsonrpc": 2.0, "id": 1, "method": "m"},
        {"jsonrpc": "1.0", "id": 1, "method": "m"},
        {"jsonrpc": "2.0", "id": True, "method": "m"},
        {"jsonrpc": "2.0", "id": {}, "method": "m"},
        {"jsonrpc": "2.0", "id": 1.5, "method": "m"},
        {"jsonrpc": "2.0", "id": "x" * 100_000, "method": "m"},
        {"jsonrpc": "2.0", "id": 1},
        {"jsonrpc": "2.0", "id": 1, "method": 7},
    ],
)
def test_a_wrong_envelope_is_an_invalid_request(entry: object) -> None:
    with pytest.raises(InvalidRequest):
        read_request(entry, read_id(entry))


@pytest.mark.parametrize("entry", [{"jsonrpc": "2.0", "method": "m"}, {"jsonrpc": "2.0", "id": None, "method": "m"}])
def test_a_request_without_an_id_is_answered_with_null(entry: object) -> None:
    assert write_result(read_request(entry, read_id(entry)).id, b"{}") == b'{"jsonrpc":"2.0","id":null,"result":{}}'


@pytest.mark.parametrize("params", [[], "x", 1])
def test_params_that_are_no_object_are_invalid_params(params: object) -> None:
    with pytest.raises(InvalidParams):
        read_request({"jsonrpc": "2.0", "id": 1, "method": "m", "params": params}, b"1")


@pytest.mark.parametrize("call_id", [1, -5, 12345678901234567890, "1", "", "é\n"])
def test_an_id_is_repeated_in_its_own_type(call_id: object) -> None:
    request = read_request({"jsonrpc": "2.0", "id": call_id, "method": "m"}, read_id({"id": call_id}))
    assert parse(write_result(request.id, b"{}")) == {"jsonrpc": "2.0", "id": call_id, "result": {}}


def test_an_id_that_cannot_be_repeated_is_null() -> None:
    assert read_id({"id": {}}) == NULL
    assert parse(write_error(NULL, fault_of(ParseError())))["id"] is None


def test_an_own_error_carries_its_reason_and_names_the_nearest_role() -> None:
    error = parse(write_error(b"1", fault_of(RoleUnknown("reviewr", ["planner", "reviewer"]))))["error"]
    assert error["code"] == -32000
    assert error["message"] == 'No role "reviewr". Live: planner, reviewer. Did you mean reviewer?'
    assert error["data"][0]["reason"] == "ROLE_UNKNOWN"


def test_an_error_that_is_not_ours_says_nothing_of_itself() -> None:
    fault = fault_of(KeyError("secret"))
    assert (fault.code, fault.status, fault.message) == (-32603, 500, "Internal error.")


def test_a_workers_internals_do_not_pass() -> None:
    assert "Traceback" not in fault_of(WorkerFault(-32603, "Traceback: boom")).message
    assert "Traceback" not in fault_of(WorkerFault(1, "Traceback: boom")).message
    assert fault_of(WorkerFault(-32005, "no such type")).message == "no such type"


@pytest.mark.parametrize("body", [b"[]", b"1", b'{"jsonrpc":"2.0","id":1}'])
def test_a_reply_without_result_or_error_is_none(body: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_reply(body)
