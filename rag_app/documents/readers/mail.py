"""E-mail (eml): the body is one document, each attachment of a supported type further ones.

The plain text of the body is taken, and its HTML only where there is none, even when the two differ: people wrote one,
a program the other. The subject is the title; derived are the author (the name in From, else the address) and the date.
Dropped: all other headers, To among them; signatures, and pictures shown within the body.
What a mail quotes of earlier ones is read without its marks, each under the line that says who wrote it.
An attached file counts as somebody else's word: its front matter and ids are not taken for the user's. It inherits the
author and the date of the mail where it has none.
"""

import mimetypes
import re
from collections import Counter
from collections.abc import Iterator
from email import policy
from email.message import EmailMessage, Message
from email.parser import BytesParser
from functools import partial
from io import BytesIO
from pathlib import PurePath
from typing import Any, BinaryIO, cast

from msgspec.structs import replace

from rag_app.documents.documents import Document, Documents, Passage
from rag_app.documents.readers.formats import attempt, clean, decode, read_stream, reads
from rag_app.documents.readers.markup import html_document
from rag_app.documents.readers.shaping import drop_missing
from rag_app.domain import UnreadableDocument, read_table

_HEADER_CHARS = 2_000  # characters; RFC 5322 allows a line 998, and the parser takes the square of what it gets
_HEADERS = {"from", "to", "subject", "date", "received", "message-id", "mime-version", "content-type"}
_SEALED_TYPES = {"multipart/encrypted", "application/pkcs7-mime", "application/x-pkcs7-mime"}
_SIGNATURES = {"application/pgp-signature", "application/pkcs7-signature", "application/x-pkcs7-signature"}
_MARKS = re.compile(r"(?:>[ \t]?)*")
_FIGURE = re.compile(r">[ \t]*\d")  # "> 5 kg": more than that, if no quoted line is above it
# "On 3 May Ada Hill <a@x.org> wrote:", in one line or two.
_WROTE = re.compile(
    rf"((?:[^\n]{{1,120}}\n)?[^\n]{{0,120}}\b(?:{'|'.join(read_table(__file__)['wrote'].split())})\b[^\n]{{0,80}}):[ \t]*(?:\n|\Z)"
)
_ADDRESS = re.compile(r"\s*(?:<[^>\n]*>|\[mailto:[^\]\n]*\])")


class _ShortHeaders(policy.EmailPolicy):
    """The default policy, which parses no more than the beginning of a header."""

    def header_fetch_parse(self, name: str, value: str) -> Any:
        return super().header_fetch_parse(name, value[:_HEADER_CHARS])


@reads(
    ".eml",
    becomes="the message, and each earlier one that it quotes as a section, without `>`; each attachment becomes its own source, such as `mail.eml#file.csv`",
)
def read_mail(stream: BinaryIO, shown: str) -> Documents:
    message = cast(EmailMessage, BytesParser(policy=_ShortHeaders()).parse(stream))
    if _HEADERS.isdisjoint(name.lower() for name in message):
        raise UnreadableDocument(shown, "not an e-mail: it has no headers")
    yield from _read_message(message, shown)


def _read_message(message: EmailMessage, shown: str) -> Documents:
    if message.get_content_type() in _SEALED_TYPES:
        raise UnreadableDocument(shown, "encrypted, or sealed by S/MIME")
    sender = attempt(lambda: message["from"].addresses[0])
    derived = drop_missing(
        author=(sender.display_name or sender.addr_spec) if sender else None,
        date=attempt(lambda: str(message["date"].datetime.isoformat())),
    )
    bodies: dict[str, list[str]] = {"text/plain": [], "text/html": []}
    attached: list[EmailMessage] = []
    for part in _leaves(message):
        kind = part.get_content_type()
        attachment = part.is_attachment() or part.get_filename() is not None
        if kind in _SEALED_TYPES or kind == "message/rfc822" or (attachment and kind not in _SIGNATURES):
            if part.get_content_maintype() != "image" or part.is_attachment():
                attached.append(part)
        elif kind in bodies:  # one that is blank or garbled does not cost the attachments
            bodies[kind].append(attempt(partial(decode, _payload(part), shown, part.get_content_charset())) or "")
    plain = clean("\n\n".join(bodies["text/plain"]))
    if plain.startswith("-----BEGIN PGP MESSAGE-----"):
        raise UnreadableDocument(shown, "encrypted: PGP")
    page = None if plain else attempt(lambda: html_document("\n".join(bodies["text/html"]), shown))
    if passages := (*_split_mails(plain),) if plain else page and page.passages:
        subject = attempt(lambda: str(message["subject"] or "").strip()) or None
        yield Document("", passages, subject, derived={**derived, "source_type": "email"})
    elif not attached:
        raise UnreadableDocument(shown, "no text: neither a body nor attachments")
    taken: Counter[str] = Counter()
    for part in attached:
        yield from _attachment(part, shown, derived, taken)


def _attachment(part: EmailMessage, shown: str, derived: dict[str, object], taken: Counter[str]) -> Documents:
    try:
        if part.get_content_type() == "message/rfc822":
            inner = cast(EmailMessage, part.get_payload(0))
            name = part.get_filename() or f"{attempt(lambda: inner['subject']) or 'message'}.eml"
            documents = _read_message(inner, f"{shown}, attached {name}")
        else:
            guess = mimetypes.guess_extension(part.get_content_type()) or ""
            name = PurePath(part.get_filename() or f"attachment{guess}").name
            documents = read_stream(BytesIO(_payload(part)), name, f"{shown}, attached {name}")
        taken[name] += 1
        name = name if taken[name] == 1 else f"{name} ({taken[name]})"
        for found in documents:
            yield (
                found
                if isinstance(found, UnreadableDocument)
                else replace(
                    found,
                    name=f"{name}/{found.name}" if found.name else name,
                    external_id=None,
                    metadata={},
                    derived={**derived, **found.derived},
                )
            )
    except UnreadableDocument as error:
        yield error


def _split_mails(text: str) -> Iterator[Passage]:
    """What a mail says, and each mail that it quotes: a passage of its own, under the line that says who wrote it.

    >>> [(each.section, each.text) for each in _split_mails("Yes.\\n\\nOn 3 May Ada wrote:\\n> Is it?\\n>\\n> Ada")]
    [(None, 'Yes.'), ('On 3 May Ada wrote', 'Is it?\\n\\nAda')]
    >>> [(each.section, each.text) for each in _split_mails("No.\\n> On 3 May Ada wrote:\\n>\\n> Is it?\\n>> It is.\\nMax")]
    [(None, 'No.'), ('On 3 May Ada wrote', 'Is it?'), (None, 'It is.'), (None, 'Max')]
    """
    writer: str | None = None
    for quoted in _split_quotes(text):
        found: list[str] = []
        for paragraph in re.split(r"\n{2,}", quoted):
            if told := _WROTE.match(paragraph):
                if found:
                    yield Passage("\n\n".join(found), writer)
                writer, found = " ".join(_ADDRESS.sub("", told[1]).split()), []
            if said := paragraph[told.end() :] if told else paragraph:
                found.append(said)
        if found:
            yield Passage("\n\n".join(found), writer)
            writer = None


def _split_quotes(text: str) -> Iterator[str]:
    """Runs of lines with as many marks of quotation, without them."""
    lines: list[str] = []
    depth = 0
    for line in text.split("\n"):
        said = line if depth == 0 and _FIGURE.match(line) else _MARKS.sub("", line, count=1)
        level = line.removesuffix(said).count(">")
        if level != depth and said.strip():
            yield "\n".join(lines).strip()
            lines, depth = [], level
        lines.append(said.rstrip())
    yield "\n".join(lines).strip()


def _leaves(message: Message) -> list[EmailMessage]:
    """The parts that hold something, not those of messages within the message."""
    if message.get_content_maintype() != "multipart" or not message.is_multipart():
        return [cast(EmailMessage, message)]
    return [leaf for part in cast("list[Message]", message.get_payload()) for leaf in _leaves(part)]


def _payload(part: EmailMessage) -> bytes:
    return cast("bytes | None", part.get_payload(decode=True)) or b""
