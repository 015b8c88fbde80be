"""The dashboard with Django's sessions."""

from unittest import SkipTest

from asgiref.sync import async_to_sync
from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.test import TransactionTestCase, override_settings
from django.utils import timezone

try:
    from httpx import ASGITransport, AsyncClient

    from graphile_worker.admin import admin_app
    from graphile_worker.contrib.django import admin_authorize
except ModuleNotFoundError as error:
    raise SkipTest(str(error)) from None  # the dashboard is an extra

NOWHERE = "postgres://nowhere.invalid/unused"


class Dashboard(TransactionTestCase):
    def setUp(self):
        self.user = User.objects.create_user("ada", password="x", is_staff=True)
        self.client.force_login(self.user)
        self.admin = admin_app(connection_string=NOWHERE, authorize=admin_authorize)

    def ask(self, **cookies):
        @async_to_sync
        async def answer():
            name = settings.SESSION_COOKIE_NAME
            given = cookies or {name: self.client.cookies[name].value}
            transport = ASGITransport(self.admin)
            async with AsyncClient(transport=transport, base_url="http://localhost", cookies=given) as http:
                return await http.get("/api/v1/session")

        return answer()

    def save(self, **values):
        User.objects.filter(pk=self.user.pk).update(**values)

    def test_staff_get_in_by_their_session(self):
        found = self.ask().json()
        self.assertEqual(found["user"], "ada")
        self.assertNotIn("jobs.delete", found["permissions"])
        self.save(is_superuser=True)
        self.assertIn("jobs.delete", self.ask().json()["permissions"])

    def test_others_do_not(self):
        self.assertEqual(self.ask(nothing="x").status_code, 401)
        self.assertEqual(self.ask(**{settings.SESSION_COOKIE_NAME: "made up"}).status_code, 401)
        for values in ({"is_staff": False}, {"is_staff": True, "is_active": False}):
            self.save(**values)
            self.assertEqual(self.ask().status_code, 401, values)

    def test_a_changed_password_ends_the_session(self):
        self.user.set_password("y")
        self.user.save()
        self.assertEqual(self.ask().status_code, 401)
        session = self.client.session
        del session[HASH_SESSION_KEY]
        session.save()
        self.assertEqual(self.ask().status_code, 401)

    def test_an_expired_session_and_one_that_was_signed_out_have_ended(self):
        self.assertEqual(self.ask().status_code, 200)
        Session.objects.update(expire_date=timezone.now())
        self.assertEqual(self.ask().status_code, 401)
        self.client.force_login(self.user)
        kept = self.client.cookies[settings.SESSION_COOKIE_NAME].value
        self.client.logout()
        self.assertEqual(self.ask(**{settings.SESSION_COOKIE_NAME: kept}).status_code, 401)

    def test_a_session_signed_with_an_old_secret_is_left_as_it_is(self):
        old = settings.SECRET_KEY
        with override_settings(SECRET_KEY="a new one", SECRET_KEY_FALLBACKS=[old]):
            before = list(Session.objects.values_list("session_key", flat=True))
            self.assertEqual(self.ask().status_code, 200)
            self.assertEqual(list(Session.objects.values_list("session_key", flat=True)), before)
