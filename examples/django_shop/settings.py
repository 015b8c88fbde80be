"""Settings of the shop. Without DATABASE_URL, the database is the embedded one of start.py."""

import os
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import django

from graphile_worker.database.embedded import EmbeddedPostgres

HERE = Path(__file__).parent
_url = urlsplit(os.environ.get("DATABASE_URL") or EmbeddedPostgres(HERE / ".graphile-worker").url())
_query = parse_qs(_url.query)

SECRET_KEY = "an example needs no secret"
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "urls"
STATIC_URL = "static/"
USE_TZ = True
TIME_ZONE = "Europe/Berlin"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path.removeprefix("/"),
        "USER": _url.username,
        "PASSWORD": _url.password or "",
        "HOST": _url.hostname or _query["host"][0],
        "PORT": str(_url.port or _query.get("port", [""])[0]),
    }
}
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
    *([] if django.VERSION >= (6,) else ["django_tasks"]),
    "graphile_worker.contrib.django",
    "orders",
]

TASKS = {
    "default": {
        "BACKEND": "graphile_worker.contrib.django.backend.GraphileWorkerBackend",
        "QUEUES": ["default", "mails"],
    }
}
GRAPHILE_WORKER = {
    "CRON_ITEMS": "orders.schedule.CRON_ITEMS",
    "OPTIONS": {"concurrency": 4, "grace": 10},
}
