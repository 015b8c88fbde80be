"""The model over the history; nothing is created."""

from __future__ import annotations

from django.db import migrations, models

from ..conf import table_name


class Migration(migrations.Migration):
    """Records the model and its permissions."""

    dependencies = [("graphile_worker", "0002_models")]  # noqa: RUF012
    operations = [  # noqa: RUF012
        migrations.CreateModel(
            name="FinishedJob",
            fields=[
                ("job_id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("task_id", models.IntegerField()),
                ("state", models.TextField()),
                ("queue_name", models.TextField(null=True)),
                ("key", models.TextField(db_column="job_key", null=True)),
                ("priority", models.SmallIntegerField()),
                ("attempts", models.SmallIntegerField()),
                ("max_attempts", models.SmallIntegerField()),
                ("created_at", models.DateTimeField()),
                ("run_at", models.DateTimeField()),
                ("started_at", models.DateTimeField(null=True)),
                ("finished_at", models.DateTimeField()),
                ("duration", models.FloatField(null=True)),
                ("pool_id", models.TextField(null=True)),
                ("error", models.TextField(null=True)),
            ],
            options={"db_table": table_name("_private_py_history"), "managed": False},
        ),
    ]
