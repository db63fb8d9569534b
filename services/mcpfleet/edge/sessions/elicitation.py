"""Asks a client of 2025 within its call what a handler asks, and runs the handler again with the answers (D11, M81).

The handler does not wait meanwhile: it has ended with its question, as it does for a client of 2026-07-28, so that a
user may take minutes and holds no worker's slot. What it remembers stays here, since the call does.
"""

from __future__ import annotations

from typing import Any, Final

import anyio
from pydantic_core import to_json

from mcpfleet.edge.calls.end import NoAnswer
from mcpfleet.edge.protocol.continuation import Round, TooManyRounds, read_asked
from mcpfleet.edge.protocol.exchange import Inquiry
from mcpfleet.edge.sessions.questions import Asked, Question, Questions
from mcpfleet.edge.settings import EdgeSettings
from mcpfleet.edge.transport.client import Client, ClientGone, while_there
from mcpfleet.wire import projection, reply

_NO_ANSWER: Final = "The client did not answer in time what it was asked."
_CANNOT: Final = "Clients of this protocol revision cannot be asked this: "


class Asking:
    """Asks clients."""

    def __init__(self, questions: Questions, settings: EdgeSettings) -> None:
        self._questions = questions
        self._settings = settings

    async def ask(self, session: str, inquiry: Inquiry, before: Round, body: bytes) -> Round:
        """Ask all that a handler asks at once; returns what its next run brings along.

        Args:
            session: the client's.
            inquiry: the request, on whose stream the questions go.
            before: what the run that asked brought along.
            body: the worker's `ask` frame.

        Raises:
            NoAnswer: there is none to go on with; the sentence is for the model.
            TooManyRounds: it was asked often enough.
            NotSpliceable: the worker's frame is malformed.
            ClientGone: nobody is left to be asked.
            ClientStalled: the client does not read.
        """
        if before.number >= self._settings.max_rounds:
            raise TooManyRounds
        if inquiry.request.client.is_gone:
            raise ClientGone
        questions, memory = read_asked(body)
        client, revision = inquiry.request.client, inquiry.request.envelope.revision
        with self._questions.asking(session, questions) as asked:
            events = [_event(question, questions[key], revision) for key, question in asked.questions.items()]
            await _send(client, b"".join(events))
            is_settled = await while_there(client, lambda: self._wait(client, asked))
            if not is_settled or asked.refusal is not None:
                await _send(client, b"".join(map(_taken_back, asked.unsettled)))
                raise NoAnswer(f"{asked.refusal or _NO_ANSWER} Nothing more was run.")
            answers = {key: question.result for key, question in asked.questions.items()}
        return Round(before.number + 1, answers, memory)

    async def _wait(self, client: Client, asked: Asked) -> bool:
        """Wait until it is settled, with a sign of life now and then: proxies cut quiet connections; false in vain."""
        with anyio.move_on_after(self._settings.answer_wait):
            while not asked.settled.is_set():
                with anyio.move_on_after(self._settings.keepalive):
                    await asked.settled.wait()
                    break
                await client.send_part(reply.KEEPALIVE)
            return True
        return False


def _event(question: Question, asked: dict[str, Any], revision: str) -> bytes:
    """The request as an event."""
    method = asked["method"]
    request: dict[str, Any] = {"jsonrpc": "2.0", "id": question.id, "method": method}
    if params := asked.get("params"):
        try:
            request["params"] = projection.question(method, params, revision, question.id)
        except projection.NotInRevision as error:
            raise NoAnswer(f"{_CANNOT}{error}.") from None
        except (LookupError, TypeError, AttributeError):
            raise reply.NotSpliceable("a question's form is malformed") from None
    return reply.event(to_json(request))


def _taken_back(question: Question) -> bytes:
    """Say that nobody waits for an answer any more."""
    params = {"requestId": question.id, "reason": "nobody waits for it any more"}
    return reply.event(to_json({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))


async def _send(client: Client, data: bytes) -> None:
    if not client.is_streaming:
        await client.open_stream()
    if data:
        await client.send_part(data)
