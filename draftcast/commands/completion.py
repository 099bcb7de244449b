"""`draftcast completion`: the script with which a shell completes names, keys and files."""

import click

from draftcast.manual import Command

SHELLS = ("bash", "zsh", "fish")


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(SHELLS))
def command(shell: str) -> None:
    """The script with which a shell completes commands, names, keys and files.

    It goes into a file that the shell reads, once; the examples show which. It then completes --gpu, --model and
    --method by the shipped names, --set and --vary by the keys of the deployment file, and what takes files by files.
    """
    from draftcast.shells import script

    click.echo(script(shell), nl=False)
