"""Versions of roles: the files as the contract has them, what is checked, and who gets which."""

import os
import random
import subprocess
import sys
from collections import Counter
from hashlib import sha256
from pathlib import Path
from uuid import UUID

import pytest
from msgspec.structs import replace

from rag_app.answering.capabilities import DESCRIPTIONS
from rag_app.answering.prompts import (
    Constraints,
    PromptConfig,
    as_toml,
    check,
    choose,
    constraints_of,
    conversation_types,
    load_config,
    load_configs,
    released_prompts,
    shares,
)  # fmt: skip
from rag_app.domain.errors import InvalidInput, Misconfigured
from rag_app.domain.resources import resource_folder
from rag_app.retrieval.index import load_indexes

FOLDER = resource_folder("prompts") / "lexybrain"
SOURCE_TYPES = {"keyword", "keyword_history", "trend", "listing", "shop", "alert", "risk_rule", "watchlist", "doc"}
CONTRACT = {
    # name: type, the first 16 digits of its text's SHA-256, constraints
    "ask_lexybrain_system": ("global", "e6abc3666e174d77", {"temperature": 0.7, "max_tokens": 1024}),
    "ask_lexybrain_market_brief_v1": (
        "market_brief", "83911bd35ef97be3", {"max_keywords": 20, "retrieval_scope": ["keywords", "trends"]},
    ),
    "ask_lexybrain_competitor_intel_v1": (
        "competitor_intel", "b4e8c58eb638ea4f", {"max_listings": 10, "retrieval_scope": ["listings", "shops", "keywords"]},
    ),
    "ask_lexybrain_keyword_explanation_v1": (
        "keyword_explanation", "186159ff45dcb229",
        {"max_related_keywords": 15, "retrieval_scope": ["keywords", "keyword_history", "alerts"]},
    ),
    "ask_lexybrain_alert_explanation_v1": (
        "alert_explanation", "36fa034c5d110247", {"max_alerts": 5, "retrieval_scope": ["alerts", "risk_rules", "docs"]},
    ),
    "ask_lexybrain_general_chat_v1": (
        "general_chat", "4d3a6d83904a3378", {"retrieval_scope": ["docs", "user_keywords", "user_watchlists"]},
    ),
}  # fmt: skip


def version(
    name: str = "v1", weight: int = 1, active: bool = True, kind: str = "market_brief", **constraints: object
) -> PromptConfig:
    return PromptConfig(f"ask_lexybrain_{name}", kind, "Look.", constraints, weight, active)


def constrained(key: str, value: object) -> PromptConfig:
    return replace(version(), constraints={key: value})


# --- files


def test_the_released_versions_are_the_contracts_to_the_letter() -> None:
    """A version that was released is never edited: what is better is a new file."""
    found = {config.name: config for config in load_configs(FOLDER)}
    for name, (kind, digest, constraints) in CONTRACT.items():
        config = found[name]
        assert (config.type, dict(config.constraints), config.weight, config.active) == (kind, constraints, 1, True)
        assert sha256(config.instructions.encode()).hexdigest()[:16] == digest, name
    assert {config.type for config in found.values()} == set(conversation_types()) == {"global", *DESCRIPTIONS}


def test_every_source_type_is_one_of_the_index() -> None:
    assert set(load_indexes(resource_folder("indexes"))["marketplace"].source_types) >= SOURCE_TYPES
    for config in load_configs(FOLDER):
        wanted = constraints_of(config)
        assert {*(wanted.retrieval_scope or ()), *wanted.at_most} <= SOURCE_TYPES


TEXT = 'type = "global"\nsystem_instructions = "Be."\n'


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "missing required field `type`"),
        ('type = "global"', "missing required field `system_instructions`"),
        (TEXT + "[constraints", "Expected"),
        (TEXT + "weights = 2", "unknown field `weights`; accepted: type, system_instructions, constraints"),
        (TEXT + 'weight = "2"', "Expected `int`, got `str` - at `$.weight`"),
        (TEXT + "weight = true", "Expected `int`, got `bool` - at `$.weight`"),
        (TEXT + "weight = -1", "Expected `int` >= 0 - at `$.weight`"),
        (TEXT + "is_active = 1", "Expected `bool`, got `int` - at `$.is_active`"),
        (TEXT + "constraints = 3", "Expected `object`, got `int` - at `$.constraints`"),
        (TEXT + "[constraints]\nmax_words = 3", "max_words: unknown constraint; accepted: temperature, max_tokens"),
        (
            TEXT + "[constraints]\nretrieval_scope = ['moon']",
            "retrieval_scope: must be a non-empty list of: keywords",
        ),
        (TEXT.replace("global", "gossip"), "type: accepted: global, market_brief"),
        (TEXT.replace("Be.", " "), "system_instructions: must be a text"),
        (TEXT.replace("Be.", "a" * 20_001), "system_instructions: must be a text"),
        (TEXT.replace("Be.", "\\u0000"), "control characters"),
        (TEXT.replace("Be.", "\\u001b[2J"), "control characters"),
    ],
)
def test_what_is_wrong_in_a_file_is_said_with_its_name(text: str, complaint: str, tmp_path: Path) -> None:
    (tmp_path / "ask_lexybrain_x_v1.toml").write_text(text)
    with pytest.raises(Misconfigured, match=r"ask_lexybrain_x_v1\.toml: ") as raised:
        load_configs(tmp_path)
    assert complaint in str(raised.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="no "):
        load_configs(tmp_path)
    with pytest.raises(Misconfigured, match=r"none\.toml"):
        load_config(tmp_path / "none.toml")
    (tmp_path / "ask_lexybrain_x.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(Misconfigured, match="ask_lexybrain_x"):
        load_config(tmp_path / "ask_lexybrain_x.toml")
    (tmp_path / "Ask Lexy.toml").write_text(TEXT)
    with pytest.raises(Misconfigured, match="name: must be ask_lexybrain_"):
        load_config(tmp_path / "Ask Lexy.toml")


def test_a_file_that_does_not_say_so_is_not_in_use(tmp_path: Path) -> None:
    (tmp_path / "ask_lexybrain_x_v1.toml").write_text(TEXT)
    assert load_configs(tmp_path) == [PromptConfig("ask_lexybrain_x_v1", "global", "Be.", {}, 1, False)]


@pytest.mark.parametrize(
    "instructions",
    [
        'say """no""" and """"',
        '"',
        '"""',
        "back\\slash \\n \\",
        'ends with \\"',
        "tab\t漢 é 🙂\n\n- a\n- b",
        "# [x] = 1",
        "'''",
    ],
)
def test_what_is_written_as_a_file_is_read_as_it_was(instructions: str, tmp_path: Path) -> None:
    config = replace(
        version("x_v1", 7, False, max_alerts=3, temperature=0.25, retrieval_scope=["docs", "alerts"]),
        instructions=instructions,
    )
    (tmp_path / f"{config.name}.toml").write_text(as_toml(config), "utf-8")
    assert load_config(tmp_path / f"{config.name}.toml") == config


def test_every_released_version_is_written_as_it_was_read(tmp_path: Path) -> None:
    for config in released_prompts(resource_folder("prompts")):
        (tmp_path / f"{config.name}.toml").write_text(as_toml(config), "utf-8")
        assert load_config(tmp_path / f"{config.name}.toml") == config


# --- constraints


def test_constraints_speak_of_source_types() -> None:
    demands = {
        "temperature": 1, "max_tokens": 256, "max_keywords": 20, "max_related_keywords": 15, "max_listings": 10,
        "max_alerts": 5, "retrieval_scope": ["user_keywords", "keywords", "trends", "shops", "watchlists", "user_watchlists"],
    }  # fmt: skip
    assert constraints_of(replace(version(), constraints=demands)) == Constraints(
        1.0, 256, ("keyword", "trend", "shop", "watchlist"), {"keyword": 15, "listing": 10, "alert": 5}
    )
    assert constraints_of(version()) == Constraints(None, None, None, {})


@pytest.mark.parametrize(
    ("key", "accepted", "refused"),
    [
        ("temperature", [0, 0.0, 2, 2.0, 0.7], [-0.01, 2.01, True, "0.7", None, float("nan"), float("inf"), [1]]),
        ("max_tokens", [16, 4096], [15, 4097, 100.0, "100", True, None, 10**30]),
        ("max_keywords", [1, 100], [0, 101, -1, 20.0, "20", True, None]),
        ("max_listings", [1, 100], [0, 101]),
        ("max_alerts", [1, 100], [0, 101]),
        ("max_related_keywords", [1, 100], [0, 101]),
        ("retrieval_scope", [["docs"], ("docs",)], [[], "docs", None, ["doc"], ["docs", 1], [["docs"]], {"docs": 1}]),
        ("max_docs", [], [5]),
        ("Temperature", [], [0.5]),
    ],
)
def test_the_edges_of_every_constraint(key: str, accepted: list[object], refused: list[object]) -> None:
    for value in accepted:
        constraints_of(constrained(key, value))
        check(constrained(key, value))
    for value in refused:
        with pytest.raises(InvalidInput, match=r"accepted|must be") as raised:
            constraints_of(constrained(key, value))
        assert raised.value.field == key
        with pytest.raises(InvalidInput):
            check(constrained(key, value))


@pytest.mark.parametrize(
    "name", ["", "ask_lexybrain_", "market_v1", "ask_lexybrain_V1", "ask_lexybrain_v1\n", "ask_lexybrain_" + "x" * 81]
)
def test_names_that_are_refused(name: str) -> None:
    with pytest.raises(InvalidInput, match="name: must be ask_lexybrain_"):
        check(replace(version(), name=name))


# --- who gets which


def threads(number: int) -> list[UUID]:
    chance = random.Random(11)
    return [UUID(int=chance.getrandbits(128), version=4) for _ in range(number)]


@pytest.mark.parametrize("weights", [(1, 1), (9, 1), (1, 2, 7), (0, 3, 1), (1_000_000, 1_000_000)])
def test_ten_thousand_threads_are_shared_out_by_weight(weights: tuple[int, ...]) -> None:
    configs = [version(f"v{n}", weight) for n, weight in enumerate(weights)]
    got = Counter(
        chosen.name for thread in threads(10_000) if (chosen := choose(configs, "market_brief", thread, None))
    )
    assert got.total() == 10_000
    for config in configs:
        share = config.weight / sum(weights)
        assert abs(got[config.name] / 10_000 - share) < 0.02
        assert shares(configs)[config.name] == share
        assert config.weight or not got[config.name]


def test_a_thread_gets_the_same_in_every_process_and_order() -> None:
    program = (
        "import sys; from uuid import UUID\n"
        "from rag_app.answering.prompts import PromptConfig, choose\n"
        "configs = [PromptConfig(f'ask_lexybrain_v{n}', 'market_brief', 'Look.', {}, n + 1) for n in (2, 0, 1)]\n"
        "print(*(choose(configs, 'market_brief', UUID(each), None).name for each in sys.argv[1:]))"
    )
    asked = threads(40)
    configs = [version(f"v{n}", n + 1) for n in range(3)]
    here = [chosen.name for each in asked if (chosen := choose(configs, "market_brief", each, None))]
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, asked)], check=True, capture_output=True, text=True,
        env={**os.environ, "PYTHONHASHSEED": "123"},
    )  # fmt: skip
    assert done.stdout.split() == here and len(set(here)) == 3


def test_one_types_arm_does_not_decide_anothers() -> None:
    configs = [version(f"{kind}_{n}", kind=kind) for kind in ("global", "market_brief") for n in (1, 2)]
    pairs: Counter[tuple[str, ...]] = Counter()
    for thread in threads(4000):
        chosen = [choose(configs, kind, thread, None) for kind in ("global", "market_brief")]
        pairs[tuple(each.name for each in chosen if each)] += 1
    assert len(pairs) == 4 and min(pairs.values()) > 850


def test_a_thread_keeps_its_version_while_that_is_in_use() -> None:
    first, second = version("v1", 1), version("v2", 1_000_000)
    thread = threads(1)[0]
    assert choose([first, second], "market_brief", thread, first.name) is first
    assert choose([replace(first, active=False), second], "market_brief", thread, first.name) is second
    assert choose([replace(first, weight=0), second], "market_brief", thread, first.name) is second
    assert choose([second], "market_brief", thread, "gone") is second
    foreign = replace(first, type="general_chat")
    assert choose([foreign, second], "market_brief", thread, foreign.name) is second, "of another type"


def test_none_is_chosen_where_none_can_be() -> None:
    thread = threads(1)[0]
    for configs in ([], [version("v1", 0), version("v2", 0)], [version(active=False)], [version(kind="general_chat")]):
        assert choose(configs, "market_brief", thread, "ask_lexybrain_v1") is None
        assert set(shares([each for each in configs if each.type == "market_brief"]).values()) <= {0.0}
