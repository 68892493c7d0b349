"""Asks LexyBrain and dies at one step of the way: `python -m tests.integration.crashing USER ORG MESSAGE STEP...`.

For each step a process is forked that kills itself there, as a power cut would. Prints the steps it died at.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from typing import Any
from uuid import UUID

from rag_app.answering.prompt_configs import PromptRegistry
from rag_app.application import open_application
from rag_app.database.urls import DatabaseUrls
from rag_app.domain.scope import Principal
from rag_app.pipeline import Pipeline
from rag_app.settings import Settings
from rag_app.surfaces.lexybrain import conversations as conversation, quotas, threads
from rag_app.surfaces.lexybrain.types import RagRequest


def die(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


async def die_later(*_: Any, **__: Any) -> Any:
    die()


def after(holder: Any, name: str) -> None:
    """Die once this is done."""
    done: Callable[..., Any] = getattr(holder, name)

    async def then_die(*arguments: Any, **options: Any) -> Any:
        await done(*arguments, **options)
        die()

    setattr(holder, name, then_die)


STEPS: dict[str, Callable[[], None]] = {
    "1 account": lambda: setattr(quotas, "admit", die),
    "2 quota, before it is kept": lambda: after(quotas, "reserve"),
    "3 message, before it is kept": lambda: after(threads, "add_user_message"),
    "3 message, after it is kept": lambda: after(conversation, "keep_message"),
    "4 history": lambda: setattr(conversation.Turn, "_prepare", die_later),
    "4 capability": lambda: setattr(conversation, "detect", die),
    "4 capability, after it is kept": lambda: after(conversation, "settle_on"),
    "5 retrieval": lambda: setattr(Pipeline, "retriever", die),
    "6 prompt": lambda: setattr(PromptRegistry, "active", die),
    "7 generation": lambda: after(Pipeline, "answer"),
    "8 answer, settled but not kept": lambda: after(quotas, "settle"),
    "8 answer, before it is kept": lambda: after(threads, "add_answer"),
    "10 usage, before it is kept": lambda: after(quotas, "record"),
    "11 response": lambda: after(conversation, "keep_answer"),
}


async def ask(user: UUID, org: UUID, message: str) -> None:
    settings = Settings()
    assert settings.database.url and settings.database.owner_url
    urls = DatabaseUrls(
        settings.database.url.get_secret_value(), settings.database.owner_url.get_secret_value(), private=False
    )
    async with open_application(settings, urls) as application:
        turn = await application.conversations.begin(Principal(str(user), user, frozenset({org})), RagRequest(message))
        await turn.answer()


def main(user: str, org: str, message: str, *steps: str) -> None:
    for step in steps:
        child = os.fork()
        if child == 0:
            STEPS[step]()
            asyncio.run(ask(UUID(user), UUID(org), f"{message} {step}"))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            print(step, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
