"""The alerts that are shipped fire when they must and are silent when all is well (promtool)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

ALERTS = Path(__file__).parents[2] / "deploy" / "grafana" / "alerts.yml"
PROMTOOL = shutil.which("promtool")

pytestmark = pytest.mark.skipif(
    PROMTOOL is None, reason="no promtool on the path (Debian's package prometheus has it)"
)

WELL = {
    'decodiloco_closed{run="r"}': "0x60",
    'decodiloco_syncer_is_leader{run="r",syncer="s1"}': "1x60",
    'decodiloco_syncer_is_leader{run="r",syncer="s2"}': "0x60",
    'decodiloco_rounds_below_quorum{run="r"}': "1x60",
    'decodiloco_oldest_round_timestamp_seconds{run="r"}': "0+60x60",
    'decodiloco_tape_last_fact_timestamp_seconds{run="r"}': "0+60x60",
    'decodiloco_last_merge_timestamp_seconds{run="r"}': "0+60x60",
    'decodiloco_digests_differ{run="r",learner="a"}': "0x60",
    'decodiloco_stream_bytes{run="r",stream="TAPE_r"}': "800x60",
    'decodiloco_stream_bytes_max{run="r",stream="TAPE_r"}': "1000x60",
    'decodiloco_offers_total{run="r",learner="a"}': "0+100x60",
    'decodiloco_offers_refused_total{run="r",learner="a",reason="too old"}': "0+1x60",
    'decodiloco_offers_left_out_total{run="r",reason="not finite"}': "0+1x60",
    'decodiloco_learners{run="r",state="live"}': "4x60",
    'decodiloco_learners{run="r",state="quarantined"}': "0x60",
    'decodiloco_messages_refused_total{run="r",reason="unreadable"}': "3x60",
    'decodiloco_participation_ratio{run="r"}': "0.75x60",
    'decodiloco_fragment_version{run="r",fragment="0"}': "9x60",
    'decodiloco_fragment_version{run="r",fragment="1"}': "8x60",
    'decodiloco_tape_lag_facts{run="r",component="exporter"}': "10x60",
    'decodiloco_mergers{run="r"}': "2x60",
    'decodiloco_inbox_pending_messages{run="r",region="home"}': "10x60",
    'decodiloco_stream_replicas_behind{run="r",stream="TAPE_r"}': "0x60",
    'decodiloco_loss{run="r",learner="a"}': "3.5x60",
    'decodiloco_evaluation_loss{run="r"}': "3.5x60",
    'decodiloco_evaluation_loss_best{run="r"}': "3.4x60",
    'decodiloco_connected{run="r"}': "1x60",
    'up{job="decodiloco",instance="exporter:9464"}': "1x60",
}
"""Series by the minute: an hour of a run in which all is well."""

ILL = {
    "SyncerGone": {'decodiloco_syncer_is_leader{run="r",syncer="s1"}': "1x20 0x40"},
    "TwoLeaders": {'decodiloco_syncer_is_leader{run="r",syncer="s2"}': "0x20 1x40"},
    "QuorumNotMet": {'decodiloco_oldest_round_timestamp_seconds{run="r"}': "0+60x20 1200x40"},
    "TapeStalled": {'decodiloco_tape_last_fact_timestamp_seconds{run="r"}': "0+60x20 1200x40"},
    "NoMerge": {'decodiloco_last_merge_timestamp_seconds{run="r"}': "0+60x20 1200x40"},
    "DigestsDiffer": {'decodiloco_digests_differ{run="r",learner="a"}': "0x20 1x40"},
    "StreamNearlyFull": {'decodiloco_stream_bytes{run="r",stream="TAPE_r"}': "800x20 900x40"},
    "OffersRefused": {
        'decodiloco_offers_refused_total{run="r",learner="a",reason="too old"}': "0+1x20 20+10x40"
    },
    "OffersLeftOut": {
        'decodiloco_offers_left_out_total{run="r",reason="not finite"}': "0+1x20 20+10x40"
    },
    "LearnerQuarantined": {'decodiloco_learners{run="r",state="quarantined"}': "0x20 1x40"},
    "MessagesRefused": {
        'decodiloco_messages_refused_total{run="r",reason="unreadable"}': "3x20 3+1x40"
    },
    "LowParticipation": {'decodiloco_participation_ratio{run="r"}': "0.75x5 0.25x55"},
    "FragmentBehind": {'decodiloco_fragment_version{run="r",fragment="0"}': "9x20 13x40"},
    "FollowerBehind": {'decodiloco_tape_lag_facts{run="r",component="exporter"}': "10x20 5000x40"},
    "MergerGone": {'decodiloco_mergers{run="r"}': "2x20 1x40"},
    "InboxBehind": {'decodiloco_inbox_pending_messages{run="r",region="home"}': "10x20 5000x40"},
    "ReplicaBehind": {'decodiloco_stream_replicas_behind{run="r",stream="TAPE_r"}': "0x20 1x40"},
    "LossNotANumber": {'decodiloco_loss{run="r",learner="a"}': "3.5x20" + " NaN" * 40},
    "EvaluationWorse": {'decodiloco_evaluation_loss{run="r"}': "3.5x5 4x55"},
    "ExporterBlind": {'decodiloco_connected{run="r"}': "1x20 0x40"},
    "ExporterGone": {'up{job="decodiloco",instance="exporter:9464"}': "1x20 0x40"},
}
"""What is otherwise while each alert must fire, from some minute on to the end of the hour."""


def fired(folder: Path, changed: dict[str, str], minute: int) -> set[str]:
    """The alerts that fire at this minute, by what promtool says of tests that expect none."""
    series = [{"series": name, "values": values} for name, values in {**WELL, **changed}.items()]
    names = [
        rule["alert"]
        for rule in yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
    ]
    expected = [{"eval_time": f"{minute}m", "alertname": name, "exp_alerts": []} for name in names]
    file = folder / "test.yml"
    file.write_text(
        yaml.safe_dump(
            {
                "rule_files": [str(ALERTS)],
                "evaluation_interval": "15s",
                "tests": [{"interval": "1m", "input_series": series, "alert_rule_test": expected}],
            }
        ),
        encoding="utf-8",
    )
    assert PROMTOOL is not None
    done = subprocess.run(
        [PROMTOOL, "test", "rules", str(file)], capture_output=True, text=True, timeout=60
    )
    said = done.stdout + done.stderr
    found = {name for name in names if f"alertname: {name}," in said}
    assert bool(found) == (done.returncode != 0), said
    return found


def test_nothing_fires_while_all_is_well(tmp_path: Path) -> None:
    assert fired(tmp_path, {}, 50) == set()


@pytest.mark.parametrize("name", ILL)
def test_an_alert_fires_by_itself_for_what_it_is_there_for(name: str, tmp_path: Path) -> None:
    assert fired(tmp_path, ILL[name], 50) == {name}


def test_a_learner_that_is_quarantined_again_and_again_is_told_while_it_is_there(
    tmp_path: Path,
) -> None:
    lost = 'decodiloco_learners_lost_total{run="r",learner="d",reason="quarantined"}'
    assert fired(tmp_path, {lost: "1x40 2x20"}, 50) == {"LearnerQuarantined"}


def test_a_merger_that_comes_back_at_once_is_not_missed(tmp_path: Path) -> None:
    assert fired(tmp_path, {'decodiloco_mergers{run="r"}': "2x49 1x0 2x10"}, 50) == set()


def test_every_alert_is_tried() -> None:
    rules = yaml.safe_load(ALERTS.read_text(encoding="utf-8"))["groups"][0]["rules"]
    assert set(ILL) == {rule["alert"] for rule in rules}


def test_a_run_that_is_closed_is_not_missed(tmp_path: Path) -> None:
    ended = {
        'decodiloco_closed{run="r"}': "0x20 1x40",
        'decodiloco_rounds_below_quorum{run="r"}': "1x20 0x40",
        'decodiloco_syncer_is_leader{run="r",syncer="s1"}': "1x20 0x40",
        'decodiloco_tape_last_fact_timestamp_seconds{run="r"}': "0+60x20 1200x40",
        'decodiloco_last_merge_timestamp_seconds{run="r"}': "0+60x20 1200x40",
        'decodiloco_mergers{run="r"}': "2x20 0x40",
    }
    assert fired(tmp_path, ended, 50) == set()
