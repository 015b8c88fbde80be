"""Settings of the site; start.py sets DATABASE_URL."""

import os
from urllib.parse import parse_qs, urlsplit

import django

_url = urlsplit(os.environ["DATABASE_URL"])
_query = parse_qs(_url.query)

SECRET_KEY = "an example needs no secret"
DEBUG = True
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]
ROOT_URLCONF = "urls"
USE_TZ = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
TEMPLATES = [{"BACKEND": "django.template.backends.django.DjangoTemplates", "APP_DIRS": True}]
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

INSTALLED_APPS = [
    *([] if django.VERSION >= (6,) else ["django_tasks"]),
    "graphile_worker.contrib.django",
    "newsletter",
]
TASKS = {
    "default": {
        "BACKEND": "graphile_worker.contrib.django.backend.GraphileWorkerBackend",
        "OPTIONS": {"MAX_ATTEMPTS": 3},
    }
}
GRAPHILE_WORKER = {"CRONTAB": "0 4 * * * count_subscribers"}
