"""Settings that differ by environment variables, so that one project serves all tests."""

import json
import os
from urllib.parse import parse_qs, urlsplit

import django

_url = urlsplit(os.environ["DATABASE_URL"])
_query = parse_qs(_url.query)
SECRET_KEY = "for tests only"
DEBUG = bool(os.environ.get("DJANGO_DEBUG"))
USE_TZ = True
TIME_ZONE = "Europe/Berlin"
INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    *([] if django.VERSION >= (6,) else ["django_tasks"]),
    "graphile_worker.contrib.django",
    "shop",
]
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
ROOT_URLCONF = "urls"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": _url.path.removeprefix("/"),
        "USER": _url.username,
        "PASSWORD": _url.password or "",
        "HOST": _url.hostname or _query["host"][0],
        "PORT": str(_url.port or _query.get("port", [""])[0]),
        "CONN_MAX_AGE": json.loads(os.environ.get("DJANGO_CONN_MAX_AGE", "0")),
        "OPTIONS": json.loads(os.environ.get("DJANGO_DATABASE_OPTIONS", "{}")),
    }
}
if os.environ.get("DJANGO_SECOND_DATABASE"):
    DATABASES["second"] = {**DATABASES["default"], "TEST": {"NAME": f"{DATABASES['default']['NAME']}_second"}}
_BACKEND = "graphile_worker.contrib.django.backend.GraphileWorkerBackend"
TASKS = {
    "default": {
        "BACKEND": _BACKEND,
        "QUEUES": ["default", "mails", "serial"],
        "OPTIONS": {"SERIAL_QUEUES": ["serial"]},
    },
    "retrying": {"BACKEND": _BACKEND, "QUEUES": [], "OPTIONS": {"MAX_ATTEMPTS": 3}},
    "without_results": {"BACKEND": _BACKEND, "OPTIONS": {"RESULTS": "none"}},
}
GRAPHILE_WORKER = json.loads(os.environ.get("DJANGO_GRAPHILE_WORKER", "{}"))
