"""Loaded by schemathesis: who asks. The variables come from tests/contract/test_schemathesis.py."""

import os
from typing import Any

import schemathesis


@schemathesis.auth()
class Credentials:
    """A token, or an API key where the contract takes one."""

    def get(self, case: Any, context: Any) -> str:
        return os.environ["TEST_API_KEY" if case.path.startswith("/api/v1/") else "TEST_TOKEN"]

    def set(self, case: Any, data: str, context: Any) -> None:
        case.headers = {**(case.headers or {}), "Authorization": f"Bearer {data}"}
