import click


@click.command("doctor")
@click.option("--json", is_flag=True)
def doctor_command(**_):
    """Soon."""
