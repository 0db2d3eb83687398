"""The command line, ``strata``."""


def main() -> None:
    """Run the command line; the console script."""
    from deployments.cli.app import app  # noqa: PLC0415 - importing the package stays cheap

    app()
