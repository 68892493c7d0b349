"""`python -m tests.names`, a part of `make lint`: functions are verbs or nouns, types are nouns.

No function, method, property, class or constant of rag_app, private or within a function, has a name that is only a participle
or a preposition (`_shown`, `of`, `_LISTED`), and no function's name begins with `of`, `by`, `told` and the like
(`_of_named`, `told_apart`). No two modules of a package and no two of its classes differ by a plural alone. Left out: fields (`cited`, `failed`), and
classes whose name ends in -ing, which are nouns (`Reading`).

Each word that tests/glossary.txt gives for another one is a word of docs/glossary.md.
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
        "embedding",
        "embed",
        "everything",
        "feed",
        "greeting",
        "heading",
        "meaning",
        "need",
        "nothing",
        "opening",
        "padding",
        "proceed",
        "ranking",
        "rating",
        "rounding",
        "seed",
        "speed",
        "split",
        "spread",
        "string",
        "thing",
        "training",
    ]
)
BEGINNINGS = ("of_", "by_", "said_", "seen_", "taken_", "told_")
ALLOWED = {
    "rag_app/domain/errors.py:Misconfigured": "an error, whose text begins with what is amiss",
    "rag_app/domain/errors.py:Unauthenticated": "an error, whose text begins with what is amiss",
    "rag_app/application.py:scoped": "as Backend.scoped",
    "rag_app/database/session.py:scoped": "in each query of a scope: with database.scoped(scope)",
    "rag_app/domain/answer.py:refused": "exported from rag_app: answer.refused",
    "rag_app/http/surface.py:Injected": "read with the type behind it: Injected[Sources]",
    "rag_app/retrieval/embedding.py:asking": "a context variable: asking.set(organizations)",
    "rag_app/retrieval/filters.py:IN": "LlamaIndex' operator",
    "rag_app/stores/postgres_tables.py:GRAPHED": "which organizations are in the graph",
    "rag_app/retrieval/store.py:scoped": "what stores of others implement (docs/stores.md)",
    "rag_app/stores/llamaindex.py:scoped": "Backend.scoped",
    "rag_app/stores/postgres.py:scoped": "Backend.scoped",
    "rag_app/stores/qdrant.py:scoped": "Backend.scoped",
    "rag_app/surfaces/lexybrain/routes.py:used": "in an operationId of the OpenAPI document",
    "rag_app/surfaces/validation/routes.py:stored": "in an operationId of the OpenAPI document",
    "rag_app/surfaces/management/routes.py:Settled": "in a schema of the OpenAPI document",
    "rag_app/surfaces/library/context.py:quoted": "exported from rag_app: block.quoted",
    "rag_app/surfaces/library/verifying.py:Verified": "exported from rag_app",
    "rag_app/surfaces/library/verifying.py:grounded": "exported from rag_app: verified.grounded",
}
"""Names that are there for a reason."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


PLURALS = frozenset(["Prompts", "StageLatencies"])
"""Classes that are called so in the library and in the API."""


def definitions(tree: ast.AST) -> Iterator[Definition]:
    """Those of a module, of its classes and of its functions.

    >>> [each.name for each in definitions(ast.parse("def find():\\n def said(): ..."))]
    ['find', 'said']
    """
    return (each for each in ast.walk(tree) if isinstance(each, Definition))


def constants(module: ast.Module) -> Iterator[tuple[int, str]]:
    """The names that a module assigns, each with its line.

    >>> [*constants(ast.parse("LISTED = _of = 1\\na, b = 2, 3"))]
    [(1, 'LISTED'), (1, '_of'), (2, 'a'), (2, 'b')]
    """
    for statement in module.body:
        targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
        for each in (name for target in targets if target for name in ast.walk(target)):
            if isinstance(each, ast.Name):
                yield statement.lineno, each.id


def is_nameless(definition: Definition) -> bool:
    """Whether its name says neither what it does nor what it is.

    >>> [is_nameless(each) for each in definitions(ast.parse("def _shown(): ...\\ndef embed(): ...\\nclass Reading: ..."))]
    [True, False, False]
    """
    if isinstance(definition, ast.ClassDef):
        return _is_word_alone(definition.name) and not definition.name.endswith("ing")
    is_property = any("property" in ast.unparse(each) for each in definition.decorator_list)
    begins = definition.name.lstrip("_").startswith(BEGINNINGS) and not is_property
    return begins or _is_word_alone(definition.name)


def _is_word_alone(name: str) -> bool:
    """Whether a name is one word, and that a participle or a preposition."""
    word = name.strip("_").lower()
    if word in NOUNS_AND_VERBS or re.search("_|[a-z][A-Z]", name.strip("_")):
        return False
    return word in PREPOSITIONS | IRREGULAR or word.endswith(("ed", "ing"))


def problems(package: Path) -> list[str]:
    """A line for each name, and for each pair of modules; and for each allowed name that is no longer there."""
    found, seen, classes = [], set[str](), dict[str, str]()
    for file in sorted(package.rglob("*.py")):
        place = file.relative_to(package.parent).as_posix()
        module = ast.parse(file.read_text("utf-8"))
        nameless = [(each.lineno, each.name) for each in definitions(module) if is_nameless(each)]
        nameless += [(line, name) for line, name in constants(module) if _is_word_alone(name)]
        seen |= {f"{place}:{name}" for _, name in nameless}
        found += [
            f"{place}:{line}: {name} is, or begins with, a participle or a preposition"
            for line, name in nameless
            if f"{place}:{name}" not in ALLOWED
        ]
        if file.with_name(f"{file.stem}s.py").exists():
            found.append(f"{place}: there is also {file.stem}s.py")
        classes |= {each.name: place for each in module.body if isinstance(each, ast.ClassDef)}
    found += [
        f"{classes[plural]}: {plural} differs from {name} by a plural alone"
        for name in classes
        for plural in (f"{name}s", f"{name.removesuffix('y')}ies")
        if plural in classes and plural not in PLURALS
    ]
    return found + [f"{name} is allowed, but not there" for name in sorted(ALLOWED.keys() - seen)]


def unexplained_words(dictionary: str, glossary: str) -> list[str]:
    """A line for each word of a dictionary of codespell that is to be used and is in no row of the glossary.

    >>> unexplained_words("docid->external id\\nnotes->chunks\\npage->leaf", "| external id | a name |\\n| chunk | a piece |")
    ['tests/glossary.txt: leaf is not in docs/glossary.md']
    """
    explained = {word for row in re.findall(r"(?m)^\| (.+?) \|", glossary) for word in row.split(", ")}
    right = [line.partition("->")[2] for line in dictionary.splitlines()]
    return [
        f"tests/glossary.txt: {word} is not in docs/glossary.md"
        for word in right
        if not {word, word.removesuffix("s")} & explained
    ]


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[1]
    lines = problems(root / "rag_app") + unexplained_words(
        (root / "tests/glossary.txt").read_text("utf-8"), (root / "docs/glossary.md").read_text("utf-8")
    )
    print(*lines, sep="\n", end="\n" if lines else "")
    sys.exit(bool(lines))
