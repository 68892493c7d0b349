"""What an answer of several surfaces says beside its contract's fields; each is absent where there is nothing to say."""

from typing import Annotated

from msgspec import Meta

Warnings = Annotated[
    list[str], Meta(description="parts of the question that were not searched; absent if all of it was")
]
Understood = Annotated[
    str,
    Meta(
        description="how a question about records was understood; absent if the answer was not computed from record fields",
        examples=["your 4 listings, bestseller first"],
    ),
]
Removed = Annotated[
    int, Meta(description="number of sentences removed because no source supports them; absent if none was removed")
]
Courtesy = Annotated[
    bool, Meta(description="true if the text returns a greeting or thanks: nothing was asked; absent otherwise")
]
