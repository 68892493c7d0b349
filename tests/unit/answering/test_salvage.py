"""Texts of broken replies: what is told, what is not, and that no reply takes long."""

import json

import pytest

from rag_app.answering.salvage import LONGEST, salvage_text

START = '{"choices":[{"index":0,"message":{"role":"assistant","content":"'


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (START + "At nine. We", ("At nine. We", True)),
        (START + 'At nine."', ("At nine.", False)),
        (START + 'ready"}}', ("ready", False)),  # one word that is whole
        (START + 'At nine."},"finish_reason":"length"', ("At nine.", True)),
        ('{"choices":[{"message":{"content":"At nine.","role":"assistant"', ("At nine.", False)),
        ('[{"generated_text":"At nine."}', ("At nine.", False)),
        ('{"choices":[{"text":"At nine."}]', ("At nine.", False)),
        ('{"choices":[{"message":{"content":[{"type":"text","text":"At nine. We', ("At nine. We", True)),
        ('{"message":{"content":"","reasoning_content":"Hm."},"text":"At nine."', ("At nine.", False)),
        (START + r"Say \"content\": \"no\". And \\", ('Say "content": "no". And \\', True)),
        (START + "At nine. \\", ("At nine.", True)),
        (START + r"At nine. \u00e", ("At nine.", True)),
        (START + r"At nine. \\u00e", (r"At nine. \u00e", True)),
        (START + r"Sch\u00f6n. \ud83d", ("Schön.", True)),
        (START + r"Sch\u00f6n. \ud83d\ude00", ("Schön. 😀", True)),
        (START + "Two\nlines.\u0000", ("Two\nlines.", True)),
        ("\ufeff At nine.\r\n", ("At nine.", False)),
        ("[Source 1] says nine", ("[Source 1] says nine", False)),
        ('"Nine" it is.', ('"Nine" it is.', False)),
        ("九点开门。", ("九点开门。", False)),
        ("Prices < 5 and > 3. Fine.", ("Prices < 5 and > 3. Fine.", False)),
    ],
)
def test_what_a_broken_reply_plainly_says(reply: str, found: tuple[str, bool]) -> None:
    assert salvage_text(reply) == found


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "   ",
        "OK",
        "upstream request timeout",
        "nginx/1.18.0",
        "<!DOCTYPE html><p>Sign in.",
        "Bad gateway. <HTML>",
        '<?xml version="1.0"?><Error>No. [Source 1]</Error>',
        "[0.12, -0.5",
        "[]",
        "{",
        START,
        START + "At ni",  # no sentence of it is whole
        START + r'At nine. \x never"',
        '{"choices":[{"message":{"role":"assistant","content":null',
        '{"error":{"text":"Over capacity. Retry."',
        '{"error":{"message":"No."},"content":"At nine."',
        '{"errors":[{"text":"No."',
        '{"messages":[{"role":"system","content":"You are LexyBrain. Never say so."',
        '{"prompt":"Be brief.","text":"At nine."',
        '{"echo":{"role":"user","content":"When do you open?"',
        '{"echo":[{"role":"system","content":"Be brief."},{"role":"user","content":"When?"',
        'data: {"choices":[{"delta":{"content":"At "}}]}\n\ndata: {"choices":[{"delta":{"content":"nine."}}]}',
        '{"message":{"role":"assistant","content":"At "},"done":false}\n{"message":{"role":"assistant","content":"nine."}',
    ],
)
def test_what_holds_no_answer_plainly(reply: str) -> None:
    assert salvage_text(reply) is None


def test_every_prefix_of_a_reply_gives_a_beginning_of_its_text() -> None:
    said = 'Ja: "ö" \\ 😀 a/b\ttab. [Source 1] Und \u2028 Schluss.'
    for whole in (
        json.dumps({"role": "assistant", "content": said}),
        json.dumps({"content": said}, ensure_ascii=False),
    ):
        some = 0
        for end in range(len(whole)):
            found = salvage_text(whole[:end])
            if found is not None:
                some += 1
                text, cut_off = found
                assert said.startswith(text) and text
                assert cut_off == (text != said or end < len(whole) - 1)
        assert some > 10  # from the end of the first sentence on


@pytest.mark.parametrize(
    "reply",
    [
        START + "a. " * 4_000_000,
        START + "\\" * 10_000_001,
        START + '\\"' * 5_000_000,
        '{"content":"' * 800_000,
        '{"text":"","role":"user",' * 400_000,
        '{"content"' + " " * 10_000_000,
        '{"role"' * 1_000_000 + '"content":"',
        "[" * 10_000_000,
        " " * 10_000_000,
        "." * 10_000_000,
        ".'" * 5_000_000,
        "<" + "a" * 10_000_000,
        "[1" + "1" * 10_000_000,
    ],
    ids=range(13),
)
@pytest.mark.timeout(60)  # what reads it again for each brace takes hours
def test_a_long_reply_takes_no_longer(reply: str) -> None:
    found = salvage_text(reply)
    assert found is None or (len(found[0]) <= LONGEST and found[1])
