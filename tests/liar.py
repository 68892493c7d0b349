"""A model that lies: one true sentence of its first source, and then what tests/answers says of other corpora."""

import json
import re
from pathlib import Path
from typing import Any

from rag_app.retrieval.text import sentences
from tests.scripted_model import Reply

_SETS = Path(__file__).parent / "answers" / "verification"


def lies(capability: str) -> list[dict[str, Any]]:
    """Those that are about other corpora than this capability's, where they might be true."""
    rows = [
        json.loads(line) for name in ("liar", "aside") for line in (_SETS / f"{name}.jsonl").read_text().splitlines()
    ]
    return [row for row in rows if row.get("lies") and row["capability"] != capability]


def liar(capability: str, body: dict[str, Any]) -> Reply:
    return Reply("\n\n".join([_true(body), *(row["text"] for row in lies(capability))]))


def heard(capability: str, answer: str, body: dict[str, Any]) -> list[str]:
    """The lies that an answer repeats; the true sentence must be in it."""
    true = _true(body).removesuffix(" [Source 1].")
    assert true in answer, (true, answer)
    rest = answer.replace(true, "")
    told = [lie for row in lies(capability) for lie in row["lies"]]
    assert len(told) > 20
    return [lie for lie in told if re.search(rf"(?<!\w){re.escape(lie)}(?!\w)", rest, re.IGNORECASE)]


def _true(body: dict[str, Any]) -> str:
    prompt = "\n".join(str(message["content"]) for message in body["messages"])
    block = prompt[prompt.index("\n---\n", prompt.index("[Source 1] (Relevance")) + 5 :].split("\n\n[Source ")[0]
    lines = [line.removeprefix("> ") for line in block.splitlines() if line.startswith("> ")]
    said = [each for line in lines for each in sentences(line) if each.endswith(".") and 4 < len(each.split()) < 40]
    return f"{said[0][:-1]} [Source 1]."
