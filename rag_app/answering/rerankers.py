"""Which reranker an operator's file names for a capability."""

from llama_index.core.postprocessor.types import BaseNodePostprocessor

from rag_app.answering.capabilities import Capability
from rag_app.answering.models_file import DEFAULT, ModelsFile, Nothing, Reranker, read_key
from rag_app.answering.parts import NO_PARTS, Parts
from rag_app.retrieval.postprocessors import EndpointReranker


class RerankerRegistry:
    """Those of `[rerank]`, each made once, as the parts of capabilities. Raises Misconfigured for one that cannot be made."""

    def __init__(self, file: ModelsFile, named: object) -> None:
        self._built: list[BaseNodePostprocessor] = []
        self._parts = {
            name: self._build_parts(f"{named}: rerank.{name}", entry, file) for name, entry in file.rerank.items()
        }

    def parts(self, capability: Capability) -> Parts:
        """Its own, else those of its group, else the default ones."""
        names = (capability.name, capability.group or DEFAULT, DEFAULT)
        return next((self._parts[name] for name in names if name in self._parts), NO_PARTS)

    def _build_parts(self, where: str, entry: Reranker | Nothing, file: ModelsFile) -> Parts:
        if isinstance(entry, Nothing):
            return NO_PARTS
        made: BaseNodePostprocessor
        if entry.class_ is not None:
            made, _ = entry.build(BaseNodePostprocessor, where, file.folder)  # type: ignore[type-abstract]
        else:
            key = read_key(entry.api_key_env, where)
            secret = key.get_secret_value() if key else None
            made = EndpointReranker(secret, kind=entry.kind, url=entry.url, model=entry.model, seconds=entry.timeout)
        self._built.append(made)
        return Parts(postprocessors=(made,), candidates=entry.candidates, seconds=entry.timeout)

    async def aclose(self) -> None:
        """Close the connections of all."""
        for each in self._built:
            if isinstance(each, EndpointReranker):
                await each.aclose()
