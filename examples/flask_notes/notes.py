"""The application: notes, and a job for each."""

import os

from flask import Flask, request
from flask_sqlalchemy import SQLAlchemy

from graphile_worker.contrib.flask import GraphileWorker, current_jobs

app = Flask(__name__)
app.config["GRAPHILE_WORKER_CONNECTION_STRING"] = os.environ["DATABASE_URL"]
app.config["SQLALCHEMY_DATABASE_URI"] = os.environ["DATABASE_URL"].replace(
    "postgresql://", "postgresql+psycopg://", 1
)
db = SQLAlchemy(app)
jobs = GraphileWorker(app)


class Note(db.Model):
    """A text, and the number of its words once a worker has counted them."""

    id = db.Column(db.Integer, primary_key=True)
    text = db.Column(db.Text, nullable=False)
    words = db.Column(db.Integer)


@app.post("/notes")
def add_note():
    note = Note(text=request.form["text"])
    db.session.add(note)
    db.session.flush()  # now note.id is known
    current_jobs(db.session).add_job("count_words", {"note_id": note.id})
    db.session.commit()  # the note and its job, or neither
    return {"id": note.id}


@app.get("/notes/<int:note_id>")
def show_note(note_id):
    note = db.get_or_404(Note, note_id)
    return {"text": note.text, "words": note.words}
