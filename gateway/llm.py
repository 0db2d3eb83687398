"""A language model behind an OpenAI-compatible endpoint. It plans and judges; it is never waited for too long.

What it reads of memories may hold instructions by whoever wrote them. So nothing it says is more than an order of what
was found, or a further query within the same scope.
"""

import asyncio
from http import HTTPStatus
from typing import Any

import msgspec

from contracts.deadline import Deadline
from contracts.errors import StageDown, StageFailed, StageTimeout, StrataError
from gateway.config import LanguageModelConfig
from gateway.http import JsonClient, Unanswered

STAGE = "llm"


class LanguageModel:
    """The client of the endpoint.

    Args:
        config: Where it is and how long it may take; has a ``base_url``.
        key: Sent as a bearer token; ``None`` sends none.
    """

    def __init__(self, config: LanguageModelConfig, key: str | None) -> None:
        self._config = config
        self._client = JsonClient(
            config.base_url or "",
            key=key,
            connect_timeout=config.connect_timeout_ms / 1000,
            read_timeout=config.timeout_ms / 1000,
            max_connections=16,
            max_bytes=config.max_answer_bytes,
        )

    async def ask(self, task: str, material: object, deadline: Deadline) -> dict[str, Any]:
        """Have a task done.

        Args:
            task: What to do, and the JSON object to answer with.
            material: What to do it on; sent as JSON.
            deadline: When the answer is due; ``timeout_ms`` may be sooner.

        Returns:
            The JSON object that it answered with; nothing in it is checked yet.

        Raises:
            StageTimeout: No answer in time.
            StageFailed: It can't be reached, failed, or answered something else.
        """
        body: dict[str, Any] = {
            "model": self._config.model,
            "messages": [
                {"role": "system", "content": task},
                {"role": "user", "content": msgspec.json.encode(material).decode()},
            ],
            "temperature": 0,
            "max_tokens": self._config.max_tokens,
        }
        if self._config.json_mode:
            body["response_format"] = {"type": "json_object"}
        try:
            async with asyncio.timeout(min(deadline.left(), self._config.timeout_ms / 1000)):
                status, answer = await self._client.post("/chat/completions", body)
        except TimeoutError:
            raise StageTimeout("the language model took too long", stage=STAGE) from None
        except Unanswered as error:
            kind = StageTimeout if error.late else StageFailed
            raise kind(f"the language model gave {error.reason}", stage=STAGE) from None
        if status != HTTPStatus.OK:
            raise StageFailed(f"the language model failed with status {status}", stage=STAGE)
        return _object(answer)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()


def reason(error: StrataError) -> str:
    """An error of a language model as the reason of a degradation."""
    return f"{error.code}: {error.message}"


# What to say where a language model is wanted and none is configured.
ABSENT = f"{StageDown.code}: no language model is configured"


def _object(answer: Any) -> dict[str, Any]:
    match answer:
        case {"choices": [{"message": {"content": str(text)}}, *_]}:
            # Some put it into a block of Markdown.
            start, end = text.find("{"), text.rfind("}")
            try:
                found = msgspec.json.decode(text[start : end + 1])
            except (msgspec.DecodeError, UnicodeEncodeError):
                found = None
            if isinstance(found, dict):
                return found
    raise StageFailed("the language model answered something else than it should", stage=STAGE)
