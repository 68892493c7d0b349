"""`mode` in a request: how a search looks for chunks."""

from typing import Annotated, Literal

from msgspec import Meta

SearchMode = Annotated[
    Literal["dense", "hybrid"],
    Meta(
        description="one of dense, hybrid: dense orders results by the similarity they show, hybrid by words as well. "
        "Without one, the index's `search_mode`, which is dense unless it says otherwise"
    ),
]
