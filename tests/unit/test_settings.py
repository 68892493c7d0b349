"""Settings: documented, refused where they are wrong, and a secret that is made once."""

import os
import re
import stat
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import pytest
from platformdirs import user_data_path
from pydantic.fields import FieldInfo

from rag_app.application import _indexes
from rag_app.domain.errors import Misconfigured
from rag_app.retrieval.index import ConfidenceRule
from rag_app.settings import GROUPS, Settings, data_home, fields, variable
from tests.settings_docs import example_env, settings_table
from tests.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
UNITS = (
    *("seconds", "days", "cents", "tokens", "connections", "processes", "port", "length", "cosine", "same", "low"),
    *("MB", "characters", "passages", "pages", "levels", "documents", "sources", "hours", "minutes"),
)


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A folder without .env, and no variable of ours."""
    monkeypatch.chdir(tmp_path)
    for _, info in fields():
        monkeypatch.delenv(str(info.alias), raising=False)


@pytest.mark.parametrize("info", [info for _, info in fields()], ids=lambda info: info.alias)
def test_every_setting_says_what_it_is(info: FieldInfo) -> None:
    assert re.fullmatch(r"(RAG|QDRANT|OPENAI|LOVABLE|HF|LEXYBRAIN)(_[A-Z]+)+", str(info.alias))
    assert info.description and 10 < len(info.description) < 120
    assert "|" not in info.description and "\n" not in info.description  # it stands in a table
    if info.annotation in (int, int | None, float, float | None, Decimal):
        assert any(unit in info.description for unit in UNITS)
        assert len(info.metadata) == 2, "a lowest and a highest value"


def test_names_are_unique_and_groups_are_explained() -> None:
    names = [info.alias for _, info in fields()]
    assert len(names) == len(set(names))
    assert all(group.__doc__ for group in GROUPS)


@pytest.mark.parametrize(
    ("file", "command", "generated"),
    [
        ("docs/settings.md", "python -m tests.settings_docs", settings_table),
        (".env.example", "python -m tests.settings_docs env", example_env),
    ],
)
def test_documents_are_generated(file: str, command: str, generated: object) -> None:
    assert callable(generated)
    found = (ROOT / file).read_text("utf-8") if (ROOT / file).exists() else ""
    assert found == generated(), f"{file} is not what `{command}` prints: run `make docs`"


def test_the_example_holds_every_setting_with_its_default(tmp_path: Path) -> None:
    before = Settings()
    uncommented = re.sub(r"(?m)^# (?=[A-Z_]+=)", "", example_env())
    assert len(re.findall(r"(?m)^[A-Z_]+=", uncommented)) == len(list(fields()))
    (tmp_path / ".env").write_text(uncommented, "utf-8")
    after = Settings()
    for name, group in vars(before).items():
        assert getattr(after, name) == group


def test_the_environment_wins_over_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".env").write_text("RAG_PORT=9001\nRAG_HOST=10.0.0.1\nOPENAI_API_KEY=from-the-file\n", "utf-8")
    monkeypatch.setenv("RAG_PORT", "9002")
    settings = Settings()
    assert (settings.api.port, settings.api.host) == (9002, "10.0.0.1")
    assert settings.providers.openai_api_key is not None
    assert settings.providers.openai_api_key.get_secret_value() == "from-the-file"
    assert "from-the-file" not in repr(settings.providers)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("RAG_VECTORSTORE", "there is no setting RAG_VECTORSTORE; did you mean RAG_VECTOR_STORE?"),
        ("RAG_XYZZY", "there is no setting RAG_XYZZY; docs/settings.md lists those there are"),
        ("LEXYBRAIN_RAG_MODEL", "there is no setting LEXYBRAIN_RAG_MODEL; did you mean LEXYBRAIN_RAG_MODEL_ID?"),
        (
            "LEXYBRAIN_DAILY_COST_CAPS",
            "there is no setting LEXYBRAIN_DAILY_COST_CAPS; did you mean LEXYBRAIN_DAILY_COST_CAP?",
        ),
        (
            "LEXYBRAIN_DAILY_COSTCAP",
            "there is no setting LEXYBRAIN_DAILY_COSTCAP; did you mean LEXYBRAIN_DAILY_COST_CAP?",
        ),
        ("LEXYBRAIN_RGA_ENABLED", "there is no setting LEXYBRAIN_RGA_ENABLED; did you mean LEXYBRAIN_RAG_ENABLED?"),
        ("LEXYBRAIN_RAG_XYZZY", "there is no setting LEXYBRAIN_RAG_XYZZY; docs/settings.md lists those there are"),
    ],
)
@pytest.mark.parametrize("where", ["environment", "file"])
def test_unknown_variables_are_refused_with_a_hint(
    name: str, hint: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "file":
        (tmp_path / ".env").write_text(f"{name}=qdrant\n", "utf-8")
    else:
        monkeypatch.setenv(name, "qdrant")
    with pytest.raises(Misconfigured, match=f"^{re.escape(hint)}$"):
        Settings()


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        (
            "RAG_VECTOR_STORE",
            "weaviate",
            "RAG_VECTOR_STORE='weaviate': Input should be 'postgres', 'qdrant' or 'llamaindex'",
        ),
        ("RAG_PORT", "http", "RAG_PORT='http': Input should be a valid integer"),
        ("RAG_PORT", "70000", "RAG_PORT='70000': Input should be less than or equal to 65535"),
        ("RAG_LLM_TIMEOUT", "0", "RAG_LLM_TIMEOUT='0': Input should be greater than 0"),
        ("RAG_LLM_TEMPERATURE", "nan", "RAG_LLM_TEMPERATURE='nan': Input should be"),
        ("RAG_SESSION_COOKIE", "a b", "RAG_SESSION_COOKIE='a b': String should match pattern"),
        ("RAG_LLM_INPUT_PRICE", "-1", "RAG_LLM_INPUT_PRICE='-1': Input should be greater than or equal to 0"),
        ("RAG_LLM_OUTPUT_PRICE", "NaN", "RAG_LLM_OUTPUT_PRICE='NaN': Input should be a finite number"),
        ("LEXYBRAIN_DAILY_COST_CAP", "-1", "LEXYBRAIN_DAILY_COST_CAP='-1': Input should be greater than or equal to 0"),
        ("LEXYBRAIN_DAILY_COST_CAP", "$100", "LEXYBRAIN_DAILY_COST_CAP='$100': Input should be a valid integer"),
        ("LEXYBRAIN_RAG_ENABLED", "perhaps", "LEXYBRAIN_RAG_ENABLED='perhaps': Input should be a valid boolean"),
        ("LEXYBRAIN_RAG_DETECTION", "llm", "LEXYBRAIN_RAG_DETECTION='llm': Input should be 'heuristic' or 'model'"),
        ("RAG_LOG_LEVEL", "loud", "RAG_LOG_LEVEL='loud': Input should be 'debug', 'info', 'warning' or 'error'"),
    ],
)
def test_bad_values_are_refused_in_one_clear_line(
    name: str, value: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(Misconfigured) as refused:
        Settings()
    assert str(refused.value).startswith(problem) and "\n" not in str(refused.value)


def test_empty_means_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_PORT", "")
    monkeypatch.setenv("RAG_DATABASE_URL", "")
    settings = Settings()
    assert settings.api.port == 8000 and settings.database.url is None


def test_conversations_are_on_with_the_seed_s_defaults() -> None:
    chosen = Settings().lexybrain
    assert chosen.enabled and chosen.model_id == "meta-llama/Llama-3.1-70B-Instruct"
    assert (chosen.daily_cost_cap, chosen.history_tokens, chosen.token_budget) == (10_000, 1500, None)
    assert (chosen.detection, chosen.rewrite) == ("heuristic", False)


@pytest.mark.parametrize(("said", "cap"), [("", 10_000), ("0", 0), ("1", 1)])
def test_a_cap_of_nothing_is_not_the_default(said: str, cap: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEXYBRAIN_DAILY_COST_CAP", said)
    assert Settings().lexybrain.daily_cost_cap == cap


@pytest.mark.parametrize("name", ["LEXYBRAIN_ENABLE", "LEXYBRAIN_MODEL_ID", "LEXYBRAIN_RAGTIME", "FRAG_MODEL"])
@pytest.mark.parametrize("where", ["environment", "file"])
def test_variables_of_others_are_left_alone(
    name: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if where == "file":
        (tmp_path / ".env").write_text(f"{name}=false\n", "utf-8")
    else:
        monkeypatch.setenv(name, "false")
    settings = Settings()
    assert settings.lexybrain.enabled and settings.lexybrain.model_id == "meta-llama/Llama-3.1-70B-Instruct"


def test_a_model_without_a_price_costs_something() -> None:
    chosen = Settings().model
    assert chosen.input_price > 0 and chosen.output_price > 0
    # the seed's example: 1,847 tokens in, 312 out; it reckons with $0.003 to $0.01
    assert Decimal("0.3") < (1847 * chosen.input_price + 312 * chosen.output_price) / 1_000_000 < 1


def test_a_variable_that_a_file_names_is_the_environment_s_or_the_env_file_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("GATEWAY_KEY=of-the-file\nOTHER_KEY=\n", "utf-8")
    monkeypatch.delenv("GATEWAY_KEY", raising=False)
    found = variable("GATEWAY_KEY")
    assert found is not None and found.get_secret_value() == "of-the-file" and "of-the-file" not in repr(found)
    monkeypatch.setenv("GATEWAY_KEY", "of-the-environment")
    found = variable("GATEWAY_KEY")
    assert found is not None and found.get_secret_value() == "of-the-environment"
    assert variable("OTHER_KEY") is None and variable("NO_SUCH_KEY") is None


def test_fixed_thresholds_are_those_of_one_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    declared = _indexes(Settings())
    monkeypatch.setenv("RAG_CONFIDENCE_HIGH_THRESHOLD", "0.9")
    fixed = _indexes(Settings())
    assert fixed["org_knowledge"].confidence == ConfidenceRule(signal="mean5", answer_from=0.6, high=0.9)
    assert {**fixed, "org_knowledge": None} == {**declared, "org_knowledge": None} and len(fixed) > 1
    monkeypatch.setenv("RAG_CONFIDENCE_MEDIUM_THRESHOLD", "0.91")
    with pytest.raises(Misconfigured, match="HIGH_THRESHOLD is below"):
        _indexes(Settings())


@pytest.mark.parametrize("mark", [".rag", "pyproject.toml", ".git"])
def test_data_is_in_the_project_that_the_folder_is_in(mark: str, tmp_path: Path) -> None:
    below = tmp_path / "project" / "notebooks" / "deep"
    below.mkdir(parents=True)
    (tmp_path / "project" / mark).mkdir()
    assert data_home(below) == data_home(tmp_path / "project") == tmp_path / "project" / ".rag"


def test_data_is_the_users_outside_of_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".git").mkdir()  # of somebody's dotfiles
    (tmp_path / "elsewhere").mkdir()
    assert data_home(tmp_path / "elsewhere") == tmp_path / "data" / "rag_app"
    assert not (tmp_path / "data").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder to somebody else")
def test_a_project_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    (tmp_path / ".rag").mkdir()
    (tmp_path / "mine").mkdir()
    os.chown(tmp_path, 65534, 65534)
    assert data_home(tmp_path / "mine") == user_data_path("rag_app")


def test_a_secret_that_is_given_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_HOME", str(tmp_path / ".rag"))
    monkeypatch.setenv("RAG_JWT_SECRET", "given by an operator, with care")
    assert Settings().jwt_secret() == "given by an operator, with care"
    assert not (tmp_path / ".rag").exists()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("RAG_JWT_SECRET", "RAG_JWT_JWKS_URL"),
        ("RAG_JWT_SECRET", "RAG_JWT_KEY_FILE"),
        ("RAG_JWT_JWKS_URL", "RAG_JWT_KEY_FILE"),
    ],
)
def test_tokens_have_one_kind_of_signer(one: str, other: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(one, "x" * 40)
    monkeypatch.setenv(other, "y" * 40)
    with pytest.raises(Misconfigured, match=f"^{one} and {other} are set"):
        Settings()


@pytest.mark.parametrize("name", ["RAG_JWT_JWKS_URL", "RAG_JWT_KEY_FILE"])
def test_no_secret_is_made_where_tokens_are_signed_elsewhere(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAG_HOME", str(tmp_path / ".rag"))
    monkeypatch.setenv(name, "https://id.example/jwks.json")
    with pytest.raises(
        Misconfigured, match="`rag-app token` is not available: tokens are issued by the owner of the keys"
    ):
        Settings().jwt_secret()
    assert not (tmp_path / ".rag").exists()


def test_the_secret_is_made_once_for_all_processes(tmp_path: Path) -> None:
    program = "from rag_app.settings import Settings; print(Settings().jwt_secret())"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "RAG_HOME": str(tmp_path / "a new" / "home")}
    started = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(4)
    ]
    secrets = {process.communicate(timeout=PATIENCE)[0].strip() for process in started}
    assert [process.returncode for process in started] == [0] * 4
    (secret,) = secrets
    assert len(secret.encode()) >= 32
    kept = tmp_path / "a new" / "home" / "jwt-secret"
    assert kept.read_text() == secret
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert [file.name for file in kept.parent.iterdir()] == ["jwt-secret"]


def test_indexes_of_ones_own_stand_beside_those_that_came(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, types in (("weather", '["day"]'), ("book", '["page"]')):
        (tmp_path / "own" / name).mkdir(parents=True)
        declared = f"source_types = {types}\ndefault_source_type = {types[1:-1]}\n"
        (tmp_path / "own" / name / "index.toml").write_text(declared)
    monkeypatch.setenv("RAG_INDEXES", "own")
    settings = Settings()
    specs = _indexes(settings)
    assert {"weather", "marketplace"} < specs.keys() and specs["book"].source_types == ("page",)
    assert settings.indexes.file("weather", "judgments.jsonl") == Path("own/weather/judgments.jsonl")
    assert settings.indexes.file("marketplace", "judgments.jsonl").is_file()
    monkeypatch.setenv("RAG_INDEXES", "nowhere")
    with pytest.raises(Misconfigured, match="RAG_INDEXES"):
        Settings()


def test_a_public_url_is_an_origin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAG_PUBLIC_URL", "https://rag.example/")
    assert Settings().pages.public_url == "https://rag.example"
    monkeypatch.setenv("RAG_PUBLIC_URL", "https://rag.example/app")
    with pytest.raises(Misconfigured, match=r"RAG_PUBLIC_URL='https://rag.example/app': must be scheme.*below a path"):
        Settings()
