"""What the worker runs: `flask graphile-worker --app worker:app`."""

from notes import Note, db
from notes import app as flask_app

from graphile_worker import App, task
from graphile_worker.contrib.flask import AppContext


@task
def count_words(payload: dict[str, int]) -> None:
    note = db.session.get(Note, payload["note_id"])
    note.words = len(note.text.split())
    db.session.commit()


app = App(tasks=[count_words], plugins=[AppContext(flask_app)])
