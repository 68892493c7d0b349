"""`rag-app db`, `backup`, `restore` and `retention`: the schema of the database, a whole deployment as one file, and what
is too old.

A backup is a ZIP, readable by its owner alone:

    qdrant/<store>/<generation>.jsonl   a point a line, of each generation that is not in PostgreSQL
    secrets/jwt-secret                  with --secrets, where there is one
    database.dump                       the schema `public`, of pg_dump
    manifest.json                       last: versions, and of all the others what they must be when they are back
"""

import asyncio
import json
import os
import shutil
import sys
import tempfile
import zlib
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from hashlib import blake2b
from importlib.metadata import version
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile

from typer import Argument, Option

from rag_app.console.commands import (
    Application,
    command_after,
    group,
    on_closed_application,
    on_unchecked_application,
    open_application,
    read_settings,
    say_home,
)
from rag_app.domain import InvalidInput, JsonObject, Misconfigured, StoreFailed, require, resource_folder
from rag_app.stores.registry import store_named

if TYPE_CHECKING:
    from rag_app.database.urls import DatabaseUrls
    from rag_app.documents.generations import Generation
    from rag_app.settings import Settings

db = group("Manage the database schema.")
app = group()


async def _migrate(application: Application) -> None:
    """The schema comes first: it is migrated also where the settings of models or indexes cannot be used."""
    from rag_app.database import migrate

    owner = require(
        application.urls.owner,
        Misconfigured("set RAG_DATABASE_OWNER_URL: migrating needs the role that owns the schema"),
    )
    await asyncio.to_thread(
        migrate.upgrade,
        owner,
        application.urls.app,
        resource_folder("migrations"),
        gateway=application.settings.database.gateway_role,
    )
    application.check_declared()


@db.command()
@command_after(_migrate, creates=True)
async def upgrade(application: Application) -> None:
    """Migrate the database schema and build new indexes. Safe to repeat."""
    done = {"built": await application.build_missing(), "prompts added": await application.seed_prompts()}
    made = (f"{what}: {', '.join(names)}" for what, names in done.items() if names)
    print("; ".join(["the schema is up to date", *made]))


@db.command()
@on_closed_application
async def url(
    application: Application,
    owner: Annotated[
        bool, Option("--owner", help="print the connection URL, with password, of the role that owns the schema")
    ] = False,
) -> None:
    """Print the database URL for psql, with its password.

    A private PostgreSQL only runs while a rag-app command runs, such as `rag-app serve`.
    """
    from rag_app.database.session import asyncpg_url

    chosen = require(
        application.urls.owner if owner else application.urls.app,
        Misconfigured("RAG_DATABASE_OWNER_URL is not set, so the owner's URL is not known"),
    )
    print(asyncpg_url(chosen).set(drivername="postgresql").render_as_string(hide_password=False))


@app.command()
@on_unchecked_application
async def retention(application: Application) -> None:
    """Delete data that is too old, by RAG_RETENTION_DAYS_* settings.

    A running server does this every day.
    """
    from rag_app.surfaces.lexybrain.retention import enforce

    gone = require(
        await enforce(application.database, application.settings.retention.model_dump()),
        Misconfigured("another process is already deleting old data: wait until it has finished"),
    )
    for name, count in gone.items():
        print(f"{name}\t{count} deleted")
    if not gone:
        print("nothing to delete: no RAG_RETENTION_DAYS_... setting is set", file=sys.stderr)


_FORMAT = 1
_MANIFEST, _DATABASE, _SECRET = "manifest.json", "database.dump", "secrets/jwt-secret"
_PIECE = 1 << 20  # bytes
_POINTS = 500  # written to a vector store at once

File = Annotated[Path, Argument(metavar="FILE")]


@dataclass(slots=True)
class _Points:
    """How many, and the sum of their digests without embeddings: Qdrant brings those to unit length, bytes change."""

    count: int = 0
    total: int = 0

    def add(self, line: bytes) -> None:
        point = json.loads(line)
        said = json.dumps([point["id"], point["payload"]], sort_keys=True).encode()
        self.count += 1
        self.total = (self.total + int.from_bytes(blake2b(said, digest_size=16).digest())) % 2**128

    def summary(self) -> list[Any]:
        return [self.count, f"{self.total:032x}"]


@app.command()
def backup(
    file: File,
    secrets: Annotated[bool, Option("--secrets", help="include the secret that signs tokens")] = False,
) -> None:
    """Write the database and the vectors to a new file.

    The backup is consistent: it shows one moment. Servers may keep running; ingests wait while Qdrant is read. With local
    Qdrant, stop the server first, because only one process can use it.
    """
    from rag_app.database.urls import database_urls

    settings = read_settings()
    say_home(settings)
    if file.exists():
        raise InvalidInput("FILE", str(file), f"{file} exists: name a new file")
    if not file.parent.is_dir():
        raise InvalidInput("FILE", str(file), f"there is no folder {file.parent}: create it first")
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as whole, database_urls(settings, migrated=False, create=False) as urls:
            told = asyncio.run(_write(settings, urls, whole, secrets))
            whole.flush()
            os.fsync(whole.fileno())
        os.link(name, file)  # never over another one
    finally:
        Path(name).unlink()
    rows = sum(count for count, _ in told["tables"].values())
    points = sum(count for count, _ in told["points"].values())
    elsewhere = f", {points} chunks of other vector stores" if told["points"] else ""
    print(f"{file}\t{rows} rows in {len(told['tables'])} tables{elsewhere}, {file.stat().st_size} bytes")


async def _write(settings: "Settings", urls: "DatabaseUrls", whole: IO[bytes], secrets: bool) -> JsonObject:
    from rag_app.database.dump import reading_role, snapshot
    from rag_app.database.session import OtherRevision

    if urls.backup is None and urls.owner is None:
        raise Misconfigured("set RAG_DATABASE_BACKUP_URL to a role that sees all rows: docs/operations.md")
    manifest: JsonObject = {"format": _FORMAT, "version": version("rag-app"), "points": {}, "generations": {}}
    async with AsyncExitStack() as stack:
        application = await stack.enter_async_context(open_application(settings, urls))
        try:
            await application.database.check()
        except OtherRevision as error:
            said = str(error).partition(":")[0]
            raise Misconfigured(
                f"{said}: make the backup with the version of rag_app that used it until now (docs/upgrading.md), "
                "or without a backup run `rag-app db upgrade`"
            ) from None
        apart = await _apart(application)
        archive = stack.enter_context(ZipFile(whole, "w", ZIP_DEFLATED))
        async with AsyncExitStack() as unwritten:
            for index in sorted({generation.index for generation in apart}):
                await unwritten.enter_async_context(application.ledger.lock_for_switching(index))
            url = urls.backup or urls.owner or ""
            taken = await stack.enter_async_context(snapshot(await reading_role(url) if urls.private else url))
            if [each.id for each in await _apart(application)] != [each.id for each in apart]:
                raise StoreFailed(
                    "an index was rebuilt or moved to another store during this backup: make the backup again"
                )
            for generation in apart:
                name, points = _member(generation), _Points()
                with archive.open(name, "w", force_zip64=True) as member:
                    async for line in application.backends.backend(generation.store).dump(generation.table_prefix):
                        points.add(line)
                        member.write(line + b"\n")
                manifest["points"][name] = points.summary()
                manifest["generations"][name] = [generation.index, generation.dimension]
        if secrets and (kept := settings.database.home / "jwt-secret").exists():
            archive.writestr(_SECRET, kept.read_bytes())
        archive.compression = ZIP_STORED  # pg_dump's is compressed
        with archive.open(_DATABASE, "w", force_zip64=True) as member:
            await taken.write(member)
        manifest |= {"revision": taken.revision, "tables": taken.sums, "closed": taken.closed}
        archive.writestr(_MANIFEST, json.dumps(manifest))
    return manifest


async def _apart(application: Application) -> "list[Generation]":
    """The generations that do not go with the database. Raises Misconfigured where their store is not configured."""
    from rag_app.retrieval.index import LAYOUT

    found = [
        each
        for each in await application.generations.list()
        if each.state != "dropped" and not store_named(each.store).always_there
    ]
    for each in found:
        if each.settings.get("layout") != LAYOUT and each.state == "active":
            raise Misconfigured(
                f"{each.table_prefix} in {each.store} has the layout of an earlier version: run"
                f" `rag-app indexes rebuild {each.index} --switch` first"
            )
        if not application.backends.reaches(each.store, application.indexes.values()):
            raise Misconfigured(
                f"{each.table_prefix} is in {each.store}, which is not configured here: configure this store, or drop the generation"
            )
    return [each for each in found if each.settings.get("layout") == LAYOUT]


def _member(generation: "Generation") -> str:
    return f"{generation.store}/{generation.table_prefix}.jsonl"


@app.command()
def restore(file: File) -> None:
    """Restore a backup into an empty RAG_HOME or an empty database.

    All restored data is compared with the backup. A backup of an older version is migrated; a backup of a newer version
    is refused.
    """
    from rag_app.database.urls import database_urls

    settings = read_settings()
    say_home(settings)
    home, private = settings.database.home, settings.database.url is None
    with _open_archive(file) as archive:
        manifest = _check_archive(file, archive)
        if private and home.exists() and any(home.iterdir()):
            raise Misconfigured(
                f"{home} is not empty: set RAG_HOME to a new folder; a backup is restored into an empty one"
            )
        if _SECRET in archive.namelist() and (home / "jwt-secret").exists():
            raise Misconfigured(
                f"{home / 'jwt-secret'} already exists: move it away, or make a backup without --secrets"
            )
        try:
            with database_urls(settings, migrated=False) as urls:
                asyncio.run(_restore_archive(settings, urls, archive, manifest))
            if _SECRET in archive.namelist():
                home.mkdir(parents=True, exist_ok=True)
                (home / "jwt-secret").touch(mode=0o600, exist_ok=False)
                (home / "jwt-secret").write_bytes(archive.read(_SECRET))
        except BaseException:
            if private:  # it was empty
                shutil.rmtree((home / "postgres" / "cluster").resolve(), ignore_errors=True)  # may lie outside of it
                for each in home.iterdir() if home.exists() else ():
                    shutil.rmtree(each, ignore_errors=True) if each.is_dir() else each.unlink()
            raise
    print(
        f"{file} is back: {len(manifest['tables'])} tables and {len(manifest['points'])} collections are what they were"
    )


def _open_archive(file: Path) -> ZipFile:
    try:
        return ZipFile(file)
    except BadZipFile:
        raise InvalidInput("FILE", str(file), f"{file} is not a backup, or is incomplete") from None


def _check_archive(file: Path, archive: ZipFile) -> JsonObject:
    """What the backup says of itself, after all of it has been read once."""
    from rag_app.database.migrate import knows_revision

    try:
        manifest: JsonObject = json.loads(archive.read(_MANIFEST))
        if {_DATABASE, *manifest["points"]} - {*archive.namelist()}:
            raise KeyError
        form, maker, revision = manifest["format"], manifest["version"], manifest["revision"]
        broken = archive.testzip()
    except (KeyError, TypeError, ValueError, EOFError, BadZipFile, zlib.error):
        raise InvalidInput("FILE", str(file), f"{file} is not a backup of rag-app") from None
    if broken is not None:
        raise InvalidInput("FILE", str(file), f"{file} is damaged: {broken} does not match its checksum")
    if form != _FORMAT or not knows_revision(resource_folder("migrations"), revision):
        raise InvalidInput(
            "FILE",
            str(file),
            f"{file} was made by rag-app {maker} (revision {revision}), which is newer than this"
            f" version ({version('rag-app')}): restore it with that one",
        )
    return manifest


async def _restore_archive(settings: "Settings", urls: "DatabaseUrls", archive: ZipFile, manifest: JsonObject) -> None:
    from rag_app.database import dump
    from rag_app.database.migrate import upgrade

    owner = require(
        urls.owner,
        Misconfigured("set RAG_DATABASE_OWNER_URL: a backup is restored by the role that owns the schema"),
    )
    await dump.check_empty(owner)
    async with open_application(settings, urls) as application:
        made = []
        try:
            for name, (index, dimension) in manifest["generations"].items():
                store, _, generation = name.removesuffix(".jsonl").partition("/")
                backend, spec = application.backends.backend(store), application.index(index)
                if await backend.holds(generation):
                    raise Misconfigured(
                        f"{store} already has {generation}: a backup can only be restored into an empty store"
                    )
                made.append((backend, generation))
                await backend.create_outside(spec, generation, dimension)
                with archive.open(name) as lines:
                    while batch := [line for _, line in zip(range(_POINTS), lines, strict=False)]:
                        await backend.load(generation, batch)
                points = _Points()
                async for line in backend.dump(generation):
                    points.add(line)
                if points.summary() != manifest["points"][name]:
                    counts = f"{points.count} points instead of {manifest['points'][name][0]}"
                    raise StoreFailed(f"{generation} does not match the backup: {counts}")
            sums = {table: (count, total) for table, (count, total) in manifest["tables"].items()}
            with archive.open(_DATABASE) as file:
                await dump.restore(owner, file, sums, manifest["closed"])
        except BaseException:
            for backend, generation in made:
                with suppress(StoreFailed):
                    await backend.drop(owner, generation)
            raise
        migrations, gateway = resource_folder("migrations"), settings.database.gateway_role
        await asyncio.to_thread(upgrade, owner, urls.app, migrations, gateway=gateway)
        for each in await application.generations.list():
            # those of an earlier layout, which were kept for going back, are not in a backup
            missing = not store_named(each.store).always_there and _member(each) not in manifest["points"]
            if missing and each.state == "retired":
                await application.generations.drop(each.id)
        for name, state in (await application.problems()).items():
            if state != "ok":
                print(f"note: {name}: {state}", file=sys.stderr)
