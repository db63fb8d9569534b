"""An OAuth 2.1 authorization server for tests: discovery, keys, registration, codes with PKCE, client credentials.

The protocol is that of the official SDK's server side; what it grants, and what its tokens say, is the test's.
"""

from __future__ import annotations

import base64
import json
import secrets
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from typing import Any

import anyio
import jwt
import uvicorn
from cryptography.hazmat.primitives.asymmetric import ec
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.middleware.client_auth import AuthenticationError, ClientAuthenticator
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    construct_redirect_uri,
)
from mcp.server.auth.routes import build_metadata, create_auth_routes
from mcp.server.auth.settings import ClientRegistrationOptions, RevocationOptions
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.kit.waiting import until

ROBOT = "robot"
"""The client that is registered from the start, for client credentials and introspection."""
ROBOT_SECRET = "robot secret"
SCOPES = ("books:read", "books:write", "admin")
_METADATA = "/.well-known/oauth-authorization-server"


class Issuer(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """The server's state. The authorizing user is `subject`, and is asked nothing."""

    def __init__(self) -> None:
        with _listening() as found:
            self.port = found.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.kid = "first"
        self.kept: list[dict[str, Any]] = []
        """Public keys that are good beside the one that signs."""
        self.subject = "ann"
        self.tenant: str | None = None
        self.lasts = 300
        self.gate = anyio.Event()
        """The keys are shown while it is set."""
        self.gate.set()
        self.fetched = 0
        """How often the keys were fetched."""
        self.granted: list[str] = []
        """The tokens that were granted, the newest last."""
        robot = OAuthClientInformationFull(
            client_id=ROBOT,
            client_secret=ROBOT_SECRET,
            redirect_uris=None,
            grant_types=["client_credentials"],
            token_endpoint_auth_method="client_secret_post",
        )
        self._server: uvicorn.Server | None = None
        self._clients = {ROBOT: robot}
        self._codes: dict[str, AuthorizationCode] = {}
        self._refreshes: dict[str, RefreshToken] = {}

    # -- tokens -------------------------------------------------------------------------------------------------------

    def claims(self, resource: str, **changes: Any) -> dict[str, Any]:
        """The claims of a good token for a resource; a change to None takes a claim away."""
        now = int(time.time())
        own = {
            "iss": self.url, "aud": resource, "sub": self.subject, "client_id": "some-client",
            "scope": "books:read", "iat": now, "exp": now + self.lasts, "jti": secrets.token_hex(8),
        }  # fmt: skip
        return {name: value for name, value in {**own, **changes}.items() if value is not None}

    def sign(self, claims: dict[str, Any], *, kid: str | None = None) -> str:
        """A token that says this, signed by the key, under its own name or another."""
        return jwt.encode(claims, self.key, algorithm="ES256", headers={"kid": kid or self.kid})

    def token(self, resource: str, **changes: Any) -> str:
        """A good token for a resource, but for what is changed."""
        return self.sign(self.claims(resource, **changes))

    def rotate(self, *, keep: bool = False) -> None:
        """Sign by another key from now on; the old one is known no longer, unless it is kept."""
        self.kept = [*self.kept, self.public()] if keep else []
        self.key, self.kid = ec.generate_private_key(ec.SECP256R1()), secrets.token_hex(4)

    def public(self, kid: str | None = None) -> dict[str, Any]:
        """The public key, under its own name or another."""
        public = jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key(), as_dict=True)
        return {**public, "kid": kid or self.kid, "use": "sig", "alg": "ES256"}

    def keys(self) -> dict[str, Any]:
        """The public keys."""
        return {"keys": [*self.kept, self.public()]}

    def grant(self, client: str, scopes: list[str], resource: str | None, subject: str | None) -> OAuthToken:
        """Grant a token, and one to refresh it with where somebody stands behind it."""
        changes = {"tenant": self.tenant, "client_id": client, "scope": " ".join(scopes)}
        token = self.token(resource or "", **changes, sub=subject or client)
        self.granted.append(token)
        refresh = secrets.token_hex(16) if subject else None
        if refresh:
            self._refreshes[refresh] = RefreshToken(
                token=refresh, client_id=client, scopes=scopes, resource=resource, subject=subject
            )
        return OAuthToken(access_token=token, expires_in=self.lasts, scope=" ".join(scopes), refresh_token=refresh)

    # -- what the SDK's handlers ask for ------------------------------------------------------------------------------

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self._clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id is not None
        # A client registers with the scopes of its first challenge, and may ask for others later.
        self._clients[client_info.client_id] = client_info.model_copy(update={"scope": " ".join(SCOPES)})

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = secrets.token_hex(16)
        self._codes[code] = AuthorizationCode(
            code=code,
            scopes=params.scopes or [],
            expires_at=time.time() + 60,
            client_id=client.client_id or "",
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject=self.subject,
        )
        return construct_redirect_uri(str(params.redirect_uri), code=code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self._codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        code = self._codes.pop(authorization_code.code)
        return self.grant(code.client_id, code.scopes, code.resource, code.subject)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self._refreshes.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        old = self._refreshes.pop(refresh_token.token)
        return self.grant(old.client_id, scopes, old.resource, old.subject)

    async def load_access_token(self, token: str) -> AccessToken | None:
        raise NotImplementedError("nobody asks us what our tokens are worth, but by introspection")

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        raise NotImplementedError("tokens of tests are not revoked here")

    # -- routes -------------------------------------------------------------------------------------------------------

    def application(self) -> Starlette:
        """The server's HTTP face: the SDK's, and what it leaves out."""
        url = AnyHttpUrl(self.url)
        registration = ClientRegistrationOptions(enabled=True, valid_scopes=list(SCOPES), default_scopes=list(SCOPES))
        metadata = build_metadata(url, None, registration, RevocationOptions())
        described = json.loads(metadata.model_dump_json(exclude_none=True)) | {
            "issuer": self.url,
            "jwks_uri": f"{self.url}/keys",
            "introspection_endpoint": f"{self.url}/introspect",
            "grant_types_supported": ["authorization_code", "refresh_token", "client_credentials"],
        }
        authenticator = ClientAuthenticator(self)
        handler = TokenHandler(self, authenticator)

        async def grant_token(request: Request) -> Response:
            form = await request.form()
            if form.get("grant_type") != "client_credentials":
                answer: Response = await handler.handle(request)
                return answer
            try:
                client = await authenticator.authenticate_request(request)
            except AuthenticationError:
                return JSONResponse({"error": "invalid_client"}, 401)
            scopes = str(form.get("scope", "")).split()
            resource = str(form.get("resource", "")) or None
            granted = self.grant(client.client_id or "", scopes, resource, None)
            return JSONResponse(granted.model_dump(exclude_none=True))

        async def introspect(request: Request) -> Response:
            form = await request.form()
            if request.headers.get("authorization") != _basic(ROBOT, ROBOT_SECRET):
                return JSONResponse({"error": "invalid_client"}, 401)
            try:
                claims = jwt.decode(
                    str(form["token"]), self.key.public_key(), algorithms=["ES256"], options={"verify_aud": False}
                )
            except jwt.PyJWTError:
                return JSONResponse({"active": False})
            return JSONResponse({"active": True, **claims})

        async def show_keys(request: Request) -> Response:
            self.fetched += 1
            await self.gate.wait()
            return JSONResponse(self.keys())

        async def describe(request: Request) -> Response:
            return JSONResponse(described)

        own = [
            Route(_METADATA, describe),
            Route("/keys", show_keys),
            Route("/token", grant_token, methods=["POST"]),
            Route("/introspect", introspect, methods=["POST"]),
        ]
        return Starlette(routes=[*own, *create_auth_routes(self, url, client_registration_options=registration)])

    async def stop(self) -> None:
        """Answer no more, before the block of `serving` ends."""
        assert self._server is not None
        self._server.should_exit = self._server.force_exit = True
        await until(self._is_closed)

    def _is_closed(self) -> bool:
        with socket.socket() as attempt:
            return attempt.connect_ex(("127.0.0.1", self.port)) != 0

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Answer for the length of a block, always at the same address."""
        config = uvicorn.Config(
            self.application(), log_config=None, access_log=False, lifespan="off", ws="none", http="h11"
        )
        server = self._server = uvicorn.Server(config)
        server.capture_signals = nullcontext  # type: ignore[method-assign, assignment]  # they are the test's
        with _listening(self.port) as listening:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.serve, [listening])
                with anyio.fail_after(10):
                    while not server.started:  # noqa: ASYNC110  # it has no event for it
                        await anyio.sleep(0.01)
                yield
                server.should_exit = server.force_exit = True


def _basic(client: str, secret: str) -> str:
    return "Basic " + base64.b64encode(f"{client}:{secret}".encode()).decode()


def _listening(port: int = 0) -> socket.socket:
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("127.0.0.1", port))
    return listening


@asynccontextmanager
async def issuer() -> AsyncIterator[Issuer]:
    """A server that answers, for the length of a block."""
    made = Issuer()
    async with made.serving():
        yield made
