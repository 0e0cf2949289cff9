"""Parts of Shepherd that are installed only where somebody wants them: whether they are here, and how to get them."""

from __future__ import annotations

from importlib.util import find_spec

from shepherd.errors import UsageError


def need_toyweb() -> None:
    """Refuse to continue without the toy web, which comes with the source tree but not with the package."""
    if find_spec("toyweb") is None:
        raise UsageError(
            "the toy web is not installed: run this from the source tree, or install it from there: pip install ./toyweb"
        )
