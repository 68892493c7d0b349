"""A document with what is known about it becomes a source, or is refused."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache
from math import isfinite
from pathlib import PurePath
from typing import Any
from uuid import UUID

from msgspec import Struct, field, structs
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from rag_app.documents.documents import Document
from rag_app.domain import FieldType, InvalidInput, JsonObject, MetadataValue, Source, UnknownField, Visibility
from rag_app.retrieval.filters import checked_text, coerce, epoch_seconds, language_code
from rag_app.retrieval.formulas import compute
from rag_app.retrieval.index import IndexSpec

OWN_KEYS = ("title", "date", "source_type", "lang", "uri")
"""Metadata that every source has, whatever its index declares."""

_LONGEST_NAME = 255  # characters of a file's name
_MOST_UNTYPED = 16_000  # characters of JSON: each chunk carries them
_SAMPLE = 2000  # characters of a text: more does not make its language surer
_ENOUGH = 20  # characters below which a guess is no better than the default


class Target(Struct, frozen=True):
    """The destination of documents, and metadata for all of them, which override a document's own."""

    org_id: UUID
    site_id: UUID | None = None
    owner_id: UUID | None = None
    visibility: Visibility = Visibility.TEAM
    audience_id: UUID | None = None
    metadata: Mapping[str, object] = field(default_factory=dict)


def to_source(document: Document, path: str, origin: str, spec: IndexSpec, target: Target) -> Source:
    """Make a document a source of `spec` for `target`. `path` is its file's path, `origin` the file's location.

    Metadata that the index does not declare are kept as they are. Raises UnknownField for such a key of the target's,
    or of a sidecar, InvalidInput for a value that is not of its type.
    """
    accepted = {*OWN_KEYS, *spec.fields}
    said = {
        **{key: value for key, value in document.derived.items() if key in accepted},
        **document.metadata,
        **target.metadata,
    }
    said = {key: value for key, value in said.items() if value is not None and value != ""}
    if unknown := sorted((set(said) - accepted) & {*target.metadata, *document.strict}):
        raise UnknownField(unknown[0], accepted)
    if said.get("source_type") == document.derived.get("source_type") not in spec.source_types:
        said.pop("source_type", None)
    source_type = str(said.get("source_type", spec.default_source_type))
    if source_type not in spec.source_types:
        raise InvalidInput("source_type", source_type, f"{source_type!r}; accepted: {', '.join(spec.source_types)}")
    external_id = document.external_id or (f"{path}#{document.name}" if document.name else path)
    title = str(said.get("title") or document.title or PurePath(document.name or path).name)
    body = checked_text("text", "\n".join(passage.text for passage in document.passages))
    source = Source(
        org_id=target.org_id,
        index=spec.name,
        external_id=checked_text("id", external_id),
        title=checked_text("title", title)[:300],
        source_type=source_type,
        lang=language_code(checked_text("lang", str(said.get("lang") or detect_language(body, spec.languages[0])))),
        uri=checked_text("uri", str(said["uri"])) if "uri" in said else None,
        date=epoch_seconds("date", said["date"]) if "date" in said else None,
        metadata=_type_metadata(said, spec),
        origin=origin,
        site_id=target.site_id,
        owner_id=target.owner_id,
        visibility=target.visibility,
        file_name=checked_text("file name", PurePath(path).name)[:_LONGEST_NAME] if path else None,
        untyped=_select_undeclared({**document.metadata, **target.metadata}, spec),
        audience_id=target.audience_id,
        row=document.row,
        sheet=document.sheet,
        version="",
    )
    return add_version(source, [structs.asdict(passage) for passage in document.passages])


def undeclared_names(source: Source, spec: IndexSpec) -> list[str]:
    """Names of the metadata that are kept without a type and that no filter can use."""
    return sorted(source.untyped.keys() - {*OWN_KEYS, *spec.fields})


def _select_undeclared(said: Mapping[str, object], spec: IndexSpec) -> JsonObject:
    """The values kept as sent: undeclared keys, and times in their original notation."""
    times = {"date", *(name for name, kind in spec.fields.items() if kind is FieldType.TIME)}
    declared = {*OWN_KEYS, *spec.fields} - times
    kept = {
        checked_text("metadata", key): _plain(key, value)
        for key, value in said.items()
        if key not in declared and value is not None and value != ""
    }
    if len(json.dumps(kept)) > _MOST_UNTYPED:
        raise InvalidInput("metadata", None, f"undeclared metadata take more than {_MOST_UNTYPED:,} characters")
    return kept


def _plain(key: str, value: object) -> Any:
    """As JSON has it."""
    match value:
        case str():
            return checked_text(key, value)
        case Mapping():
            return {checked_text(key, str(name)): _plain(key, inner) for name, inner in value.items()}
        case list() | tuple():
            return [_plain(key, inner) for inner in value]
        case bool() | int() | None:
            return value
        case float() if isfinite(value):
            return value
    return value.isoformat().replace("+00:00", "Z") if isinstance(value, datetime) else str(value)


def convert_metadata(source: Source, spec: IndexSpec) -> Source:
    """The source with the metadata that `spec` declares now, in their types. Raises InvalidInput for a value of another type."""
    whole = {key: _whole(spec.fields.get(key), value) for key, value in source.metadata.items()}  # numbers until now
    return structs.replace(source, metadata=_type_metadata(whole, spec))


def _type_metadata(said: Mapping[str, object], spec: IndexSpec) -> dict[str, MetadataValue]:
    """The declared metadata in their types, with those that are computed from others where they are not said."""
    typed = {key: _value(key, kind, said[key]) for key, kind in spec.fields.items() if key in said}
    for name, words in spec.vocabulary.items():
        if words.formula and name not in typed and (figure := compute(words.formula, typed)) is not None:
            typed[name] = _value(name, spec.fields[name], _whole(spec.fields[name], figure))
    return typed


def _whole(kind: FieldType | None, value: object) -> object:
    """A whole figure of a field of whole numbers, whatever it was kept as: 5 of 5.0."""
    return int(value) if kind is FieldType.INTEGER and isinstance(value, float) and value.is_integer() else value


def _value(name: str, kind: FieldType, value: object) -> MetadataValue:
    if kind is FieldType.TAGS:
        tags = value.split(",") if isinstance(value, str) else value if isinstance(value, list) else [value]
        return [str(coerce(name, kind, str(tag).strip())) for tag in tags]
    if kind is FieldType.KEYWORD and not isinstance(value, list | dict):
        return coerce(name, kind, str(value))
    return coerce(name, kind, value)


def add_version(source: Source, content: Sequence[Mapping[str, Any]]) -> Source:
    """The source with its version: a hash of everything that a reader of it could see, without the file's location and
    the source's place in the file. `content` are its passages, as the ledger stores them."""
    values = structs.asdict(source) | {"origin": "", "version": ""}
    for place in ("file_name", "row", "sheet"):
        del values[place]
    untyped = {name: value for name, value in values.pop("untyped").items() if name != "date"}
    if untyped:  # a date's moment counts, not its notation
        values["untyped"] = untyped
    if source.audience_id is None:  # so that versions of releases without groups stay as they are
        del values["audience_id"]
    said = json.dumps([values, [*content]], sort_keys=True, default=str, ensure_ascii=True)
    return structs.replace(source, version=hashlib.sha256(said.encode()).hexdigest())


@cache
def language_identifier() -> LanguageIdentifier:
    """The model that tells languages apart: 77 MB once it is loaded, which nothing writes to."""
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def detect_language(text: str, default: str) -> str:
    """Two letters (ISO 639-1); `default` if the text is too short or unclear.

    >>> detect_language("Les horaires d'ouverture du magasin sont affichés à l'entrée.", "en")
    'fr'
    >>> detect_language("ok", "en")
    'en'
    """
    sample = text[:_SAMPLE].strip()
    if len(sample) < _ENOUGH:
        return default
    found, sureness = language_identifier().classify(sample)
    return str(found) if sureness >= 0.8 else default
