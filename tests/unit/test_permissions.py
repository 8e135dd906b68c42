"""Who may say and hear what: the exact lists, and the accounts that they become."""

from __future__ import annotations

import json

import pytest

from streams.accounts import accounts_text
from streams.errors import AskedWrongly, BadName
from streams.permissions import (
    ROLES,
    Identity,
    Reader,
    Rights,
    Role,
    Service,
    check_roster,
    domains_of,
    heard_by,
    pulses_for,
    readers_of,
    rights_of,
    services_of,
)


def who(role: Role, id_: str, *regions: str) -> Identity:
    return Identity("r1", role, id_, regions or ("home",))


def test_a_learner_says_its_words_and_reads_by_its_readers() -> None:
    rights = rights_of(who("learner", "a", "far"))
    assert rights.publish == (
        "api.r1.STREAM.INFO.TAPE_r1",
        "api.r1.CONSUMER.INFO.TAPE_r1.learner_a",
        "api.r1.CONSUMER.RESET.TAPE_r1.learner_a",
        "api.r1.CONSUMER.MSG.NEXT.TAPE_r1.learner_a",
        "api.r1.CONSUMER.INFO.TAPE_r1.learner_a_reads",
        "api.r1.CONSUMER.RESET.TAPE_r1.learner_a_reads",
        "api.r1.CONSUMER.MSG.NEXT.TAPE_r1.learner_a_reads",
        "api.r1.STREAM.INFO.IN_r1_far",
        "in.r1.far.a.learner_joined",
        "in.r1.far.a.learner_left",
        "in.r1.far.a.delta_offered",
        "in.r1.far.a.checkpoint_stored",
        "pulse.r1.learner.a",
    )
    assert rights.subscribe == ("_INBOX_learner_a.>", "pulse.r1.*.*")
    assert heard_by(who("learner", "a")) == ("pulse.r1.syncer.*",)
    filters = ("tape.r1.run.>", "tape.r1.learner.a.>")
    assert readers_of(who("learner", "a")) == (
        Reader("learner_a", filters),
        Reader("learner_a_reads", filters),
    )


def test_an_evaluator_reports_and_a_viewer_says_nothing() -> None:
    assert rights_of(who("evaluator", "e", "home", "far")).publish == (
        "api.r1.STREAM.INFO.TAPE_r1",
        "api.r1.STREAM.MSG.GET.TAPE_r1",
        "api.r1.STREAM.INFO.IN_r1_home",
        "api.r1.STREAM.INFO.IN_r1_far",
        "in.r1.home.e.evaluation_reported",
        "in.r1.far.e.evaluation_reported",
        "pulse.r1.evaluator.e",
    )
    assert rights_of(who("evaluator", "e")).subscribe == ("_INBOX_evaluator_e.>",)
    viewer = rights_of(who("viewer", "v"))
    assert viewer.publish == (
        "api.r1.STREAM.INFO.TAPE_r1",
        "api.r1.STREAM.MSG.GET.TAPE_r1",
        "api.r1.STREAM.INFO.IN_r1_home",
        "api.r1.INFO",
    )
    assert viewer.subscribe == ("_INBOX_viewer_v.>", "pulse.r1.*.*")
    assert readers_of(who("viewer", "v")) == ()


def test_a_syncer_writes_the_tape_and_speaks_under_no_other_name() -> None:
    rights = rights_of(who("syncer", "s1", "home", "far"))
    assert rights.publish[:3] == ("tape.r1.>", "pulse.r1.syncer.s1", "merge.r1.*")
    assert not any(right.startswith("in.") for right in rights.publish)
    calls = {right.removeprefix("$JS.API.") for right in rights.publish[3:]}
    streams = ("TAPE_r1", "IN_r1_home", "IN_r1_far")
    made = ("CREATE", "MSG.NEXT", "DELETE")
    assert calls == {
        "STREAM.MSG.GET.TAPE_r1",
        *(f"STREAM.INFO.{stream}" for stream in streams),
        *(f"CONSUMER.{call}.{stream}.*" for call in made for stream in streams),
    }
    assert rights_of(who("operator", "o")).publish == (">",)
    assert not rights.answers


def test_a_merger_beats_answers_what_it_is_asked_and_does_nothing_else() -> None:
    merger = who("merger", "m1", "home", "far")
    assert not merger.outside and merger.account == "r1"
    heard = ("_INBOX_merger_m1.>", "merge.r1.m1", "pulse.r1.syncer.*")
    assert rights_of(merger) == Rights(("pulse.r1.merger.m1",), heard, answers=True)
    assert pulses_for("r1", merger) == "pulse.r1.syncer.*"
    assert pulses_for("r1", who("learner", "a")) == pulses_for("r1", None) == "pulse.r1.*.*"


def test_only_a_merger_may_answer_and_once_for_a_while() -> None:
    for role in ROLES:
        text = accounts_text("r1", {"UX": who(role, "x")})
        (line,) = [line.strip() for line in text.splitlines() if '"nkey": "UX"' in line]
        user = json.loads(line.removeprefix("users: [").removesuffix("]"))
        answers = {"max": 1, "expires": "1m"} if role == "merger" else None
        assert user["permissions"].get("allow_responses") == answers


def test_a_region_with_a_leaf_is_asked_in_its_domain_by_all_but_its_learners() -> None:
    apart = domains_of([who("leaf", "far"), who("learner", "a", "far"), who("syncer", "s1")])
    assert apart == {"far"}
    syncer = rights_of(who("syncer", "s1", "home", "far"), apart).publish
    assert "$JS.far.API.STREAM.INFO.IN_r1_far" in syncer
    assert "$JS.API.STREAM.INFO.IN_r1_home" in syncer
    assert not any(right.startswith("$JS.API") and "far" in right for right in syncer)
    asked = Service("$JS.far.API.STREAM.INFO.IN_r1_far", "api.r1.STREAM.INFO.IN_r1_far")
    for role in ("viewer", "evaluator"):
        assert asked in services_of(who(role, "x", "home", "far"), apart)
    assert services_of(who("learner", "a", "far"), apart) == services_of(who("learner", "a", "far"))


def test_a_regions_server_carries_neither_facts_nor_changes_to_streams() -> None:
    rights = rights_of(who("leaf", "far", "far"))
    assert (rights.publish, rights.subscribe) == ((">",), (">",))
    assert {"tape.r1.>", "in.r1.>", "pulse.r1.syncer.*", "$JS.API.>"} <= set(rights.never)
    assert {"merge.r1.>", "pulse.r1.merger.*"} <= set(rights.never)
    assert rights.unheard == ("merge.r1.>",)
    for call in ("STREAM", "CONSUMER.CREATE", "CONSUMER.DELETE"):
        assert f"$JS.*.API.{call}.>" in rights.never
    text = accounts_text("r1", {"UA": who("leaf", "far", "far")})
    for denied in (rights.never, rights.unheard):
        assert f'"deny": {json.dumps(list(denied))}' in text


@pytest.mark.parametrize("role", [role for role in ROLES if role not in ("operator", "leaf")])
def test_nobody_but_the_operator_makes_changes_or_removes_streams(role: Role) -> None:
    for right in rights_of(who(role, "x", "home", "far")).publish:
        for call in ("CREATE", "UPDATE", "DELETE", "PURGE", "RESTORE", "SNAPSHOT", "MSG.DELETE"):
            assert f"STREAM.{call}" not in right
        assert not right.endswith(".API.>")


def test_no_two_identities_share_a_name_an_account_or_a_subject() -> None:
    many = [who(role, id_) for role in ROLES for id_ in ("a", "a-reads", "learner-a", "b")]
    assert len({identity.name for identity in many}) == len(many)
    outside = [identity for identity in many if identity.outside]
    assert len({identity.account for identity in outside} | {"r1"}) == len(outside) + 1
    readers = [reader.name for identity in many for reader in readers_of(identity)]
    assert len(set(readers)) == len(readers)
    learners = [each for each in outside if each.role == "learner"]
    says = [s.inside for each in learners for s in services_of(each) if s.inside[0] != "$"]
    assert len(set(says)) == len(says)


def test_two_who_would_speak_under_one_id_are_refused() -> None:
    check_roster([who(role, "a") for role in ("learner", "viewer", "syncer", "merger")])
    for role in ("evaluator", "operator"):
        with pytest.raises(AskedWrongly, match="learner a of run r1 would speak under one id"):
            check_roster([who("learner", "a"), who(role, "a")])


@pytest.mark.parametrize("trick", ["a.b", "*", ">", "../b", "", "a_b", "A", 'a"', "a\n"])
def test_an_identity_is_made_of_checked_names_only(trick: str) -> None:
    with pytest.raises(BadName):
        who("learner", trick)
    with pytest.raises(BadName):
        who("learner", "a", trick)
    with pytest.raises(BadName):
        Identity(trick, "learner", "a", ())
    with pytest.raises(AskedWrongly, match="no role"):
        Identity("r1", "king", "a", ())


def test_accounts_let_out_to_each_what_it_may_ask_and_no_more() -> None:
    roster = {
        "UOP": who("operator", "operator"),
        "US1": who("syncer", "s1"),
        "UA": who("learner", "a"),
        "UB": who("learner", "b"),
        "UV": who("viewer", "v"),
    }
    text = accounts_text("r1", roster)
    lines = [line.strip() for line in text.splitlines()]
    exports = [json.loads(line) for line in lines if '"accounts"' in line]
    for key in ("UA", "UB", "UV"):
        identity = roster[key]
        mine = [each for each in exports if identity.account in each["accounts"]]
        services = {each["service"] for each in mine if "service" in each}
        assert services == {service.inside for service in services_of(identity)}
        assert {each["stream"] for each in mine if "stream" in each} == set(heard_by(identity))
    shared = [
        each["service"] for each in exports if len(each["accounts"]) > 1 and "service" in each
    ]
    assert shared == ["$JS.API.STREAM.INFO.TAPE_r1", "$JS.API.STREAM.INFO.IN_r1_home"]
    many = {each["service"] for each in exports if each.get("response_type") == "stream"}
    assert many == {
        s.inside for s in services_of(roster["UA"]) + services_of(roster["UB"]) if s.answers_many
    }
    imports = [json.loads(line) for line in lines if '"account"' in line]
    assert {"service": {"account": "r1", "subject": "pulse.r1.learner.a"}} in imports
    for key, identity in roster.items():
        (line,) = [line for line in lines if f'"nkey": "{key}"' in line]
        assert json.dumps(list(rights_of(identity).publish)) in line
    assert Service("a", "b") == Service("a", "b", False)
