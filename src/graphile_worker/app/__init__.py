"""The application: its tasks, hooks and options in one object, and the state that its lifespan opens.

`runner` and what is above it may import this package. Start in `application`.
"""

from .application import App, as_app, load_app

__all__ = ["App", "as_app", "load_app"]
