"""What a model said in a reply that is broken: JSON that ends too soon, or no JSON at all; or that is JSON where text was
asked for.

Such a reply must plainly hold an answer. It does where just one text stands under "content", "generated_text" or "text"
in its JSON, and is not said by anybody but the assistant; or where it is plain text, no mark-up, with a sentence or a
citation ("upstream request timeout" has none). What comes after an error, or a prompt that is echoed, is no answer.
"""

import re
from itertools import islice
from json import JSONDecodeError, JSONDecoder

from rag_app.domain import storable

LONGEST = 200_000
"""Characters of a reply that are looked at."""
_MOST_TEXTS = 20

_DECODER = JSONDecoder(strict=False)
_KEY = re.compile(r'"(?:content|generated_text|text)"\s{0,99}:\s{0,99}"')
_ANSWER = re.compile(r'"(?:answer|response|reply)"\s{0,99}:\s{0,99}"', re.IGNORECASE)
_FENCE = re.compile(r"\A\s*+```\w{0,20}\s|```\s*+\Z")
_ROLE = re.compile(r'"role"\s{0,99}:\s{0,99}"(\w{0,20})"')
_NO_ANSWER = re.compile(r'"(?:errors?|messages|prompt)"\s{0,99}:')
_STOP_REASON = re.compile(r'"finish_reason"\s{0,99}:\s{0,99}"(?:length|content_filter)"')
_JSON = re.compile(r'\s*+(?:\{|\[\s*+(?:[\[{"\]]|-?\d++\s*+[.,]))')
_MARKUP = re.compile(r"\A\s*+(?:<|data:|event:)|<(?:!doctype|html|head|body|\?xml)\b", re.IGNORECASE)
# At the end of a string that is cut off: the backslash of an escape, behind pairs of them, which are characters.
_HALF_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\(?:u[0-9a-fA-F]{0,3})?\Z")
_SENTENCE_END = re.compile(r"""[.!?…](?=["')\]*]{0,9}(?:\s|\Z))|[。！？।؟]|\[Source \d""")


def salvage_text(reply: str) -> tuple[str, bool] | None:
    """The answer that a broken reply holds, and whether it is cut off; None where it plainly holds none.

    >>> salvage_text('{"choices": [{"message": {"role": "assistant", "content": "At nine [Source 1]. We cl')
    ('At nine [Source 1]. We cl', True)
    >>> salvage_text('At nine [Source 1].')
    ('At nine [Source 1].', False)
    >>> salvage_text('<html><body>502 Bad Gateway.</body></html>')
    """
    seen = reply[:LONGEST].lstrip("\ufeff")
    found = _in_json(seen, _KEY) if _JSON.match(seen) else _in_plain(seen)
    if found is None:
        return None
    text, cut_off = found
    text = storable(text).strip()
    # of what is cut off, whole sentences are kept; where there is none, there is no answer
    return (text, cut_off) if text and (not cut_off or _SENTENCE_END.search(text)) else None


def unwrap_text(text: str) -> tuple[str, bool] | None:
    """The answer in a text that is JSON, fenced or not, and whether it is cut off; None for any other text.

    >>> unwrap_text('{"answer": "At nine [Source 1].", "confidence": 0.9}')
    ('At nine [Source 1].', False)
    >>> unwrap_text("At nine [Source 1].")
    """
    seen = _FENCE.sub("", text[:LONGEST]).strip()
    found = (_in_json(seen, _ANSWER) or _in_json(seen, _KEY)) if seen.startswith("{") else None
    return (found[0].strip(), found[1]) if found else None


def _in_plain(reply: str) -> tuple[str, bool] | None:
    if _MARKUP.search(reply) or not _SENTENCE_END.search(reply):
        return None
    return reply, len(reply) >= LONGEST


def _in_json(reply: str, wanted: re.Pattern[str]) -> tuple[str, bool] | None:
    """Pieces of a stream are several texts, and none of them an answer."""
    said = []
    for key in islice(wanted.finditer(reply), _MOST_TEXTS):
        if _NO_ANSWER.search(reply, 0, key.start()):
            return None
        text, end = _string(reply, key.end() - 1)
        roles = _ROLE.findall(reply, 0, key.start())
        if text.strip() and (not roles or roles[-1] == "assistant"):
            said.append((text, end is None or _STOP_REASON.search(reply, end) is not None))
    return said[0] if len(said) == 1 else None


def _string(reply: str, start: int) -> tuple[str, int | None]:
    """The JSON string that begins at `start`, and where it ends: None where it does not."""
    try:
        text, end = _DECODER.raw_decode(reply, start)
        return str(text), end
    except JSONDecodeError:
        pass
    try:
        return str(_DECODER.decode(_HALF_ESCAPE.sub(r"\1", reply[start:]) + '"')), None
    except JSONDecodeError:  # an escape there is not, somewhere in it
        return "", None
