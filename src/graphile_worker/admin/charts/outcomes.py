"""What became of the last runs of something, one bar each."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from .series import Colour

WIDTH = 6
HEIGHT = 20
_BAD = ("failed", "permanently_failed", "retry")
_KINDS: dict[str, tuple[str, Colour, int]] = {
    "completed": ("completed", "c1", HEIGHT),
    "gone": ("ended", "c-idle", HEIGHT // 2),
    "cancelled": ("cancelled", "c-idle", HEIGHT // 2),
}


def outcomes(states: Sequence[str], *, most: int = 20) -> Markup:
    """Bars for the states of runs, which come with the latest first; drawn with the latest at the right."""
    kinds = [_kind(state) for state in reversed(states[:most])]
    bars = Markup("").join(
        Markup('<rect class="fill {}" x="{}" y="{}" width="{}" height="{}"/>').format(
            colour, number * WIDTH, HEIGHT - height, WIDTH - 2, height
        )
        for number, (_, colour, height) in enumerate(kinds)
    )
    words = [word for word, _, _ in kinds]
    label = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    noun = "run" if len(kinds) == 1 else "runs"
    return Markup(
        '<svg class="outcomes" width="{}" height="{}" role="img" aria-label="{}"><title>{}</title>{}</svg>'
    ).format(
        max(len(kinds), 1) * WIDTH, HEIGHT, f"Last {len(kinds)} {noun}: {label}",
        f"Last {len(kinds)} {noun}: {label}", bars,
    )  # fmt: skip


def _kind(state: str) -> tuple[str, Colour, int]:
    if state in _BAD:
        return "failed", "c-fail", HEIGHT
    return _KINDS.get(state, ("not ended", "c3", HEIGHT // 3))
