"""Imports the objects that operators name as `module:object`, and finds modules in the folder of the process.

Our processes start with `-P`, so that no file of their folder replaces a module of ours. A folder without an installed
package is common, though: it counts last.
"""

from __future__ import annotations

import sys
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any

from mcpfleet.process.errors import ConfigurationError


def search_folder() -> None:
    """Let modules of the process's folder be found, after all others."""
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.append(folder)
    invalidate_caches()


def import_named(setting: str, target: str) -> Any:
    """Import `module:object`, which a setting names.

    Raises:
        ConfigurationError: it has another form, or cannot be imported; the sentence names the setting.
    """
    module, _, name = target.partition(":")
    if not module or not name:
        raise ConfigurationError(f"{setting}: must be module:object, not {target!r}")
    search_folder()
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except Exception as error:  # an operator's module may raise anything
        raise ConfigurationError(f"{setting}: cannot import {target}: {error}") from error
    return found
