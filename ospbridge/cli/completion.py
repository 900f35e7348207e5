"""Shell completion: the script that a shell reads, and what it is offered for a scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["SHELLS", "completion", "scenarios"]

SHELLS: Final = ("bash", "zsh", "fish")
PROGRAM: Final = "ospbridge"


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
def completion(shell: str) -> None:
    """Print what makes a shell complete the commands.

    For bash, `source <(ospbridge completion bash)` in ~/.bashrc; for zsh, `source <(ospbridge completion zsh)` in
    ~/.zshrc, behind compinit; for fish, `ospbridge completion fish | source` in ~/.config/fish/config.fish.
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    program = click.get_current_context().find_root().command
    click.echo(kind(program, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE").source())


def scenarios(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001
    """The shipped scenarios whose names begin so, and files."""
    from click.shell_completion import CompletionItem

    from ospbridge.task.shipped import shipped

    # Files first: click's script for bash forgets what it was offered before them.
    names = [CompletionItem(name) for name in shipped() if name.startswith(incomplete)]
    return [CompletionItem(incomplete, type="file"), *names]
