"""`python -m tests.openapi` sees what a client would notice, and no text."""

from copy import deepcopy

from tests.openapi import build_document, facts


def test_documents_differ_in_what_is_sent_and_returned_not_in_texts() -> None:
    document = build_document()
    ask = document["paths"]["/owner/ask"]["post"]
    told = deepcopy(document)
    told["paths"]["/owner/ask"]["post"]["summary"] = told["info"]["title"] = "other words"
    assert facts(told) == facts(document)
    ask["responses"]["418"] = {"description": "a teapot"}
    assert facts(document) - facts(told) == {"/.owner.ask/post/responses/418"}
