"""A task in a module that no worker imports by itself."""

from .tasks import RAN, task


@task
def hidden(text):
    RAN.append(text)
    return text
