"""Group 3: Host, then Origin; and what browsers are told (CORS)."""

from __future__ import annotations

from tests.vectors.making import UNREAD, Ask, Group, Value, call, vector

PAGE = "https://app.example.com"
"""The origin whose pages may call."""


def _preflight(origin: str, **headers: Value) -> Ask:
    asking = {name.replace("_", "-"): value for name, value in headers.items()}
    return Ask(None, {"Origin": origin, "Content-Type": None, "Accept": None, **asking}, method="OPTIONS", raw="")


FOREIGN_HOSTS = {
    "a foreign name": "evil.example.com",
    "our name as a part of another": "localhost.evil.example.com",
    "an address that is not ours": "10.0.0.1:8000",
    "a user before our name": "evil@localhost",
    "an empty name": "",
    "a port that is none": "localhost:http",
}
FOREIGN_ORIGINS = {
    "null": "null",
    "a foreign one": "https://evil.example.com",
    "our name in another scheme": "ftp://localhost",
    "our name without a scheme": "localhost",
    "our name as a part of another": "http://localhost.evil.example.com",
    "a path behind it": "http://localhost/x",
    "an empty one": "",
    "the page's host by http": "http://app.example.com",
    "the page's host at another port": "https://app.example.com:8443",
}

GROUP = Group(
    "host-origin-cors",
    f"Who may call by which name, and from which page. Loopback's names are ours, {PAGE} may call.",
    [
        *(
            vector(f"Host: {host}", "I5", Ask(headers={"Host": host}), 200, result={"isError": False})
            for host in ("localhost", "LOCALHOST:9", "127.0.0.1", "127.0.0.1:1", "[::1]:8000")
        ),
        *(
            vector(
                f"Host: {name}",
                "T9 I5 T33",
                Ask(headers={"Host": host}),
                403,
                **UNREAD,
                row="forbidden",
            )
            for name, host in FOREIGN_HOSTS.items()
        ),
        vector("Host: none at all", "T9", Ask(headers={"Host": None}), 400, lacks=["Content-Type"], http=["1.1"]),
        vector("Host: twice", "T9", Ask(headers={"Host": ["localhost", "localhost"]}), 400, http=["1.1"]),
        *(
            vector(f"Origin: {origin}", "I5 M17", Ask(headers={"Origin": origin}), 200, result={"isError": False})
            for origin in ("http://localhost", "http://localhost:3000", "https://127.0.0.1:1")
        ),
        *(
            vector(
                f"Origin: {name}",
                "I5 M17",
                Ask(headers={"Origin": origin}),
                403,
                **UNREAD,
                row="forbidden",
                lacks=["Access-Control-Allow-Origin"],
            )
            for name, origin in FOREIGN_ORIGINS.items()
        ),
        vector(
            "Origin: twice",
            "M17",
            Ask(headers={"Origin": ["http://localhost", "http://localhost"]}),
            403,
            **UNREAD,
            row="forbidden",
        ),
        vector(
            "Origin: null, by GET",
            "M17",
            Ask(headers={"Origin": "null"}, method="GET", raw=""),
            403,
            **UNREAD,
        ),
        vector(
            "Origin: null, by OPTIONS",
            "M17",
            _preflight("null", Access_Control_Request_Method="POST"),
            403,
            **UNREAD,
        ),
        vector(
            "Origin: null, of a notification",
            "M17",
            Ask(call(identifier=2), {"Origin": "null"}),
            403,
            **UNREAD,
        ),
        vector(
            "a call from a page that may",
            "M17",
            Ask(headers={"Origin": PAGE}),
            200,
            result={"isError": False},
            headers={"Access-Control-Allow-Origin": PAGE, "Vary": "Origin"},
            lacks=["Access-Control-Allow-Credentials"],
        ),
        vector(
            "an error for a page that may can be read by it",
            "M17",
            Ask(call("nothing", {}), {"Origin": PAGE}),
            400,
            code=-32602,
            row="unknown-tool",
            headers={
                "Access-Control-Allow-Origin": PAGE,
                "Access-Control-Expose-Headers": "Mcp-Session-Id, WWW-Authenticate, Retry-After",
            },
        ),
        vector(
            "a call from no page",
            "M17",
            Ask(),
            200,
            result={"isError": False},
            headers={"Vary": "Origin"},
            lacks=["Access-Control-Allow-Origin"],
        ),
        vector(
            "a preflight of a page that may",
            "T1 T9 M17",
            _preflight(
                PAGE,
                Access_Control_Request_Method="POST",
                Access_Control_Request_Headers="content-type, mcp-method, Mcp-Param-Region, x-other",
            ),
            204,
            headers={
                "Access-Control-Allow-Origin": PAGE,
                "Access-Control-Allow-Methods": "POST, GET, DELETE",
                "Access-Control-Allow-Headers": "authorization, content-type, last-event-id, mcp-method, mcp-name, "
                "mcp-protocol-version, mcp-session-id, traceparent, tracestate, baggage, mcp-param-region",
                "Access-Control-Max-Age": "600",
            },
        ),
        vector(
            "a preflight repeats no name that no header can have",
            "T16 M17",
            _preflight(
                PAGE,
                Access_Control_Request_Method="POST",
                Access_Control_Request_Headers="mcp-param-a b, mcp-param-<x>, mcp-param-, mcp-param-ok",
            ),
            204,
            headers={
                "Access-Control-Allow-Headers": "authorization, content-type, last-event-id, mcp-method, mcp-name, "
                "mcp-protocol-version, mcp-session-id, traceparent, tracestate, baggage, mcp-param-ok",
            },
        ),
        vector(
            "OPTIONS that is no preflight",
            "M13",
            _preflight(PAGE),
            405,
            **UNREAD,
            headers={"Allow": "POST"},
            row="method",
        ),
        vector(
            "a preflight of a page that needs none",
            "T1 M13",
            _preflight("http://localhost", Access_Control_Request_Method="POST"),
            405,
            **UNREAD,
            headers={"Allow": "POST"},
            lacks=["Access-Control-Allow-Origin"],
            row="method",
        ),
    ],
)
