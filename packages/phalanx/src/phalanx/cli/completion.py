"""Completion in shells is typer's; this mends what its script for zsh leaves out."""

from __future__ import annotations

LOADED = """
if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then
  %(complete_func)s "$@"
fi
"""
"""zsh loads the script at the first Tab, as the body of the function that is to complete. Without this the script only
defines another one for the Tabs to come, and the first one completes nothing."""


def complete_at_first_tab() -> None:
    """Let the script for zsh complete also when it is loaded. Leaves the scripts of another version of typer alone."""
    try:
        from typer import _completion_shared
    except ImportError:
        return
    scripts: dict[str, str] = getattr(_completion_shared, "_completion_scripts", {})
    if "zsh" in scripts and "loadautofunc" not in scripts["zsh"]:
        scripts["zsh"] = scripts["zsh"].rstrip() + "\n" + LOADED
