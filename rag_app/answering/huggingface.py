"""Hugging Face Inference, corrected where llama-index-llms-huggingface-api 0.8.0 gets it wrong.

1. A URL as the model (an endpoint of one's own) is also sent as the model's name.
2. A finished stream closes the client that all requests share, so the next request fails.
3. A stream drops its last chunk: the text in it, and the reason for which it ended.

And a temperature of 0, which a request may ask for, is refused by text-generation-inference.
"""

from collections.abc import Sequence
from typing import Any

from huggingface_hub import AsyncInferenceClient
from llama_index.core.bridge.pydantic import Field
from llama_index.core.llms import ChatMessage, ChatResponse, ChatResponseAsyncGen, MessageRole
from llama_index.llms.huggingface_api import HuggingFaceInferenceAPI

from rag_app.domain import JsonObject

LOWEST_TEMPERATURE = 0.01


class HuggingFaceChat(HuggingFaceInferenceAPI):
    """A chat model behind Hugging Face's router, or at the URL that `model_name` is."""

    served_name: str = Field(description="the model's name in the request")

    def _get_model_kwargs(self, **kwargs: Any) -> JsonObject:
        wanted = super()._get_model_kwargs(**kwargs)
        wanted["temperature"] = max(wanted["temperature"], LOWEST_TEMPERATURE)
        return {**wanted, "model": self.served_name}

    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: Any) -> ChatResponseAsyncGen:
        async def replies() -> ChatResponseAsyncGen:
            text = ""
            async with AsyncInferenceClient(**self._get_inference_client_kwargs()) as client:
                async for chunk in await client.chat_completion(
                    self._to_huggingface_messages(messages), stream=True, **self._get_model_kwargs(**kwargs)
                ):
                    delta = (chunk.choices[0].delta.content or "") if chunk.choices else ""
                    text += delta
                    yield ChatResponse(
                        message=ChatMessage(role=MessageRole.ASSISTANT, content=text), delta=delta, raw=chunk
                    )

        return replies()
