"""`mode` in a request: how a search looks for chunks."""

from typing import Annotated, Literal

from msgspec import Meta

SearchMode = Annotated[Literal["dense", "hybrid"], Meta(description="one of dense, hybrid")]
"""Dense orders results by the similarity that they show; hybrid counts words as well. A request without one is searched by
the index's `search_mode`."""
