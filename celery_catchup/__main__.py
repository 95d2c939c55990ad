"""Run the commands that need no app: ``python -m celery_catchup demo``."""

from __future__ import annotations

from celery_catchup.cli import demo

if __name__ == "__main__":
    import click

    group = click.Group("celery_catchup", commands={"demo": demo})
    group(prog_name="python -m celery_catchup")
