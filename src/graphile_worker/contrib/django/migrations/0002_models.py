"""The models over the tables of the schema; nothing is created."""

from __future__ import annotations

from django.db import migrations, models

from ..conf import table_name


class Migration(migrations.Migration):
    """Records the models and their permissions."""

    dependencies = [("graphile_worker", "0001_schema")]  # noqa: RUF012
    operations = [  # noqa: RUF012
        migrations.CreateModel(
            name="Job",
            fields=[
                ("id", models.BigIntegerField(primary_key=True, serialize=False)),
                ("task_identifier", models.TextField()),
                ("queue_name", models.TextField(null=True)),
                ("priority", models.SmallIntegerField()),
                ("run_at", models.DateTimeField()),
                ("attempts", models.SmallIntegerField()),
                ("max_attempts", models.SmallIntegerField()),
                ("last_error", models.TextField(null=True)),
                ("created_at", models.DateTimeField()),
                ("updated_at", models.DateTimeField()),
                ("key", models.TextField(null=True)),
                ("locked_at", models.DateTimeField(null=True)),
                ("locked_by", models.TextField(null=True)),
                ("revision", models.IntegerField()),
                ("flags", models.JSONField(null=True)),
            ],
            options={
                "db_table": table_name("jobs"),
                "permissions": (
                    ("manage_jobs", "Can run, retry, give up and delete jobs"),
                    ("view_payload", "Can see payloads of jobs"),
                ),
                "managed": False,
            },
        ),
        migrations.CreateModel(
            name="Worker",
            fields=[
                ("id", models.TextField(primary_key=True, serialize=False)),
                ("host", models.TextField()),
                ("pid", models.IntegerField()),
                ("version", models.TextField()),
                ("concurrency", models.IntegerField()),
                ("started_at", models.DateTimeField()),
                ("last_seen_at", models.DateTimeField()),
            ],
            options={"db_table": table_name("_private_py_workers"), "managed": False},
        ),
    ]
