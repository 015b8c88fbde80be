"""Application objects that tasks request by type."""

from __future__ import annotations

from typing import Any

import pytest

from graphile_worker.errors import ConfigError, ExtensionMissingError, JobError
from graphile_worker.tasks import Extensions
from support.cases import looped


class Mailer: ...


class TestMailer(Mailer):
    __test__ = False


class Settings: ...


def test_an_object_is_found_by_its_type() -> None:
    mailer, settings = Mailer(), Settings()
    extensions = Extensions([mailer, settings])
    assert extensions.get(Mailer) is mailer
    assert extensions.get(Settings) is settings
    assert (Mailer in extensions, int in extensions, len(extensions)) == (True, False, 2)
    assert list(extensions) == [Mailer, Settings]


def test_an_object_is_found_by_a_base_class_if_only_one_fits() -> None:
    mailer = TestMailer()
    assert Extensions([mailer]).get(Mailer) is mailer
    with pytest.raises(
        ExtensionMissingError, match=r"several extensions match object; ask for one of: TestM"
    ):
        Extensions([mailer, Settings()]).get(object)


def test_a_mapping_says_under_which_type_an_object_is_found() -> None:
    mailer = TestMailer()
    assert Extensions({Mailer: mailer}).get(Mailer) is mailer


def test_what_was_not_given_is_an_error_that_says_how_to_give_it() -> None:
    with pytest.raises(ExtensionMissingError) as caught:
        Extensions([Settings()]).get(Mailer)
    assert str(caught.value) == (
        "no extension of type Mailer (given: Settings); "
        "yield one from the lifespan of your app (--app), or call run(extensions=[Mailer(...)])"
    )
    assert isinstance(caught.value, JobError)
    assert caught.value.kind is Mailer


def test_a_default_can_be_given() -> None:
    assert Extensions().get(Mailer, None) is None


@looped("wrong", [[Mailer], [Mailer(), Mailer()], "text", {"mailer": Mailer()}])
def test_what_could_not_be_found_again_is_refused_at_start(wrong: Any) -> None:
    with pytest.raises(ConfigError, match="extensions:"):
        Extensions(wrong)
