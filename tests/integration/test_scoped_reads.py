"""Every read of a table under row-level security begins with a tenant: what opens the database without one touches none."""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy import Table

import rag_app
from rag_app.database.tables import all_tables

PACKAGE = Path(rag_app.__file__).parent
UNSCOPED = {"session", "autocommit", "execute", "fetch", "dedicated", "driver"}
"""What a Database gives without setting the tenant; `scoped`, `fetch_scoped` and `driver_scoped` set it."""
ALLOWED = {
    "rag_app.surfaces.lexybrain.quotas:Entitlements.messages_used": "one transaction for many users; sets each of them before it reads",
    "rag_app.surfaces.lexybrain.retention:enforce": "holds a lock there alone; deletes in a scope at a time, and reads nothing",
}
"""Functions that open the database without a tenant and mention such a table, each with the reason why that is right."""


class Code:
    """Functions, methods and module-level names of a package, and what each of them refers to.

    A method is found by its bare name, whatever object it is called on: too much is followed rather than too little.
    """

    def __init__(self, files: dict[str, str]) -> None:
        self.parts: dict[str, dict[str, list[ast.AST]]] = {}
        self.imported: dict[str, dict[str, tuple[str, str]]] = {}
        for module, source in files.items():
            self.parts[module], self.imported[module] = {}, {}
            for node in ast.parse(source).body:
                self._add(module, node, "")

    def _add(self, module: str, node: ast.stmt, within: str) -> None:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                self.parts[module].setdefault(f"{within}{name}", []).append(node)
            case ast.ClassDef(name=name, body=body):
                for each in body:
                    self._add(module, each, f"{name}.")
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)) if not within:
                self.parts[module].setdefault(name, []).append(node)
            case ast.ImportFrom(module=origin, names=names) if origin:
                for alias in names:
                    self.imported[module][alias.asname or alias.name] = origin, alias.name

    def opening(self) -> Iterator[tuple[str, str]]:
        """What opens the database without a tenant."""
        for module, parts in self.parts.items():
            for name, nodes in parts.items():
                if any(_opens(each) for node in nodes for each in ast.walk(node)):
                    yield module, name

    def mentions(self, module: str, name: str, tables: re.Pattern[str]) -> set[str]:
        """The tables that a part mentions, or anything that it refers to."""
        found, seen, left = set[str](), set[tuple[str, str]](), [(module, name)]
        while left:
            at = left.pop()
            if at in seen:
                continue
            seen.add(at)
            for node in self.parts.get(at[0], {}).get(at[1], []):
                for each in ast.walk(node):
                    found.update(match[0] for text in _texts(each) for match in tables.finditer(text))
                    left.extend(self._referred(at, each))
        return found

    def _referred(self, at: tuple[str, str], node: ast.AST) -> Iterator[tuple[str, str]]:
        module, (owner, _, _) = at[0], at[1].partition(".")
        match node:
            case ast.Name(id=name):
                yield self.imported[module].get(name, (module, name))
            case ast.Attribute(value=ast.Name(id="self"), attr=name):
                yield module, f"{owner}.{name}"
            case ast.Attribute(value=ast.Name(id=of), attr=name):
                yield self.imported[module].get(of, (module, of))[0], f"{of}.{name}"


def _opens(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Attribute(value=ast.Name(id=of) | ast.Attribute(attr=of), attr=name)):
            return name in UNSCOPED and "database" in of
    return False


def _texts(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Constant(value=str(text)):
            yield text
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name


def pattern(tables: set[str]) -> re.Pattern[str]:
    """Finds a table's variable, and its name where a statement reads or writes it; those of generations, too."""
    rows = {
        name
        for module in [*sys.modules.values()]
        if getattr(module, "__name__", "").startswith("rag_app.")
        for name, value in vars(module).items()
        if isinstance(value, Table) and str(value) in tables
    }
    names = rf"(?:FROM|JOIN|INTO|UPDATE|USING|TABLE)\s+(?:ONLY\s+)?(?:{'|'.join(sorted(tables))})\b"
    return re.compile(rf"\b(?:{'|'.join(sorted(rows))})\b|{names}|_(?:chunks|vectors|fields|signs|words|sizes)\b")


@pytest.fixture
async def tables(database_urls: tuple[str, str]) -> re.Pattern[str]:
    connection = await asyncpg.connect(database_urls[0].replace("+asyncpg", ""))
    try:
        rows = await connection.fetch("SELECT relname FROM pg_class WHERE relrowsecurity AND relname NOT LIKE 'g\\_%'")
    finally:
        await connection.close()
    all_tables()
    return pattern({row["relname"] for row in rows})


def own_code() -> Code:
    files = sorted(PACKAGE.rglob("*.py"))
    names = {file: ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts) for file in files}
    return Code({names[file]: file.read_text("utf-8") for file in files})


async def test_what_opens_the_database_without_a_tenant_reads_nothing_of_a_tenant(tables: re.Pattern[str]) -> None:
    code = own_code()
    opening = list(code.opening())
    assert len(opening) > 20
    found = {
        f"{module}:{name}": mentioned for module, name in opening if (mentioned := code.mentions(module, name, tables))
    }
    assert {name: sorted(mentioned) for name, mentioned in found.items() if name not in ALLOWED} == {}
    assert ALLOWED.keys() - found.keys() == set(), "no longer needed"


def test_only_the_database_room_connects() -> None:
    connecting = {
        str(file.relative_to(PACKAGE))
        for file in PACKAGE.rglob("*.py")
        if re.search(
            r"asyncpg\.(?:connect|create_pool)\(|create_async_engine\(|\bpsycopg|PsycopgConnector\(",
            file.read_text("utf-8"),
        )
    }
    backups, queue, others = "database/dump.py", "documents/worker.py", "stores/bring.py"
    known = {"database/session.py", backups, queue, others}
    assert connecting == known, (
        "the queue knows ids of organizations alone; the last reads another application's database"
    )


@pytest.mark.parametrize(
    "body",
    [
        "async with self._database.session() as session:\n            await session.scalars(select(sources_table))",
        "await self._database.fetch('SELECT title FROM sources')",
        "async with self._database.session() as session:\n            await session.scalars(select(originals_table))",
        "await database.autocommit().execute(_READ)",
        "async with self._database.session() as session:\n            await helper(session)",
        "async with self._database.session() as session:\n            await self.read(session)",
        "await self._database.fetch(f'SELECT * FROM {table}_chunks')",
    ],
)
def test_a_read_without_a_tenant_would_be_found(body: str, tables: re.Pattern[str]) -> None:
    rest = "_READ = text('DELETE FROM\\n  sources')\ndef helper(session):\n    return session.get(sources_table, 1)\n"
    method = "    async def read(self, session):\n        return await session.scalars(select(sources_table))\n"
    code = Code({"one": f"{rest}class Reading:\n    async def work(self, database, table):\n        {body}\n{method}"})
    assert list(code.opening()) == [("one", "Reading.work")]
    assert code.mentions("one", "Reading.work", tables)


def test_a_read_with_a_tenant_is_well(tables: re.Pattern[str]) -> None:
    work = "    async with database.scoped(scope) as session:\n        await session.scalars(select(sources_table))"
    assert list(Code({"one": f"async def work(database, scope):\n{work}\n"}).opening()) == []
