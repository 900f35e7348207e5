"""The kinds of servers, as far as code relies on what is said of them."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields

import pytest

from ospbridge.errors import ConfigurationError
from ospbridge.osp.client.unasked import RESET_COMPLETED
from ospbridge.osp.codes import Code
from ospbridge.osp.profile import (
    DOCUMENT,
    NERD,
    PROFILES,
    Expression,
    InitForm,
    Profile,
    SeedBy,
    profile_named,
)


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_a_profile_is_found_by_its_name(profile: Profile) -> None:
    assert profile_named(profile.name) is profile


def test_auto_leaves_the_profile_to_probing() -> None:
    assert profile_named("auto") is None


def test_an_unknown_profile_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ConfigurationError, match="unknown profile 'orcs'") as caught:
        profile_named("orcs")
    assert caught.value.hint == "use one of auto, document, nerd"
    assert caught.value.exit_code == 78


def test_a_profile_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        NERD.patience = 0.0  # type: ignore[misc]  # that it fails is the point


def test_a_completed_reset_is_answered_with_the_other_code() -> None:
    assert DOCUMENT.reset_completed is Code.RESET_SIMULATION_COMPLETED_ACK
    assert RESET_COMPLETED[DOCUMENT.reset_completed] is Code.RESET_SIMULATION_COMPLETED
    assert NERD.reset_completed is Code.RESET_SIMULATION_COMPLETED
    assert RESET_COMPLETED[NERD.reset_completed] is Code.RESET_SIMULATION_COMPLETED_ACK


@pytest.mark.parametrize("profile", PROFILES.values(), ids=PROFILES)
def test_no_profile_lets_a_client_act_on_less_than_a_quarter_of_a_second_of_silence(profile: Profile) -> None:
    assert profile.patience >= 0.25
    assert profile.init_takes < profile.patience


def test_the_document_profile_says_what_the_document_says() -> None:
    assert DOCUMENT.init_form is InitForm.INTS  # section 4.1
    assert DOCUMENT.values_are_pushed  # section 4.7
    assert DOCUMENT.seed_by is SeedBy.RESET  # section 4.6
    assert DOCUMENT.outputs_normalised  # section 4.3
    assert DOCUMENT.datagram_limit is None
    assert DOCUMENT.foreign_deregister_status == 1  # section 4.3
    assert not DOCUMENT.register_for_value_count  # section 4.5
    assert DOCUMENT.expression is Expression.SEARCH
    assert not DOCUMENT.end_marker


def test_the_nerd_profile_says_what_was_observed() -> None:
    assert NERD.init_form is InitForm.BYTES  # D1
    assert NERD.end_marker  # D3
    assert NERD.lists_want_ack  # D4
    assert NERD.foreign_deregister_status == 2  # D6
    assert NERD.stray_reset_ack  # D7
    assert NERD.seed_by is SeedBy.VALUE  # D10
    assert NERD.observers_may_reset  # D11
    assert not NERD.register_for_value_works  # D12
    assert NERD.register_for_value_count  # D13
    assert not NERD.values_are_pushed  # D14
    assert NERD.datagram_limit == 1024  # D15
    assert NERD.typed_by_interface  # D16
    assert NERD.expression is Expression.WHOLE  # D17
    assert not NERD.outputs_normalised  # D18
    assert NERD.steps_before_reset  # D21
    assert NERD.ascii_only  # D23
    assert not NERD.end_after_events_is_safe  # F19
    assert not NERD.pipelining  # F20, F21
    assert NERD.completions_one_by_one
    assert NERD.eats_awaited_acks  # F1 to F3


def test_the_profiles_differ_in_more_than_their_names() -> None:
    differing = {
        field.name for field in fields(Profile) if getattr(DOCUMENT, field.name) != getattr(NERD, field.name)
    }
    assert {"init_form", "reset_completed", "seed_by", "datagram_limit"} <= differing
