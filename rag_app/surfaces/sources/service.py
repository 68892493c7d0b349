"""Lists, reads, uploads, changes and deletes sources, always within the caller's scope.

Sources outside the scope raise NotFound. Writing requires a role in the index (`rag_app.access.roles`).
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from uuid import UUID

from llama_index.core.schema import NodeWithScore
from msgspec import Struct, convert, structs, to_builtins

from rag_app.access.people import Organization, People
from rag_app.access.roles import EVERY_INDEX, Group, GroupDirectory, Role, RoleDirectory
from rag_app.documents.catalogue import SORTS, Catalogue, Entry, SourceSelection
from rag_app.documents.documents import Document
from rag_app.documents.generations import Generation
from rag_app.documents.jobs import Jobs
from rag_app.documents.ledger import Basis, SourceChanged, SourceLedger
from rag_app.documents.metadata import Target, to_source, undeclared_names
from rag_app.documents.originals import Originals
from rag_app.documents.uploads import Upload, UploadService
from rag_app.domain import (
    PUBLIC_ORGANIZATION,
    FieldType,
    Filters,
    Forbidden,
    Hit,
    InvalidInput,
    JsonObject,
    NotFound,
    Principal,
    RagError,
    Scope,
    Source,
    UnreadableDocument,
    Visibility,
    chunk_id,
    passage_link,
    source_id,
    uuid_in,
)
from rag_app.evaluation.validation import ask_all, locate
from rag_app.http.bodies import BodyLimits
from rag_app.retrieval.filters import OPERATORS, check_filters, names_something
from rag_app.retrieval.hits import to_hit
from rag_app.retrieval.index import IndexSpec, allowed_indexes, find_index
from rag_app.retrieval.searcher import OpenStore
from rag_app.surfaces.sources.addresses import Networks, fetch
from rag_app.surfaces.sources.repeats import Repeats
from rag_app.surfaces.sources.types import (
    ChangeBody,
    ChunkInfo,
    ChunksResponse,
    DeletedResponse,
    FieldInfo,
    FieldsResponse,
    PassageInfo,
    PutBody,
    QueuedResponse,
    SourceDetail,
    SourceInfo,
    SourcesResponse,
    TextResponse,
    UploadBody,
    UploadResponse,
)

_EXAMPLES, _EXAMPLES_FROM = 5, 100  # of each field, and the newest sources that they are looked for in
PASSAGE_SEPARATOR = "\n\n"
"""Between the passages of a text, as `locate` counts them."""


class Sending(Struct, frozen=True):
    """The uploads of a request, and the body that says where they go."""

    body: UploadBody | PutBody
    uploads: Sequence[Upload]


class PreconditionFailed(RagError):
    """The source's ETag is not as the request's `If-Match` or `If-None-Match` asks."""


def _refuse_missing() -> PreconditionFailed:
    return PreconditionFailed("There is no such source, so none has an ETag of If-Match")


def _refuse_table(name: str) -> PreconditionFailed:
    return PreconditionFailed(f"{name!r} is the name of a table: it has no ETag")


def entity_tag(source: Source) -> str:
    """The ETag of a source: another one after each change of its text or metadata."""
    return f'"{source.version[:32]}"'


def names_tag(if_none_match: str, tag: str) -> bool:
    """Whether an `If-None-Match` is `*` or names this ETag, weak or not.

    >>> names_tag('"1", W/"2"', '"2"'), names_tag("*", '"2"'), names_tag('"1"', '"2"')
    (True, True, False)
    """
    return not {"*", tag}.isdisjoint(each.strip().removeprefix("W/") for each in if_none_match.split(","))


class SourceService:
    """`allowed` is what a request may bring; `networks` are private ones that addresses may be in. `active` gives the generation of an index that answers, `open_store` its chunks."""

    def __init__(
        self,
        catalogue: Catalogue,
        ledger: SourceLedger,
        indexes: Mapping[str, IndexSpec],
        active: Callable[[IndexSpec], Awaitable[Generation]],
        open_store: OpenStore,
        people: People,
        roles: RoleDirectory,
        uploads: UploadService,
        jobs: Jobs,
        originals: Originals,
        repeats: Repeats,
        groups: GroupDirectory,
        allowed: BodyLimits,
        networks: Networks = (),
    ) -> None:
        self._catalogue, self._ledger, self._indexes = catalogue, ledger, indexes
        self._active, self._open_store = active, open_store
        self._people, self._roles, self._uploads = people, roles, uploads
        self._jobs = jobs
        self._originals, self._repeats, self._networks = originals, repeats, networks
        self._groups, self.allowed = groups, allowed

    # -- reading

    def indexes(self, principal: Principal) -> list[IndexSpec]:
        """The indexes that the caller may search."""
        return allowed_indexes(self._indexes, principal)

    def index(self, name: str, principal: Principal) -> IndexSpec:
        """Raises NotFound for an index that is not there, or that the caller may not search."""
        return find_index({spec.name: spec for spec in self.indexes(principal)}, name)

    async def organizations(self, principal: Principal) -> Sequence[Organization]:
        """The caller's organizations, by slug."""
        return await self._people.organizations(principal.organizations)

    async def groups(self, principal: Principal) -> Sequence[Group]:
        """The caller's groups that an administrator manages."""
        return [] if principal.user is None else await self._groups.list_for_member(principal.user)

    async def writable(self, principal: Principal) -> set[tuple[UUID, str]]:
        """The caller's organizations with the names of the indexes that the caller may write to there."""
        names = [spec.name for spec in self.indexes(principal)]
        found = await self._roles.writable(principal)
        return {(org_id, name) for org_id, said in found for name in names if said in (name, EVERY_INDEX)}

    async def fields(self, principal: Principal, index: str) -> FieldsResponse:
        """The filter fields of an index, with examples from the newest sources that the caller sees.

        Raises NotFound for an unknown index.
        """
        spec = self.index(index, principal)
        newest = SourceSelection((spec.name,), limit=_EXAMPLES_FROM)
        entries, _ = await self._catalogue.page(principal.scope(), newest, await self._generations([spec]))
        return FieldsResponse(
            spec.name,
            [
                FieldInfo(name, kind, [each.value for each in OPERATORS[kind]], _examples(name, kind, entries))
                for name, kind in spec.all_fields.items()
            ],
        )

    async def page(
        self,
        principal: Principal,
        *,
        index: str | None = None,
        filters: Filters = (),
        search: str | None = None,
        sort: str = "-updated_at",
        cursor: str | None = None,
        limit: int = 50,
        external_id: str | None = None,
        organization: str | None = None,
        state: str | None = None,
    ) -> SourcesResponse:
        """A page of the sources of the caller's organizations that the caller may see.

        `sort` is a name of SORTS, with `-` before it for descending order.

        Raises InvalidInput and UnknownField for an invalid query, NotFound for an unknown index.
        """
        specs = [self.index(index, principal)] if index is not None else self.indexes(principal)
        if filters and index is None:
            raise InvalidInput("index", None, "is required with a filter, because filters use the fields of an index")
        if sort.removeprefix("-") not in SORTS:
            raise InvalidInput("sort", sort, f"must be one of {', '.join(SORTS)}, optionally with a leading `-`")
        mine = principal.organizations or frozenset({PUBLIC_ORGANIZATION})
        if organization is not None:
            mine = frozenset({await self._organization(principal, organization)})
        wanted = SourceSelection(
            indexes=tuple(spec.name for spec in specs),
            filters=check_filters(filters, specs[0]) if filters else (),
            search=search,
            sort=sort.removeprefix("-"),
            descending=sort.startswith("-"),
            after=cursor,
            limit=limit,
            external_ids=() if external_id is None else (external_id,),
            organizations=mine,
            ready=None if state is None else state == "ready",
        )
        entries, following = await self._catalogue.page(principal.scope(), wanted, await self._generations(specs))
        return SourcesResponse([self._info(each) for each in entries], following)

    async def get(self, principal: Principal, name: str, chunk: UUID | None = None) -> tuple[SourceDetail, str]:
        """One source by its id, with one of its chunks if that still exists, and its ETag. Raises NotFound."""
        entry = await self._entry(principal, name)
        found = await self._read_chunks(principal, entry, [chunk]) if chunk is not None else []
        detail = SourceDetail(**structs.asdict(self._info(entry)), passage=next(iter(found), None))
        return detail, entity_tag(entry.source)

    async def chunks(self, principal: Principal, name: str, after: int, limit: int) -> ChunksResponse:
        """The chunks after position `after`, at most `limit`. Raises NotFound."""
        entry = await self._entry(principal, name)
        end = min(after + 1 + limit, entry.chunks)
        wanted = [chunk_id(entry.source.id, entry.source.version, position) for position in range(after + 1, end)]
        found = await self._read_chunks(principal, entry, wanted) if wanted else []
        return ChunksResponse(found, entry.chunks, end - 1 if wanted and end < entry.chunks else None)

    async def text(self, principal: Principal, name: str) -> TextResponse:
        """The extracted text of a source, never its file. Raises NotFound."""
        entry = await self._entry(principal, name)
        passages, place = [], 0
        content = await self._ledger.content(principal.scope(), entry.source.id)
        for each in content:
            end = place + len(each["text"])
            passages.append(PassageInfo(place, end, each.get("section"), each.get("page")))
            place = end + len(PASSAGE_SEPARATOR)
        text = PASSAGE_SEPARATOR.join(str(each["text"]) for each in content)
        return TextResponse(entry.source.id, entry.source.title, text, passages)

    async def _entry(self, principal: Principal, name: str) -> Entry:
        """A source by its id, or by its external id if the caller's organizations have exactly one of that name."""
        specs = self.indexes(principal)
        found = uuid_in(name) or await self._find_by_name(principal, name)
        if found is not None and specs:
            entry = await self._catalogue.entry(principal.scope(), found, await self._generations(specs))
            if entry.source.index in {spec.name for spec in specs}:
                return entry
        raise NotFound("source", name)

    async def _find_by_name(self, principal: Principal, name: str) -> UUID | None:
        indexes = tuple(spec.name for spec in self.indexes(principal))
        if not principal.organizations or not indexes or "\0" in name:
            return None
        asked = SourceSelection(indexes, external_ids=(name,), organizations=principal.organizations)
        found = await self._catalogue.list_matching(principal.scope(), asked)
        if len(found) > 1:
            raise InvalidInput(
                "external_id",
                name,
                f"matches {len(found)} sources in several indexes or organizations; use an id instead",
            )
        return found[0] if found else None

    async def _read_chunks(self, principal: Principal, entry: Entry, ids: Sequence[UUID]) -> list[ChunkInfo]:
        store = await self._open_store(self._indexes[entry.source.index], principal.scope())
        nodes = await store.fetch(ids)
        hits = [to_hit(NodeWithScore(node=nodes[each])) for each in ids if each in nodes]
        content = await self._ledger.content(principal.scope(), entry.source.id)
        return [_chunk(hit, content) for hit in hits if hit.source_id == entry.source.id]

    # -- writing

    async def upload(
        self,
        principal: Principal,
        sent: Sending,
        folder: Path,
        key: str | None,
        *,
        later: bool,
        if_match: str | None = None,
        if_none_match: str | None = None,
    ) -> tuple[UploadResponse | QueuedResponse, bool]:
        """Ingest the uploads, or queue a job for them; with a `key`, once. Returns whether that had been done before.

        What their addresses lead to is put into `folder`. With `if_match`, the first one must replace a source with such an
        ETag; with `if_none_match`, it must not.

        Raises Forbidden, InvalidInput, OrganizationFull, PreconditionFailed, and UnreadableDocument if the only uploaded
        document cannot be read.
        """
        org_id = await self._organization(principal, sent.body.organization)
        spec = self.index(sent.body.index, principal)
        await self._roles.require(Role.WRITE, principal, org_id, spec.name)
        conditions = (if_match, if_none_match)
        if key is None or principal.user is None:
            return await self._receive(principal, org_id, spec, sent, folder, later, conditions), False
        kind: type[UploadResponse | QueuedResponse] = QueuedResponse if later else UploadResponse
        fingerprint = f"{kind.__name__} {await asyncio.to_thread(_fingerprint, sent)}"
        before = await self._repeats.begin(org_id, principal.user, key, fingerprint)
        if before is not None:
            return convert(before, kind), True
        told = None
        try:
            async with self._repeats.lease(org_id, principal.user, key):
                response = await self._receive(principal, org_id, spec, sent, folder, later, conditions)
            told = to_builtins(response)
        finally:
            await asyncio.shield(self._repeats.end(org_id, principal.user, key, told))
        return response, False

    async def _receive(
        self,
        principal: Principal,
        org_id: UUID,
        spec: IndexSpec,
        sent: Sending,
        folder: Path,
        later: bool,
        conditions: tuple[str | None, str | None],
    ) -> UploadResponse | QueuedResponse:
        target = await self._target(principal, org_id, spec.name, sent.body)
        basis = None
        if len(sent.uploads) == 1:
            _check_metadata(sent, spec, target)
        if any(each is not None for each in conditions):
            basis = await self._find_basis(principal, org_id, spec, sent.uploads[0].external_id or "", *conditions)
        uploads = await ask_all(sent.uploads, partial(self._fetch_upload, folder))
        if later:
            job = await self._jobs.begin(principal.scope(), spec.name, target, uploads)
            return QueuedResponse(job.id, job.link, job.files)
        try:
            received = await self._uploads.ingest(spec, target, uploads, principal.scope(), basis)
        except SourceChanged as error:
            raise PreconditionFailed(str(error)) from None
        if len(received) == 1 and received[0].status == "failed":
            raise UnreadableDocument(uploads[0].name, "; ".join(received[0].problems))
        return UploadResponse([each.id for each in received], received)

    async def change(
        self, principal: Principal, name: str, body: ChangeBody, if_match: str | None = None
    ) -> tuple[SourceInfo, str]:
        """Change title and metadata; returns the source and its new ETag. Raises NotFound, Forbidden, InvalidInput,
        PreconditionFailed."""

        async def change(source: Source) -> None:
            await self._uploads.change(self._indexes[source.index], source, body.title, body.metadata or {})

        await self._write(principal, name, if_match, change)
        entry = await self._entry(principal, name)
        return self._info(entry), entity_tag(entry.source)

    async def _write(
        self, principal: Principal, name: str, if_match: str | None, act: Callable[[Source], Awaitable[None]]
    ) -> None:
        """Do it to the source as it is stored. If another change came first, all is read and checked again: each attempt
        that fails means that another request succeeded."""
        done = False
        while not done:
            source = (await self._entry(principal, name)).source
            await self._roles.require(Role.WRITE, principal, source.org_id, source.index)
            _check_match(source, if_match)
            with suppress(SourceChanged):
                await act(source)
                done = True

    async def _find_basis(
        self,
        principal: Principal,
        org_id: UUID,
        spec: IndexSpec,
        external_id: str,
        if_match: str | None,
        if_none_match: str | None,
    ) -> Basis:
        """The source that an upload replaces or adds. Raises PreconditionFailed."""
        this = source_id(org_id, spec.name, external_id)
        stored = None
        with suppress(NotFound):
            stored = (await self._catalogue.entry(principal.scope(), this, await self._generations([spec]))).source
        if stored is None and if_match is not None:
            raise _refuse_missing()
        if stored is not None:
            _check_match(stored, if_match)
            if if_none_match is not None and names_tag(if_none_match, entity_tag(stored)):
                raise PreconditionFailed(f"{external_id} exists: its ETag is {entity_tag(stored)}")
        elif if_none_match is not None:
            within = SourceSelection((spec.name,), organizations=frozenset({org_id}))
            if await self._catalogue.tables(principal.scope(), within, [external_id]):
                raise PreconditionFailed(f"{external_id!r} is the name of a table: it exists")
        return Basis(this, stored)

    async def delete(self, principal: Principal, name: str, if_match: str | None = None) -> DeletedResponse:
        """Delete a source; by a table's name all sources of its rows that the caller may see, and the source of this name.

        Raises NotFound, also if it has already been deleted, Forbidden, PreconditionFailed, and InvalidInput for a name of
        several.
        """
        indexes = tuple(spec.name for spec in self.indexes(principal))
        table = None
        if uuid_in(name) is None and principal.organizations and indexes and "\0" not in name:
            within = SourceSelection(indexes, organizations=principal.organizations)
            table = (await self._catalogue.tables(principal.scope(), within, [name])).get(name)
        if table is not None and if_match is not None:
            raise _refuse_table(name)
        if table is not None:
            return await self.delete_many(principal, table.index, (), (name,), None, str(table.org_id))

        async def delete(source: Source) -> None:
            await self._uploads.delete(
                self._indexes[source.index], source.org_id, [source.id], Basis(source.id, source)
            )

        await self._write(principal, name, if_match, delete)
        return DeletedResponse(1)

    async def delete_many(
        self,
        principal: Principal,
        index: str,
        filters: Filters,
        external_ids: Sequence[str],
        confirm: str | None,
        organization: str | None,
        if_match: str | None = None,
    ) -> DeletedResponse:
        """Delete the matching sources of one organization that the caller may see. An external id may be a table's name.

        With `confirm`, the index's name, all its sources in the index go, private ones too. Raises InvalidInput without
        a filter or `confirm`, with both, and for a filter that only excludes sources and matches all. With `if_match`,
        the one external id must be that of a source with such an ETag: raises PreconditionFailed.
        """
        named = bool(filters or external_ids)
        if named and confirm is not None:
            raise InvalidInput(
                "confirm", confirm, "cannot be combined with a filter, as it deletes all sources of the index"
            )
        if not named and confirm is None:
            raise InvalidInput(
                "filter", None, "is required. To delete all sources of the index, send `confirm=<index>` instead"
            )
        org_id = await self._organization(principal, organization)
        spec = self.index(index, principal)
        await self._roles.require(Role.WRITE if confirm is None else Role.ADMIN, principal, org_id, spec.name)
        if confirm not in (None, spec.name):
            raise InvalidInput("confirm", confirm, f"must be {spec.name!r}, the name of the index to empty")
        everything = SourceSelection((spec.name,), organizations=frozenset({org_id}))
        if if_match is not None:
            if filters or confirm is not None or len(external_ids) != 1:
                raise InvalidInput("If-Match", if_match[:100], "can only be sent with a single `external_id`")
            return await self._delete_matching(principal, everything, external_ids[0], if_match)
        asked = structs.replace(everything, filters=check_filters(filters, spec), external_ids=tuple(external_ids))
        scope = principal.scope() if confirm is None else Scope(frozenset({org_id}))
        found = await self._catalogue.list_matching(scope, asked, operator=confirm is not None)
        if tables := await self._catalogue.tables(scope, everything, external_ids):
            rows = frozenset[UUID]().union(*(each.rows for each in tables.values()))
            if filters:
                rows &= {*await self._catalogue.list_matching(scope, structs.replace(asked, external_ids=()))}
            found = [*rows.union(found)]
        if found and filters and not external_ids and not any(map(names_something, filters)):
            there = await self._catalogue.list_matching(scope, everything)
            if set(there) <= set(found):
                raise InvalidInput(
                    "filter",
                    None,
                    f"matches all {len(found):,} sources. To delete all of them, confirm it instead:"
                    f" `confirm={spec.name}`",
                )
        await self._uploads.delete(spec, org_id, found)
        return DeletedResponse(len(found))

    async def _delete_matching(
        self, principal: Principal, within: SourceSelection, external_id: str, if_match: str
    ) -> DeletedResponse:
        """Delete the source of this name in one organization and index. Raises PreconditionFailed, also without one."""
        if await self._catalogue.tables(principal.scope(), within, [external_id]):
            raise _refuse_table(external_id)
        (org_id,), (index,) = within.organizations, within.indexes
        try:
            return await self.delete(principal, str(source_id(org_id, index, external_id)), if_match)
        except NotFound:
            raise _refuse_missing() from None

    async def original(self, principal: Principal, name: str) -> tuple[Path, str]:
        """A source's uploaded file and its name. Raises NotFound if it was not kept."""
        entry = await self._entry(principal, name)
        path, called = await self._originals.path(principal.scope(), entry.source.id)
        return path, called or entry.source.external_id

    async def _fetch_upload(self, folder: Path, upload: Upload) -> Upload:
        if upload.url is None:
            return upload
        try:
            url, found = await fetch(upload.url, folder, self.allowed.size, self._networks)
        except UnreadableDocument as error:
            return structs.replace(upload, external_id=upload.external_id or upload.url, problem=error.reason)
        return structs.replace(
            upload,
            external_id=upload.external_id or upload.url,
            file=found.path,
            file_name=upload.file_name or found.name,
            media_type=found.media_type,
            derived={"uri": url, "source_type": "web"},
        )

    async def _target(self, principal: Principal, org_id: UUID, index: str, sent: UploadBody | PutBody) -> Target:
        public = org_id == PUBLIC_ORGANIZATION
        usual = Visibility.GLOBAL if public else Visibility.GROUP if sent.groups else Visibility.TEAM
        visibility = Visibility(sent.visibility or usual)
        if (visibility is Visibility.GROUP) != bool(sent.groups):
            raise InvalidInput(
                "groups", [*(sent.groups or ())], "must be sent if the visibility is `group`, and only then"
            )
        if (visibility is Visibility.GLOBAL) != public:
            raise InvalidInput(
                "visibility",
                visibility.value,
                "sources of the public organization must be global, and other sources cannot be global",
            )
        owner = principal.user if visibility is Visibility.USER else None
        site = None if sent.site is None else (await self._people.site(org_id, sent.site)).id
        audience = await self._audience(principal, org_id, index, sent.groups) if sent.groups else None
        return Target(org_id, site, owner, visibility, audience)

    async def _audience(self, principal: Principal, org_id: UUID, index: str, groups: Sequence[str]) -> UUID:
        """Raises Forbidden for groups that the caller is not in, unless the caller has the role `admin`."""
        organization = await self._people.organization(org_id)
        found = [await self._groups.find(organization, each) for each in groups]
        others = [each.slug for each in found if each.id not in principal.groups]
        if others and await self._roles.role(principal, org_id, index) is not Role.ADMIN:
            raise Forbidden(
                f"You are not in the group {others[0]}. Only its members, and those with the role admin in {index}, add"
                " sources for it"
            )
        return await self._groups.audience(organization, groups)

    async def _generations(self, specs: Sequence[IndexSpec]) -> set[int]:
        return {(await self._active(spec)).id for spec in specs}

    async def _organization(self, principal: Principal, name: str | None) -> UUID:
        """An organization of the caller, by slug or id, or the only one. Raises InvalidInput, and Forbidden without any."""
        mine = principal.organizations
        if not mine:
            raise Forbidden("You are not a member of any organization")
        if name is None and len(mine) == 1:
            return next(iter(mine))
        if name is None:
            raise InvalidInput("organization", None, "is required because you are a member of several organizations")
        found = uuid_in(name) or next(
            (each.id for each in await self._people.organizations(mine) if each.slug == name), None
        )
        if found is None or found not in mine:
            raise InvalidInput("organization", name, "must be the slug or id of one of your organizations")
        return found

    def _info(self, entry: Entry) -> SourceInfo:
        source = entry.source
        spec = self._indexes[source.index]
        sent = {**source.metadata, **{key: value for key, value in source.untyped.items() if key != "date"}}
        date = source.untyped.get("date")
        if not date and source.date is not None:
            date = datetime.fromtimestamp(source.date, UTC).isoformat().replace("+00:00", "Z")
        return SourceInfo(
            id=source.id,
            external_id=source.external_id,
            index=source.index,
            organization=source.org_id,
            title=source.title,
            source_type=source.source_type,
            lang=source.lang,
            uri=source.uri,
            date=None if source.date is None else str(date),
            file_name=source.file_name,
            row=source.row,
            sheet=source.sheet,
            metadata=sent,
            undeclared=undeclared_names(source, spec),
            visibility=source.visibility.value,
            site=source.site_id,
            owner=source.owner_id,
            state="ready" if entry.ready else "writing",
            chunks=entry.chunks,
            size=entry.size,
            original=None if entry.original is None else f"{passage_link(source.id)}/original",
            link=passage_link(source.id),
            created_at=entry.created_at.replace(microsecond=0),
            updated_at=entry.updated_at.replace(microsecond=0),
        )


def _check_metadata(sent: Sending, spec: IndexSpec, target: Target) -> None:
    """Raises InvalidInput for metadata of the first upload that the index refuses."""
    said = sent.uploads[0].metadata
    try:
        to_source(Document("", (), metadata=said, external_id="-"), "", "", spec, target)
    except InvalidInput as error:
        place = "documents[0]." if isinstance(sent.body, UploadBody) else ""
        name = f"metadata.{error.field}" if error.field in said else "metadata"
        raise InvalidInput(f"{place}{name}", error.value, error.problem) from None


def _check_match(source: Source, if_match: str | None) -> None:
    """Raises PreconditionFailed unless `If-Match`, if it was sent, is `*` or names the source's ETag.

    >>> _check_match(Source(UUID(int=1), "book", "a", "A", "text", "1234"), '"1", "1234"')
    """
    accepted = {each.strip() for each in (if_match or "*").split(",")}
    if not accepted & {"*", entity_tag(source)}:
        raise PreconditionFailed(
            f"{source.external_id} has been changed: its ETag is {entity_tag(source)}. Read it again before you change it"
        )


def _examples(name: str, kind: FieldType, entries: Sequence[Entry]) -> list[str | float | bool]:
    found: dict[str | float | bool, None] = {}
    for source in (entry.source for entry in entries):
        own = {
            "org_id": str(source.org_id),
            "source_id": str(source.id),
            "source_type": source.source_type,
            "lang": source.lang,
            "date": source.date,
        }
        value = {**source.metadata, **own}.get(name)
        for each in value if isinstance(value, list) else [] if value is None else [value]:
            if kind is FieldType.TIME and isinstance(each, int | float):
                each = datetime.fromtimestamp(each, UTC).isoformat()  # noqa: PLW2901
            found[each] = None
    return [*found][:_EXAMPLES]


def _fingerprint(sent: Sending) -> str:
    """A hash of the whole request, with files by their content."""
    digest = hashlib.sha256()
    for each in sent.uploads:
        file = None
        if each.file is not None:
            with each.file.open("rb") as stream:
                file = hashlib.file_digest(stream, "sha256").hexdigest()
        said = [each.external_id, each.text, each.url, file, each.file_name, each.title, each.metadata]
        if each.rows is not None:
            said.append(to_builtins(each.rows))
        digest.update(json.dumps(said, sort_keys=True, default=str).encode())
    body = sent.body
    about = [body.index, body.organization, body.site, body.visibility, body.groups or ()]
    return digest.hexdigest() + hashlib.sha256(json.dumps(about).encode()).hexdigest()


def _chunk(hit: Hit, content: Sequence[JsonObject]) -> ChunkInfo:
    start, end = locate(hit, content) or (None, None)
    return ChunkInfo(
        id=hit.chunk_id,
        position=hit.position,
        text=hit.text,
        section=hit.section,
        page=hit.page,
        start=start,
        end=end,
        link=hit.link,
    )
