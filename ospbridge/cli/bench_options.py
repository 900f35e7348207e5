"""Options of several subcommands of ``ospbridge bench``: what is measured, and how much of it."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import click

from ospbridge.bench.exercise import Exercise
from ospbridge.cli.options import NumberRange, with_options

if TYPE_CHECKING:
    from collections.abc import Callable

    from ospbridge.cli.options import Decorator

__all__ = ["counts_option", "exercise_options", "steps_option", "think_option"]


def exercise_options(usual: Exercise) -> Decorator:
    """``--inputs``, ``--outputs``, ``--steps`` and ``--profile``; they arrive as one ``exercise``."""

    def wear(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def with_exercise(
            *args: Any, inputs: int, outputs: int, steps: int, profile: str, **rest: Any
        ) -> Any:
            return function(*args, exercise=Exercise(inputs, outputs, steps, profile), **rest)

        return with_options(
            with_exercise,
            (
                *(
                    click.option(
                        name, type=click.IntRange(1, 4000), default=default, show_default=True, help=text
                    )
                    for name, default, text in (
                        ("--inputs", usual.inputs, "Inputs of each agent."),
                        ("--outputs", usual.outputs, "Outputs of each agent."),
                    )
                ),
                steps_option(usual.steps),
                click.option(
                    "--profile",
                    type=click.Choice(["document", "nerd"]),
                    default=usual.profile,
                    show_default=True,
                    help="Kind of server to measure against.",
                ),
            ),
        )

    return wear


def steps_option(steps: int) -> Decorator:
    """``--steps``: how many of each subject in each run."""
    return click.option(
        "--steps",
        type=click.IntRange(10),
        default=steps,
        show_default=True,
        help="Steps of each subject in each run.",
    )


def think_option(seconds: float) -> Decorator:
    """``--think``: how long a simulator sleeps in each step, for which the floors have the patience."""
    return click.option(
        "--think",
        type=NumberRange(0, 1),
        default=seconds,
        show_default=True,
        metavar="SECONDS",
        help="Let each simulator sleep this long in each step.",
    )


def counts_option(name: str, counts: tuple[int, ...], *, most: int, help_text: str) -> Decorator:
    """An option for several numbers, which arrive as ``counts``, each once and ascending."""
    return click.option(
        name,
        "counts",
        type=click.IntRange(1, most),
        multiple=True,
        default=counts,
        show_default=True,
        metavar="N",
        callback=lambda _ctx, _param, value: tuple(sorted(set(value))),
        help=help_text,
    )
