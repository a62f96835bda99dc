"""`/v1/completions`: a call of the Anthropic Messages API, with evidence from a session's logs in its system text.

The reply is the API's own, plain or streamed. The header `x-nugget-context` says what was added, and with
`context_explain` a plain reply has it under `context`.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from anyio import CapacityLimiter, to_thread
from starlette.responses import Response, StreamingResponse

from nugget.http.models import MAX_QUESTION_CHARS, CompletionRequest, Refusal

if TYPE_CHECKING:
    from nugget.app.agent_session import AgentSession
    from nugget.app.logs import Logs

TIMEOUT_S = 600.0
"""For a whole call: a long answer that streams takes minutes."""


async def complete(
    request: CompletionRequest, session: AgentSession, logs: Logs, *, limiter: CapacityLimiter
) -> Response:
    """Return the API's reply as it comes. Raises Refusal and LLMUnavailable before it begins."""
    llm, settings, mode = session.required_llm(), session.settings, request.context_mode

    def begin() -> tuple[Any, Any, str, dict[str, Any]]:
        text, facts, shown = "", "off" if mode == "off" else "no session", dict[str, Any]()
        if mode != "off" and request.session_id:
            question = _question(request)[:MAX_QUESTION_CHARS]
            text, facts, shown = logs.for_call(
                request.session_id, question, request.options(), request.selector(), mode=mode, llm=llm
            )
        body = llm.forward(
            _call(request, model=settings.llm.answer_model, added=text), purpose="completion", timeout_s=TIMEOUT_S,
            max_usd=settings.http.max_usd, session=request.session_id,
        )  # fmt: skip
        context = {"mode": mode, "injected": bool(text), **(shown if text else {"reason": facts})}
        return next(body), body, f"{'injected' if text else 'none'}; mode={mode}; {facts}", context

    head, body, added, context = await to_thread.run_sync(begin, limiter=limiter)
    headers = {**head.headers, "x-nugget-context": added}
    parts = _parts(body, limiter)
    if request.stream and head.status < 400:
        return StreamingResponse(parts, status_code=head.status, headers=headers)
    whole = b"".join([part async for part in parts])
    if request.context_explain and head.status < 400:
        whole = json.dumps({**json.loads(whole), "context": context}, ensure_ascii=False).encode()
    return Response(whole, status_code=head.status, headers=headers)


async def _parts(body: Any, limiter: CapacityLimiter) -> AsyncIterator[bytes]:
    """Read the parts in threads; the call ends with its last part, or when the client has gone."""
    try:
        while (part := await to_thread.run_sync(next, body, None, limiter=limiter)) is not None:
            yield part
    finally:
        body.close()


def _call(request: CompletionRequest, *, model: str, added: str) -> dict[str, Any]:
    """Return the body of the API's call. System messages go where the API takes them."""
    system = (
        [{"type": "text", "text": request.system}] if isinstance(request.system, str) else [*(request.system or ())]
    )
    given = [message for message in request.messages if message.get("role") == "system"]
    texts = [*(_text_of(message.get("content")) for message in given), *([added] if added else [])]
    messages = [message for message in request.messages if message.get("role") != "system"]
    if request.prompt:
        messages.append({"role": "user", "content": request.prompt})
    if not messages:
        raise Refusal(422, "missing_parameter", "There is no message.", hint="Send `messages`, or a `prompt`.")
    system += [{"type": "text", "text": text} for text in texts]
    call = {**request.call(), "model": request.model or model, "messages": messages}
    call.pop("system", None)
    return {**call, "system": system} if system else call


def _question(request: CompletionRequest) -> str:
    """Return the text of the user's last message."""
    if request.prompt:
        return request.prompt
    from_user = [message for message in request.messages if message.get("role") == "user"]
    return _text_of(from_user[-1].get("content")) if from_user else ""


def _text_of(content: object) -> str:
    """Return the text of a message's content: a text, or the text blocks of a list."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    texts = [block.get("text") for block in blocks if isinstance(block, dict) and block.get("type") == "text"]
    return "\n".join(text for text in texts if isinstance(text, str))
