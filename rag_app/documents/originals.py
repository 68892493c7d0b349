"""The files that sources were uploaded as, if a setting keeps them: a folder for each organization, named by content.

A row of `originals` says which file a source has, and of which version; a file of another version is not shown. Files
and rows change under a lock of the organization, so that no file is removed while another source starts to use it.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from shutil import copyfile, rmtree
from uuid import UUID, uuid4

from sqlalchemy import delete, func, select
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from rag_app.database.session import Database
from rag_app.database.tables import matches_any
from rag_app.documents.ledger import visibility_conditions
from rag_app.documents.tables import originals_table, sources_table
from rag_app.domain import NotFound, Scope, Source


class Originals:
    """`folder` is where the files are. With `keeps`, new ones are put there; those that are there are shown and deleted
    either way."""

    def __init__(self, database: Database, folder: Path, *, keeps: bool = True) -> None:
        self._database, self._folder, self._keeps = database, folder, keeps

    async def keep(self, source: Source, file: Path, name: str | None) -> None:
        """Keep a copy of the file as this source's original, replacing another one, unless the source has been deleted or
        replaced. Blocks while copying."""
        if not self._keeps:
            return
        with file.open("rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
        at = _path(self._folder, source.org_id, digest)
        at.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        copy = at.with_name(f"{uuid4().hex}.part")
        copyfile(file, copy)
        copy.chmod(0o600)
        row = {"version": source.version, "sha256": digest, "size": copy.stat().st_size, "file_name": name}
        standing = select(sources_table.c.id).where(
            sources_table.c.id == source.id,
            sources_table.c.org_id == source.org_id,
            sources_table.c.version == source.version,
            sources_table.c.deleted_at.is_(None),
        )
        try:
            async with self._lock_originals(source.org_id) as session:
                # whoever deletes it marks it first, and waits for this lock before it looks for files
                if await session.scalar(standing.with_for_update(read=True, key_share=True)) is None:
                    return
                before = await session.scalar(
                    select(originals_table.c.sha256).where(originals_table.c.source_id == source.id)
                )
                made = insert(originals_table).values(source_id=source.id, org_id=source.org_id, **row)
                await session.execute(made.on_conflict_do_update(index_elements=["source_id"], set_=row))
                copy.replace(at)
                if before not in (None, digest):
                    await self._drop_unused(session, source.org_id, {str(before)})
        finally:
            copy.unlink(missing_ok=True)

    async def path(self, scope: Scope, source_id: UUID) -> tuple[Path, str | None]:
        """The file and file name of a source's present version. Raises NotFound, also for a source outside the scope."""
        wanted = (
            select(originals_table.c.org_id, originals_table.c.sha256, originals_table.c.file_name)
            .join(sources_table, sources_table.c.id == originals_table.c.source_id)
            .where(
                sources_table.c.id == source_id,
                sources_table.c.version == originals_table.c.version,
                *visibility_conditions(scope),
            )
        )
        for org_id, digest, name in await self._database.read(scope, wanted):
            if (at := _path(self._folder, org_id, digest)).is_file():
                return at, name
        raise NotFound("original of a source", str(source_id))

    async def forget(self, org_id: UUID, source_ids: Collection[UUID]) -> list[Path]:
        """Delete the files of these sources and their rows. Returns where files were expected that are not there: another
        folder may have them."""
        async with self._lock_originals(org_id) as session:
            gone = await session.scalars(
                delete(originals_table)
                .where(
                    matches_any(originals_table.c.source_id, source_ids),
                    originals_table.c.org_id == org_id,
                )
                .returning(originals_table.c.sha256)
            )
            return await self._drop_unused(session, org_id, set(gone))

    async def forget_organization(self, org_id: UUID) -> list[Path]:
        """Delete the folder of an organization that was deleted. Returns it if that failed."""
        folder = self._folder / str(org_id)
        await asyncio.to_thread(rmtree, folder, ignore_errors=True)
        return [folder] if folder.exists() else []

    async def _drop_unused(self, session: AsyncConnection, org_id: UUID, digests: Collection[str]) -> list[Path]:
        """Returns the paths that had no file."""
        if not digests:
            return []
        used = await session.scalars(
            select(originals_table.c.sha256).where(
                originals_table.c.org_id == org_id, originals_table.c.sha256.in_(digests)
            )
        )
        missing = []
        for at in (_path(self._folder, org_id, digest) for digest in sorted(set(digests) - set(used))):
            try:
                at.unlink()
            except FileNotFoundError:
                missing.append(at)
        return missing

    @asynccontextmanager
    async def _lock_originals(self, org_id: UUID) -> AsyncIterator[AsyncConnection]:
        async with self._database.scoped(Scope(frozenset({org_id})), operator=True) as session:
            lock = func.pg_advisory_xact_lock(func.hashtextextended(f"rag_app/originals/{org_id}", 0))
            await session.execute(select(lock))
            yield session


def _path(folder: Path, org_id: UUID, digest: str) -> Path:
    return folder / str(org_id) / digest[:2] / digest
