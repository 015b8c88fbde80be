"""What runs in the background."""

import django

from graphile_worker import task as worker_task

from .models import Subscriber

if django.VERSION >= (6,):
    from django.tasks import task
else:
    from django_tasks import task


@task
def send_welcome(subscriber_id):
    subscriber = Subscriber.objects.get(pk=subscriber_id)
    print(f"welcome, {subscriber.email}", flush=True)  # a real site sends an e-mail
    return f"welcomed {subscriber.email}"


@worker_task
def count_subscribers() -> None:
    print(f"there are {Subscriber.objects.count()} subscribers", flush=True)
