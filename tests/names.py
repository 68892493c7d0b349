"""`python -m tests.names`, a part of `make lint`: functions are verbs or nouns, types are nouns.

No function, method or class of rag_app has a name that is only a participle or a preposition (`_shown`, `of`), and no two
modules of a package differ by a plural alone. Left out: properties and fields, which are data (`cited`, `failed`), functions
that return a context manager (`with database.scoped(...)`, as `contextlib.closing`), and classes whose name ends in -ing,
which are nouns (`Reading`).
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

PREPOSITIONS = frozenset(
    [
        "about",
        "across",
        "after",
        "against",
        "among",
        "as",
        "at",
        "before",
        "behind",
        "below",
        "beside",
        "between",
        "by",
        "for",
        "from",
        "in",
        "into",
        "like",
        "near",
        "of",
        "off",
        "on",
        "out",
        "over",
        "since",
        "through",
        "to",
        "under",
        "until",
        "upon",
        "via",
        "with",
        "within",
        "without",
    ]
)
IRREGULAR = frozenset(
    [
        "begun",
        "bound",
        "broken",
        "brought",
        "built",
        "chosen",
        "come",
        "cut",
        "done",
        "drawn",
        "driven",
        "fallen",
        "felt",
        "found",
        "given",
        "gone",
        "grown",
        "heard",
        "held",
        "hidden",
        "kept",
        "known",
        "laid",
        "left",
        "lent",
        "lost",
        "made",
        "meant",
        "met",
        "paid",
        "proven",
        "said",
        "seen",
        "sent",
        "shown",
        "sold",
        "spent",
        "spoken",
        "split",
        "spread",
        "stolen",
        "stood",
        "struck",
        "taken",
        "taught",
        "thought",
        "thrown",
        "told",
        "understood",
        "won",
        "worn",
        "written",
    ]
)
NOUNS_AND_VERBS = frozenset(
    [
        "beginning",
        "bring",
        "cut",
        "drawing",
        "embed",
        "everything",
        "feed",
        "heading",
        "meaning",
        "need",
        "proceed",
        "ranking",
        "seed",
        "speed",
        "split",
        "spread",
        "string",
    ]
)
ALLOWED = {
    "rag_app/domain/errors.py:Misconfigured": "an error, whose text begins with what is amiss",
    "rag_app/domain/errors.py:Unauthenticated": "an error, whose text begins with what is amiss",
    "rag_app/application.py:scoped": "as Backend.scoped",
    "rag_app/retrieval/store.py:scoped": "what stores of others implement (docs/stores.md)",
    "rag_app/stores/llamaindex.py:scoped": "Backend.scoped",
    "rag_app/stores/postgres.py:scoped": "Backend.scoped",
    "rag_app/stores/qdrant.py:scoped": "Backend.scoped",
    "rag_app/surfaces/lexybrain/thread_routes.py:used": "in an operationId of the OpenAPI document",
    "rag_app/surfaces/validation/routes.py:stored": "in an operationId of the OpenAPI document",
    "rag_app/surfaces/management/routes.py:Settled": "in a schema of the OpenAPI document",
    "rag_app/surfaces/library/verifying.py:Verified": "exported from rag_app",
}
"""Names that are there for a reason."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def definitions(tree: ast.AST) -> Iterator[Definition]:
    """Those of a module and of its classes, not those within functions."""
    for each in ast.iter_child_nodes(tree):
        if isinstance(each, Definition):
            yield each
        if not isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            yield from definitions(each)


def is_nameless(definition: Definition) -> bool:
    """Whether its name says neither what it does nor what it is.

    >>> [is_nameless(each) for each in definitions(ast.parse("def _shown(): ...\\ndef embed(): ...\\nclass Reading: ..."))]
    [True, False, False]
    """
    word = definition.name.strip("_").lower()
    if word in NOUNS_AND_VERBS or re.search("_|[a-z][A-Z]", definition.name.strip("_")):
        return False
    if word in PREPOSITIONS | IRREGULAR or word.endswith("ed"):
        return not _is_data(definition)
    return word.endswith("ing") and not isinstance(definition, ast.ClassDef) and not _is_data(definition)


def _is_data(definition: Definition) -> bool:
    if isinstance(definition, ast.ClassDef):
        return False
    said = [
        ast.unparse(each)
        for each in (*definition.decorator_list, *([definition.returns] if definition.returns else []))
    ]
    return any(re.search(r"property|contextmanager|ContextManager|setter", each) for each in said)


def problems(package: Path) -> list[str]:
    """A line for each name, and for each pair of modules; and for each allowed name that is no longer there."""
    found, seen = [], set[str]()
    for file in sorted(package.rglob("*.py")):
        place = file.relative_to(package.parent).as_posix()
        for each in filter(is_nameless, definitions(ast.parse(file.read_text("utf-8")))):
            name = f"{place}:{each.name}"
            seen.add(name)
            if name not in ALLOWED:
                found.append(f"{place}:{each.lineno}: {each.name} is only a participle or a preposition")
        if file.with_name(f"{file.stem}s.py").exists():
            found.append(f"{place}: there is also {file.stem}s.py")
    return found + [f"{name} is allowed, but not there" for name in sorted(ALLOWED.keys() - seen)]


if __name__ == "__main__":
    lines = problems(Path(__file__).resolve().parents[1] / "rag_app")
    print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit(bool(lines))
