"""Versions of prompts of Ask LexyBrain as administrators send and get them, in JSON."""

from typing import Annotated, Any, get_args

from msgspec import UNSET, Meta, Struct, UnsetType, to_builtins

from rag_app.answering.roles import PromptConfig, PromptVersion
from rag_app.surfaces.lexybrain.figures import VERSION
from rag_app.surfaces.lexybrain.wire import Count, Kind, Moment, Share, SourceScope, as_wire

Weight = Annotated[
    int, Meta(ge=0, le=1_000_000, description="a whole number from 0 to 1000000: its share among the active ones")
]
# as `prompts add` has it: text and line breaks, and something in it that is not white space
_UNPRINTABLE = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029"
_INSTRUCTIONS = rf"^[^{_UNPRINTABLE}]*[^\s{_UNPRINTABLE}\ufeff][^{_UNPRINTABLE}]*$"
_AT_MOST = Meta(ge=1, le=100, description="a whole number from 1 to 100: sources of this type in an answer")


class PromptConstraints(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """As files of prompts write them: docs/prompts.md."""

    temperature: Annotated[float, Meta(ge=0, le=2, description="a number from 0 to 2")] | UnsetType = UNSET
    max_tokens: Annotated[int, Meta(ge=16, le=4096, description="a whole number from 16 to 4096")] | UnsetType = UNSET
    retrieval_scope: (
        Annotated[
            list[SourceScope],
            Meta(min_length=1, description=f"a list, not empty, of: {', '.join(get_args(SourceScope))}"),
        ]
        | UnsetType
    ) = UNSET
    max_keywords: Annotated[int, _AT_MOST] | UnsetType = UNSET
    max_related_keywords: Annotated[int, _AT_MOST] | UnsetType = UNSET
    max_listings: Annotated[int, _AT_MOST] | UnsetType = UNSET
    max_alerts: Annotated[int, _AT_MOST] | UnsetType = UNSET


class NewPrompt(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[
        str,
        Meta(
            pattern=r"^ask_lexybrain_[a-z0-9_]{1,80}(?!\n)$",
            description="ask_lexybrain_ and small letters, digits or _, such as ask_lexybrain_market_brief_v2",
            examples=["ask_lexybrain_market_brief_v2"],
        ),
    ]
    type: Annotated[Kind, Meta(description=f"one of {', '.join(get_args(Kind))}")]
    instructions: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=20_000,
            pattern=_INSTRUCTIONS,
            description="a text of at most 20000 characters, not blank, without control characters",
            examples=["Compare the markets. Begin with what changed."],
        ),
    ]
    constraints: PromptConstraints = PromptConstraints()
    weight: Weight = 1
    active: Annotated[bool, Meta(description="true or false: whether new threads get it at once")] = False

    def config(self) -> PromptConfig:
        return PromptConfig(**{**to_builtins(self), "instructions": self.instructions.strip()})


class PromptChange(Struct, frozen=True, forbid_unknown_fields=True):
    """At least one of them. The text of a version never changes."""

    active: Annotated[bool, Meta(description="true or false")] | UnsetType = UNSET
    weight: Weight | UnsetType = UNSET


class PromptInfo(Struct, frozen=True, rename="camel"):
    name: Annotated[str, Meta(examples=[VERSION])]
    type: str
    instructions: str
    constraints: dict[str, Any]
    active: bool
    weight: Count
    share: Annotated[Share, Meta(description="of new threads that get it")]
    threads: Annotated[Count, Meta(description="that have it now")]
    created_at: Moment
    updated_at: Moment


class PromptsResponse(Struct, frozen=True):
    configs: Annotated[list[PromptInfo], Meta(description="by type and name")]


def prompt_of(given: PromptVersion) -> PromptInfo:
    share = round(given.share, 4)
    return as_wire(
        PromptInfo,
        given.config,
        share=share,
        threads=given.threads,
        created_at=given.created_at,
        updated_at=given.updated_at,
    )
