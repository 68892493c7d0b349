"""Retrieval quality on public collections, by the commands a user would type: `make quality EVAL=folder`.

EVAL holds a folder a collection with corpus.jsonl, queries.jsonl and qrels.trec. Embedding SciFact takes some eight
minutes on two cores, for each store. Exits non-zero where a bound is missed.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

BOUNDS = {"scifact": {"text": 0.675, "dense": 0.64, "hybrid": 0.73}, "clapnq": {"hybrid": 0.985}}
"""nDCG@10, at least."""
APART = 0.005
"""nDCG@10 that the two stores may differ by, at most."""


def rag_app(*arguments: str, env: dict[str, str]) -> str:
    command = [sys.executable, "-m", "rag_app", *arguments]
    return subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout


def measure(folder: Path, store: str) -> dict[str, dict[str, float]]:
    """Metrics by mode, in a deployment of its own."""
    with tempfile.TemporaryDirectory() as home:
        Path(home).chmod(0o755)
        env = {**os.environ, "RAG_HOME": home, "RAG_VECTOR_STORE": store}
        where = ["--index", "org_knowledge", "--org", "quality"]
        rag_app("orgs", "create", "quality", env=env)
        print(store, rag_app("ingest", str(folder / "corpus.jsonl"), *where, env=env), end="", flush=True)
        judged = ["--queries", str(folder / "queries.jsonl"), "--qrels", str(folder / "qrels.trec"), "--json"]
        return {
            mode: json.loads(rag_app("evaluate", *where, *judged, "--mode", mode, env=env))
            for mode in ("text", "dense", "hybrid")
        }


def main(root: Path) -> int:
    missed = []
    print("| collection | mode | nDCG@10 postgres | nDCG@10 qdrant |\n|---|---|---|---|")
    for folder in sorted(path.parent for path in root.glob("*/qrels.trec")):
        found = {store: measure(folder, store) for store in ("postgres", "qdrant")}
        for mode in ("text", "dense", "hybrid"):
            postgres, qdrant = (found[store][mode]["nDCG@10"] for store in ("postgres", "qdrant"))
            print(f"| {folder.name} | {mode} | {postgres:.4f} | {qdrant:.4f} |", flush=True)
            bound = BOUNDS.get(folder.name, {}).get(mode, 0.0)
            if min(postgres, qdrant) < bound:
                missed.append(f"{folder.name} {mode}: below {bound}")
            if abs(postgres - qdrant) > APART:
                missed.append(f"{folder.name} {mode}: the stores are {abs(postgres - qdrant):.4f} apart")
    print("\n".join(missed) or "all bounds held")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
