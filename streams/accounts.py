"""A run's accounts, users and permissions as a nats-server's configuration. Text, no files.

The text stands inside `accounts { ... }` of the server's configuration, so that several runs may
share a server. Public keys only: nothing in it is secret.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from streams.permissions import Identity, domains_of, heard_by, rights_of, services_of

Roster = Mapping[str, Identity]  # by public key

# To what was asked: one message, and none to what nobody waits for any more.
ANSWERS = {"max": 1, "expires": "1m"}


def accounts_text(run: str, roster: Roster) -> str:
    """The accounts of one run: its own, and one for each identity that lives outside."""
    everybody = sorted(roster.items(), key=lambda one: one[1].name)
    domains = domains_of(roster.values())
    outside = [(key, identity) for key, identity in everybody if identity.outside]
    inside = [(key, identity) for key, identity in everybody if not identity.outside]
    lines = [
        f"# Run {run}: written by `decodiloco keys`; changes made here are lost.",
        "# Public keys only. Include it in `accounts { }` of each nats-server of the run.",
        f"{_text(run)}: {{",
        "  jetstream: enabled",
        "  exports: [",
        *(f"    {line}" for line in _exports([identity for _, identity in outside], domains)),
        "  ]",
        "  users: [",
        *(f"    {_user(key, identity, domains)}" for key, identity in inside),
        "  ]",
        "}",
    ]
    for key, identity in outside:
        lines += [
            f"{_text(identity.account)}: {{",
            "  imports: [",
            *(f"    {line}" for line in _imports(identity, domains)),
            "  ]",
            f"  users: [{_user(key, identity, domains)}]",
            "}",
        ]
    return "\n".join(lines) + "\n"


def _exports(outside: Sequence[Identity], domains: Collection[str]) -> list[str]:
    """One line a subject, with the accounts that it is let out to."""
    exports: dict[tuple[str, str], dict[str, Any]] = {}
    for identity in outside:
        given: list[tuple[str, str, bool]] = [
            ("service", service.inside, service.answers_many)
            for service in services_of(identity, domains)
        ]
        given += [("stream", subject, False) for subject in heard_by(identity)]
        for kind, subject, answers_many in given:
            export = exports.setdefault((kind, subject), {kind: subject, "accounts": []})
            export["accounts"].append(identity.account)
            if answers_many:
                export["response_type"] = "stream"
    return [_text(export) for export in exports.values()]


def _imports(identity: Identity, domains: Collection[str]) -> list[str]:
    lines = []
    for service in services_of(identity, domains):
        given: dict[str, Any] = {"service": {"account": identity.run, "subject": service.inside}}
        if service.outside != service.inside:
            given["to"] = service.outside
        lines.append(_text(given))
    for subject in heard_by(identity):
        lines.append(_text({"stream": {"account": identity.run, "subject": subject}}))
    return lines


def _user(key: str, identity: Identity, domains: Collection[str]) -> str:
    rights = rights_of(identity, domains)
    permissions: dict[str, Any] = {
        "publish": _list(rights.publish, rights.never),
        "subscribe": _list(rights.subscribe, rights.unheard),
    }
    if rights.answers:
        permissions["allow_responses"] = ANSWERS
    return _text({"nkey": key, "permissions": permissions})


def _list(allow: Sequence[str], deny: Sequence[str]) -> dict[str, list[str]]:
    return {"allow": list(allow), **({"deny": list(deny)} if deny else {})}


def _text(value: object) -> str:
    """JSON is a form of the server's configuration language."""
    return json.dumps(value)
