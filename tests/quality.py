"""Retrieval quality on public collections, by the commands a user would type: `make quality EVAL=folder`.

EVAL holds a folder a collection with corpus.jsonl, queries.jsonl and qrels.trec. Embedding SciFact takes some eight
minutes on two cores, once for all stores. Exits non-zero where a bound is missed.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rag_app.database.private import private_postgres
from tests.stores.conftest import declare

BOUNDS = {"scifact": {"text": 0.675, "dense": 0.64, "hybrid": 0.73}, "clapnq": {"hybrid": 0.985}}
"""nDCG@10, at least."""
APART = 0.005
"""nDCG@10 that the stores may differ by, at most."""


WHERE = ["--index", "org_knowledge", "--org", "quality"]


def rag_app(*arguments: str, env: dict[str, str]) -> str:
    command = [sys.executable, "-m", "rag_app", *arguments]
    return subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout


def measure(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Metrics by store and mode: embedded once, then copied from store to store.

    A second declared store would find the first one's build, so each begins with a backup of what PostgreSQL holds.
    """
    with tempfile.TemporaryDirectory() as home, private_postgres(Path(home) / "foreign") as foreign:
        Path(home).chmod(0o755)
        env = {**os.environ, "RAG_HOME": f"{home}/rag"}
        rag_app("orgs", "create", "quality", env=env)
        print(rag_app("ingest", str(folder / "corpus.jsonl"), *WHERE, env=env), end="", flush=True)
        rag_app("backup", f"{home}/quality.ragbackup", env=env)
        found = {"postgres": evaluate("postgres", folder, env), "qdrant": moved("qdrant", folder, env)}
        for declared in ("postgres", "qdrant", "chroma"):
            file = declare(declared, Path(home) / declared, foreign.owner_url)
            env |= {"RAG_HOME": f"{home}/{declared}/rag", "RAG_VECTOR_STORE_FILE": str(file)}
            rag_app("restore", f"{home}/quality.ragbackup", env=env)
            found[f"llamaindex, {declared}"] = moved("llamaindex", folder, env)
        return found


def moved(store: str, folder: Path, env: dict[str, str]) -> dict[str, dict[str, float]]:
    rag_app("indexes", "move", "org_knowledge", "--to", store, env=env)
    return evaluate(store, folder, env)


def evaluate(store: str, folder: Path, env: dict[str, str]) -> dict[str, dict[str, float]]:
    judged = ["--queries", str(folder / "queries.jsonl"), "--qrels", str(folder / "qrels.trec"), "--json"]
    env = {**env, "RAG_VECTOR_STORE": store}
    found = {
        mode: json.loads(rag_app("evaluate", *WHERE, *judged, "--mode", mode, env=env))
        for mode in ("text", "dense", "hybrid")
    }
    print(store, {mode: round(each["nDCG@10"], 4) for mode, each in found.items()}, flush=True)
    return found


def main(root: Path) -> int:
    missed = []
    for folder in sorted(path.parent for path in root.glob("*/qrels.trec")):
        found = measure(folder)
        print(f"| collection | mode | {' | '.join(found)} |\n|---|---|{'---|' * len(found)}")
        for mode in ("text", "dense", "hybrid"):
            scores = [each[mode]["nDCG@10"] for each in found.values()]
            print(f"| {folder.name} | {mode} | {' | '.join(f'{each:.4f}' for each in scores)} |", flush=True)
            bound = BOUNDS.get(folder.name, {}).get(mode, 0.0)
            if min(scores) < bound:
                missed.append(f"{folder.name} {mode}: below {bound}")
            if max(scores) - min(scores) > APART:
                missed.append(f"{folder.name} {mode}: the stores are {max(scores) - min(scores):.4f} apart")
    print("\n".join(missed) or "all bounds held")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
