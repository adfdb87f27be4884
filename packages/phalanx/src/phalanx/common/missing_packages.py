"""What to install when an import fails."""

from __future__ import annotations


def explain_missing(error: ModuleNotFoundError, who: str, extra: str, *packages: str) -> ModuleNotFoundError:
    """Return the error that says which extra of `phalanx` brings what `who` needs.

    Return `error` itself if another module is missing: then there is a mistake, in this code or theirs.
    """
    package = (error.name or "").partition(".")[0]
    if package not in packages:
        return error
    text = f"{who} needs {package.replace('_', '-')}, which is not installed: pip install 'phalanx[{extra}]'"
    return ModuleNotFoundError(text, name=error.name)
