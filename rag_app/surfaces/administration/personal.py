"""All data about one user: export, erasure, and training examples.

For the operator's commands, which work on all organizations in which the user owns sources. Erasing deletes the user's
sources one by one, from every generation and store; everything else is deleted with the user's row, in one transaction.
An organization is erased in the same way: its sources, the members who belong to no other, then its row.
"""

import hashlib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from llama_index.core.schema import TextNode
from msgspec import Struct, structs
from sqlalchemy import delete, func, select, text, update
from sqlalchemy.exc import DBAPIError

from rag_app.access.people import Organization, User
from rag_app.access.tables import memberships_table, organizations_table, sites_table, users_table
from rag_app.answering.capabilities import DESCRIPTIONS
from rag_app.application import Application
from rag_app.database.session import Database, constraint_of
from rag_app.documents.generations import Generation
from rag_app.documents.ledger import SOURCE, source_of
from rag_app.documents.metadata import add_version
from rag_app.documents.tables import source_builds_table, sources_table
from rag_app.domain import (
    PUBLIC_ORGANIZATION,
    InvalidInput,
    JsonObject,
    NotFound,
    Scope,
    Source,
    StoreFailed,
    chunk_id,
)
from rag_app.retrieval.filters import epoch_seconds
from rag_app.retrieval.index import LAYOUT
from rag_app.retrieval.store import ScopedStore
from rag_app.stores.registry import STORES
from rag_app.surfaces.lexybrain.training import CollectedLesson, Consenting

_ATTEMPTS = 5
_DEADLOCK = "40P01"
_SOURCES_AT_ONCE = 500  # sources of an organization that are taken out at once
_PASSES = 5  # over a user's sources, where somebody ingests new ones meanwhile


@dataclass(slots=True)
class ErasureResult:
    """The result for a user's sources. `left`: those that may be in a store that is not configured here, by the names of
    store and collection. `files`: where originals were expected that are not there, or that could not be deleted."""

    private: int = 0
    shared: int = 0
    left: dict[tuple[str, str], set[UUID]] = field(default_factory=lambda: defaultdict(set))
    files: list[Path] = field(default_factory=list)


async def erase(application: Application, user: User, work: "_Erasure | None" = None) -> ErasureResult:
    """Delete the sources, then the rest with the user's row. After a kill, the same command completes it.

    `work` is that of an organization, which goes with its users. Raises StoreFailed if new sources of the user keep arriving, InvalidInput for a source of an undeclared index.
    """
    work = work or _Erasure(application)
    for _ in range(_PASSES):
        organizations = [each.id for each in await application.people.organizations()]
        await work.take_sources(await work.personal.owned_sources(organizations, user.id))
        if await work.personal.erase(user.id):
            return work.done
    raise StoreFailed(f"new sources of {user.name} keep arriving: stop their ingest, then run the command again")


async def erase_organization(application: Application, organization: Organization) -> tuple[ErasureResult, int]:
    """Delete its sources, then the members who belong to no other organization and the users of its keys, then its row.

    After a crash, calling it again completes it. Also returns the number of users deleted.

    Raises InvalidInput for the public organization, and as `erase` does.
    """
    if organization.id == PUBLIC_ORGANIZATION:
        raise InvalidInput("organization", organization.slug, "the public organization cannot be deleted")
    work, users = _Erasure(application), 0
    for _ in range(_PASSES):
        while sources := await work.personal.sources(organization.id, _SOURCES_AT_ONCE):
            await work.take_sources([(source, True) for source in sources])
        for user in await work.personal.belonging_nowhere_else(organization.id):
            await erase(application, user, work)
            users += 1
        if await work.personal.erase_organization(organization.id):
            work.done.files += await application.originals.forget_organization(organization.id)
            return work.done, users
    raise StoreFailed(
        f"new sources of {organization.slug} keep arriving: stop their ingest, then run the command again"
    )


class _Erasure:
    def __init__(self, application: Application) -> None:
        self._app, self._ledger = application, application.ledger
        self.personal = Personal(application.database)
        self.done = ErasureResult()

    async def take_sources(self, owned: Sequence[tuple[Source, bool]]) -> None:
        going: dict[tuple[UUID, str], list[UUID]] = defaultdict(list)
        for source, goes in owned:
            if source.index not in self._app.indexes:
                raise InvalidInput(
                    "", source.index, f"there are sources in {source.index}, but this index is not declared here"
                )
            if goes:
                going[source.org_id, source.index].append(source.id)
        for (org_id, index), ids in going.items():
            async with self._ledger.lock_for_writing(org_id, index):
                await self._ledger.mark_deleting(org_id, ids)
                self.done.files += await self._app.originals.forget(org_id, ids)
                for generation in await self._find_holding(org_id, ids):
                    await self._store(generation, org_id).write([], replacing=ids)
                await self._ledger.forget(org_id, ids)
            self.done.private += len(ids)
        for source, goes in owned:
            if not goes:
                await self._disown(source)
                self.done.shared += 1

    async def _disown(self, source: Source) -> None:
        """Remove the owner from a source, in the ledger and in the stores' chunks, which contain the owner's id.

        The chunks come first, because the ledger decides the owner. An inactive generation, or one with another version,
        loses the source; completing that generation later builds it again.
        """
        org_id = source.org_id
        async with self._ledger.lock_for_writing(org_id, source.index):
            content = await self._ledger.content(Scope(frozenset({org_id})), source.id, operator=True)
            after, written = add_version(structs.replace(source, owner_id=None), content), dict[int, int]()
            for generation in await self._find_holding(org_id, [source.id]):
                build = (await self._ledger.builds(org_id, generation.id, [source.id])).get(source.id)
                current = (
                    generation.state == "active"
                    and generation.settings.get("layout") == LAYOUT  # into another one nothing is written
                    and build is not None
                    and build.holds(source)
                )
                store = self._store(generation, org_id)
                nodes = _rename_chunks(await store.export([source.id]), after) if current else []
                await store.write(nodes, replacing=[source.id])
                if current:
                    written[generation.id] = len(nodes)
                else:
                    await self._ledger.forget_builds([org_id], generation.id, [source.id])
            await self.personal.disown(after, written)

    async def _find_holding(self, org_id: UUID, ids: Collection[UUID]) -> list[Generation]:
        """The generations whose stores may have chunks of these sources. Stores that are not configured are noted."""
        holding = await self._ledger.generations_holding(org_id, ids)
        found = []
        for each in await self._app.generations.list():
            if each.id in holding:
                if self._app.backends.reaches(each.store, self._app.indexes.values()):
                    found.append(each)
                else:
                    self.done.left[each.store, each.table_prefix].update(ids)
                    if each.store in STORES:
                        await self._store(each, org_id).forget([*ids])
        return found

    def _store(self, generation: Generation, org_id: UUID) -> ScopedStore:
        spec = self._app.index(generation.index)
        return self._app.backends.scoped(spec, generation, Scope(frozenset({org_id})))


def _rename_chunks(nodes: Sequence[TextNode], after: Source) -> list[TextNode]:
    """The chunks of a changed source with their new ids; each once, even if a writer was killed."""
    chunks = {node.metadata["position"]: node for node in nodes}
    return [
        TextNode(
            id_=str(chunk_id(after.id, after.version, position)),
            text=node.text,
            metadata={key: value for key, value in node.metadata.items() if key != "owner_id"}
            | {"version": after.version},
            relationships=node.relationships,
            embedding=node.embedding,
        )
        for position, node in sorted(chunks.items())
    ]


class Personal(Struct, frozen=True):
    """Everything raises StoreFailed."""

    _database: Database

    async def everything(self, organizations: Collection[UUID], user: UUID) -> JsonObject:
        """The user's rows as dictionaries, by kind, without digests of keys and sessions and without rate limits.

        The user's private sources have their text; shared ones and the files of jobs do not.
        """
        scope = Scope(frozenset(organizations), user)
        # as an administrator, if the user is one: others have settled no feedback
        async with self._database.scoped(scope, operator=True, administrator=True) as session:
            found = {
                kind: [dict(row) for row in (await session.execute(text(statement), {"user": user})).mappings()]
                for kind, statement in _EXPORT_QUERIES.items()
            }
        messages: dict[UUID, list[JsonObject]] = {}
        for message in found.pop("messages"):
            messages.setdefault(message.pop("thread_id"), []).append(message)
        for thread in found["threads"]:
            thread["messages"] = messages.get(thread["id"], [])
        return {"account": found.pop("account")[0], **found}

    async def owned_sources(self, organizations: Collection[UUID], user: UUID) -> list[tuple[Source, bool]]:
        """The user's sources, and whether each is deleted with the user: private ones, and those already being deleted."""
        mine = (
            select(*SOURCE, sources_table.c.deleted_at)
            .where(sources_table.c.owner_id == user)
            .order_by(sources_table.c.org_id, sources_table.c.id)
        )
        rows = await self._database.read(Scope(frozenset(organizations), user), mine, operator=True)
        return [(source_of(row), row.visibility == "user" or row.deleted_at is not None) for row in rows]

    async def sources(self, org_id: UUID, most: int) -> list[Source]:
        """At most `most` sources of an organization, including those that are being deleted."""
        all_of_it = select(*SOURCE).where(sources_table.c.org_id == org_id).order_by(sources_table.c.id).limit(most)
        return [
            source_of(row) for row in await self._database.read(Scope(frozenset({org_id})), all_of_it, operator=True)
        ]

    async def belonging_nowhere_else(self, org_id: UUID) -> list[User]:
        """The members who belong to this organization only, including the service users of its keys."""
        other = select(memberships_table.c.user_id).where(memberships_table.c.org_id != org_id)
        mine = (
            select(users_table)
            .join(memberships_table, memberships_table.c.user_id == users_table.c.id)
            .where(memberships_table.c.org_id == org_id, users_table.c.id.not_in(other))
            .order_by(users_table.c.name)
        )
        return [User(row.id, row.name, row.plan, row.role) for row in await self._database.execute(mine)]

    async def erase_organization(self, org_id: UUID) -> bool:
        """Delete its row, its sites and all that refers to it. Returns False, and changes nothing, if it still has sources."""
        try:
            async with self._database.scoped(Scope(frozenset({org_id})), operator=True) as session:
                await session.execute(delete(sites_table).where(sites_table.c.org_id == org_id))
                await session.execute(delete(organizations_table).where(organizations_table.c.id == org_id))
        except DBAPIError as error:
            if constraint_of(error) in {"fk_sources_org_id", "fk_sources_org_id_site_id"}:
                return False
            raise
        return True

    async def disown(self, source: Source, written: Mapping[int, int]) -> None:
        """Remove the owner of a shared source: `source` is its new state.

        `written`: the generations that hold the new state, with their numbers of chunks. The caller excludes writers.
        """
        async with self._database.scoped(Scope(frozenset({source.org_id})), operator=True) as session:
            await session.execute(
                update(sources_table)
                .where(sources_table.c.id == source.id)
                .values(owner_id=None, version=source.version)
            )
            for generation, chunks in written.items():
                await session.execute(
                    update(source_builds_table)
                    .where(
                        source_builds_table.c.source_id == source.id, source_builds_table.c.generation_id == generation
                    )
                    .values(version=source.version, state="ready", chunks=chunks, updated_at=func.now())
                )

    async def erase(self, user: UUID) -> bool:
        """Delete the user with all their data. Returns False and changes nothing if they still own a source.

        What stays: usage events without user and message; audit events with the bare id; validation runs of an
        organization without a user. Does nothing for a user already erased.
        """
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return await self._erase(user)
            except DBAPIError as error:
                if constraint_of(error) == "fk_sources_owner_id":
                    return False
                # a deadlock with a request of theirs; the next one finds nobody
                if getattr(error.orig, "sqlstate", None) != _DEADLOCK or attempt == _ATTEMPTS:
                    raise
        return False

    async def _erase(self, user: UUID) -> bool:
        async with self._database.scoped(Scope.alone(user)) as session:
            # first, as turns do: whoever is at work on a turn ends before, or finds nobody afterwards
            this = users_table.c.id == user
            found = (await session.execute(select(users_table.c.subject).where(this).with_for_update())).one_or_none()
            if found is None:
                return True
            names = [f":{user}", *([f":{found.subject}"] if found.subject else [])]
            for table in "rate_windows", "request_leases":
                await session.execute(_FORGET_KEYS[table], {"names": names, "hex": user.hex})
            await session.execute(_FORGET_MESSAGES, {"user": user})
            await session.execute(delete(users_table).where(this))
        return True


async def training_examples(
    application: Application,
    consenting: Sequence[Consenting],
    since: str | None,
    capability: str | None,
    progress: Callable[[int], None],
) -> AsyncIterator[tuple[UUID, JsonObject | None]]:
    """A user's id with each example of theirs, read as that user; None for one made from a source that is gone, or is no
    longer theirs to see.

    `progress` is called with the number of users done. Raises NotFound for an unknown capability, InvalidInput for an
    invalid date.
    """
    if capability is not None and capability not in DESCRIPTIONS:
        raise NotFound("capability", capability, DESCRIPTIONS)
    begin = None if since is None else datetime.fromtimestamp(epoch_seconds("since", since), UTC)
    for number, user in enumerate(consenting, 1):
        async for page in application.conversations.training.read_lessons(user, since=begin, capability=capability):
            named = {source for lesson in page for source in lesson.sources}
            seen = await application.ledger.visible_sources(user.scope, named) if named else set()
            for lesson in page:
                yield user.user, _example(user, lesson) if lesson.sources <= seen else None
        progress(number)


def _example(user: Consenting, lesson: CollectedLesson) -> JsonObject:
    """As fine-tuning tools read it.

    The pseudonym is the same in each export as long as the consent lasts. Without the database it cannot be resolved.
    """
    pseudonym = hashlib.sha256(f"{user.user}/{user.since.isoformat()}".encode()).hexdigest()[:16]
    return {
        "messages": [*lesson.prompt, {"role": "assistant", "content": lesson.text}],
        "metadata": {
            "user": pseudonym,
            "capability": lesson.capability,
            "model": lesson.model,
            "prompts": dict(lesson.prompts),
            "sources": len(lesson.context),
            "cited": sum(bool(shown["cited"]) for shown in lesson.context),
            "rating": lesson.rating,
            "created_at": lesson.created_at.isoformat(),
        },
    }


_FORGET_MESSAGES = text("UPDATE ai_usage_events SET message_id = NULL WHERE user_id = :user")
_FORGET_KEYS = {
    # "surface:user" or "surface:subject"; of an API key that is its service user. The subject of a first request may be
    # the user's id in any spelling that Python takes for a UUID.
    table: text(
        f"DELETE FROM {table} WHERE right(key, -position(':' IN key) + 1) = ANY(CAST(:names AS text[]))"
        " OR translate(replace(replace(lower(right(key, -position(':' IN key))), 'urn:', ''), 'uuid:', ''), '{}-', '') = CAST(:hex AS text)"
    )
    for table in ("rate_windows", "request_leases")
}
_EXPORT_QUERIES = {
    "account": """
        SELECT id, name, subject, plan_code AS plan, role, created_at, training_opt_in_at AS training_consent_since
        FROM users WHERE id = :user
        """,
    "memberships": """
        SELECT o.slug AS organization, o.name, m.created_at FROM memberships m JOIN organizations o ON o.id = m.org_id
        WHERE m.user_id = :user ORDER BY o.slug
        """,
    "groups": """
        SELECT o.slug AS organization, g.slug, g.name, m.created_at FROM group_members m
        JOIN groups g ON g.id = m.group_id JOIN organizations o ON o.id = g.org_id WHERE m.user_id = :user
        ORDER BY o.slug, g.slug
        """,
    "roles": """
        SELECT o.slug AS organization, r.index_name AS index, r.role, r.created_at FROM index_roles r
        JOIN organizations o ON o.id = r.org_id WHERE r.user_id = :user ORDER BY o.slug, r.index_name
        """,
    "sessions": """
        SELECT created_at, seen_at, expires_at, groups, by_provider FROM page_sessions WHERE user_id = :user
        ORDER BY created_at
        """,
    "threads": """
        SELECT id, title, created_at, updated_at, last_message_at, message_count, metadata, archived
        FROM rag_threads WHERE user_id = :user ORDER BY created_at, id
        """,
    "messages": """
        SELECT m.thread_id, m.id, m.role, m.content, m.created_at, m.capability, m.context_json AS context,
            m.model_id AS model, m.retrieved_source_ids AS sources, m.generation_metadata AS generation, m.flags,
            m.training_eligible, m.deleted_at
        FROM rag_messages m JOIN rag_threads t ON t.id = m.thread_id WHERE t.user_id = :user ORDER BY m.created_at, m.id
        """,
    "feedback": """
        SELECT id, message_id, rating, feedback_text AS comment, expected_source_id, created_at, updated_at
        FROM rag_feedback WHERE user_id = :user ORDER BY created_at, id
        """,
    "answers": """
        SELECT id, request_id, capability, index_name AS index, question, answer, refusal, model, sources, asked_at,
            verdict, comment, expected_source_id, judged_at
        FROM kept_answers WHERE user_id = :user ORDER BY asked_at, id
        """,
    "judgments": """
        SELECT j.id, j.feedback_id, j.answer_id, o.slug AS organization, j.index_name AS index, j.query, j.source_id,
            j.grade, j.created_at
        FROM judgments j LEFT JOIN rag_feedback f ON f.id = j.feedback_id LEFT JOIN kept_answers a ON a.id = j.answer_id
        JOIN organizations o ON o.id = j.org_id
        WHERE :user IN (f.user_id, a.user_id) ORDER BY j.id
        """,
    "settlements": """
        SELECT feedback_id, answer_id, resolution, note, settled_at FROM feedback_settlements
        WHERE settled_by = :user ORDER BY settled_at, id
        """,
    "training": """
        SELECT q.id, q.message_id, q.capability, q.prompt, q.context, a.model_id AS model, a.content AS answer,
            q.created_at
        FROM lexybrain_requests q LEFT JOIN lexybrain_responses a ON a.request_id = q.id
        WHERE q.user_id = :user ORDER BY q.created_at, q.id
        """,
    "usage": "SELECT key, period, used FROM usage_counters WHERE user_id = :user ORDER BY period, key",
    "reservations": "SELECT id, key, period, expires_at FROM usage_reservations WHERE user_id = :user ORDER BY id",
    "usage_events": """
        SELECT type, message_id, plan_code AS plan, capability, model_version AS model, latency_ms, stages, tokens_in,
            tokens_out, cost_cents, created_at
        FROM ai_usage_events WHERE user_id = :user ORDER BY id
        """,
    "failures": """
        SELECT message_id, capability, model_id AS model, kind, message, created_at
        FROM ai_failures WHERE user_id = :user ORDER BY id
        """,
    "keys": """
        SELECT k.id, k.name, k.beginning, o.slug AS organization, k.indexes, k.created_at, k.last_used_at, k.revoked_at
        FROM api_keys k JOIN organizations o ON o.id = k.org_id WHERE k.user_id = :user ORDER BY k.created_at
        """,
    "sources": """
        SELECT s.id, o.slug AS organization, s.index_name AS index, s.external_id, s.title, s.source_type, s.lang, s.uri,
            to_timestamp(s.date) AS date, s.metadata, s.origin, s.visibility, s.created_at, s.updated_at,
            f.file_name AS original, CASE WHEN s.visibility = 'user' THEN s.content END AS passages
        FROM sources s JOIN organizations o ON o.id = s.org_id LEFT JOIN originals f ON f.source_id = s.id
        WHERE s.owner_id = :user ORDER BY s.created_at, s.id
        """,
    "jobs": """
        SELECT j.id, o.slug AS organization, j.index_name AS index, j.state, j.target, j.error, j.created_at, j.ended_at,
            (SELECT jsonb_agg(jsonb_build_object('name', f.name, 'document', f.document, 'bytes', f.bytes,
                'state', f.state, 'reason', f.reason) ORDER BY f.position) FROM job_files f WHERE f.job_id = j.id) AS files
        FROM jobs j JOIN organizations o ON o.id = j.org_id WHERE j.user_id = :user ORDER BY j.created_at, j.id
        """,
    "idempotency_keys": """
        SELECT o.slug AS organization, k.key, k.response, k.created_at FROM idempotency_keys k
        JOIN organizations o ON o.id = k.org_id WHERE k.user_id = :user ORDER BY k.created_at, k.key
        """,
    "validations": """
        SELECT v.id, o.slug AS organization, v.index_name AS index, v.top_k, v.report, v.created_at
        FROM validations v JOIN organizations o ON o.id = v.org_id WHERE v.user_id = :user ORDER BY v.created_at
        """,
    "audit": """
        SELECT actor_id AS actor, action, subject, details, created_at FROM audit_events
        WHERE actor_id = :user OR subject = CAST(CAST(:user AS uuid) AS text)
            OR details ->> 'user' = CAST(CAST(:user AS uuid) AS text)
        ORDER BY id
        """,
}
