"""Surfaces as data: each with paths of its own, each error with a kind."""

import inspect
import re
from itertools import combinations
from pathlib import Path

import msgspec
import pytest

from rag_app.console.orgs import create_key
from rag_app.domain import errors
from rag_app.http.problems import INTERNAL, KINDS, Problem, error_body, kind_of
from rag_app.http.surface import Credential, surface_of, with_limits
from rag_app.surfaces.registry import SURFACES

NOT_FOR_CALLERS = {errors.RagError, errors.Misconfigured, errors.UnreadableDocument}
"""Requests to these surfaces do not raise them; if one does, it is a fault of the server."""


def test_no_surface_hides_one_behind_it() -> None:
    for one, other in combinations(SURFACES, 2):
        assert one.name != other.name
        assert not any(path.startswith(one.paths) for path in other.paths)


@pytest.mark.parametrize("surface", SURFACES, ids=lambda surface: surface.name)
def test_every_path_of_a_surface_lies_below_its_prefixes(surface: object) -> None:
    [found] = [each for each in SURFACES if each is surface]
    for handler in found.handlers:
        for path in handler.paths:
            assert surface_of(path, SURFACES) is found


@pytest.mark.parametrize("path", ["/", "/docs", "/health/live", "/api/ragged", "/functions/v1/other"])
def test_other_paths_have_no_surface(path: str) -> None:
    assert surface_of(path, SURFACES) is None


@pytest.mark.parametrize(
    "error",
    [value for value in vars(errors).values() if inspect.isclass(value) and issubclass(value, errors.RagError)],
    ids=lambda error: error.__name__,
)
def test_every_error_has_a_kind(error: type[errors.RagError]) -> None:
    kind = kind_of(error.__new__(error))
    assert (kind is INTERNAL) == (error in NOT_FOR_CALLERS)


def test_what_callers_did_not_cause_never_speaks_for_itself() -> None:
    assert all(kind.message for kind in (*KINDS.values(), INTERNAL) if kind.status >= 500)


def test_details_are_left_out_where_there_are_none() -> None:
    body = msgspec.to_builtins(error_body(Problem(404, "not_found", "no", "id")))
    assert body == {"status": "error", "error": {"code": "not_found", "message": "no"}, "request_id": "id"}


ROOT = Path(__file__).parents[3]
SAID_OF_KEYS = re.compile(r"API keys are accepted by ([^.]+)\.")


@pytest.mark.parametrize("place", ["README.md", "docs/authentication.md", "docs/limits.md", "keys create --help"])
def test_where_keys_are_said_to_be_accepted_is_where_they_are(place: str) -> None:
    text = create_key.__doc__ if place.startswith("keys") else (ROOT / place).read_text("utf-8")
    [said] = SAID_OF_KEYS.findall(text or "")
    named = [surface_of(f"{path}/", SURFACES) for path in re.findall("`([^`]+)`", said)]
    accepting = {each.name for each in SURFACES if Credential.API_KEY in each.credentials}
    # whose administrators are people: a key is known there, and answered with 403
    assert sorted(each.name for each in named if each) == sorted(accepting - {"lexybrain_admin"})


def test_limits_of_a_deployment_are_those_of_its_settings() -> None:
    limited = {
        each.name: each for each in with_limits(SURFACES, {"owner_qa": 600, "lexybrain_threads": 0}, {"owner_qa": 4})
    }
    assert (limited["owner_qa"].limit, limited["owner_qa"].concurrent) == (600, 4)
    assert (limited["lexybrain"].limit, limited["lexybrain"].windows) == (60, {"lexybrain_threads": None})
    assert (limited["retrieval_validation"].limit, limited["retrieval_validation"].concurrent) == (100, 10)
    assert limited["owner_qa"].handlers, "they are the same surfaces"


@pytest.mark.parametrize(("requests", "concurrent"), [({"owner": 1}, {}), ({}, {"lexybrain_threads": 1})])
def test_a_limit_of_no_surface_is_refused(requests: dict[str, int], concurrent: dict[str, int]) -> None:
    with pytest.raises(
        errors.Misconfigured, match=r"RAG_\w+: there is no 'owner'|there is no 'lexybrain_threads'; accepted: "
    ):
        with_limits(SURFACES, requests, concurrent)
