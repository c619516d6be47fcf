"""What the page's own modules make of bytes, of JSON and of what people write for a place in a log."""

from __future__ import annotations

import base64
import json
import struct
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from playwright.sync_api import Page

NOW = datetime(2026, 11, 15, 14, 3, 30)
"""In the zone of whoever looks, which is that of the browser."""


def call(page: Page, module: str, name: str, *arguments: Any) -> Any:
    """What a function of a module gives, where that is JSON; bytes go in and come out as lists."""
    script = """async ([module, name, given]) => {
      const found = (await import(`/console/${module}.js`))[name](...given);
      return found instanceof Uint8Array ? Array.from(found) : found;
    }"""
    return page.evaluate(script, [module, name, list(arguments)])


def call_with_bytes(page: Page, name: str, data: bytes, *arguments: Any) -> Any:
    script = """async ([name, data, given]) =>
      (await import("/console/text/value.js"))[name](Uint8Array.from(data), ...given)"""
    return page.evaluate(script, [name, list(data), list(arguments)])


def parse_place(page: Page, text: str) -> Any:
    script = """async ([text, now]) => {
      const { parsePlace } = await import("/console/records/find.js");
      try { return parsePlace(text, new Date(now)); } catch (error) { return `! ${error.message}`; }
    }"""
    return page.evaluate(script, [text, NOW.astimezone(UTC).isoformat()])


def utc(*local: int) -> str:
    return datetime(*local).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")  # type: ignore[arg-type]


SOUND = (
    "{}", "[]", " [1, 2.50 ,-0.0]\n", '{"a":{"b":[null,true,false]}}', '"\\u00e9\\n\\\\"', "1e-999", "0", "-1E+9",
    '{"same":1,"same":2}', '""', '[[],{},""]', '{"":{"":[]}}',
)  # fmt: skip
UNSOUND = (
    "", " ", "{", "[1,]", '{"a"}', '{"a":}', "{a:1}", "01", "1.", "-", "1e", '"a', '"\n"', "nul", "[1 2]", '{"a":1,}',
    '"\\x"', '"\\u12g4"', "1 2", "[}", "{]", "NaN", "+1", ".5", "'a'", "[1]]", "\u00a01",
)  # fmt: skip


def test_json_is_told_from_what_is_none(page: Page) -> None:
    for text in SOUND:
        json.loads(text)
        assert call(page, "text/json", "findFault", text) is None, text
    for text in UNSOUND:
        assert call(page, "text/json", "findFault", text) is not None, text


def test_a_fault_is_where_it_is(page: Page) -> None:
    text = '{"a": 1,\n "b": }'
    fault = call(page, "text/json", "findFault", text)
    assert (fault["at"], fault["expected"]) == (15, "a value")
    assert call(page, "text/json", "lineAt", text, fault["at"]) == {"line": 2, "column": 7}


def test_formatting_keeps_every_digit_and_every_name(page: Page) -> None:
    source = '{"n":12345678901234567890,"n":1.0,"tiny":1e-999,"z":-0.0,"e":[],"s":"a\\"}{,:"}'
    wanted = (
        '{\n  "n": 12345678901234567890,\n  "n": 1.0,\n  "tiny": 1e-999,\n  "z": -0.0,\n  "e": [],\n'
        '  "s": "a\\"}{,:"\n}'
    )
    assert call(page, "text/json", "format", source) == wanted
    assert call(page, "text/json", "format", wanted) == wanted


def test_entries_are_found_where_they_stand(page: Page) -> None:
    source = '{"a" : {"b": [1, "]"]}, "e":"x\\\\" , "z": 12345678901234567890 }'
    found = call(page, "text/json", "entriesOf", source, 0)
    shown = [(entry["name"], source[entry["start"] : entry["end"]]) for entry in found["entries"]]
    assert shown == [('"a"', '{"b": [1, "]"]}'), ('"e"', '"x\\\\"'), ('"z"', "12345678901234567890")]


def test_entries_come_in_parts_and_none_is_left_out(page: Page) -> None:
    script = """async (count) => {
      const { entriesOf } = await import("/console/text/json.js");
      const text = `[${Array.from({ length: count }, (_, each) => each).join(" , ")}]`;
      const found = [];
      for (let next = 1; next !== null; ) {
        const part = entriesOf(text, 0, 200, next);
        found.push(...part.entries.map(({ start, end }) => Number(text.slice(start, end))));
        next = part.next;
      }
      return found;
    }"""
    assert page.evaluate(script, 1_000) == list(range(1_000))


@pytest.mark.parametrize(
    "text",
    [
        '"[".repeat(1000000) + "]".repeat(1000000)',
        '"[" + "1,".repeat(1000000) + "1]"',
        '\'{"a":\'.repeat(500000) + "1" + "}".repeat(500000)',
        "'\"' + '\\\\\"'.repeat(1000000) + '\"'",
        '"1".repeat(4000000)',
    ],
    ids=["deep-arrays", "wide", "deep-objects", "escapes", "digits"],
)
def test_no_json_is_too_deep_or_too_wide(page: Page, text: str) -> None:
    script = f"""async () => {{
      const {{ findFault, endOfValue, format }} = await import("/console/text/json.js");
      const text = {text};
      return [findFault(text), endOfValue(text, 0) === text.length];
    }}"""
    assert page.evaluate(script) == [None, True]


def test_a_tree_opens_by_level_and_shows_a_part_of_many(page: Page) -> None:
    script = """async () => {
      const { treeView } = await import("/console/records/views.js");
      const deep = treeView("[".repeat(10000) + "]".repeat(10000));
      const wide = treeView("[" + "12345678901234567890,".repeat(1000000) + "1]");
      const [first] = wide.querySelectorAll(".leaf .number");
      return [deep.querySelectorAll("details").length, wide.querySelectorAll(".leaf").length, first.textContent];
    }"""
    levels, leaves, number = page.evaluate(script)
    assert levels <= 3
    assert (leaves, number) == (200, "12345678901234567890")


def test_a_large_value_is_shown_in_pieces(page: Page) -> None:
    script = """async () => {
      const { hexView, textView } = await import("/console/records/views.js");
      const bytes = new Uint8Array(16 * 1024 * 1024).fill(0xe4);
      const sizes = [hexView(bytes), textView(bytes.fill(0x61))].map((view) => {
        const before = view.querySelector("pre").textContent.length;
        view.querySelector("button").click();
        return [before, view.querySelector("pre").textContent.length];
      });
      return sizes;
    }"""
    for before, after in page.evaluate(script):
        assert 0 < before < 400_000
        assert after == 2 * before


def test_a_page_of_records_keeps_the_digits_of_their_values(page: Page) -> None:
    records = [
        '{"seqno":0,"timestamp":"2026-01-31T12:00:00.000001Z","key":"k","value":{"n": 12345678901234567890.10},'
        '"channel":null,"tags":["a"],"headers":[]}',
        '{"seqno":1,"timestamp":null,"key":{"base64":"/w=="},"value":{"base64":"AP8K"},"channel":"c","tags":[],"headers":[]}',
        '{"seqno":2,"timestamp":null,"key":null,"value":null,"channel":null,"tags":[],"headers":[["h","1"]]}',
        '{"seqno":3,"timestamp":null,"key":null,"value":"'
        + "\\u00e9" * 400
        + '","channel":null,"tags":[],"headers":[]}',
    ]
    answer = f'{{"records":[{",".join(records)}],"partition":4,"first":0,"committed":9,"next":"1x"}}'
    found = call(page, "records/record_pages", "pageOf", answer)
    number, data, tombstone, text = (record["value"] for record in found["records"])
    assert number == {"kind": "json", "runs": [{"text": '{"n": 12345678901234567890.10}'}], "size": 30}
    assert data == {"kind": "bytes", "runs": [{"escape": "\\0"}, {"escape": "\\xff"}, {"escape": "\\n"}], "size": 3}
    assert tombstone["kind"] == "none"
    assert text == {"kind": "text", "runs": [{"text": "é" * 200 + "…"}], "size": 800}
    assert (found["committed"], found["records"][0]["partition"]) == (9, 4)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é 漢字 👋", "plain é 漢字 👋"),
        ("two\nlines\tand\r\0", "two\\nlines\\tand\\r\\0"),
        ("\u202egnp.exe\u202c \u2066x\u2069\u200f", "\\u202Egnp.exe\\u202C \\u2066x\\u2069\\u200F"),
        ("zero\u200bwidth\ufeff\u2028", "zero\\u200Bwidth\\uFEFF\\u2028"),
        ("\U000e0041 \u3164 \x1b[31m", "\\u{E0041} \\u3164 \\x1b[31m"),
        ("👩\u200d👧 🏳\ufe0f\u200d🌈 a\u200db", "👩\u200d👧 🏳\ufe0f\u200d🌈 a\\u200Db"),
    ],
    ids=["plain", "controls", "bidi", "widthless", "tags-and-fillers", "joined-emoji"],
)
def test_what_cannot_be_seen_is_made_visible(page: Page, text: str, shown: str) -> None:
    assert call(page, "text/value", "visible", text) == shown


def test_bytes_that_are_no_text_are_marked(page: Page) -> None:
    data = b"ok \xff\xfe\xc3(\xed\xa0\x80 \xe2\x82\xac \xf4\x90\x80\x80 \xc0\x80 \xe2\x82"
    runs = call_with_bytes(page, "runsOf", data)
    shown = "".join(run.get("text") or run["escape"] for run in runs)
    assert shown == data.decode(errors="backslashreplace")
    assert call_with_bytes(page, "textOf", data) is None
    assert call_with_bytes(page, "textOf", "\ufeffgrüße".encode()) == "\ufeffgrüße"


def test_hex_and_base64_come_back_as_they_were(page: Page) -> None:
    data = bytes(range(256)) * 40
    assert call_with_bytes(page, "hexDigits", data) == data.hex()
    assert bytes(call(page, "text/value", "fromHex", f"0x{data.hex(' ')}\n")) == data
    assert bytes(call(page, "text/value", "fromBase64", call_with_bytes(page, "toBase64", data))) == data


def test_a_dump_has_offsets_bytes_and_letters(page: Page) -> None:
    lines = call_with_bytes(page, "hexDump", b"0123456789abcdef\x00\xffZ", 0, 19).split("\n")
    assert lines[0] == "00000000  30 31 32 33 34 35 36 37  38 39 61 62 63 64 65 66  0123456789abcdef"
    assert lines[1].split() == ["00000010", "00", "ff", "5a", "··Z"]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("", None),
        (" latest ", None),
        ("earliest", "earliest"),
        ("1200", "1200"),
        ("12,345", "12345"),
        ("900719925474099312", "900719925474099312"),
        ("0/12  1/40", "0/12 1/40"),
        ("2026-11-15 14:03", utc(2026, 11, 15, 14, 3)),
        ("2026-02-03T04:05:06.123456", utc(2026, 2, 3, 4, 5, 6, 123456)),
        ("2026-01-31", utc(2026, 1, 31)),
        ("2026-01-31T12:00:00.000001Z", "2026-01-31T12:00:00.000001Z"),
        ("2026-01-31 12:00+02:00", "2026-01-31T10:00:00.000000Z"),
        ("14:03", utc(2026, 11, 15, 14, 3)),
        ("9:30:15", utc(2026, 11, 15, 9, 30, 15)),
        ("23:59", utc(2026, 11, 14, 23, 59)),
        ("10 min ago", utc(2026, 11, 15, 13, 53, 30)),
        ("1.5h", utc(2026, 11, 15, 12, 33, 30)),
        ("2 days ago", utc(2026, 11, 13, 14, 3, 30)),
        ("1" + "A" * 48, "1" + "A" * 48),
    ],
)
def test_a_place_is_taken_as_people_write_it(page: Page, text: str, place: str | None) -> None:
    assert parse_place(page, text) == place


@pytest.mark.parametrize(
    "text", ["yesterday or so", "-1", "2026-02-30", "25:00", "12:61", "5 fortnights", "1/", "1" * 19]
)
def test_what_is_no_place_is_answered_with_what_is_one(page: Page, text: str) -> None:
    assert "is no place in a log. Write a seqno" in parse_place(page, text)


def test_a_place_in_the_address_is_shown_in_local_time(page: Page) -> None:
    local = datetime(2026, 1, 31, 12, 0, 0, 120_000)
    shown = call(page, "records/find", "showPlace", utc(2026, 1, 31, 12, 0, 0, 120_000))
    assert shown == local.strftime("%Y-%m-%d %H:%M:%S.12")
    assert parse_place(page, shown) == utc(2026, 1, 31, 12, 0, 0, 120_000)
    assert call(page, "records/find", "showPlace", "1200") == "1200"


def test_records_of_several_logs_are_merged_by_time_and_stay_in_order(page: Page) -> None:
    times = {0: ["01", "05", "04"], 1: ["02", "03"], 2: []}
    lists = [
        [{"partition": partition, "seqno": seqno, "timestamp": time} for seqno, time in enumerate(each)]
        for partition, each in times.items()
    ]
    merged = call(page, "records/record_pages", "mergeByTime", lists)
    assert [(record["partition"], record["seqno"]) for record in merged] == [(0, 0), (1, 0), (1, 1), (0, 1), (0, 2)]


MSGPACK: tuple[Any, ...] = (
    None, True, False, 0, 127, 128, 2**16, 2**32, 2**64 - 1, -1, -32, -33, -129, -(2**15) - 1, -(2**31) - 1, -(2**63),
    21.5, 0.1, "", "naïve", "x" * 300, "y" * 70_000, [], [1, [2, [3]]], list(range(20)), list(range(70_000)), {},
    {"a": {"b": []}}, {str(number): number for number in range(20)}, b"", b"\0\xff", b"z" * 300,
)  # fmt: skip


def test_msgpack_is_shown_as_the_json_of_the_same(page: Page) -> None:
    for value in MSGPACK:
        found = json_of_msgpack(page, msgspec.msgpack.encode(value))
        assert found is not None
        assert json.loads(found) == json.loads(msgspec.json.encode(value)), repr(value)[:80]


def test_what_json_has_no_name_for_is_text(page: Page) -> None:
    moments = (datetime(2026, 1, 31, 12, tzinfo=UTC), datetime(2026, 1, 31, 12, 0, 0, 250_000, tzinfo=UTC))
    assert json_of_msgpack(page, msgspec.msgpack.encode(moments[0])) == '"2026-01-31T12:00:00Z"'
    assert json_of_msgpack(page, msgspec.msgpack.encode(moments[1])) == '"2026-01-31T12:00:00.250000000Z"'
    assert (
        json_of_msgpack(page, msgspec.msgpack.encode(msgspec.msgpack.Ext(5, b"\0")))
        == '{"extension":5,"base64":"AA=="}'
    )
    assert json_of_msgpack(page, b"\x82\x01\x02\xc3\x04") == '{"1":2,"true":4}'
    assert json_of_msgpack(page, b"\xcb" + struct.pack(">d", float("nan"))) == "null"


def test_what_is_no_msgpack_is_told_from_it(page: Page) -> None:
    sound = msgspec.msgpack.encode({"a": [1, "b", b"c"]})
    broken = [sound[:at] for at in range(len(sound))]
    for data in (*broken, sound + b"\0", b"\xc1", b"\xa1\xff", b"\xdf\xff\xff\xff\xff", b"\x91" * 5_000):
        assert json_of_msgpack(page, data) is None, data[:20]


def json_of_msgpack(page: Page, data: bytes) -> Any:
    script = """async (text) => {
      const { jsonOfMsgpack } = await import("/console/text/msgpack.js");
      return jsonOfMsgpack(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)));
    }"""
    return page.evaluate(script, base64.b64encode(data).decode())
