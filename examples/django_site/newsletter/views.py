"""The page: a form, and what became of the tasks."""

from django.db import transaction
from django.http import HttpResponse
from django.utils.html import format_html, format_html_join
from django.views.decorators.csrf import csrf_exempt

from .models import Subscriber
from .tasks import send_welcome


@csrf_exempt  # so that curl can sign up; a real site must not do this
def subscribe(request):
    if request.method == "POST":
        with transaction.atomic():
            subscriber = Subscriber.objects.create(email=request.POST["email"])
            subscriber.result_id = send_welcome.enqueue(subscriber.pk).id
            subscriber.save()
    return HttpResponse(page())


def page():
    rows = [(subscriber.email, status(subscriber)) for subscriber in Subscriber.objects.order_by("-pk")[:20]]
    return format_html(
        '<form method="post"><input name="email" type="email"><button>Sign up</button></form><ul>{}</ul>',
        format_html_join("", "<li>{}: {}</li>", rows),
    )


def status(subscriber):
    result = send_welcome.get_result(subscriber.result_id)
    return result.return_value if result.is_finished and not result.errors else result.status.label
