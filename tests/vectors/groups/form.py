"""Group 4: method, media type, `Accept`, coding."""

from __future__ import annotations

from tests.vectors.making import UNREAD, Ask, Group, vector

GROUP = Group(
    "method-media-accept-coding",
    "A fault that the head alone shows is answered by HTTP's status, and an error without an id.",
    [
        *(
            vector(
                f"{method}",
                "T1 M13",
                Ask(method=method, raw=""),
                405,
                **UNREAD,
                headers={"Allow": "POST"},
                row="method",
            )
            for method in ("GET", "PUT", "DELETE", "OPTIONS", "PATCH", "BURN")
        ),
        vector("HEAD", "T1 M13", Ask(method="HEAD", raw=""), 405, headers={"Allow": "POST"}),
        *(
            vector(f"Content-Type: {value}", "T2", Ask(headers={"Content-Type": value}), 200, result={})
            for value in (
                "application/json",
                "Application/JSON",
                "application/json; charset=utf-8",
                "application/json;charset=UTF-8",
                'application/json; charset="utf-8"',
                "application/json ; charset=utf-8",
            )
        ),
        *(
            vector(
                f"Content-Type: {value}",
                "T2 M13 T33",
                Ask(headers={"Content-Type": value}),
                415,
                **UNREAD,
                row="media-or-coding",
                lacks=["Accept-Encoding"],
            )
            for value in (
                "",
                "text/json",
                "application/json-rpc",
                "application/*",
                "*/*",
                "application/json; charset=latin1",
                "application/json, text/plain",
            )
        ),
        vector(
            "no Content-Type",
            "T2 M13",
            Ask(headers={"Content-Type": None}),
            415,
            **UNREAD,
            row="media-or-coding",
        ),
        vector(
            "Content-Type twice",
            "T2 M13",
            Ask(headers={"Content-Type": ["application/json", "application/json"]}),
            415,
            **UNREAD,
            row="media-or-coding",
        ),
        *(
            vector(f"Accept: {value}", "T2 M13", Ask(headers={"Accept": value}), 200, result={})
            for value in (
                "text/event-stream,application/json",
                "application/json;q=0.5, text/event-stream;q=0.9",
                "*/*",
                "application/*, text/*",
                "Application/JSON, Text/Event-Stream",
                "text/html, */*;q=0.1",
                "application/json; q=1.000, text/event-stream",
            )
        ),
        vector(
            "Accept in two lines",
            "T2",
            Ask(headers={"Accept": ["application/json", "text/event-stream"]}),
            200,
            result={},
        ),
        *(
            vector(
                f"Accept: {value}",
                "T2 M13 T33",
                Ask(headers={"Accept": value}),
                406,
                **UNREAD,
                row="accept",
            )
            for value in (
                "",
                "application/json",
                "text/event-stream",
                "text/html",
                "application/json, text/event-stream;q=0",
                "application/json, text/event-stream; q=0.000",
                "text/event-stream;q=0, */*",
            )
        ),
        vector("no Accept", "T34", Ask(headers={"Accept": None}), 200, result={}),
        *(
            vector(
                f"Content-Encoding: {value}",
                "M13 T33",
                Ask(headers={"Content-Encoding": value}),
                415,
                **UNREAD,
                headers={"Accept-Encoding": "identity"},
                row="media-or-coding",
            )
            for value in ("gzip", "br", "identity, gzip", "")
        ),
        vector("Content-Encoding: identity", "M13", Ask(headers={"Content-Encoding": "identity"}), 200, result={}),
    ],
)
