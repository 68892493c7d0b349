"""Which files of a folder an ingest leaves out."""

from pathlib import Path

import pytest

from rag_app.documents.ingest import find_unused_patterns, offered_files

FILES = {"rules.md", "board/minutes.md", "board/2026/minutes.md", "notes/board.md", "notes/board-old/draft.tmp"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        file = tmp_path / "board" / name  # the folder's own name must not count
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("text", "utf-8")
    return tmp_path / "board"


@pytest.mark.parametrize(
    ("pattern", "excluded"),
    [
        ("board", {"board/minutes.md", "board/2026/minutes.md"}),
        ("board/", {"board/minutes.md", "board/2026/minutes.md"}),
        ("board/*", {"board/minutes.md", "board/2026/minutes.md"}),
        ("board/2026", {"board/2026/minutes.md"}),
        ("2026", {"board/2026/minutes.md"}),
        ("board-*", {"notes/board-old/draft.tmp"}),
        ("*.tmp", {"notes/board-old/draft.tmp"}),
        ("minutes.md", {"board/minutes.md", "board/2026/minutes.md"}),
        ("boards", set()),
    ],
)
def test_a_pattern_excludes_files_and_whole_folders(folder: Path, pattern: str, excluded: set[str]) -> None:
    offered = {path.relative_to(folder).as_posix() for _, path in offered_files([folder], [pattern])}
    assert offered == FILES - excluded
    assert find_unused_patterns([folder], [pattern]) == ([] if excluded else [pattern])


def test_a_single_file_is_excluded_by_its_name_alone(folder: Path) -> None:
    file = folder / "board" / "minutes.md"
    assert not [*offered_files([file], ["minutes.*"])]
    assert [*offered_files([file], ["board"])] == [(file, file)]
