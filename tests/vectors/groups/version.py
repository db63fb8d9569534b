"""Group 9: the version is served."""

from __future__ import annotations

from tests.vectors.making import VERSION, VERSION_KEY, Ask, Group, call, vector

GROUP = Group(
    "version",
    "A version that is not served is -32022 in either era, and names those that discovery lists.",
    [
        *(
            vector(
                f"the version {version!r}",
                "T18 M30",
                Ask(call(meta={VERSION_KEY: version})),
                400,
                code=-32022,
                data={"supported": [VERSION], "requested": version},
                row="version-not-served",
            )
            for version in ("2099-01-01", "2025-11-25", "2025-06-18", "2024-11-05", "latest", "2026-07-28 beta")
        ),
        vector(
            "a long version is told in part",
            "T16",
            Ask(call(meta={VERSION_KEY: "v" * 300})),
            400,
            code=-32022,
            data={"supported": [VERSION], "requested": "v" * 64},
            row="version-not-served",
        ),
        vector(
            "an unknown method of a version that is not served",
            "T18",
            Ask({**call(meta={VERSION_KEY: "2099-01-01"}), "method": "tools/burn"}),
            400,
            code=-32022,
            row="version-not-served",
        ),
    ],
)
